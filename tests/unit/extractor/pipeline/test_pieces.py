"""Long conversations through the real SDK: pieces in order, each told what the earlier ones gave."""

import re
from typing import Any

import pytest
from pydantic import SecretStr

from runekeep.v1 import extractor_service_pb2, task_service_pb2
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.pipeline import ModelEngine
from runekeep_extractor.settings import AnthropicSettings
from tests.doubles.fixed_job import SPACE, FixedJob, memory, message
from tests.doubles.messages_api import answer, error, tool_use

LIMIT = 300
MESSAGES = [message(number, f"Part {number}. " + "I drink a lot of tea. " * 15) for number in range(1, 7)]
PROFILE = memory("profile.md", "profile", {"content": "# User profile\n- Lives in Porto\n- Is 40"})
SUMMARY = {"topic": "Tea", "intent": "talk", "result": "noted", "status": "done"}


def write(topic: str, content: str, at: int) -> dict[str, Any]:
    fields = [{"name": "topic", "value": topic}, {"name": "content", "value": content}]
    return {"memory_type": "preferences", "fields": fields, "ranges": [at], "reason": f"said in {at}"}


def edit(uri: str, search: str, replace: str, at: int) -> dict[str, Any]:
    patch = {"field": "content", "blocks": [{"search": search, "replace": replace}]}
    return {"uri": uri, "patches": [patch], "ranges": [at], "reason": ""}


def told(*writes, edits=(), topic="Tea") -> dict[str, Any]:
    return {
        "reasoning": "",
        "write_operations": list(writes),
        "edit_operations": list(edits),
        "delete_operations": [],
        "summary": SUMMARY | {"topic": topic},
    }


@pytest.fixture
async def engine(api):
    settings = AnthropicSettings(api_key=SecretStr("key"), base_url=api.url, model="some-model", timeout=20.0)
    made = ModelEngine(settings, max_retries=0, patience=0.0, most_tokens=LIMIT)
    yield made
    await made.close()


def numbers(prompt: str) -> list[int]:
    return [int(found) for found in re.findall(r"^#(\d+) ", prompt, re.MULTILINE)]


async def test_every_message_is_shown_in_one_piece_and_the_last_summary_counts(api, engine):
    api.script(*(answer(told(topic=f"Tea {piece}")) for piece in (1, 2, 3)))
    job = FixedJob(MESSAGES)
    job.usage.context_uris.append(PROFILE.uri)
    output = await engine.extract(job)

    prompts = [call.last_text for call in api.calls]
    assert [number for prompt in prompts for number in numbers(prompt)] == [1, 2, 3, 4, 5, 6]
    assert len(prompts) == 3
    assert "piece 2 of 3 of one conversation of 6" in prompts[1]
    assert "Given for the earlier pieces" not in prompts[0]
    assert '"topic": "Tea 1"' in prompts[1]
    assert output.summary is not None and "Tea 3" in output.summary.overview
    assert [PROFILE.uri in prompt for prompt in prompts] == [False, False, True], "what was used is counted once"
    percents = [percent for _, percent, _ in job.reports]
    assert percents == sorted(percents)
    assert {call.system_text for call in api.calls} == {api.calls[0].system_text}, "the static part stays cached"


async def test_a_later_piece_changes_what_an_earlier_one_gave(api, engine):
    tea = f"{SPACE}/memories/preferences/Tea.md"
    api.script(
        answer(told(write("Tea", "Drinks tea.", 1))),
        answer(told(edits=[edit(tea, "tea", "green tea", 3), edit(PROFILE.uri, "Porto", "Lisbon", 4)])),
        answer(told(write("Coffee", "No coffee.", 5), edits=[edit(PROFILE.uri, "40", "41", 6)])),
    )
    output = await engine.extract(FixedJob(MESSAGES, [PROFILE]))

    given = api.calls[1].last_text.partition("# Given for the earlier pieces")[2].partition("# Conversation")[0]
    assert tea in given
    assert "Drinks tea." in given
    assert "write it again with all of it" in given
    made = {
        (one.write.fields["topic"].string_value if one.HasField("write") else one.edit.uri): one
        for one in output.operations
    }
    assert made.keys() == {"Tea", "Coffee", PROFILE.uri}
    assert made["Tea"].write.fields["content"].string_value == "Drinks green tea."
    assert [(one.start_sequence, one.end_sequence) for one in made["Tea"].ranges] == [(1, 1), (3, 3)]
    blocks = made[PROFILE.uri].edit.patches[0].search_replace.blocks
    assert [(block.search, block.replace) for block in blocks] == [("Porto", "Lisbon"), ("40", "41")]


async def test_a_huge_message_is_shown_in_parts_under_its_number(api, engine):
    api.otherwise = answer(told())
    await engine.extract(FixedJob([message(7, " ".join(f"word{number}" for number in range(400)))]))
    prompts = [call.last_text for call in api.calls]
    assert len(prompts) > 2
    assert {number for prompt in prompts for number in numbers(prompt)} == {7}
    assert re.findall(r"word\d+", " ".join(prompts)) == [f"word{number}" for number in range(400)]


async def test_each_piece_may_read(api, engine):
    read = tool_use(("read", {"uri": PROFILE.uri}))
    api.script(read, answer(told()), read, answer(told()), answer(told()))
    job = FixedJob(MESSAGES, [PROFILE])
    await engine.extract(job)
    assert {entry.phase: entry.calls for entry in job.spent if entry.phase != "probe"} == {
        "reasoning": 2,
        "operations": 3,
    }
    percents = [percent for _, percent, _ in job.reports]
    assert percents == sorted(percents)


