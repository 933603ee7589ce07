"""No call is made that might pass the token budget of its attempt."""

import hashlib
import json

import pytest

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.providers.budget import IMAGE_TOKENS, MIN_ANSWER, max_input_tokens, total
from runekeep_extractor.providers.interface import Image
from runekeep_extractor.providers.recording import canonical
from tests.doubles.messages_api import CHARACTERS_PER_TOKEN, MessagesApi, answer
from tests.unit.extractor.model_client import a_job, ask, client_of

LONG = "tea " * 10_000


async def failure_of(client, job, text=LONG, **options) -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        await ask(client, job, text, **options)
    return caught.value


@pytest.fixture
def api():
    with MessagesApi() as double:
        double.otherwise = answer({"word": "tea"})
        yield double


@pytest.mark.parametrize("budget", [0, 1, 5_000])
async def test_a_call_that_does_not_fit_is_not_made(api, budget):
    job = a_job(token_budget=budget)
    async with client_of(api) as client:
        failed = await failure_of(client, job)
    assert failed.failure_class == contract.FAILURE_CLASS_OUT_OF_BUDGET
    assert not failed.retryable
    assert api.calls == []
    assert job.spent == [] == job.calls
    assert "tea" not in failed.message


async def test_without_a_budget_nothing_is_counted_ahead(api):
    async with client_of(api) as client:
        await ask(client, a_job(), LONG)
    assert [request.path for request in api.requests] == ["/v1/messages"]


async def test_a_call_that_fits_by_any_count_is_made_without_counting(api):
    async with client_of(api) as client:
        await ask(client, a_job(token_budget=100_000), LONG)
    assert [request.path for request in api.requests] == ["/v1/messages"]
    assert api.calls[0].body["max_tokens"] == 2000


async def test_where_it_is_close_the_server_counts(api):
    """By bytes it would not fit; the double counts four to a token."""
    job = a_job(token_budget=20_000)
    async with client_of(api) as client:
        await ask(client, job, LONG)
    assert [request.path for request in api.requests] == ["/v1/messages/count_tokens", "/v1/messages"]
    assert api.requests[0].body["output_config"] == api.calls[0].body["output_config"]
    assert api.calls[0].body["max_tokens"] == 2000


async def test_the_answer_gets_the_room_that_is_left(api):
    counted = len(LONG) // CHARACTERS_PER_TOKEN
    job = a_job(token_budget=counted + 5_000)
    async with client_of(api) as client:
        await ask(client, job, LONG, max_tokens=20_000)
        lowered = api.calls[0].body["max_tokens"]
        assert MIN_ANSWER <= lowered < 5_000
        digest = hashlib.sha256(canonical(api.calls[0].body)).hexdigest()
        assert job.calls[0].prompt_digest == digest, "it is kept as it was sent"
        failed = await failure_of(client, job)
    assert failed.failure_class == contract.FAILURE_CLASS_OUT_OF_BUDGET
    assert len(api.calls) == 1
    assert sum(map(total, job.spent)) <= job.assignment.token_budget


@pytest.mark.parametrize("budget", [30_000, 100_000])
async def test_a_server_that_counts_nothing_is_counted_by_bytes(budget):
    """Both ways: ahead, so that what cannot be told is refused, and afterwards, so that nothing is free."""
    job = a_job(token_budget=budget)
    with MessagesApi(counts_tokens=False, counts_usage=False) as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api) as client:
            if budget > len(LONG):
                await ask(client, job, LONG)
                await ask(client, job, LONG)
            await failure_of(client, job)
            await failure_of(client, job)
    assert len(api.calls) == (2 if budget > len(LONG) else 0)
    assert sum(request.path.endswith("count_tokens") for request in api.requests) == 1, (
        "asked once for what is not there"
    )
    if job.spent:
        assert job.spent[0].input_tokens > 2 * len(LONG)
        assert job.spent[0].output_tokens >= 2 * len('{"word": "tea"}')


async def test_probes_are_paid_from_the_budget_too(api):
    job = a_job(token_budget=2_000)
    async with client_of(api, structured_output="auto") as client:
        failed = await failure_of(client, job)
    assert failed.failure_class == contract.FAILURE_CLASS_OUT_OF_BUDGET
    assert [one.phase for one in job.spent] == ["probe"]


def test_the_estimate_is_above_any_byte_level_count_and_knows_images():
    texts = ["tea", "茶を飲む", "\U0001f375" * 50, 'a\nb"c']
    for text in texts:
        request = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
        assert max_input_tokens(canonical(request), []) > len(text.encode())
        assert max_input_tokens(canonical(request), []) > len(json.dumps(text, ensure_ascii=False).encode())
    images = [Image(url="https://x.example/a.png"), Image(media_type="image/png", data="A" * 900_000)]
    request = {"messages": [{"url": image.url, "data": image.data} for image in images]}
    assert 2 * IMAGE_TOKENS < max_input_tokens(canonical(request), images) < 3 * IMAGE_TOKENS


def test_cached_tokens_are_tokens():
    entry = common_pb2.TokenUsage(input_tokens=1, cache_write_tokens=2, cache_read_tokens=4, output_tokens=8, calls=16)
    assert total(entry) == 15
