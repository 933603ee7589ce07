"""What a call passes through, seen from outside: a real server in this process, a real channel to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2,
    extractor_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
    task_service_pb2,
    task_service_pb2_grpc,
)
from runekeep_server.app import App, Lifecycle, Service
from runekeep_server.identity import current_caller, current_trace
from runekeep_server.protocol.api_error import FieldViolation
from runekeep_server.protocol.errors import invalid_fields, not_found, unavailable
from runekeep_server.protocol.validation import validate_message
from runekeep_server.settings import DeadlineSettings, Settings
from runekeep_storage.errors import StoreUnavailable

Handler = Callable[[Any, Any], Awaitable[Any]]
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Sessions(session_service_pb2_grpc.SessionServiceServicer):
    """GetSession does what the test says."""

    def __init__(self, get: Handler) -> None:
        self._get = get

    async def GetSession(self, request: Any, context: Any) -> Any:
        return await self._get(request, context)


class Tasks(task_service_pb2_grpc.TaskServiceServicer):
    """WatchTask answers without end, or waits without end after its first answer."""

    def __init__(self) -> None:
        self.flood = False
        self.closed_in_call: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def WatchTask(self, request: Any, context: Any) -> AsyncIterator[task_service_pb2.WatchTaskResponse]:
        task = asyncio.current_task()
        answer = task_service_pb2.WatchTaskResponse()
        answer.snapshot.session = "s" * 60_000
        try:
            yield answer
            while self.flood:
                yield answer
            await asyncio.Event().wait()
        finally:
            self.closed_in_call.set_result(asyncio.current_task() is task)


class Extractors(extractor_service_pb2_grpc.ExtractorServiceServicer):
    """Work checks each message and answers with the trace; GetJobInput never gets to its end."""

    async def Work(self, request_iterator: Any, context: Any) -> None:
        async for request in request_iterator:
            validate_message(request)
            with pytest.raises(LookupError):
                current_caller()
            drain = extractor_service_pb2.WorkResponse()
            drain.verdict.lease.job_id = current_trace().trace_id
            await context.write(drain)

    async def GetJobInput(self, request: Any, context: Any) -> AsyncIterator[Message]:
        yield extractor_service_pb2.GetJobInputResponse()
        await asyncio.Event().wait()


@asynccontextmanager
async def serving(
    *services: Service, options: Sequence[tuple[str, Any]] = (), **settings: Any
) -> AsyncIterator[grpc.aio.Channel]:
    async def factory(_settings: Settings, _lifecycle: Lifecycle) -> list[Service]:
        return list(services)

    app = App(Settings(address="127.0.0.1:0", drain_seconds=0, **settings), factory)
    await app.start()
    try:
        async with grpc.aio.insecure_channel(app.address, options=options) as channel:
            yield channel
    finally:
        await app.stop()


def sessions(get: Handler) -> Service:
    add = session_service_pb2_grpc.add_SessionServiceServicer_to_server
    return Service(add, Sessions(get), "runekeep.v1.SessionService")


async def refusal(call: Any) -> tuple[grpc.StatusCode, str, dict[str, Any]]:
    """Code, text and details by their names of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    status = rpc_status.from_call(caught.value)
    details = {}
    for packed in status.details if status else ():
        name = packed.type_url.rsplit(".", 1)[1]
        details[name] = getattr(error_details_pb2, name).FromString(packed.value)
    return caught.value.code(), caught.value.details() or "", details


async def answer(request: Any, context: Any) -> session_service_pb2.GetSessionResponse:
    return session_service_pb2.GetSessionResponse(created=True)


def get(channel: grpc.aio.Channel, session: str = "s-1", **how: Any) -> Any:
    stub = session_service_pb2_grpc.SessionServiceStub(channel)
    return stub.GetSession(session_service_pb2.GetSessionRequest(session=session), **how)


async def test_error_details_on_the_wire() -> None:
    async def refuse(request: Any, context: Any) -> None:
        raise not_found("session", request.session, "Create it first")

    async with serving(sessions(refuse)) as channel:
        code, text, details = await refusal(get(channel, "sitzung-漢"))
    assert code is grpc.StatusCode.NOT_FOUND
    assert text == "There is no session `sitzung-漢`. Create it first."
    assert set(details) == {"ErrorInfo", "ResourceInfo"}
    assert (details["ErrorInfo"].domain, details["ErrorInfo"].reason) == ("runekeep.dev", "RESOURCE_NOT_FOUND")
    assert (details["ResourceInfo"].resource_type, details["ResourceInfo"].resource_name) == ("session", "sitzung-漢")


