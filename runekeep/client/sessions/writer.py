"""A writer: appends to one session without waiting for each to be durable."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from runekeep.client.blocking import BlockingWrapper, blocking
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.connection.errors import DeadlineExceededError
from runekeep.client.event_loop_thread import event_loop_thread
from runekeep.client.sessions.append_stream import AppendStream, PendingAppend, join_stream
from runekeep.client.sessions.message_forms import MessageForm, read_messages
from runekeep.client.sessions.messages import Message, Part, RoleName, TextPart, message_to_wire
from runekeep.client.sessions.results import AddedMessages
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import session_service_pb2


class AsyncAppend:
    """An append that a writer accepted. To repeat it, pass its `request_id` to `add_messages` of the session."""

    def __init__(self, pending: PendingAppend) -> None:
        self._answer = pending.answer
        self.request_id = pending.request.request_id

    @property
    def done(self) -> bool:
        """Whether it is durable, or has failed.

        ```python
        append = session.writer().add("user", "I live in Lisbon")
        print(append.done, append.request_id)
        ```
        """
        return self._answer.done()

    async def result(self, timeout: float | None = None) -> AddedMessages:
        """Waits until the append is durable, and returns what was added. Raises the RunekeepError with which the server
        refused it, and DeadlineExceededError after `timeout` seconds, while it goes on.

        ```python
        append = session.writer().add("user", "I live in Lisbon")
        print(append.result(timeout=10).messages[0].sequence)
        ```
        """
        try:
            async with asyncio.timeout(timeout):
                response = await asyncio.shield(self._answer)
        except TimeoutError as error:
            message = f"the append {self.request_id} is not acknowledged after {timeout} s"
            raise DeadlineExceededError(message, code="DEADLINE_EXCEEDED") from error
        return AddedMessages(to_json(response))


class AsyncWriter:
    """Appends to one session over a stream that all writers of the client share. `AsyncSession.writer` returns it.

    An append takes effect in the order of `add`, and is sent again, without being stored twice, if the connection
    breaks. `add` waits only while the server's window is full. At the end of an `async with` block all appends are
    durable; if the block raises, those without an acknowledgement may be stored or not. A refused append does not stop
    the ones after it. If the server is away for a minute, the appends that wait fail.

    With a server that has no such stream, each append is a call of its own.
    """

    def __init__(
        self,
        connection: Connection,
        session_id: str,
        create: Callable[[], Awaitable[None]],
        added: Callable[[session_service_pb2.AddMessagesResponse], None],
    ) -> None:
        self._connection = connection
        self._session_id = session_id
        self._create = create
        self._added = added
        self._stream: AppendStream | None = None
        self._open: dict[PendingAppend, None] = {}
        self._failed: BaseException | None = None
        """The first error since the last `flush`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.close()

    async def add(
        self,
        role: RoleName,
        parts: str | Sequence[Part],
        *,
        peer_id: str = "",
        turn_id: str = "",
        created_at: datetime | None = None,
        message_id: str = "",
        speaker: str = "",
        request_id: str | None = None,
    ) -> AsyncAppend:
        """Appends a message, of a text or of parts; see `AsyncSession.add_message`. Returns before it is durable:
        `flush`, or `result` of what is returned, waits for that.

        ```python
        with session.writer() as writer:
            append = writer.add("user", "I live in Lisbon")
            print(append.result().messages[0].sequence)
        ```

        ```python
        with session.writer() as writer:
            append = writer.add("user", "I live in Lisbon")
        print(append.result().messages[0].sequence)
        ```
        """
        parts = [TextPart(parts)] if isinstance(parts, str) else parts
        message = Message(role, parts, message_id, created_at, peer_id, turn_id, speaker)
        return await self.add_messages([message], request_id=request_id)

    async def add_messages(
        self, messages: Sequence[MessageForm], *, include_system: bool = False, request_id: str | None = None
    ) -> AsyncAppend:
        """Appends up to 100 messages, all or none; see `AsyncSession.add_messages`. Returns before they are durable.

        ```python
        with session.writer() as writer:
            writer.add_messages([{"role": "user", "content": "I live in Lisbon"}])
        ```
        """
        read = read_messages(messages, include_system=include_system)
        await self._create()
        request = session_service_pb2.AddMessagesRequest(
            session=self._session_id,
            messages=[message_to_wire(message) for message in read],
            request_id=request_id or new_request_id(),
        )
        if self._stream is None:
            self._stream = join_stream(self._connection)
        pending = await self._stream.submit(request)
        self._open[pending] = None
        pending.answer.add_done_callback(lambda answer: self._note(pending, answer))
        return AsyncAppend(pending)

    async def flush(self) -> None:
        """Waits until all appends of this writer have ended. Raises the first error since the last `flush`.

        ```python
        writer = session.writer()
        writer.add("user", "I live in Lisbon")
        writer.flush()
        writer.close()
        ```
        """
        while self._open:
            await asyncio.wait([pending.answer for pending in self._open])
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    async def close(self) -> None:
        """Ends the writer. Appends without an acknowledgement may be stored or not.

        ```python
        writer = session.writer()
        writer.add("user", "I live in Lisbon")
        writer.flush()
        writer.close()
        ```
        """
        stream, self._stream = self._stream, None
        if stream is not None:
            for pending in list(self._open):
                stream.drop(pending)
            await stream.leave()

    def _note(self, pending: PendingAppend, answer: "asyncio.Future[session_service_pb2.AddMessagesResponse]") -> None:
        self._open.pop(pending, None)
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            self._added(answer.result())
        else:
            self._failed = self._failed or error


