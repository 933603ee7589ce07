"""What comes of calls while it is found out who makes them, and of streams when that cannot be told any more."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc

from runekeep.v1 import session_service_pb2, session_service_pb2_grpc, task_service_pb2, task_service_pb2_grpc
from runekeep_server.app import App, Lifecycle, Service
from runekeep_server.identity import Audience, Caller, Context, Metadata, Principal, Trace
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.rpc import CallParts
from runekeep_server.rpc.audit import Audit
from runekeep_server.rpc.limits import Limits
from runekeep_server.settings import DeadlineSettings, Settings

DELETE = session_service_pb2.DeleteSessionRequest(session="s-1")
SHORT = DeadlineSettings(commit_seconds=0.05)


class Doorman:
    """Lets everybody in as ada. What each test changes is told by the fields."""

    def __init__(self) -> None:
        self.knows = True
        self.asked: Callable[[], Awaitable[None]] = _at_once
        self.watched: Callable[[], Awaitable[None]] = _never

    async def may_know(self, metadata: Metadata) -> bool:
        return self.knows

    async def authenticate(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> Principal:
        await self.asked()
        return Caller("acme", "ada", trace, "key:ada")

    async def until_refused(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> ApiError:
        await self.watched()
        raise AssertionError("nobody is refused here")


async def _at_once() -> None:
    pass


async def _never() -> None:
    await asyncio.Event().wait()


class Log:
    """The store of an audit log, which takes what it is given once it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.written = 0

    async def write_in_account(self, *what: object) -> int:
        await self.open.wait()
        self.written += 1
        return self.written


class Sessions(session_service_pb2_grpc.SessionServiceServicer):
    def __init__(self) -> None:
        self.deleted = 0

    async def DeleteSession(self, request: Any, context: Any) -> session_service_pb2.DeleteSessionResponse:
        self.deleted += 1
        return session_service_pb2.DeleteSessionResponse()


class Tasks(task_service_pb2_grpc.TaskServiceServicer):
    async def WatchTask(self, request: Any, context: Any) -> AsyncIterator[task_service_pb2.WatchTaskResponse]:
        yield task_service_pb2.WatchTaskResponse()
        await _never()


class Served:
    """A server with these parts, and stubs of it."""

    def __init__(self) -> None:
        self.doorman, self.log, self.sessions = Doorman(), Log(), Sessions()

    @asynccontextmanager
    async def serving(self, deadlines: DeadlineSettings = SHORT) -> AsyncIterator[grpc.aio.Channel]:
        audit = Audit(cast(Any, self.log))

        async def factory(settings: Settings, lifecycle: Lifecycle) -> list[Service]:
            lifecycle.calls = CallParts(self.doorman, Limits(settings.limits), audit)
            add_tasks = task_service_pb2_grpc.add_TaskServiceServicer_to_server
            add_sessions = session_service_pb2_grpc.add_SessionServiceServicer_to_server
            return [
                Service(add_sessions, self.sessions, "runekeep.v1.SessionService"),
                Service(add_tasks, Tasks(), "runekeep.v1.TaskService"),
            ]

        app = App(Settings(address="127.0.0.1:0", drain_seconds=0, deadlines=deadlines), factory)
        await app.start()
        async with grpc.aio.insecure_channel(app.address) as channel:
            yield channel
        await app.stop()
        self.log.open.set()
        await audit.close()

    async def delete(self, channel: grpc.aio.Channel) -> tuple[str, str]:
        """Code and text of an audited call whose caller sets no deadline."""
        async with asyncio.timeout(20):
            try:
                await session_service_pb2_grpc.SessionServiceStub(channel).DeleteSession(DELETE)
            except grpc.aio.AioRpcError as error:
                return error.code().name, error.details() or ""
        return "OK", ""


async def test_who_is_known_only_at_the_second_look_is_told_to_come_again() -> None:
    served = Served()
    async with served.serving(DeadlineSettings()) as channel:
        served.doorman.knows = False
        code, text = await served.delete(channel)
        assert (code, served.log.written) == ("UNAVAILABLE", 0) and "just changed" in text
        served.doorman.knows = True
        assert await served.delete(channel) == ("OK", "")
    # The row and how it ended.
    assert served.log.written == 2


async def test_to_find_out_who_calls_is_within_the_time_of_the_call() -> None:
    served = Served()
    served.doorman.asked = _never
    async with served.serving() as channel:
        assert (await served.delete(channel))[0] == "DEADLINE_EXCEEDED"
    assert served.sessions.deleted == 0


async def test_to_write_a_call_down_is_within_its_time() -> None:
    served = Served()
    served.log.open.clear()
    async with served.serving() as channel:
        assert (await served.delete(channel))[0] == "DEADLINE_EXCEEDED"
    assert served.sessions.deleted == 0
    # The row came after all, and with how the call ended.
    assert served.log.written == 2


async def test_a_stream_ends_when_nobody_can_tell_any_more_whether_it_may_go_on() -> None:
    served, fail = Served(), asyncio.Event()

    async def failing() -> None:
        await fail.wait()
        raise ValueError("the path of the store")

    served.doorman.watched = failing
    async with served.serving() as channel:
        watch = task_service_pb2_grpc.TaskServiceStub(channel).WatchTask(
            task_service_pb2.WatchTaskRequest(task_id="t-1")
        )
        assert await watch.read() is not grpc.aio.EOF
        fail.set()
        async with asyncio.timeout(20):
            assert await watch.code() is grpc.StatusCode.INTERNAL
        assert "path of the store" not in (await watch.details() or "")
