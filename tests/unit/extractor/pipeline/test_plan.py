"""What a job's plan and its messages do to the prompt, and what besides operations comes of an attempt."""

from collections.abc import AsyncIterator, Callable

import pytest
from pydantic import SecretStr

from runekeep.v1 import extractor_service_pb2, task_service_pb2
from runekeep_extractor.pipeline import ModelEngine
from runekeep_extractor.settings import AnthropicSettings
from tests.doubles.fixed_job import SPACE, FixedJob, memory, message
from tests.doubles.messages_api import MessagesApi, answer
from tests.support.tokens import count
from tests.unit.extractor.tea_talk import (
    COFFEE,
    CONVERSATION,
    PROFILE,
    a_job,
    answered,
)


@pytest.fixture
async def engine_of() -> AsyncIterator[Callable[[MessagesApi], ModelEngine]]:
    made: list[ModelEngine] = []

    def make(api: MessagesApi) -> ModelEngine:
        settings = AnthropicSettings(api_key=SecretStr("key"), base_url=api.url, model="some-model", timeout=20.0)
        made.append(ModelEngine(settings, max_retries=0, patience=0.0))
        return made[-1]

    yield make
    for engine in made:
        await engine.close()


async def test_the_plan_reaches_the_model(api, engine_of):
    api.otherwise = answer(answered())
    rejected = extractor_service_pb2.JobFailure(failure_class=extractor_service_pb2.FAILURE_CLASS_INVALID_OUTPUT)
    rejected.status.message = "no JSON object"
    outage = extractor_service_pb2.JobFailure(failure_class=extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE)
    outage.status.message = "away"
    of_anna = memory("profile.md", "profile", {"content": "Anna plays the oboe."})
    of_anna.uri = f"{SPACE}/peers/anna/memories/profile.md"
    job = FixedJob(
        [message(1, "Hello", peer_id="anna", speaker="Anna")],
        [PROFILE, of_anna],
        allow_self=False,
        peers=["anna"],
        long_term=["profile"],
        execution=[],
        summarize=False,
        previous_failures=[outage, rejected],
    )
    output = await engine_of(api).extract(job)
    prompt = api.calls[0].last_text
    assert '- The user: {"user_id": "default"}' in prompt and "people speak as the user" not in prompt
    assert "own memory: must not be written" in prompt
    assert '["anna"]' in prompt
    assert "no JSON object" in prompt
    assert "away" not in prompt
    fence = prompt.partition("# Earlier attempts\n\n<failures-")[2].partition("</failures-")[0]
    assert "no JSON object" in fence, "the server's texts may quote what was said"
    assert '"peer_id": "anna", "speaker": "Anna"' in prompt
    assert "Anna plays the oboe." in prompt
    assert "Lives in Porto" not in prompt, "a space that may not be written is not shown for editing"
    assert output.summary is None


async def test_several_people_who_speak_as_the_user_are_told_apart(api, engine_of):
    api.otherwise = answer(answered())
    talk = [
        message(1, "Hi", speaker="Mia"),
        message(2, "Hello", speaker="Tom"),
        message(3, "And I", peer_id="anna", speaker="Anna"),
        message(4, "So"),
    ]
    await engine_of(api).extract(FixedJob(talk, peers=["anna"]))
    assert "2 people speak as the user. Tell them apart by `speaker`." in api.calls[0].last_text


async def test_memories_take_a_bounded_part_of_the_prompt(api, engine_of):
    """However large the space is, and less beside few messages."""
    api.otherwise = answer(answered())
    text = "Anna's sister has lived in Porto since 2019, paints boats and sells them at the fair. " * 8
    kinds = (("entities", "entity_name"), ("preferences", "topic"), ("plans", "plan_name"), ("events", "event_name"))
    parts = []
    for each, said in ((9, CONVERSATION), (60, [message(number, text) for number in range(1, 31)])):
        space = [
            memory(f"{kind}/{number}.md", kind, {name: f"{kind} {number}", "content": text})
            for kind, name in kinds
            for number in range(each)
        ]
        await engine_of(api).extract(FixedJob(said, space))
        parts.append(count(api.calls[-1].last_text.partition("# Conversation")[0]))
    assert 2_000 < parts[0] < 4_000 and 3_000 < parts[1] < 6_000


