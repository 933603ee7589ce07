"""A call that is given up may be worked on and billed all the same, so it is counted as if it had been answered."""

import asyncio

import httpx2
import pytest

from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.providers.budget import max_input_tokens, total
from runekeep_extractor.providers.client import ModelClient
from runekeep_extractor.providers.interface import UserTurn
from runekeep_extractor.providers.opening import open_provider
from runekeep_extractor.providers.outage import Outage
from runekeep_extractor.providers.recording import canonical
from runekeep_extractor.settings import AnthropicSettings
from tests.doubles.messages_api import MessagesApi, answer, held, overloaded
from tests.unit.extractor.model_client import SCHEMA, a_job, ask, client_of

TIMEOUT = 0.3


def client_that_repeats(api: MessagesApi) -> ModelClient:
    """As an extractor has it: the SDK repeats twice what it thinks is worth it."""
    values = {"api_key": "key", "base_url": api.url, "model": "some-model", "timeout": TIMEOUT}
    settings = AnthropicSettings(**values, structured_output="on", tools="on")
    return ModelClient(settings, open_provider(settings, max_retries=2))


async def ask_patiently(client: ModelClient, job, seconds: float):
    return await client.ask(
        ["You name words."],
        [UserTurn(["Which word?"])],
        SCHEMA,
        job=job,
        phase="operations",
        max_tokens=2000,
        may_read=True,
        give_up_at=asyncio.get_running_loop().time() + seconds,
    )


@pytest.fixture
def api():
    with MessagesApi() as double:
        yield double


async def test_a_call_that_is_given_up_is_counted_at_its_most_and_kept(api):
    """The server answers something tiny meanwhile, so the model is too slow for this call, and it is an attempt."""
    api.otherwise = held(api.gate(), answer({"word": "tea"}))
    job = a_job()
    async with client_of(api, timeout=TIMEOUT) as client:
        with pytest.raises(JobFailed) as caught:
            await ask(client, job)
        assert client.outage.reason == ""
    assert caught.value.failure_class == contract.FAILURE_CLASS_TIME_BUDGET
    (request,) = api.calls
    entry, _tiny = job.spent
    assert (entry.phase, entry.model, entry.calls) == ("operations", "some-model", 1)
    assert (entry.input_tokens, entry.output_tokens) == (max_input_tokens(canonical(request.body), []), 2000)
    kept, tiny = job.calls
    assert tiny.phase == "probe"
    assert (kept.phase, kept.model, kept.stop_reason, kept.answer) == ("operations", "some-model", "timeout", "")
    assert len(kept.prompt_digest) == 64


async def test_a_server_that_answers_nothing_at_all_is_away(api):
    api.hangs = api.gate()
    job = a_job()
    async with client_of(api, timeout=TIMEOUT) as client:
        with pytest.raises(JobFailed) as caught:
            await ask(client, job)
        assert client.outage.reason == "the model server did not answer in time"
    assert caught.value.failure_class == contract.FAILURE_CLASS_MODEL_UNAVAILABLE
    assert [one.phase for one in job.calls] == ["operations", "probe"]


async def test_the_sdk_repeats_no_call_that_was_given_up_by_itself(api):
    api.otherwise = held(api.gate(), answer({"word": "tea"}))
    job = a_job()
    client = client_that_repeats(api)
    with pytest.raises(JobFailed):
        await ask(client, job)
    await client.close()
    assert len(api.requests) == sum(entry.calls for entry in job.spent) == len(job.calls) == 2


async def test_it_still_repeats_what_was_refused(api):
    api.script(overloaded(retry_after=0.01))
    api.otherwise = answer({"word": "tea"})
    job = a_job()
    client = client_that_repeats(api)
    await ask(client, job)
    await client.close()
    assert len(api.calls) == 2 and [entry.calls for entry in job.spent] == [1]


async def test_calls_that_are_given_up_use_the_budget_up(api):
    """Were they free, a slow server could be asked for as long as the patience lasts, and be paid each time."""
    api.hangs = api.gate()
    job = a_job(token_budget=12_000)
    async with client_of(api, timeout=TIMEOUT) as client:
        client.outage = Outage(first=0.001, max_pause=0.002)
        with pytest.raises(JobFailed) as caught:
            await ask_patiently(client, job, 1000.0)
        assert caught.value.failure_class == contract.FAILURE_CLASS_OUT_OF_BUDGET
        assert client.outage.reason == "the model server did not answer in time", "nobody has heard of it since"
    # On a busy machine, not every call has reached the server when it is given up.
    reached = sum(request.path == "/v1/messages" for request in api.requests)
    assert {one.stop_reason for one in job.calls} == {"timeout"} and len(job.calls) >= reached
    assert sum(map(total, job.spent)) <= 12_000


async def test_a_call_that_never_began_costs_nothing(api, monkeypatch):
    async def unreachable(*_, **__):
        raise httpx2.ConnectTimeout("no")

    job = a_job()
    async with client_of(api) as client:
        monkeypatch.setattr(client._provider._http, "send", unreachable)
        with pytest.raises(JobFailed) as caught:
            await ask(client, job)
    assert caught.value.failure_class == contract.FAILURE_CLASS_MODEL_UNAVAILABLE
    assert job.spent == [] == job.calls