class Append(BlockingWrapper[AsyncAppend]):
    """An append of a writer; see AsyncAppend."""

    @property
    def request_id(self) -> str:
        """With it, `add_messages` of the session repeats the append.

        ```python
        append = session.writer().add("user", "I live in Lisbon")
        print(append.done, append.request_id)
        ```
        """
        return self._wrapped.request_id

    @property
    def done(self) -> bool:
        """Whether it is durable, or has failed.

        ```python
        append = session.writer().add("user", "I live in Lisbon")
        print(append.done, append.request_id)
        ```
        """
        return self._wrapped.done

    result = blocking(AsyncAppend.result)


class Writer(BlockingWrapper[AsyncWriter]):
    """Appends to one session over a stream; see AsyncWriter. Any number of threads may share it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        event_loop_thread().run(self._wrapped.__aexit__(kind, error, trace))

    def add(
        self,
        role: RoleName,
        parts: str | Sequence[Part],
        *,
        peer_id: str = "",
        turn_id: str = "",
        created_at: datetime | None = None,
        message_id: str = "",
        speaker: str = "",
        request_id: str | None = None,
    ) -> Append:
        """Appends a message; see AsyncWriter.add.

        ```python
        with session.writer() as writer:
            append = writer.add("user", "I live in Lisbon")
        print(append.result().messages[0].sequence)
        ```
        """
        adding = self._wrapped.add(
            role,
            parts,
            peer_id=peer_id,
            turn_id=turn_id,
            created_at=created_at,
            message_id=message_id,
            speaker=speaker,
            request_id=request_id,
        )
        return Append(event_loop_thread().run(adding))

    def add_messages(
        self, messages: Sequence[MessageForm], *, include_system: bool = False, request_id: str | None = None
    ) -> Append:
        """Appends up to 100 messages; see AsyncWriter.add_messages.

        ```python
        with session.writer() as writer:
            writer.add_messages([{"role": "user", "content": "I live in Lisbon"}])
        ```
        """
        adding = self._wrapped.add_messages(messages, include_system=include_system, request_id=request_id)
        return Append(event_loop_thread().run(adding))

    flush = blocking(AsyncWriter.flush)
    close = blocking(AsyncWriter.close)