async def test_execution_types_are_told_of_with_what_holds_for_them(api, engine_of):
    api.otherwise = answer(answered())
    job = a_job()
    job.assignment.plan.session_skills = True
    engine = engine_of(api)
    await engine.extract(job)
    assert "Execution types wanted: trajectories, experiences, session_skills." in api.calls[-1].last_text
    assert "Whoever reads an experience sees it alone" in api.calls[-1].last_text

    without = a_job(execution=[])
    without.assignment.plan.session_skills = True
    await engine.extract(without)
    assert "session_skills" not in api.calls[-1].last_text, "they have no phase of their own"
    assert "experience" not in api.calls[-1].last_text
    assert task_service_pb2.TASK_PHASE_EXECUTION not in {phase for phase, *_ in without.reports}


async def test_a_delete_rests_on_messages(api, engine_of):
    gone = {"uri": COFFEE.uri, "ranges": [{"start": 3, "end": 1}], "reason": "only tea now"}
    api.otherwise = answer(answered(write_operations=[], edit_operations=[], delete_operations=[gone]))
    engine = engine_of(api)
    job = a_job()
    output = await engine.extract(job)
    (delete,) = output.operations
    assert (delete.delete.uri, delete.reason) == (COFFEE.uri, "only tea now")
    assert [(one.start_sequence, one.end_sequence) for one in delete.ranges] == [(1, 3)]
    refused = task_service_pb2.LeftOut(reason="too_many_deletes", uri=COFFEE.uri, operation_index=0)
    await engine.repair(job, output, [refused])
    assert '"ranges": [{"start": 1, "end": 3}]' in api.calls[-1].last_text


async def test_what_is_deleted_comes_before_what_is_written_but_not_before_an_edit_of_it(api, engine_of):
    gone = [{"uri": uri, "ranges": [1], "reason": ""} for uri in (PROFILE.uri, COFFEE.uri)]
    api.otherwise = answer(answered(delete_operations=gone))
    output = await engine_of(api).extract(a_job())
    uris = [one.edit.uri or one.delete.uri for one in output.operations]
    assert [one.WhichOneof("operation") for one in output.operations] == ["delete", "write", "edit", "delete"]
    assert uris == [COFFEE.uri, "", PROFILE.uri, PROFILE.uri], "an edit of what is gone would be refused"


async def test_changes_of_execution_memories_are_reported_with_their_phase(api, engine_of):
    there = [
        memory(f"experiences/{name}.md", "experiences", {"experience_name": name, "content": "Search tea shops first."})
        for name in ("Shops", "Search")
    ]
    changed = {"uri": there[0].uri, "patches": [{"field": "content", "blocks": [], "value": "Ask."}], "ranges": [1]}
    gone = {"uri": there[1].uri, "ranges": [1], "reason": ""}
    api.otherwise = answer(answered(edit_operations=[changed], delete_operations=[gone]))
    job = FixedJob(CONVERSATION, there)
    await engine_of(api).extract(job)
    told = {phase: text for phase, _, text in job.reports}
    assert told[task_service_pb2.TASK_PHASE_LONG_TERM] == "1 operations, 0 items dropped"
    assert told[task_service_pb2.TASK_PHASE_EXECUTION] == "2 operations"


async def test_images_are_described_before_anything_else_and_kept_through_a_repair(api, engine_of):
    shown = message(4, "Look, my new tea pot!")
    shown.parts.add().image.url = "https://example.com/pot.png"
    job = FixedJob([*CONVERSATION, shown], [PROFILE])
    api.script(answer({"descriptions": [{"image": 1, "text": "A blue tea pot."}]}), answer(answered()))
    engine = engine_of(api)
    output = await engine.extract(job)
    (described,) = output.image_descriptions
    assert (described.message_sequence, described.part_index, described.text) == (4, 1, "A blue tea pot.")
    assert "A blue tea pot." in api.calls[1].last_text

    api.script(answer(answered()))
    repaired = await engine.repair(job, output, [task_service_pb2.LeftOut(reason="not_found", operation_index=0)])
    assert repaired.image_descriptions == output.image_descriptions
