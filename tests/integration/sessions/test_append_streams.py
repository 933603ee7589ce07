"""StreamMessages: what AddMessages does, over one stream, on both stores."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct

from runekeep import AsyncClient
from runekeep.v1 import admin_service_pb2 as admin
from runekeep.v1 import common_pb2
from runekeep.v1 import session_service_pb2 as pb
from runekeep_server.protocol.message_shape import MAX_FIELDS
from runekeep_server.sessions.append_streams import WINDOW_APPENDS
from tests.crash.tunnel import Tunnel
from tests.integration.conftest import Callers
from tests.support.append_streams import OpenStream, append, sent_together, texts
from tests.support.callers import Caller, failure, said, unique, used_tool
from tests.support.keys import KEYED, Operator, in_store, sending
from tests.support.server_process import ServerProcess

Servers = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    # On a busy machine a stream must not end because an append takes long.
    return {**either_store, "RUNEKEEP_DEADLINES__CALL_SECONDS": "60"}


async def test_appends_are_answered_as_by_calls(caller: Caller) -> None:
    session, other = await caller.session(), await caller.session()
    async with OpenStream.of(caller) as stream:
        assert stream.window.appends == WINDOW_APPENDS
        first = await stream.added(append(session, "one", "two", request_id="a"))
        assert [one.id for one in first.messages] == ["a-0", "a-1"] and first.live_message_count == 2
        await stream.added(append(other, "else", request_id="b"), append(session, "three", request_id="c"))
        assert stream.acknowledged[3].added.messages[0].sequence == 3
        await stream.finish()
    assert await texts(caller, session) == ["one", "two", "three"]
    assert await texts(caller, other) == ["else"]


async def test_an_append_commits_the_session_by_its_rules(caller: Caller) -> None:
    rules = pb.AutoCommit(message_count=2)
    session = (await caller.sessions.CreateSession(pb.CreateSessionRequest(auto_commit=rules))).session.session_id
    async with OpenStream.of(caller) as stream:
        assert not (await stream.added(append(session, "one", request_id="a"))).HasField("auto_commit")
        added = await stream.added(append(session, "two", request_id="b"))
        assert added.auto_commit.archived and added.live_message_count == 0
    assert (await caller.task(added.auto_commit.task_id)).session == caller.uri(f"sessions/{session}")


async def test_many_appends_under_way_keep_the_order_of_each_session(caller: Caller) -> None:
    sessions = [await caller.session() for _ in range(3)]
    appends = [append(sessions[n % 3], f"{n}", request_id=f"r-{n}") for n in range(3 * WINDOW_APPENDS)]
    async with OpenStream.of(caller) as stream:
        await sent_together(stream, appends)
    for place, session in enumerate(sessions):
        assert await texts(caller, session) == [f"{n}" for n in range(place, len(appends), 3)]


async def test_large_and_small_appends_keep_their_order(caller: Caller) -> None:
    session = await caller.session()
    appends = []
    for n in range(12):
        one = append(session, f"{n}", request_id=f"r-{n}")
        if n % 3 == 0:
            one.messages.append(used_tool(f"call-{n}", "output " * (60_000 if n % 2 else 5_000), id=f"tool-{n}"))
        appends.append(one)
    async with OpenStream.of(caller) as stream:
        await sent_together(stream, appends)
        assert all(one.HasField("added") for one in stream.acknowledged.values())
    listed = await caller.sessions.ListMessages(pb.ListMessagesRequest(session=session, page_size=200))
    assert [one.id for one in listed.messages] == [one.id for each in appends for one in each.messages]


async def test_a_refused_append_is_told_as_by_a_call_and_the_stream_goes_on(caller: Caller) -> None:
    session = await caller.session()
    bad = [
        append("nowhere", "lost", request_id="a"),
        append("viking://user/somebody-else/sessions/theirs", "lost", request_id="b"),
        pb.AddMessagesRequest(session=session, request_id="c"),
        pb.AddMessagesRequest(session=session, messages=[common_pb2.Message(role=1)], request_id="d"),
        pb.AddMessagesRequest(session=session, messages=[said("other", id="kept")], request_id="e"),
        pb.AddMessagesRequest(session=session, messages=[said("x")], request_id="used"),
    ]
    async with OpenStream.of(caller) as stream:
        await stream.added(pb.AddMessagesRequest(session=session, messages=[said("one", id="kept")], request_id="used"))
        for one in bad:
            streamed, called = await stream.refused(one), await failure(caller.sessions.AddMessages(one))
            assert (streamed.seen, streamed.fields, streamed.message) == (called.seen, called.fields, called.message)
        nameless = pb.AddMessagesRequest(session=session, messages=[said("x")])
        assert (await stream.refused(nameless)).fields == ["request_id"]
        # Beside others of the same session, in one request.
        last = await stream.send(
            append(session, "two", request_id="f"), bad[4], append(session, "three", request_id="g")
        )
        await stream.answer(last - 1)
        await stream.answer(last)
        assert stream.acknowledged[last - 1].HasField("error")
        await stream.finish()
    assert await texts(caller, session) == ["one", "two", "three"]


async def test_an_append_of_too_many_fields_is_refused_alone(caller: Caller) -> None:
    session = await caller.session()
    shape = Struct()
    shape.update({"nulls": [None] * MAX_FIELDS})
    tool = common_pb2.ToolPart(tool_id="t", tool_name="t", input=shape)
    hostile = common_pb2.Message(role=2, parts=[common_pb2.Part(tool=tool)])  # type: ignore[arg-type]  # a number
    async with OpenStream.of(caller) as stream:
        refused = await stream.refused(pb.AddMessagesRequest(session=session, messages=[hostile], request_id="a"))
        assert refused.seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
        await stream.added(append(session, "one", request_id="b"))
    assert await texts(caller, session) == ["one"]


async def test_a_request_of_more_appends_than_the_window_ends_the_stream(caller: Caller) -> None:
    async with OpenStream.of(caller) as stream:
        await stream.send(*[pb.AddMessagesRequest()] * (WINDOW_APPENDS + 1))
        failed = await stream.failure()
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["appends"]


async def test_what_is_sent_again_is_stored_once_by_stream_and_by_call(caller: Caller) -> None:
    session = await caller.session()
    one, two = append(session, "one", request_id="a"), append(session, "two", request_id="b")
    async with OpenStream.of(caller) as stream:
        first = await stream.added(one)
        assert await stream.added(one) == first
        assert await caller.sessions.AddMessages(one) == first
        second = await caller.sessions.AddMessages(two)
        assert await stream.added(one, two) == second
    async with OpenStream.of(caller) as stream:
        assert await stream.added(one, one, one) == first
    assert await texts(caller, session) == ["one", "two"]


async def test_a_stream_belongs_to_its_user(callers: Callers) -> None:
    owner = callers()
    session = await owner.session()
    await owner.add(session, said("mine"))
    for other in (callers(account=owner.account), callers(user=owner.user), callers()):
        async with OpenStream.of(other) as stream:
            for name in (session, f"viking://session/{session}"):
                refused = await stream.refused(append(name, "theirs", request_id=unique("r")))
                assert refused.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
            refused = await stream.refused(append(owner.uri(f"sessions/{session}"), "theirs", request_id="x"))
            assert refused.code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
    assert await texts(owner, session) == ["mine"]


async def test_a_server_that_stops_acknowledges_what_it_read_and_ends_the_stream(
    own_server: Servers, fresh_store: dict[str, str]
) -> None:
    server = own_server(fresh_store)
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "ada")
        session = await caller.session()
        async with OpenStream.of(caller) as idle, OpenStream.of(caller) as stream:
            await stream.added(append(session, "one", request_id="a"))
            await stream.send(*(append(session, f"{n}", request_id=f"r-{n}") for n in range(50)))
            server.terminate()
            for each in (stream, idle):
                ended = await each.failure()
                assert ended.seen == ("UNAVAILABLE", "DEPENDENCY_UNAVAILABLE") and ended.retry_seconds is not None
    await asyncio.to_thread(server.ended)
    acknowledged = [one.number for one in stream.acknowledged.values() if one.HasField("added")]
    server.start(server.address)
    async with grpc.aio.insecure_channel(server.address) as channel:
        stored = await texts(Caller(channel, "ada"), session)
    assert len(stored) >= len(acknowledged)
    assert stored == ["one", *(f"{n}" for n in range(50))][: len(stored)]
    server.stop()


async def test_a_caller_who_reads_no_acknowledgements_is_stopped(callers: Callers, server: ServerProcess) -> None:
    """Each append lists 100 messages in its acknowledgement, so that the connection is soon full; its caller's side is
    kept from making room for more."""
    other = callers()
    theirs, sent = await other.session(), 0
    async with (
        grpc.aio.insecure_channel(server.address, options=[("grpc.http2.bdp_probe", 0)]) as channel,
        OpenStream.of(caller := Caller(channel, unique("user"), unique("account"))) as stream,
    ):
        session = await caller.session()
        with pytest.raises(TimeoutError):
            while True:
                one = append(session, *["x"] * 100, request_id=f"r-{sent}")
                async with asyncio.timeout(5):
                    await stream.send(one)
                sent += 1
                assert sent < 10 * WINDOW_APPENDS, "the server reads on and on"
        async with OpenStream.of(other) as free:
            await free.added(append(theirs, "one", request_id="a"))
        found = await caller.sessions.GetSession(pb.GetSessionRequest(session=session))
        assert 0 < found.session.message_count <= 100 * sent


async def test_many_connections_of_a_writer_break(server: ServerProcess, caller: Caller) -> None:
    """The client resumes; what was sent before and behind each break is there once and in order."""
    tunnel = Tunnel(int(server.address.rpartition(":")[2]))
    await tunnel.start()
    expected = [f"{n}" for n in range(600)]
    try:
        async with AsyncClient(f"127.0.0.1:{tunnel.port}", user=caller.user, account=caller.account) as client:
            sessions = [client.session(f"s-{n}") for n in range(2)]
            async with sessions[0].writer() as first, sessions[1].writer() as second:
                for text in expected:
                    await first.add("user", text)
                    await second.add("user", text)
                    if int(text) % 97 == 50:
                        tunnel.cut()
    finally:
        await tunnel.stop()
    for number in range(2):
        assert await texts(caller, f"s-{number}") == expected


async def test_a_server_is_killed_under_a_writer(own_server: Servers, fresh_store: dict[str, str]) -> None:
    server = own_server(fresh_store)
    expected = [f"{n}" for n in range(400)]
    async with AsyncClient(server.address, user="ada") as client:
        session = client.session("kept")
        async with session.writer() as writer:
            handles = []
            for text in expected:
                handles.append(await writer.add("user", text))
                if int(text) in (100, 250):
                    await handles[-20].result()
                    server.kill()
                    await asyncio.to_thread(server.start, server.address)
            await writer.flush()
            assert [(await one.result()).messages[0].sequence for one in handles] == list(range(1, 401))
        found = [message.parts[0] async for message in session.messages("all")]
    assert [getattr(part, "text", "") for part in found] == expected
    await asyncio.to_thread(server.stop)


async def test_streams_of_an_account_are_bounded(own_server: Servers) -> None:
    server = own_server({"RUNEKEEP_LIMITS__ACCOUNT_STREAMS": "2"})
    async with grpc.aio.insecure_channel(server.address) as channel:
        ada, bob = Caller(channel, "ada"), Caller(channel, "bob")
        async with OpenStream.of(ada), OpenStream.of(bob) as second:
            failed = await OpenStream.of(ada).failure()
            assert failed.seen == ("RESOURCE_EXHAUSTED", "RATE_LIMITED")
            async with OpenStream.of(Caller(channel, "ada", "elsewhere")):
                pass
            await second.finish()
    await asyncio.to_thread(server.stop)


async def test_appends_wait_for_the_rate_of_their_account(own_server: Servers) -> None:
    """Where calls are refused."""
    limits = {"RUNEKEEP_LIMITS__ACCOUNT_CALLS_PER_SECOND": "20", "RUNEKEEP_LIMITS__ACCOUNT_BURST_SECONDS": "0.5"}
    server = own_server(limits)
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "ada")
        session = await caller.session()
        appends = [append(session, f"{n}", request_id=f"r-{n}") for n in range(40)]
        async with OpenStream.of(caller) as stream:
            await sent_together(stream, appends)
            assert all(one.HasField("added") for one in stream.acknowledged.values())

        async def refused(one: Any) -> bool:
            try:
                await caller.sessions.AddMessages(one)
            except grpc.aio.AioRpcError as error:
                return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            return False

        assert any(await asyncio.gather(*map(refused, appends)))
        await asyncio.sleep(1)
        assert await texts(caller, session) == [f"{n}" for n in range(40)]
    await asyncio.to_thread(server.stop)


async def test_a_request_of_other_fields_ends_the_stream(caller: Caller) -> None:
    """Its two million fields are not counted one by one."""
    stream = OpenStream.of(caller)
    async with stream:
        await stream.send_bytes(b"\x10\x00" * 2_000_000)
        refused = await stream.failure()
    assert refused.seen[0] == "INVALID_ARGUMENT" and "fields" in refused.message


async def test_large_appends_and_large_calls_do_not_wait_for_each_other(own_server: Servers) -> None:
    times = {"RUNEKEEP_DEADLINES__CALL_SECONDS": "60"}
    server = own_server({"RUNEKEEP_LIMITS__ACCOUNT_REQUEST_BYTES": str(2**24), **times})
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "ada")
        two, three = ["a" * 250_000] * 8, ["a" * 250_000] * 12
        session, other = await caller.session(), await caller.session()
        async with OpenStream.of(caller) as stream:
            large = [append(session, *two, request_id=f"s-{n}") for n in range(4)]
            adding = [caller.sessions.AddMessages(append(other, *three, request_id=f"c-{n}")) for n in range(16)]
            await asyncio.gather(sent_together(stream, large), *adding)
        assert len(await texts(caller, session)) == 4 * len(two) and len(await texts(caller, other)) == 16 * len(three)
    await asyncio.to_thread(server.stop)


async def test_what_a_stream_has_sent_takes_room_until_it_is_served(own_server: Servers) -> None:
    """Here it waits for the rate of its account, and another account for the room."""
    limits = {
        "RUNEKEEP_LIMITS__REQUEST_BYTES": str(2**22),
        "RUNEKEEP_LIMITS__ACCOUNT_CALLS_PER_SECOND": "0.25",
        "RUNEKEEP_LIMITS__ACCOUNT_BURST_SECONDS": "12",
    }
    server = own_server(limits)
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller, other = Caller(channel, "ada", "one"), Caller(channel, "bob", "other")
        session = await caller.session()
        async with OpenStream.of(caller) as stream:
            await stream.added(append(session, "one", request_id="one"))
            await stream.send(append(session, "two", request_id="two"))
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await other.sessions.CreateSession(pb.CreateSessionRequest(), timeout=1.0)
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await stream.answer(2)
        assert await other.session()
    await asyncio.to_thread(server.stop)


async def test_an_account_far_beyond_its_rate_comes_back_later(own_server: Servers) -> None:
    limits = {"RUNEKEEP_LIMITS__ACCOUNT_CALLS_PER_SECOND": "0.1", "RUNEKEEP_LIMITS__ACCOUNT_BURST_SECONDS": "30"}
    server = own_server(limits)
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "ada")
        session = await caller.session()
        async with OpenStream.of(caller) as stream:
            await stream.added(append(session, "one", request_id="one"))
            await stream.send(append(session, "two", request_id="two"))
            ended = await stream.failure()
        assert ended.seen[0] == "UNAVAILABLE" and ended.retry_seconds is not None and ended.retry_seconds > 5
    await asyncio.to_thread(server.stop)


async def test_broken_streams_leave_no_room_taken(own_server: Servers) -> None:
    """Each of them has more under way than the account may have of four."""
    server = own_server({"RUNEKEEP_LIMITS__ACCOUNT_REQUEST_BYTES": str(2**22)})
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "ada")
        session = await caller.session()
        for number in range(12):
            appends = [append(session, f"{n}", request_id=f"{number}-{n}") for n in range(WINDOW_APPENDS)]
            async with OpenStream.of(caller) as stream:
                await stream.send(*appends)
                assert await stream.read()
        async with OpenStream.of(caller) as stream:
            await stream.added(append(session, "last", request_id="last"))
        assert (await texts(caller, session))[-1] == "last"
    await asyncio.to_thread(server.stop)


async def test_a_stream_ends_with_its_key(own_server: Servers, fresh_store: dict[str, str]) -> None:
    settings = {**KEYED, **fresh_store, "RUNEKEEP_KEY_CHECK_SECONDS": "0.2"}
    server = own_server(settings)
    async with grpc.aio.insecure_channel(server.address) as channel:
        operator = Operator(channel)
        for end in ("revoked", "expired"):
            made = await operator.make(admin.SCOPE_USER, "acme", "ada", lifetime={"seconds": 60})
            async with sending(server.address, made.secret) as own:
                caller = Caller(own, "ada", "acme")
                session = await caller.session()
                async with OpenStream(own, ()) as stream:
                    await stream.added(append(session, "one", request_id=f"{end}-1"))
                    if end == "revoked":
                        await operator.revoke(made.key.key_id)
                    else:
                        sql = f"UPDATE api_keys SET expires_at = created_at WHERE key_id = '{made.key.key_id}'"
                        await in_store(settings, server.data_dir, sql)
                    ended = await stream.failure()
                    assert ended.seen == ("UNAUTHENTICATED", "ACCESS_DENIED"), end
    await asyncio.to_thread(server.stop)
