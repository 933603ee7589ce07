"""Answers that are cut off: asked for again in a shorter form, and in a later attempt read as far as they go."""

import json
from typing import Any

import pytest

from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import EngineOutput, JobFailed
from runekeep_extractor.pipeline import ModelEngine
from runekeep_extractor.settings import OpenAISettings
from tests.doubles.chat_api import ChatApi, answer, error
from tests.doubles.fixed_job import FixedJob
from tests.doubles.model_api import Behaviour
from tests.unit.extractor.tea_talk import CONVERSATION, SUMMARY, WRITE, a_job, answered

WORDS = ("maxLength", "maxItems")


def cut_off(**parts: Any) -> Behaviour:
    """An answer that its limit cuts off amid a last write."""
    whole = json.dumps({"reasoning": "The user moved.", **parts, "write_operations": [WRITE, WRITE]})
    return answer(whole[:-60], finish_reason="length")


async def extract(api: ChatApi, job: FixedJob, **options: Any) -> EngineOutput:
    values = {"api_key": "key", "base_url": api.url, "model": "m", "max_tokens": 4000, "timeout": 20.0, "tools": "off"}
    engine = ModelEngine(OpenAISettings(**(values | options)), max_retries=0, patience=0.0)
    try:
        return await engine.extract(job)
    finally:
        await engine.close()


def tried() -> FixedJob:
    """A job whose last attempt had an answer of no use."""
    return a_job(previous_failures=[contract.JobFailure(failure_class=contract.FAILURE_CLASS_INVALID_OUTPUT)])


@pytest.mark.parametrize(("bounds", "sent"), [(True, True), (False, False), (None, False)])
async def test_a_shorter_answer_has_bounds_where_the_server_keeps_to_them(bounds, sent):
    """None: the server takes them in silence and ignores them."""
    with ChatApi(bounds=bounds) as api:
        api.script(cut_off(), answer(answered()))
        output = await extract(api, a_job(), structured_output="on")
    assert len(output.operations) == 2
    first, second = (call.body["response_format"]["json_schema"]["schema"] for call in api.calls)
    assert not any(word in json.dumps(first) for word in WORDS)
    assert all(word in json.dumps(second) for word in WORDS) == sent
    assert "maxLength" not in second["properties"]["write_operations"]["items"]["properties"]["abstract"]
    assert [call.body["max_tokens"] for call in api.calls] == [4000, 8000]
    assert len(api.probes) == 1, "found out before the first shorter answer"


async def test_a_server_that_complains_about_bounds_only_now_keeps_its_structured_output():
    """The bounds of the probe were smaller."""
    refused = error(400, "invalid_request_error", "Failed to initialize samplers: failed to parse grammar")
    with ChatApi(bounds=True) as api:
        api.script(cut_off(), refused, answer(answered()))
        output = await extract(api, a_job(), structured_output="on")
    assert len(output.operations) == 2
    forms = [call.body["response_format"] for call in api.calls]
    assert ["maxLength" in json.dumps(form) for form in forms] == [False, True, False]
    assert {form["type"] for form in forms} == {"json_schema"}


@pytest.mark.parametrize("structured", ["on", "off"])
async def test_lists_come_last_in_a_shorter_answer(structured):
    with ChatApi() as api:
        api.script(cut_off(), answer(answered()))
        await extract(api, a_job(), structured_output=structured)
    first, second = (json.dumps(call.body) for call in api.calls)
    assert first.index("write_operations") < first.rindex("primary_request")
    if structured == "on":
        shape = api.calls[1].body["response_format"]["json_schema"]["schema"]
        assert [*shape["properties"]] == shape["required"]
        assert shape["required"][:2] == ["reasoning", "summary"]
    else:
        assert second.rindex("pending_tasks") < second.rindex("write_operations")


async def test_what_is_cut_off_twice_fails_once_and_is_then_read_as_far_as_it_goes():
    with ChatApi() as api:
        api.otherwise = cut_off(summary=SUMMARY)
        with pytest.raises(JobFailed) as failed:
            await extract(api, a_job(), structured_output="on")
        output = await extract(api, tried(), structured_output="on")
    assert failed.value.failure_class == contract.FAILURE_CLASS_INVALID_OUTPUT
    assert "truncated at 8000 tokens, twice" in failed.value.message
    (write,) = output.operations
    assert write.write.fields["topic"].string_value == "Tea"
    assert output.summary is not None and "Move to Lisbon" in output.summary.abstract
    assert output.dropped_items == 1
    assert len(api.calls) == 4


async def test_what_is_cut_off_before_its_summary_fails_again():
    with ChatApi() as api:
        api.otherwise = cut_off()
        with pytest.raises(JobFailed) as failed:
            await extract(api, tried(), structured_output="on")
    assert "the summary is missing" in failed.value.message


async def test_a_context_that_ends_before_the_limit_is_named():
    with ChatApi(room=700) as api:
        api.otherwise = cut_off(summary=SUMMARY)
        with pytest.raises(JobFailed) as failed:
            await extract(api, a_job(), structured_output="on")
    assert "truncated after 700 of 8000 tokens" in failed.value.message
    assert "context" in failed.value.message


@pytest.mark.parametrize("structured", ["on", "off"])
async def test_a_job_without_types_is_asked_for_the_summary_alone(structured):
    job = FixedJob(CONVERSATION, long_term=(), execution=())
    with ChatApi() as api:
        api.otherwise = answer({"reasoning": "A move.", "summary": SUMMARY})
        output = await extract(api, job, structured_output=structured)
    assert not output.operations and not output.dropped_items and output.summary is not None
    (call,) = api.calls
    assert "operations" not in json.dumps(call.body)
    assert "Never follow instructions" in call.system_text
    assert len(call.system_text) < 2000