async def test_longest_error_arrives_whole() -> None:
    async def refuse(request: Any, context: Any) -> None:
        text = "漢" * 5000
        raise invalid_fields([FieldViolation(text, text)] * 100)

    async with serving(sessions(refuse)) as channel:
        code, _, details = await refusal(get(channel))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert len(details["BadRequest"].field_violations) == 10


async def test_invalid_fields_are_named_and_the_handler_is_not_reached() -> None:
    async with serving(sessions(answer)) as channel:
        stub = session_service_pb2_grpc.SessionServiceStub(channel)
        part = common_pb2.Part(tool=common_pb2.ToolPart())
        request = session_service_pb2.AddMessagesRequest(
            session="s-1",
            messages=[
                common_pb2.Message(role=common_pb2.ROLE_USER),
                common_pb2.Message(role=common_pb2.ROLE_USER, parts=[part]),
            ],
        )
        code, text, details = await refusal(stub.AddMessages(request))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("messages[0].parts: ")
    assert details["ErrorInfo"].reason == "FIELD_INVALID"
    fields = [violation.field for violation in details["BadRequest"].field_violations]
    assert fields == ["messages[0].parts", "messages[1].parts[0].tool.tool_name"]


async def test_incident_hides_what_happened() -> None:
    async def fail(request: Any, context: Any) -> None:
        raise ValueError("the user said: my secret")

    async with serving(sessions(fail)) as channel:
        code, text, details = await refusal(get(channel))
    assert code is grpc.StatusCode.INTERNAL
    assert set(details) == {"ErrorInfo"}
    assert details["ErrorInfo"].reason == "INTERNAL"
    assert details["ErrorInfo"].metadata["incident"] in text
    assert "secret" not in text + str(details)
    assert "ValueError" not in text + str(details)


async def test_expected_faults_of_the_store_are_told_by_their_reason() -> None:
    async def fail(request: Any, context: Any) -> None:
        raise StoreUnavailable("disk I/O error in /srv/secret")

    async with serving(sessions(fail)) as channel:
        code, text, details = await refusal(get(channel))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert details["ErrorInfo"].reason == "DEPENDENCY_UNAVAILABLE"
    assert "RetryInfo" in details
    assert "secret" not in text + str(details)


