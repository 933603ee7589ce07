"""A stream of appends, message by message."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import grpc
from google.rpc import status_pb2

from runekeep.v1 import common_pb2
from runekeep.v1 import session_service_pb2 as pb
from tests.support.callers import Caller, Failure, said

STREAM_SECONDS = 60.0
Metadata = tuple[tuple[str, str], ...]


def append(session: str, *texts: str, request_id: str) -> pb.AddMessagesRequest:
    """An append of messages with these texts, which have ids of their own."""
    messages = [said(text, id=f"{request_id}-{number}") for number, text in enumerate(texts)]
    return pb.AddMessagesRequest(session=session, messages=messages, request_id=request_id)


class OpenStream:
    """One StreamMessages call of a caller. Used as a context it reads the window, and in the end cancels the call, like
    a process that dies. `acknowledged`: by the number of the append, what the server said."""

    def __init__(self, channel: grpc.aio.Channel, metadata: Metadata, seconds: float = STREAM_SECONDS) -> None:
        # As the stub makes it, but for bytes that are no request.
        self._call: Any = channel.stream_stream(
            "/runekeep.v1.SessionService/StreamMessages",
            request_serializer=_serialized,
            response_deserializer=pb.StreamMessagesResponse.FromString,
        )(metadata=metadata, timeout=seconds)
        self.window = pb.AppendWindow()
        self.number = 0
        self.acknowledged: dict[int, pb.AppendAcknowledgement] = {}

    @classmethod
    def of(cls, caller: Caller, seconds: float = STREAM_SECONDS) -> Self:
        names = (("x-runekeep-account", caller.account), ("x-runekeep-user", caller.user))
        return cls(caller.channel, names, seconds)

    async def __aenter__(self) -> Self:
        first = await self._call.read()
        assert first is not grpc.aio.EOF and first.HasField("window") and not first.acknowledgements
        self.window = first.window
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()

    async def send(self, *appends: pb.AddMessagesRequest) -> int:
        """Sends appends in one request. Returns the number of the last."""
        await self._call.write(pb.StreamMessagesRequest(appends=appends))
        self.number += len(appends)
        return self.number

    async def send_bytes(self, data: bytes) -> None:
        """Sends a request as it lies on the wire."""
        await self._call.write(data)

    async def read(self) -> Sequence[pb.AppendAcknowledgement]:
        """The next acknowledgements; none at the end of the stream. Raises AioRpcError."""
        response = await self._call.read()
        if response is grpc.aio.EOF:
            return ()
        assert not response.HasField("window") and response.acknowledgements
        for one in response.acknowledgements:
            assert one.number not in self.acknowledged, "acknowledged twice"
            self.acknowledged[one.number] = one
        return list(response.acknowledgements)

    async def answer(self, number: int) -> pb.AppendAcknowledgement:
        """What became of an append."""
        while number not in self.acknowledged:
            assert await self.read(), "the stream ended"
        return self.acknowledged[number]

    async def added(self, *appends: pb.AddMessagesRequest) -> pb.AddMessagesResponse:
        """Sends appends in one request. Returns the answer to the last."""
        answer = await self.answer(await self.send(*appends))
        assert answer.HasField("added"), answer
        return answer.added

    async def refused(self, one: pb.AddMessagesRequest) -> Failure:
        answer = await self.answer(await self.send(one))
        assert answer.HasField("error"), answer
        return failure_of(answer.error)

    async def finish(self) -> None:
        """Half-closes, and reads what is left; the stream must end with OK."""
        await self._call.done_writing()
        while await self.read():
            pass
        assert await self._call.code() is grpc.StatusCode.OK

    async def failure(self) -> Failure:
        """How the stream ends, which must be with an error."""
        try:
            while await self.read():
                pass
        except grpc.aio.AioRpcError as error:
            return Failure(error)
        raise AssertionError("the stream ended with OK")


def _serialized(request: pb.StreamMessagesRequest | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


def failure_of(status: status_pb2.Status) -> Failure:
    """An error in a response, in the form of the error of a call."""
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    trailers = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    return Failure(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, status.message))


async def texts(caller: Caller, session: str) -> list[str]:
    """Texts of all messages of a session, in order; their positions must have no gap."""
    found: list[common_pb2.Message] = []
    request = pb.ListMessagesRequest(session=session, scope=pb.MESSAGE_SCOPE_ALL, page_size=200)
    while True:
        page = await caller.sessions.ListMessages(request)
        found += page.messages
        request.page_token = page.next_page_token
        if not page.next_page_token:
            break
    assert [one.sequence for one in found] == list(range(1, len(found) + 1))
    return [one.parts[0].text.text for one in found]


async def sent_together(stream: OpenStream, appends: Sequence[pb.AddMessagesRequest]) -> None:
    """Sends each append in a request of its own, and reads until all are acknowledged."""

    async def read() -> None:
        while len(stream.acknowledged) < len(appends):
            assert await stream.read(), "the stream ended"

    reading = asyncio.create_task(read())
    for one in appends:
        await stream.send(one)
    await reading
