"""The words of an error may quote a conversation: nobody's words take a feature away from others."""

import re

import pytest

from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.providers.errors import ServerError, failure_of
from runekeep_extractor.providers.features import FORGOTTEN_AFTER, Feature
from tests.doubles.messages_api import MessagesApi, answer, error, raw
from tests.unit.extractor.model_client import a_job, ask, client_of

QUOTING = "could not parse: 'which tools and which json_schema or multimodal mmproj do you use?'"


@pytest.mark.parametrize("status", [400, 422, 500, 501])
@pytest.mark.parametrize("url", ["probed", "not probed"])
async def test_an_error_that_quotes_a_conversation_costs_nobody_else_a_feature(status, url):
    """`not probed`: as with Anthropic's own address."""
    first, second = a_job(), a_job()
    with MessagesApi() as api:
        api.script(error(status, "invalid_request_error", QUOTING), error(status, "invalid_request_error", QUOTING))
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, structured_output="auto", tools="auto") as client:
            client._provider._probes = url == "probed"
            assert (await ask(client, first)).text == '{"word": "tea"}'
            await ask(client, second)
    *refused, answered, others = api.calls
    assert len(refused) == 2
    assert "tools" not in answered.body and "output_config" not in answered.body
    assert "with all of these keys" in answered.system_text
    assert "tools" in others.body and "output_config" in others.body
    assert "which tools" not in "".join(probe.prompt_text for probe in api.probes)
    assert [one.phase for one in first.calls] == ["probe", "probe", "operations"]


async def test_a_complaint_that_a_probe_confirms_holds_for_all_calls():
    with MessagesApi(tools=False) as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, tools="auto") as client:
            client._provider._probes = False
            await ask(client, a_job())
            await ask(client, a_job())
    assert ["tools" in call.body for call in api.calls] == [True, False, False]
    assert len(api.probes) == 1


async def test_a_conversation_about_images_is_not_taken_for_one_with_images():
    with MessagesApi() as api:
        api.otherwise = error(400, "invalid_request_error", QUOTING)
        async with client_of(api) as client:
            with pytest.raises(JobFailed) as caught:
                await ask(client, a_job())
    assert caught.value.failure_class == contract.FAILURE_CLASS_INTERNAL


@pytest.mark.parametrize(("param", "falls_back"), [("tools[0].input_schema", True), ("messages", False)])
async def test_a_server_that_names_the_parameter_is_believed_over_its_words(param, falls_back):
    body = b'{"type": "error", "error": {"type": "invalid_request_error", "message": "tools", "param": "%s"}}'
    with MessagesApi() as api:
        api.script(raw(body % param.encode(), status=400))
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, tools="auto") as client:
            if falls_back:
                await ask(client, a_job())
            else:
                with pytest.raises(JobFailed):
                    await ask(client, a_job())
    assert len(api.calls) == 1 + falls_back


async def test_what_is_switched_on_stays_on():
    with MessagesApi(tools=False) as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, tools="on") as client:
            with pytest.raises(JobFailed):
                await ask(client, a_job())
    assert len(api.calls) == 1 and not api.probes


def test_what_a_server_lacks_is_forgotten():
    now = [0.0]
    for probed in (True, False):
        feature = Feature("tools", "auto", re.compile("tools"), probed=probed, clock=lambda: now[0])
        assert (feature.wanted, feature.unsure, feature.settled) == (True, probed, False)
        feature.found(False)
        assert (feature.wanted, feature.unsure, feature.settled) == (False, False, True)
        now[0] += FORGOTTEN_AFTER
        assert (feature.wanted, feature.unsure, feature.settled) == (True, probed, False)
        feature.found(True)
        now[0] += FORGOTTEN_AFTER
        assert (feature.wanted, feature.unsure, feature.settled) == (True, False, False), "a complaint is looked into"


def test_only_requests_with_images_can_fail_over_images():
    complaint = ServerError(500, "", "", "", "mmproj", "mmproj", "", {})
    assert failure_of(complaint, images=True).failure_class == contract.FAILURE_CLASS_UNSUPPORTED
    assert failure_of(complaint, images=False).failure_class == contract.FAILURE_CLASS_MODEL_UNAVAILABLE
