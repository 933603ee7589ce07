"""What the client asks of a server, and what it keeps of the answers."""

import hashlib
import json

import pytest

from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.providers import usage
from runekeep_extractor.providers.interface import STREAMING, STRUCTURED_OUTPUT, TOOLS
from runekeep_extractor.providers.opening import open_provider
from runekeep_extractor.providers.outage import Outage
from runekeep_extractor.settings import AnthropicSettings
from tests.doubles.messages_api import MessagesApi, answer, error, raw, refusal, tool_use, truncated
from tests.unit.extractor.model_client import a_job, ask, client_of


def spent(job):
    return {entry.phase: entry for entry in job.spent}


async def test_each_phase_has_its_model_and_is_counted_by_it():
    options = {"model_dedup": "small", "model_repair": "careful", "model_images": "seeing"}
    job = a_job()
    with MessagesApi() as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, **options) as client:
            for phase in (usage.OPERATIONS, usage.DEDUP, usage.REPAIR, usage.IMAGES):
                await ask(client, job, phase=phase)
        async with client_of(api) as client:
            await ask(client, job, phase=usage.DEDUP)
    models = ["some-model", "small", "careful", "seeing", "some-model"]
    assert [call.body["model"] for call in api.calls] == models
    assert [(one.phase, one.model) for one in job.spent] == [
        ("operations", "some-model"),
        ("dedup", "small"),
        ("repair", "careful"),
        ("images", "seeing"),
        ("dedup", "some-model"),
    ]
    assert [one.model for one in job.calls] == models
    assert AnthropicSettings(model="m").model_for(usage.PROBE) == "m"


@pytest.mark.parametrize("works", [True, False, None])
async def test_what_a_server_can_do_is_found_out_once(works):
    """None: it takes what it is asked in silence and does nothing about it, as llama.cpp does."""
    first, second = a_job(), a_job()
    with MessagesApi(structured_output=works, tools=works) as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, structured_output="auto", tools="auto") as client:
            await ask(client, first)
            await ask(client, second)
    assert len(api.calls) == 2
    for call in api.calls:
        assert ("output_config" in call.body) == bool(works)
        assert ("tools" in call.body) == bool(works)
        assert ("with all of these keys" in call.system_text) == (not works), "told in words where no schema is taken"
    assert len(api.probes) == 2
    if works is False:
        assert [one.phase for one in first.calls] == ["operations"], "refused requests are no calls of the model"
    else:
        assert spent(first)["probe"].calls == 2
        assert spent(first)["probe"].input_tokens > 0
        assert [one.phase for one in first.calls] == ["probe", "probe", "operations"]
    assert "probe" not in spent(second)


async def test_what_is_found_out_of_one_model_says_nothing_of_another():
    job = a_job()
    with MessagesApi() as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, structured_output="auto", tools="off", model_dedup="small") as client:
            await ask(client, job)
            await ask(client, job, phase=usage.DEDUP)
    assert [probe.body["model"] for probe in api.probes] == ["some-model", "small"]


async def test_what_a_call_does_not_need_is_not_probed_and_not_sent():
    with MessagesApi() as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, structured_output="off", tools="auto") as client:
            await ask(client, a_job(), may_read=None)
            assert api.probes == []
            await ask(client, a_job(), may_read=False)
    assert len(api.probes) == 1
    first, second = api.calls
    assert "tools" not in first.body
    assert second.body["tool_choice"] == {"type": "none"}


async def test_anthropics_own_api_is_not_probed():
    settings = AnthropicSettings(api_key="key", base_url=None)
    provider = open_provider(settings, max_retries=0)
    features = provider.features()
    await provider.close()
    assert features.keys() == {STRUCTURED_OUTPUT, TOOLS, STREAMING}
    assert all(feature.wanted and not feature.unsure for feature in features.values())


