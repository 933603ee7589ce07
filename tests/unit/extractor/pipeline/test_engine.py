"""The engine with the real SDK against a server that speaks the Messages API."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from runekeep.v1 import common_pb2, extractor_service_pb2
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.pipeline import ModelEngine
from runekeep_extractor.settings import AnthropicSettings
from tests.doubles.fixed_job import SPACE, FixedJob, memory, message
from tests.doubles.messages_api import (
    Behaviour,
    MessagesApi,
    answer,
    error,
    held,
    overloaded,
    rate_limited,
    raw,
    refusal,
    reset,
    tool_use,
    truncated,
)
from tests.unit.extractor.tea_talk import COFFEE, CONVERSATION, PROFILE, SEARCH_TOOL, a_job, answered


@pytest.fixture
async def engine_of() -> AsyncIterator[Callable[..., ModelEngine]]:
    made: list[ModelEngine] = []

    def make(
        api: MessagesApi, *, max_retries: int = 0, beat_interval: float = 10.0, patience: float = 0.0, **options
    ) -> ModelEngine:
        values = {"api_key": "key", "base_url": api.url, "model": "some-model", "max_tokens": 4000, "timeout": 20.0}
        # With switches, so that no probes are made; those are tested with the client.
        switches = {"structured_output": "on", "tools": "on"}
        settings = AnthropicSettings(**(values | switches | options))
        made.append(ModelEngine(settings, max_retries=max_retries, beat_interval=beat_interval, patience=patience))
        return made[-1]

    yield make
    for engine in made:
        await engine.close()


async def failure_of(engine: ModelEngine, job: FixedJob) -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        await engine.extract(job)
    return caught.value


async def test_a_structured_answer_becomes_operations_and_summary(api, engine_of):
    api.script(answer(answered()))
    job = a_job()
    output = await engine_of(api).extract(job)

    write, edit = output.operations
    assert write.write.memory_type == "preferences"
    assert write.write.fields["content"].string_value == "Drinks only green tea."
    assert write.write.abstract == "Drinks only green tea."
    assert [(one.start_sequence, one.end_sequence) for one in write.ranges] == [(1, 1)]
    assert edit.edit.uri == PROFILE.uri
    block = edit.edit.patches[0].search_replace.blocks[0]
    assert (block.search, block.replace, block.start_line) == ("- Lives in Porto", "- Lives in Lisbon", 2)
    assert output.summary is not None
    assert output.summary.abstract == "Move to Lisbon: find tea shops | search begun | open"
    assert "**One-line overview**: Move to Lisbon: find tea shops | search begun | open" in output.summary.overview
    assert output.dropped_items == 0
    assert len(api.calls) == 1, "one model call is enough in the usual case"
    assert api.calls[0].body["output_config"]["format"]["type"] == "json_schema"
    assert api.calls[0].headers["authorization"] == "Bearer key"


async def test_the_model_sees_what_may_have_to_change(api, engine_of):
    api.script(answer(answered()))
    job = a_job()
    await engine_of(api).extract(job)

    prompt = api.calls[0].last_text
    assert PROFILE.uri in prompt
    assert "Lives in Porto" in prompt
    assert "Drinks coffee and tea." in prompt
    assert SEARCH_TOOL.uri not in prompt, "it was not called"
    assert "#1 user 2026-03-05 Thu 09:01" in prompt
    assert job.finds == [], "so few memories need no search"


async def test_of_many_memories_those_like_the_conversation_are_shown(api, engine_of):
    api.script(answer(answered()))
    others = [memory(f"events/{n}.md", "events", {"event_name": f"Walk {n}"}) for n in range(90)]
    tea = memory("events/like.md", "events", {"event_name": "Green tea", "content": "Drank green tea in Lisbon."})
    tea.abstract = "Drank green tea in Lisbon."
    job = FixedJob(CONVERSATION, [PROFILE, *others, tea])
    await engine_of(api).extract(job)

    prompt = api.calls[0].last_text
    assert "Drank green tea in Lisbon." in prompt, "found by searching with the conversation's own words"
    assert others[10].uri in prompt, "listed in short even though no search found it"
    together = [request for request in job.finds if not request.target_uri]
    assert {tuple(request.memory_types) for request in together} == {("events",)}, "the profile is one"
    assert len(together) <= 3


async def test_no_type_crowds_out_another(api, engine_of):
    api.script(answer(answered()))
    said = {"abstract": "tea Lisbon move"}
    likely = [memory(f"events/{n}.md", "events", {"event_name": f"tea {n}"}, **said) for n in range(80)]
    drinks = [
        memory(f"preferences/{n}.md", "preferences", {"topic": f"{n}", "content": f"Wears hat {n}."}) for n in range(20)
    ]
    job = FixedJob(CONVERSATION, [PROFILE, COFFEE, *drinks, *likely])
    await engine_of(api).extract(job)

    prompt = api.calls[0].last_text
    apart = {tuple(request.memory_types) for request in job.finds if not request.target_uri}
    assert ("preferences",) in apart, "it had less than its share of a search that was full"
    assert "Drinks coffee and tea." in prompt


async def test_nothing_is_searched_for_where_nothing_is_remembered(api, engine_of):
    api.script(answer(answered()))
    job = FixedJob(CONVERSATION, [])
    await engine_of(api).extract(job)
    assert [request for request in job.finds if not request.target_uri] == []


async def test_where_the_listing_does_not_tell_everything_all_types_are_searched(api, engine_of):
    api.script(answer(answered()))
    job = FixedJob(CONVERSATION, [memory(f"events/{n}.md", "events", {"event_name": f"{n}"}) for n in range(401)])
    await engine_of(api).extract(job)
    asked = {kind for request in job.finds if not request.target_uri for kind in request.memory_types}
    assert asked == {kind.name for kind in job.memory_types}


async def test_what_somebody_said_cannot_pass_for_a_record(api, engine_of):
    api.script(answer(answered()))
    await engine_of(api).extract(a_job())

    lines = api.calls[0].last_text.splitlines()
    assert "  #4 assistant 2026-03-05" in lines
    assert not [text for text in lines if text.startswith(("#4", "[ToolCall]"))]


async def test_tool_calls_are_records_with_their_output_cut(api, engine_of):
    api.script(answer(answered()))
    called = message(4, "Here they are.", role=common_pb2.ROLE_ASSISTANT)
    tool = called.parts.add().tool
    tool.tool_name, tool.skill_name, tool.status = "web_search", "shop-finder", common_pb2.TOOL_STATUS_ERROR
    tool.duration.FromMilliseconds(1250)
    tool.total_tokens = 77
    tool.input.update({"query": "tea Lisbon"})
    tool.output = "BEGIN" + "x" * 49_985 + "FAILED AT"
    others = [memory(f"tools/{n}.md", "tools", {"tool_name": f"{n}", "total_calls": n}) for n in range(80)]
    job = FixedJob([*CONVERSATION, called], [SEARCH_TOOL, *others])
    job.usage.skills.add(uri="viking://user/skills/code-search", output="found 3 files", success=True)
    await engine_of(api).extract(job)

    prompt = api.calls[0].last_text
    (record,) = [text for text in prompt.splitlines() if text.startswith("[ToolCall]")]
    for part in ('"web_search"', '"shop-finder"', '"error"', '"duration_ms": 1250', '"total_tokens": 77', "tea Lisbon"):
        assert part in record
    assert "[cut, 49999 characters in all, 37999 of them left out here]" in record
    assert "BEGINx" in record and "xFAILED AT" in record
    assert '[SkillUse] {"skill": "viking://user/skills/code-search", "status": "completed"' in prompt
    assert 12_000 < len(record) < 13_000
    assert (["tools"], "shop-finder web_search") in [(list(one.memory_types), one.query) for one in job.finds]


async def test_reads_are_run_and_given_back_before_the_answer(api, engine_of):
    api.script(
        tool_use(
            ("read", {"uri": SEARCH_TOOL.uri}),
            ("find", {"query": "coffee", "limit": 3}),
            ("ls", {"uri": f"{SPACE}/memories"}),
            ("tree", {}),
            ("read", {"uri": "viking://user/somebody_else/memories/profile.md"}),
            ("read", {"uri": f"{SPACE}/memories/nothing.md"}),
            ("find", {"query": ""}),
        ),
        answer(answered(edit_operations=[
            {"uri": SEARCH_TOOL.uri, "patches": [{"field": "best_for", "value": 2}], "ranges": [1]}
        ])),
    )  # fmt: skip
    job = a_job()
    output = await engine_of(api).extract(job)

    asked, results = api.calls[1].body["messages"][1:]
    assert [block["type"] for block in asked["content"]].count("tool_use") == 7
    by_order = results["content"]
    assert '"total_calls": 4' in by_order[0]["content"]
    assert "Drinks coffee" in by_order[1]["content"]
    assert f"{SPACE}/memories/preferences/" in by_order[2]["content"]
    assert COFFEE.uri in by_order[3]["content"]
    assert [block.get("is_error", False) for block in by_order] == [False] * 4 + [True] * 3
    assert "not allowed" in by_order[4]["content"]
    value = output.operations[1].edit.patches[0].value
    assert value.string_value == "2", "typed by the memory's type, which the read told"
    assert [(entry.phase, entry.calls) for entry in job.spent] == [("reasoning", 1), ("operations", 1)]


async def test_reads_are_bounded_and_then_forbidden(api, engine_of):
    many = tool_use(*[("read", {"uri": PROFILE.uri})] * 10)
    api.script(many, answer(answered()))
    job = a_job()
    await engine_of(api).extract(job)

    results = api.calls[1].body["messages"][2]["content"]
    assert [block.get("is_error", False) for block in results] == [False] * 8 + [True] * 2
    assert api.calls[1].body["tool_choice"] == {"type": "none"}

    api.otherwise = tool_use(("ls", {"uri": SPACE}))
    before = len(api.calls)
    failed = await failure_of(engine_of(api), a_job())
    assert failed.failure_class == extractor_service_pb2.FAILURE_CLASS_INVALID_OUTPUT
    assert len(api.calls) - before == 4, "three rounds of reads, then one last call"


async def test_overload_is_retried(api, engine_of):
    api.script(overloaded(retry_after=0.01), rate_limited(retry_after=0.01), answer(answered()))
    output = await engine_of(api, max_retries=2).extract(a_job())
    assert len(output.operations) == 2
    assert len(api.calls) == 3


@pytest.mark.parametrize(
    ("behaviour", "failure_class", "retry_after", "retryable"),
    [
        (rate_limited(retry_after=0.5), extractor_service_pb2.FAILURE_CLASS_RATE_LIMITED, 0.5, True),
        (overloaded(retry_after=0.25), extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE, 0.25, True),
        (overloaded(), extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE, None, True),
        (error(503, "api_error"), extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE, None, True),
        (reset(), extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE, None, True),
        (error(401, "authentication_error"), extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE, None, True),
        (error(404, "not_found_error"), extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE, None, True),
        (
            error(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"),
            extractor_service_pb2.FAILURE_CLASS_INPUT_TOO_LARGE,
            None,
            False,
        ),
        (error(413, "request_too_large"), extractor_service_pb2.FAILURE_CLASS_INPUT_TOO_LARGE, None, False),
        (
            error(400, "invalid_request_error", "messages.0: I moved to Lisbon"),
            extractor_service_pb2.FAILURE_CLASS_INTERNAL,
            None,
            True,
        ),
        (refusal("cyber"), extractor_service_pb2.FAILURE_CLASS_MODEL_REFUSED, None, False),
        (
            answer("", stop_reason="model_context_window_exceeded"),
            extractor_service_pb2.FAILURE_CLASS_INPUT_TOO_LARGE,
            None,
            False,
        ),
        (raw(b'{"hello": "world"}'), extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE, None, True),
        (raw(b"<html>a proxy's page</html>"), extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE, None, True),
    ],
)  # fmt: skip
async def test_faults_of_the_server_are_told_apart(
    api, engine_of, behaviour: Behaviour, failure_class, retry_after, retryable
):
    api.otherwise = behaviour
    failed = await failure_of(engine_of(api), a_job())
    assert failed.failure_class == failure_class, failed.message
    assert failed.retry_after == retry_after
    assert failed.retryable == retryable
    assert "Lisbon" not in failed.message


async def test_a_server_that_asks_for_a_long_wait_is_not_waited_for_in_the_attempt(api, engine_of):
    api.otherwise = rate_limited(retry_after=3600)
    failed = await failure_of(engine_of(api, max_retries=2), a_job())
    assert failed.failure_class == extractor_service_pb2.FAILURE_CLASS_RATE_LIMITED
    assert failed.retry_after == 3600
    assert len(api.calls) == 1


async def test_a_server_that_cannot_be_reached(engine_of):
    with MessagesApi() as gone:
        pass
    failed = await failure_of(engine_of(gone), a_job())
    assert failed.failure_class == extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE


async def test_a_call_that_takes_too_long(api, engine_of):
    api.otherwise = held(api.gate(), answer(answered()))
    failed = await failure_of(engine_of(api, timeout=0.2), a_job())
    assert failed.failure_class == extractor_service_pb2.FAILURE_CLASS_TIME_BUDGET


async def test_a_long_call_reports_that_it_lives(api, engine_of):
    gate = api.gate()
    api.script(held(gate, answer(answered())))
    job = a_job()
    task = asyncio.create_task(engine_of(api, beat_interval=0.01).extract(job))
    while len([text for _, _, text in job.reports if text.startswith("waiting for the model")]) < 4:
        assert not task.done()
        await asyncio.sleep(0)
    assert gate.entered.wait(10)
    gate.release.set()
    output = await task
    assert len(output.operations) == 2
    percents = [percent for _, percent, _ in job.reports]
    assert percents == sorted(percents)


async def test_cancelling_ends_the_call(api, engine_of):
    gate = api.gate()
    api.script(held(gate, answer(answered())))
    task = asyncio.create_task(engine_of(api).extract(a_job()))
    assert await asyncio.to_thread(gate.entered.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_truncated_answer_is_asked_for_again_with_more_room(api, engine_of):
    api.script(truncated(), answer(answered()))
    output = await engine_of(api, max_tokens=4000).extract(a_job())
    assert len(output.operations) == 2
    assert [call.body["max_tokens"] for call in api.calls] == [4000, 8000]
    assert "cut off" in api.calls[1].last_text

    api.otherwise = truncated()
    job = a_job()
    failed = await failure_of(engine_of(api), job)
    assert failed.failure_class == extractor_service_pb2.FAILURE_CLASS_INVALID_OUTPUT
    assert "truncated at 8000 tokens" in failed.message
    assert failed.retryable
    assert sum(entry.calls for entry in job.spent) == 2


@pytest.mark.parametrize(
    "text",
    [
        "I am sorry, I cannot find anything.",
        "",
        "{}",
        '["write_operations"]',
        '{"write_operations": [{"memory_type": "no_such_type", "fields": {"a": 1}}], "summary": {"topic": "x"}}',
        '{"write_operations": [], "edit_operations": [], "delete_operations": []}',
    ],
)
async def test_an_unusable_answer_is_a_failure_and_no_empty_success(api, engine_of, text):
    api.script(answer(text))
    job = a_job()
    failed = await failure_of(engine_of(api), job)
    assert failed.failure_class == extractor_service_pb2.FAILURE_CLASS_INVALID_OUTPUT
    assert failed.retryable
    assert job.spent[0].calls == 1


async def test_nothing_to_extract_is_an_answer(api, engine_of):
    api.script(answer(answered(write_operations=[], edit_operations=[])))
    output = await engine_of(api).extract(a_job())
    assert output.operations == []
    assert output.dropped_items == 0
    assert output.summary is not None


async def test_a_server_without_structured_output_gets_a_plain_request_and_keeps_getting_it(engine_of):
    import json

    with MessagesApi(structured_output=False, tools=False) as api:
        api.otherwise = answer("Here it is:\n```json\n" + json.dumps(answered()) + "\n```\nThat is {all}.")
        engine = engine_of(api, structured_output="auto", tools="auto")
        for _ in range(2):
            output = await engine.extract(a_job())
            assert len(output.operations) == 2
    assert len(api.calls) == 2
    for call in api.calls:
        assert not {"output_config", "tools"} & call.body.keys()


async def test_switches_settle_what_is_asked_of_the_server(api, engine_of):
    api.otherwise = answer(answered())
    await engine_of(api, structured_output="off", tools="off").extract(a_job())
    assert not {"output_config", "tools"} & api.calls[-1].body.keys()

    with MessagesApi(structured_output=False) as plain:
        failed = await failure_of(engine_of(plain, structured_output="on"), a_job())
    assert failed.failure_class == extractor_service_pb2.FAILURE_CLASS_INTERNAL


async def test_the_static_prefix_is_the_same_for_all_jobs_and_cached(api, engine_of):
    api.otherwise = answer(answered())
    engine = engine_of(api)
    job = a_job()
    await engine.extract(job)
    other = FixedJob([message(9, "Something else entirely.")], job_id="job-2", peers=["anna"])
    await engine.extract(other)

    one, two = api.calls
    assert one.body["system"] == two.body["system"]
    assert one.body["tools"] == two.body["tools"]
    assert one.body["output_config"] == two.body["output_config"]
    assert one.body["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert one.body["messages"] != two.body["messages"]
    for kind in other.memory_types:
        assert " ".join(kind.description.split()) in one.system_text
    (first,), (second,) = job.spent, other.spent
    assert first.cache_write_tokens > 0 == first.cache_read_tokens
    assert second.cache_read_tokens == first.cache_write_tokens
    assert second.cache_write_tokens == 0
    assert second.model == "some-model"
    assert second.input_tokens > 0 < second.output_tokens


async def test_no_key_is_needed_for_a_server_of_ones_own(api, engine_of):
    api.otherwise = answer(answered())
    output = await engine_of(api, api_key=None).extract(a_job())
    assert len(output.operations) == 2
