"""What is written down of administrative and destructive calls, before they are served; on both stores."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import admin_service_pb2 as pb
from runekeep.v1 import history_service_pb2, memory_service_pb2, session_service_pb2, space_service_pb2
from runekeep_common import failpoints
from runekeep_server.rpc.methods import METHODS
from tests.support.callers import Caller, failure, said, unique
from tests.support.changes import put, written
from tests.support.exports import exported, imported
from tests.support.keys import KEYED, Operator, in_store
from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.postgres_long

Servers = Callable[..., ServerProcess]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    # In development mode, which keeps the same log.
    return either_store


@pytest.fixture
def operator(channel: grpc.aio.Channel) -> Operator:
    return Operator(channel)


def told(event: Any) -> tuple[str, str, str, str]:
    return event.method, event.user, event.subject, event.code


async def test_each_call_that_destroys_or_discloses_in_bulk_is_written_down(
    channel: grpc.aio.Channel, operator: Operator, server: ServerProcess
) -> None:
    account = unique("account")
    ann, bob = Caller(channel, "ann", account), Caller(channel, "bob", account)
    session = await ann.session()
    await ann.add(session, said("hello"))
    await written(ann, put("preferences", topic="Tea", content="Green."))
    # Reads and writes are not written down, and nor is a look at what would become of a rollback.
    rollback = history_service_pb2.RollbackRevisionRequest
    await ann.history.RollbackRevision(rollback(revision=1, preview=True))
    assert not (await operator.events(account=account)).events

    await ann.history.RollbackRevision(rollback(revision=1))
    archive = await exported(ann)
    await imported(bob, archive)
    await ann.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session))
    await failure(ann.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session="none")))
    erased = (await bob.spaces.EraseData(space_service_pb2.EraseDataRequest(user="bob"))).erasure.erasure_id
    await ann.memories.DeleteUser(memory_service_pb2.DeleteUserRequest(user="ann"))

    events = (await operator.events(account=account)).events
    assert [told(event) for event in reversed(events)] == [
        ("HistoryService/RollbackRevision", "ann", "revision 1", "OK"),
        ("SpaceService/ExportSpace", "ann", "", "OK"),
        ("SpaceService/ImportSpace", "bob", "", "OK"),
        ("SessionService/DeleteSession", "ann", session, "OK"),
        ("SessionService/DeleteSession", "ann", "none", "NOT_FOUND"),
        ("SpaceService/EraseData", "bob", f"user {erased}", "OK"),
        ("MemoryService/DeleteUser", "ann", "ann", "OK"),
    ]
    for event in events:
        assert (event.account, event.actor, event.scope) == (account, "development", pb.SCOPE_USER)
        assert event.peer.startswith("127.0.0.1:") and len(event.trace_id) == 32 and event.create_time.seconds
    assert [event.sequence for event in events] == sorted((event.sequence for event in events), reverse=True)


async def test_what_callers_name_stays_one_line_of_bounded_length(
    channel: grpc.aio.Channel, operator: Operator
) -> None:
    ann = Caller(channel, "ann", unique("account"))
    forged = "s\n2026-11-22  OK  by key:admin\r\x1b[2J\u202egnp\u2028\u200b" + "é" * 900
    await failure(ann.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=forged)))
    (deleted,) = (await operator.events(page_size=1)).events
    kept = "s\ufffd2026-11-22  OK  by key:admin\ufffd\ufffd[2J\ufffdgnp\ufffd\ufffd"
    assert deleted.subject == kept + "é" * (512 - len(kept))


async def test_calls_of_operators_are_written_down(operator: Operator) -> None:
    account, request_id = unique("account"), unique("r")
    made = await operator.make(pb.SCOPE_USER, account, "ada", request_id=request_id)
    key_id = made.key.key_id
    await failure(operator.make(pb.SCOPE_USER, account, "ada", request_id=request_id))
    await operator.rotate(key_id)
    await operator.revoke(key_id)
    limits = pb.UpdateAccountLimitsRequest(account=account, limits=pb.AccountLimits(streams=7))
    metadata = (("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"),)
    await operator.stub.UpdateAccountLimits(limits, metadata=metadata)
    await operator.keys(account=account)
    events = (await operator.events(account=account)).events
    assert [told(event) for event in reversed(events)] == [
        ("AdminService/CreateApiKey", "", key_id, "OK"),
        ("AdminService/CreateApiKey", "", key_id, "ALREADY_EXISTS"),
        ("AdminService/RotateApiKey", "", key_id, "OK"),
        ("AdminService/RevokeApiKey", "", key_id, "OK"),
        ("AdminService/UpdateAccountLimits", "", account, "OK"),
    ]
    assert {event.scope for event in events} == {pb.SCOPE_ADMIN} and events[0].trace_id == TRACE
    # What names nothing that there is stands in the log all the same.
    await failure(operator.revoke("nobody"))
    newest = (await operator.events(page_size=1)).events[0]
    assert told(newest) == ("AdminService/RevokeApiKey", "", "nobody", "NOT_FOUND")


async def test_the_log_is_read_by_account_actor_time_and_page(channel: grpc.aio.Channel, operator: Operator) -> None:
    account = unique("account")
    ann = Caller(channel, "ann", account)
    for number in range(5):
        await failure(ann.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=f"s-{number}")))
    found, token = [], ""
    while True:
        page = await operator.events(account=account, page_size=2, page_token=token)
        found += page.events
        if not (token := page.next_page_token):
            break
    assert [event.subject for event in found] == ["s-4", "s-3", "s-2", "s-1", "s-0"]
    middle = found[2].create_time
    later = (await operator.events(account=account, start_time=middle)).events
    earlier = (await operator.events(account=account, end_time=middle)).events
    assert [event.subject for event in (*later, *earlier)] == [event.subject for event in found]
    assert later[-1].subject == "s-2"
    assert len((await operator.events(account=account, actor="development")).events) == 5
    assert not (await operator.events(account=account, actor="key:x")).events
    # As long as the longest name of a certificate.
    assert not (await operator.events(account=account, actor="certificate:spiffe://" + "a" * 2048)).events
    forged = await failure(operator.events(account=account, page_token="forged"))
    assert forged.fields == ["page_token"]
    wrong = await failure(operator.events(start_time={"seconds": 2**40}))
    assert wrong.fields == ["start_time"]


def test_every_call_of_an_operator_that_changes_something_is_logged() -> None:
    operators = [one for one in METHODS.values() if one.name.startswith("AdminService/")]
    logged = {one.name.partition("/")[2] for one in operators if one.audit is not None}
    names = {one.name.partition("/")[2] for one in operators}
    assert logged == {name for name in names if not name.startswith(("List", "Get"))}


async def test_a_server_that_is_killed_leaves_the_row_of_what_it_had_begun(own_server: Servers, tmp_path: Path) -> None:
    server = own_server({"RUNEKEEP_FAILPOINT": f"{failpoints.ERASURE_BEFORE_COMMIT}:KILL"})
    async with grpc.aio.insecure_channel(server.address) as channel:
        ann = Caller(channel, "ann", "acme")
        await ann.add(await ann.session(session_id="s"), said("hello"))
        request = space_service_pb2.EraseDataRequest(session="s")
        assert (await failure(ann.spaces.EraseData(request))).code is grpc.StatusCode.UNAVAILABLE
    server.kill()
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        events = (await Operator(channel).events()).events
        assert [told(event) for event in events] == [("SpaceService/EraseData", "ann", "session", "")]
        # And what it stands for was not done.
        ann = Caller(channel, "ann", "acme")
        assert (await ann.sessions.GetSession(session_service_pb2.GetSessionRequest(session="s"))).session.session_id
    server.stop()


async def test_a_call_that_cannot_be_written_down_is_refused(own_server: Servers) -> None:
    server = own_server()
    with sqlite3.connect(server.data_dir / "runekeep.db", isolation_level=None) as store:
        store.execute(
            "CREATE TRIGGER full BEFORE INSERT ON audit_events BEGIN SELECT RAISE(ABORT, 'the log is full'); END"
        )
    async with grpc.aio.insecure_channel(server.address) as channel:
        ann, operator = Caller(channel, "ann", "acme"), Operator(channel)
        await ann.session(session_id="s")
        for call in (
            ann.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session="s")),
            ann.memories.DeleteUser(memory_service_pb2.DeleteUserRequest(user="ann")),
            operator.make(pb.SCOPE_ADMIN),
            exported(ann),
        ):
            assert (await failure(call)).code is grpc.StatusCode.INTERNAL
        assert (await ann.sessions.GetSession(session_service_pb2.GetSessionRequest(session="s"))).session.session_id
        assert not (await operator.keys()).keys
    server.kill()


async def test_old_rows_are_taken_away(own_server: Servers) -> None:
    settings = {**KEYED, "RUNEKEEP_AUDIT_RETENTION_DAYS": "2"}
    server = own_server(settings)
    async with grpc.aio.insecure_channel(server.address) as channel:
        operator = Operator(channel)
        for _ in range(3):
            await operator.make(pb.SCOPE_ADMIN)
        days = 86_400 * 1_000_000
        await in_store(
            {}, server.data_dir, f"UPDATE audit_events SET created_at = created_at - 3 * {days} WHERE sequence = 1"
        )
        await in_store(
            {}, server.data_dir, f"UPDATE audit_events SET created_at = created_at - {days} WHERE sequence = 2"
        )
    server.stop()
    # The sweep is among the first things that a server does.
    server = own_server(settings)
    async with grpc.aio.insecure_channel(server.address) as channel:
        operator = Operator(channel)
        async with asyncio.timeout(30):
            while len(events := (await operator.events()).events) == 3:  # noqa: ASYNC110  # told to nobody
                await asyncio.sleep(0.02)
        assert [event.sequence for event in events] == [3, 2]
    server.stop()
