"""A call that is given up may be worked on and billed all the same, so it is counted as if it had been answered."""

import asyncio

import httpx2
import pytest

from extractor.anthropic_engine.budget import most_input, total
from extractor.anthropic_engine.client import MessagesClient
from extractor.anthropic_engine.outage import Outage
from extractor.anthropic_engine.recording import canonical
from extractor.engine import JobFailed
from extractor.settings import AnthropicSettings
from runekeep.v1 import extractor_service_pb2 as contract
from tests.doubles.messages_api import MessagesApi, answer, held, overloaded
from tests.unit.extractor.model_client import SCHEMA, a_job, ask, client_of

TIMEOUT = 0.3


def client_that_repeats(api: MessagesApi) -> MessagesClient:
    """As an extractor has it: the SDK repeats twice what it thinks is worth it."""
    values = {"api_key": "key", "base_url": api.url, "model": "some-model", "timeout": TIMEOUT}
    return MessagesClient(AnthropicSettings(**values, structured_output="on", tools="on"), max_retries=2)


async def ask_patiently(client: MessagesClient, job, seconds: float):
    said = [{"role": "user", "content": [{"type": "text", "text": "Which word?"}]}]
    return await client.ask(
        ["You name words."],
        said,
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
    api.otherwise = held(api.gate(), answer({"word": "tea"}))
    job = a_job()
    async with client_of(api, timeout=TIMEOUT) as client:
        with pytest.raises(JobFailed) as caught:
            await ask(client, job)
    assert caught.value.failure_class == contract.FAILURE_CLASS_MODEL_UNAVAILABLE
    (request,) = api.calls
    (entry,) = job.spent
    assert (entry.phase, entry.model, entry.calls) == ("operations", "some-model", 1)
    assert (entry.input_tokens, entry.output_tokens) == (most_input(request.body, canonical(request.body)), 2000)
    (kept,) = job.calls
    assert (kept.phase, kept.model, kept.stop_reason, kept.answer) == ("operations", "some-model", "timeout", "")
    assert len(kept.prompt_digest) == 64


async def test_the_sdk_repeats_no_call_that_was_given_up_by_itself(api):
    api.otherwise = held(api.gate(), answer({"word": "tea"}))
    job = a_job()
    client = client_that_repeats(api)
    with pytest.raises(JobFailed):
        await ask(client, job)
    await client.close()
    assert len(api.calls) == sum(entry.calls for entry in job.spent) == len(job.calls) == 1


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
    api.otherwise = held(api.gate(), answer({"word": "tea"}))
    job = a_job(token_budget=12_000)
    async with client_of(api, timeout=TIMEOUT) as client:
        client.outage = Outage(first=0.001, most=0.002)
        with pytest.raises(JobFailed) as caught:
            await ask_patiently(client, job, 1000.0)
        assert caught.value.failure_class == contract.FAILURE_CLASS_OUT_OF_BUDGET
        assert client.outage.reason == "the model server did not answer in time", "nobody has heard of it since"
    calls = len(api.calls)
    assert calls >= 1 and [one.stop_reason for one in job.calls] == ["timeout"] * calls
    assert sum(map(total, job.spent)) <= 12_000


async def test_a_call_that_never_began_costs_nothing(api, monkeypatch):
    async def unreachable(*_, **__):
        raise httpx2.ConnectTimeout("no")

    job = a_job()
    async with client_of(api) as client:
        monkeypatch.setattr(client._http, "send", unreachable)
        with pytest.raises(JobFailed) as caught:
            await ask(client, job)
    assert caught.value.failure_class == contract.FAILURE_CLASS_MODEL_UNAVAILABLE
    assert job.spent == [] == job.calls