async def test_a_piece_without_summary_or_answer_fails_the_attempt(api, engine):
    api.script(answer(told()), answer({**told(), "summary": {}}))
    with pytest.raises(JobFailed, match="summary is missing"):
        await engine.extract(FixedJob(MESSAGES))
    api.script(answer(told()), answer("I am tired."))
    with pytest.raises(JobFailed) as caught:
        await engine.extract(FixedJob(MESSAGES))
    assert caught.value.failure_class == extractor_service_pb2.FAILURE_CLASS_INVALID_OUTPUT


async def test_what_earlier_pieces_gave_is_bounded(api, engine):
    many = [write(f"Topic {number}", "Drinks tea. " * 100, 1) for number in range(60)]
    api.script(answer(told(*many)), answer(told()), answer(told()))
    output = await engine.extract(FixedJob(MESSAGES))
    assert len(output.operations) == 60
    given = api.calls[1].last_text.partition("# Given for the earlier pieces")[2]
    assert len(given) < 60_000
    assert all(f"Topic {number}.md" in given for number in range(60)), "the oldest are at least named"


async def test_a_repair_is_shown_the_messages_that_the_refused_rest_on(api, engine):
    wrong = edit(PROFILE.uri, "Lisbon", "Faro", 4)
    api.script(answer(told(write("Tea", "Drinks tea.", 1))), answer(told(edits=[wrong])), answer(told()))
    job = FixedJob(MESSAGES, [PROFILE])
    output = await engine.extract(job)
    api.script(answer({**told(edits=[edit(PROFILE.uri, "Porto", "Faro", 4)]), "summary": {}}))
    refused = task_service_pb2.LeftOut(reason="patch_not_applicable", uri=PROFILE.uri, operation_index=1)
    repaired = await engine.repair(job, output, [refused])
    opening = api.calls[-1].body["messages"][0]["content"][0]["text"]
    assert numbers(opening) == [4]
    assert "some of the 6 messages" in opening
    assert [one.WhichOneof("operation") for one in repaired.operations] == ["write", "edit"]
    assert repaired.operations[0] == output.operations[0]
    assert repaired.summary == output.summary


LONG = [message(number, f"Part {number}. " + "I drink a lot of tea. " * 90) for number in range(1, 7)]
TOO_LONG = error(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum")


async def test_pieces_are_halved_until_the_model_takes_them_and_for_that_job_alone(api):
    settings = AnthropicSettings(api_key=SecretStr("key"), base_url=api.url, model="some-model", timeout=20.0)
    engine = ModelEngine(settings, max_retries=0, patience=0.0)
    api.script(TOO_LONG, answer(told(topic="One")), TOO_LONG)
    api.otherwise = answer(told(topic="Last"))
    output = await engine.extract(FixedJob(LONG))
    first, half, *_ = (numbers(call.last_text) for call in api.calls)
    assert first == [1, 2, 3, 4, 5, 6]
    assert half == [1, 2, 3]
    assert output.summary is not None and "Last" in output.summary.overview
    taken = [numbers(call.last_text) for call in api.calls[3:]]
    assert [number for shown in taken for number in shown if number] == [1, 2, 3, 4, 5, 6]

    before = len(api.calls)
    await engine.extract(FixedJob(LONG))
    shown = [numbers(call.last_text) for call in api.calls[before:]]
    assert shown == [[1, 2, 3, 4, 5, 6]], "another conversation may have fewer tokens"
    await engine.close()


async def test_what_no_piece_is_small_enough_for_fails(api):
    settings = AnthropicSettings(api_key=SecretStr("key"), base_url=api.url, model="some-model", timeout=20.0)
    engine = ModelEngine(settings, max_retries=0, patience=0.0)
    api.otherwise = TOO_LONG
    with pytest.raises(JobFailed) as caught:
        await engine.extract(FixedJob(LONG))
    assert caught.value.failure_class == extractor_service_pb2.FAILURE_CLASS_INPUT_TOO_LARGE
    assert len(api.calls) == 3
    await engine.close()


async def test_many_memories_are_listed_within_bounds_and_the_rest_by_directory(api, engine):
    api.otherwise = answer(told())
    many = [
        memory(
            f"entities/Person {number}.md", "entities", {"entity_name": f"Person {number}"}, abstract="A person. " * 9
        )
        for number in range(380)
    ]
    await engine.extract(FixedJob(MESSAGES[:1], many))
    shown = api.calls[0].last_text
    assert len(shown) < 5_000
    assert "There are more than are shown here." in shown


@pytest.mark.parametrize(("slow", "calls"), [(0, 1), (1, 1), (2, 2), (3, 4)])
async def test_after_two_attempts_that_ran_out_of_time_the_conversation_is_halved(api, slow, calls):
    job = FixedJob([message(number, "I drink a lot of tea. " * 60) for number in range(1, 17)])
    for _ in range(slow):
        job.assignment.previous_failures.add(failure_class=extractor_service_pb2.FAILURE_CLASS_TIME_BUDGET)
    api.otherwise = answer(told())
    settings = AnthropicSettings(api_key=SecretStr("key"), base_url=api.url, model="some-model", timeout=20.0)
    engine = ModelEngine(settings, max_retries=0, patience=0.0)
    await engine.extract(job)
    await engine.close()
    assert len(api.calls) == calls