@pytest.mark.parametrize("status", [400, 422, 500, 501])
async def test_a_complaint_after_a_good_probe_is_heard_too(status):
    job = a_job()
    with MessagesApi() as api:
        api.script(error(status, "invalid_request_error", "tools are not possible with this template"))
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, tools="auto") as client:
            reply = await ask(client, job)
    assert reply.text == '{"word": "tea"}'
    assert ["tools" in call.body for call in api.calls] == [True, False]
    assert [one.phase for one in job.calls] == ["probe", "operations"], "a refused request is no call of the model"


async def test_a_server_that_is_away_is_not_taken_for_one_that_can_nothing():
    with MessagesApi() as api:
        api.down()
        async with client_of(api, structured_output="auto", tools="off") as client:
            with pytest.raises(JobFailed) as caught:
                await ask(client, a_job())
            assert caught.value.failure_class == contract.FAILURE_CLASS_MODEL_UNAVAILABLE
            api.up()
            api.otherwise = answer({"word": "tea"})
            client.outage = Outage()
            await ask(client, a_job())
    assert "output_config" in api.calls[0].body


async def test_every_answer_is_kept_with_the_digest_of_what_was_asked():
    job = a_job()
    with MessagesApi() as api:
        api.script(
            answer({"word": "tee"}), tool_use(("read", {"uri": "viking://user/x"})), truncated('{"wo'), refusal("cyber")
        )
        async with client_of(api) as client:
            for _ in range(4):
                await ask(client, job)
    assert [(one.phase, one.stop_reason) for one in job.calls] == [
        ("operations", "end_turn"),
        ("reasoning", "tool_use"),
        ("reasoning", "max_tokens"),
        ("operations", "refusal"),
    ]
    text, tools, cut, refused = (one.answer for one in job.calls)
    assert (text, cut, refused) == ('{"word": "tee"}', '{"wo', "")
    said, called = json.loads(tools)
    assert said["text"] == "I look first."
    assert (called["name"], called["input"]) == ("read", {"uri": "viking://user/x"})
    sent = json.dumps(api.calls[0].body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert job.calls[0].prompt_digest == hashlib.sha256(sent.encode()).hexdigest()
    assert len({one.prompt_digest for one in job.calls}) == 1, "the same was asked four times"
    assert sum(entry.calls for entry in job.spent) == 4


async def test_the_digest_tells_requests_apart():
    job = a_job()
    with MessagesApi() as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api) as client:
            await ask(client, job, "One?")
            await ask(client, job, "Two?")
        async with client_of(api, api_key="another key") as client:
            await ask(client, job, "Two?")
    one, two, with_another_key = (call.prompt_digest for call in job.calls)
    assert one != two == with_another_key


async def test_nothing_that_was_said_is_logged(capfd):
    with MessagesApi() as api:
        api.script(answer("my secret garden"), error(400, "invalid_request_error", "my secret garden"))
        async with client_of(api, structured_output="auto") as client:
            await ask(client, a_job(), "a secret question")
            with pytest.raises(JobFailed):
                await ask(client, a_job(), "a secret question")
    assert "secret" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "text", "text": "hi"}]},
        {"content": [{"type": "text", "text": "hi"}], "usage": {}, "model": None, "stop_reason": None},
        {"content": [{"type": "text", "text": "hi"}], "usage": "none", "stop_reason": "end_turn"},
        {"content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": -5, "output_tokens": None}},
        {"content": [{"type": "text", "text": "hi"}, "no block", {"type": "odd"}, {"type": "text", "text": 7}]},
    ],
)
async def test_answers_that_only_resemble_the_api_are_read_as_far_as_they_go(message):
    job = a_job()
    with MessagesApi() as api:
        api.otherwise = raw(json.dumps(message).encode())
        async with client_of(api) as client:
            reply = await ask(client, job)
    assert reply.text == "hi"
    (entry,) = job.spent
    assert entry.model == "some-model"
    assert entry.input_tokens > 0 and entry.output_tokens > 0, "what is not counted is estimated"
