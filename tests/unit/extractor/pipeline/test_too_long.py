"""An error says that a prompt is too long in the server's own words, or not at all: it may quote a conversation."""

import json

import pytest

from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import JobFailed
from tests.doubles.messages_api import MessagesApi, error, raw
from tests.unit.extractor.model_client import a_job, ask, client_of

KIND = "invalid_request_error"


async def failure_of(behaviour) -> JobFailed:
    with MessagesApi() as api:
        api.otherwise = behaviour
        async with client_of(api) as client:
            with pytest.raises(JobFailed) as caught:
                await ask(client, a_job())
    return caught.value


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 250000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        "request (41 tokens) exceeds the available context size (32 tokens), try increasing it",
        "the request exceeds the available context size. try increasing the context size",
        "Input is too long for requested model.",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
    ],
)
async def test_servers_say_it_in_words_of_their_own(words):
    failed = await failure_of(error(400, KIND, words))
    assert failed.failure_class == contract.FAILURE_CLASS_INPUT_TOO_LARGE
    assert not failed.retryable


@pytest.mark.parametrize("kind", ["exceed_context_size_error", "context_length_exceeded", "request_too_large"])
async def test_or_by_the_type_of_the_error(kind):
    assert (await failure_of(error(400, kind, "no"))).failure_class == contract.FAILURE_CLASS_INPUT_TOO_LARGE


@pytest.mark.parametrize(
    "words",
    [
        "messages.0: could not parse 'prompt is too long: 250000 tokens > 200000 maximum'",
        'messages.0.content: the text "this model\'s maximum context length is 4096 tokens" is not allowed',
        "invalid content: my request is too large, too many tokens, what is the context window?",
        "the conversation says: input is too long for requested model",
    ],
)
async def test_a_quoted_conversation_ends_no_job(words):
    failed = await failure_of(error(400, KIND, words))
    assert failed.failure_class == contract.FAILURE_CLASS_INTERNAL
    assert failed.retryable


@pytest.mark.parametrize(
    "told",
    [{"type": ["request_too_large"], "message": {"text": "prompt is too long"}}, "prompt is too long", None],
)
async def test_an_error_of_another_form_says_nothing(told):
    body = json.dumps({"type": "error", "error": told}).encode()
    assert (await failure_of(raw(body, status=400))).failure_class == contract.FAILURE_CLASS_INTERNAL
