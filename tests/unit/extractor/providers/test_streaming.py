"""Long answers are streamed, so that a slow answer can be told from none; short ones are not."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.providers.client import LONG_ANSWER, ModelClient
from runekeep_extractor.providers.interface import Stop, ToolResult, UserTurn
from runekeep_extractor.providers.opening import open_provider
from runekeep_extractor.providers.usage import OPERATIONS
from runekeep_extractor.settings import AnthropicSettings, ModelSettings, OpenAISettings
from tests.doubles import chat_api, messages_api
from tests.doubles.chat_api import ChatApi
from tests.doubles.messages_api import MessagesApi
from tests.doubles.model_api import Behaviour, ModelApi, Request, Response
from tests.unit.extractor.model_client import SCHEMA, a_job, ask

WORD = '{"word": "tea with lemon"}'


class Kind:
    """One provider and its double."""

    def __init__(
        self, settings: type[ModelSettings], api: Callable[..., ModelApi], module: Any, tools: Callable[..., Behaviour]
    ) -> None:
        self.api = api
        self.answer: Callable[..., Behaviour] = module.answer
        self.tools = tools
        self._settings = settings

    @asynccontextmanager
    async def client(self, api: ModelApi, timeout: float = 20.0) -> AsyncIterator[ModelClient]:
        settings = self._settings(
            api_key="key", base_url=api.url, model="m", timeout=timeout, structured_output="on", tools="on"
        )
        client = ModelClient(settings, open_provider(settings, max_retries=0))
        try:
            yield client
        finally:
            await client.close()


@pytest.fixture(params=["anthropic", "openai"])
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "anthropic":
        return Kind(AnthropicSettings, MessagesApi, messages_api, messages_api.tool_use)
    return Kind(OpenAISettings, ChatApi, chat_api, chat_api.tool_calls)


@pytest.mark.parametrize("streams", [True, None])
async def test_a_long_answer_is_the_same_streamed_or_not(kind: Kind, streams: bool | None) -> None:
    """None: the server ignores the wish and answers at once."""
    job = a_job()
    with kind.api(streams=streams) as api:
        api.script(kind.answer(WORD), kind.tools(("read", {"uri": "viking://user/x"})), kind.answer(WORD))
        async with kind.client(api) as client:
            word = await ask(client, job, max_tokens=LONG_ANSWER)
            read = await ask(client, job, max_tokens=LONG_ANSWER)
            await ask(client, job, max_tokens=LONG_ANSWER - 1)
    assert ["stream" in call.body for call in api.calls] == [True, True, False]
    assert (word.text, word.stop) == (WORD, Stop.FINISHED)
    assert [(use.name, use.input) for use in read.tool_uses] == [("read", {"uri": "viking://user/x"})]
    assert job.spent[0].input_tokens + job.spent[0].cache_write_tokens > 20
    assert 1 < job.spent[0].output_tokens < 200, "as the server counted"
    assert job.calls[0].answer == WORD and '"viking://user/x' in job.calls[1].answer.replace("\\", "")


async def test_a_dialogue_goes_on_after_arguments_that_are_no_object(kind: Kind) -> None:
    with kind.api(streams=True) as api:
        api.script(kind.tools(("read", "no JSON")), kind.answer(WORD))
        async with kind.client(api) as client:
            read = await ask(client, a_job(), max_tokens=LONG_ANSWER)
            results = UserTurn([ToolResult(use.id, "Give an object.", True) for use in read.tool_uses])
            turns = [UserTurn(["Which word?"]), read, results]
            word = await client.ask(
                [], turns, SCHEMA, job=a_job(), phase=OPERATIONS, max_tokens=500, may_read=True, give_up_at=0.0
            )
    assert [isinstance(use.input, dict) for use in read.tool_uses] == [False]
    assert word.text == WORD


async def test_an_answer_may_take_longer_than_the_timeout_while_it_comes(kind: Kind) -> None:
    with kind.api(streams=True) as api:
        api.otherwise = kind.answer(WORD)
        api.event_seconds = 0.3
        async with kind.client(api, timeout=1.0) as client:
            reply = await ask(client, a_job(), max_tokens=LONG_ANSWER)
    assert reply.text == WORD


async def test_an_answer_that_stops_coming_is_given_up_and_counted(kind: Kind) -> None:
    job = a_job()
    with kind.api(streams=True) as api:
        api.otherwise = kind.answer(WORD)
        api.event_seconds = 4.0
        async with kind.client(api, timeout=2.0) as client:
            with pytest.raises(JobFailed) as caught:
                await ask(client, job, max_tokens=LONG_ANSWER)
    assert caught.value.failure_class == contract.FAILURE_CLASS_TIME_BUDGET
    assert (job.spent[0].output_tokens, job.calls[0].stop_reason) == (LONG_ANSWER, "timeout")


async def test_an_attempt_that_ends_during_an_answer_is_counted_and_the_server_is_not_away(kind: Kind) -> None:
    job = a_job()
    with kind.api(streams=True) as api:
        api.otherwise = kind.answer(WORD)
        api.event_seconds = 0.5
        async with kind.client(api, timeout=4.0) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2.0):
                    await ask(client, job, max_tokens=LONG_ANSWER)
            assert client.outage.reason == ""
    assert job.spent[0].output_tokens == LONG_ANSWER


BROKEN = {
    "anthropic": (
        b'event: message_start\ndata: {"type": "message_start", "message": {"content": []}}\n\n',
        b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}\n\n',
    ),
    "openai": (
        b'data: {"choices": [{"index": 0, "delta": {"content": "half"}}]}\n\n',
        b'data: {"error": {"code": 503, "message": "no"}}\n\n',
    ),
}
KEEP_ALIVE = {"anthropic": b'event: ping\ndata: {"type": "ping"}\n\n', "openai": b": wait\n\n"}


async def test_an_answer_without_a_piece_that_can_be_decoded_is_an_outage(kind: Kind) -> None:
    job = a_job()
    with kind.api(streams=True) as api:
        api.otherwise = lambda _: Response(events=[b"?"], headers={"content-encoding": "gzip"})
        async with kind.client(api) as client:
            with pytest.raises(JobFailed) as caught:
                await ask(client, job, max_tokens=LONG_ANSWER)
    assert caught.value.failure_class == contract.FAILURE_CLASS_MODEL_UNAVAILABLE
    assert job.spent == []


@pytest.mark.parametrize("events", [1, 2])
async def test_an_answer_that_breaks_off_is_counted(kind: Kind, events: int, request: pytest.FixtureRequest) -> None:
    """With one event the stream ends early, with two by an error of an outage. Unless the server says that it is away,
    the attempt is counted, because it answers a tiny question.
    """
    broken = BROKEN[request.node.callspec.params["kind"]][:events]
    job = a_job()
    with kind.api(streams=True) as api:
        api.otherwise = lambda _: Response(events=broken)
        async with kind.client(api) as client:
            with pytest.raises(JobFailed) as caught:
                await ask(client, job, max_tokens=LONG_ANSWER)
    away, broke_off = contract.FAILURE_CLASS_MODEL_UNAVAILABLE, contract.FAILURE_CLASS_TIME_BUDGET
    assert caught.value.failure_class == (away if events == 2 else broke_off)
    assert (job.spent[0].output_tokens, job.calls[0].stop_reason) == (LONG_ANSWER, "broken_off")


async def test_an_answer_that_breaks_off_with_its_server_is_an_outage(
    kind: Kind, request: pytest.FixtureRequest
) -> None:
    broken = BROKEN[request.node.callspec.params["kind"]][:1]
    job = a_job()
    with kind.api(streams=True) as api:

        def ends(_: Request) -> Response:
            api.hangs = api.gate()
            return Response(events=broken)

        api.otherwise = ends
        async with kind.client(api, timeout=0.5) as client:
            with pytest.raises(JobFailed) as caught:
                await ask(client, job, max_tokens=LONG_ANSWER)
    assert caught.value.failure_class == contract.FAILURE_CLASS_MODEL_UNAVAILABLE
    assert job.spent[0].output_tokens == LONG_ANSWER


@pytest.mark.parametrize("attempt_seconds", [None, 1.5])
async def test_keep_alives_are_no_answer(
    kind: Kind, attempt_seconds: float | None, request: pytest.FixtureRequest
) -> None:
    """The call ends by its own timeout, or with the attempt; both are counted."""
    job = a_job()
    with kind.api(streams=True) as api:
        api.otherwise = lambda _: Response(events=[KEEP_ALIVE[request.node.callspec.params["kind"]]] * 40)
        api.event_seconds = 0.1
        async with kind.client(api, timeout=2.0) as client:
            with pytest.raises(TimeoutError if attempt_seconds else JobFailed) as caught:
                async with asyncio.timeout(attempt_seconds):
                    await ask(client, job, max_tokens=LONG_ANSWER)
    if isinstance(caught.value, JobFailed):
        assert caught.value.failure_class == contract.FAILURE_CLASS_TIME_BUDGET
    assert (job.spent[0].output_tokens, job.calls[0].stop_reason) == (LONG_ANSWER, "timeout")


async def test_a_server_that_refuses_to_stream_is_asked_without() -> None:
    with ChatApi(streams=False) as api:
        api.otherwise = chat_api.answer(json.loads(WORD))
        settings = OpenAISettings(api_key="key", base_url=api.url, model="m", structured_output="on", tools="on")
        client = ModelClient(settings, open_provider(settings, max_retries=0))
        for _ in range(2):
            reply = await ask(client, a_job(), max_tokens=LONG_ANSWER)
        await client.close()
    assert reply.text == WORD
    assert ["stream" in call.body for call in api.calls] == [True, False, False]
    assert len(api.probes) == 1