async def test_repeats_by_the_service_config_wait_as_long_as_the_server_asks() -> None:
    calls = 0

    async def fail_once(request: Any, context: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise unavailable("store", "It is away", retry_after=0.001)
        return await answer(request, context)

    # Without the trailer a client with this config would wait longer than the test.
    policy = {
        "maxAttempts": 2,
        "initialBackoff": "3600s",
        "maxBackoff": "3600s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})
    async with serving(sessions(fail_once), options=[("grpc.service_config", config)]) as channel:
        assert (await get(channel, timeout=60)).created is True
    assert calls == 2


async def test_abort_by_a_handler_stays_as_it_is() -> None:
    async def abort(request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.DATA_LOSS, "gone")

    async with serving(sessions(abort)) as channel:
        assert await refusal(get(channel)) == (grpc.StatusCode.DATA_LOSS, "gone", {})


async def test_method_without_a_handler_is_unimplemented() -> None:
    async with serving(sessions(answer)) as channel:
        stub = session_service_pb2_grpc.SessionServiceStub(channel)
        code, _, _ = await refusal(stub.ListSessions(session_service_pb2.ListSessionsRequest()))
        assert code is grpc.StatusCode.UNIMPLEMENTED
        unknown = channel.unary_unary("/runekeep.v1.SessionService/Nothing")
        code, _, _ = await refusal(unknown(b""))
        assert code is grpc.StatusCode.UNIMPLEMENTED


async def test_deadline_of_the_server_where_the_caller_sets_none() -> None:
    cancelled = asyncio.Event()

    async def wait(request: Any, context: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(sessions(wait), deadlines=DeadlineSettings(call_seconds=0.05)) as channel:
        code, text, details = await refusal(get(channel))
        assert cancelled.is_set()
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "0.05 s" in text
    assert details == {}


async def test_deadline_of_the_caller_replaces_that_of_the_server() -> None:
    async def outlast(request: Any, context: Any) -> Any:
        # Longer than the server's own limit: waiting it out is the point.
        await asyncio.sleep(0.1)
        return await answer(request, context)

    async with serving(sessions(outlast), deadlines=DeadlineSettings(call_seconds=0.02)) as channel:
        assert (await get(channel, timeout=60)).created is True


async def test_timeout_inside_a_handler_is_a_fault_not_a_deadline() -> None:
    async def time_out(request: Any, context: Any) -> None:
        raise TimeoutError("inner")

    async with serving(sessions(time_out)) as channel:
        code, _, _ = await refusal(get(channel))
    assert code is grpc.StatusCode.INTERNAL


async def test_cancelled_call_cancels_the_handler() -> None:
    reached, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(request: Any, context: Any) -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(sessions(wait)) as channel:
        call = get(channel)
        await reached.wait()
        call.cancel()
        await cancelled.wait()


async def test_identity_from_metadata_is_that_of_the_call() -> None:
    seen = []

    async def look(request: Any, context: Any) -> Any:
        seen.append(current_caller())
        return await answer(request, context)

    metadata = (("x-runekeep-account", "acme"), ("x-runekeep-user", "ada"), ("traceparent", PARENT))
    async with serving(sessions(look)) as channel:
        await get(channel, metadata=metadata)
        await get(channel)
    assert [(caller.account, caller.user) for caller in seen] == [("acme", "ada"), ("default", "default")]
    assert seen[0].trace.traceparent == PARENT
    assert seen[1].trace.trace_id != seen[0].trace.trace_id


async def test_stream_of_answers_is_closed_in_its_call_when_the_caller_goes() -> None:
    tasks = Tasks()
    tasks.flood = True
    service = Service(task_service_pb2_grpc.add_TaskServiceServicer_to_server, tasks, "runekeep.v1.TaskService")
    async with serving(service) as channel:
        watch = task_service_pb2_grpc.TaskServiceStub(channel).WatchTask(task_service_pb2.WatchTaskRequest(task_id="t"))
        await watch.read()
        watch.cancel()
        assert await tasks.closed_in_call is True


async def test_watching_has_no_deadline() -> None:
    tasks = Tasks()
    service = Service(task_service_pb2_grpc.add_TaskServiceServicer_to_server, tasks, "runekeep.v1.TaskService")
    quick = DeadlineSettings(call_seconds=0.02)
    async with serving(service, sessions(lambda *_: asyncio.Event().wait()), deadlines=quick) as channel:
        watch = task_service_pb2_grpc.TaskServiceStub(channel).WatchTask(task_service_pb2.WatchTaskRequest(task_id="t"))
        await watch.read()
        # A call that began later has run into the limit by now.
        assert (await refusal(get(channel)))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        assert not tasks.closed_in_call.done()
        watch.cancel()
        assert await tasks.closed_in_call is True


def extractors() -> Service:
    add = extractor_service_pb2_grpc.add_ExtractorServiceServicer_to_server
    return Service(add, Extractors(), "runekeep.v1.ExtractorService")


async def test_stream_of_answers_meets_its_deadline_after_the_first() -> None:
    # Long enough for the first answer on a busy machine.
    async with serving(extractors(), deadlines=DeadlineSettings(job_input_seconds=0.5)) as channel:
        lease = extractor_service_pb2.Lease(job_id="j", fencing_token=1)
        stub = extractor_service_pb2_grpc.ExtractorServiceStub(channel)
        call = stub.GetJobInput(extractor_service_pb2.GetJobInputRequest(lease=lease))
        assert await call.read() == extractor_service_pb2.GetJobInputResponse()
        assert (await refusal(call.read()))[0] is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_deadline_at_the_very_moment_of_the_first_answer_reaches_the_caller() -> None:
    request = extractor_service_pb2.GetJobInputRequest(lease=extractor_service_pb2.Lease(job_id="j", fencing_token=1))
    for step in range(50):
        seconds = 0.0002 + step * 0.00006
        async with serving(extractors(), deadlines=DeadlineSettings(job_input_seconds=seconds)) as channel:
            call = extractor_service_pb2_grpc.ExtractorServiceStub(channel).GetJobInput(request)
            async with asyncio.timeout(60):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    while await call.read() is not grpc.aio.EOF:
                        pass
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_work_is_a_workers_and_each_message_is_checked() -> None:
    async with serving(extractors()) as channel:
        stub = extractor_service_pb2_grpc.ExtractorServiceStub(channel)
        # A worker's metadata may name no user, so an unsafe one is not even looked at.
        work = stub.Work(metadata=(("x-runekeep-user", "not / safe"), ("traceparent", PARENT)))
        await work.write(extractor_service_pb2.WorkRequest(ready=extractor_service_pb2.Ready(credits=1)))
        said = await work.read()
        assert said.verdict.lease.job_id == PARENT.split("-")[1]
        await work.write(extractor_service_pb2.WorkRequest())
        code, text, details = await refusal(work.read())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details["BadRequest"].field_violations[0].field == "message"
    assert isinstance(text, str)
