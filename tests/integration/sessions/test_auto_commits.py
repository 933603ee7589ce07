"""Sessions that are changed, and that commit by themselves, over the wire."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import extractor_service_pb2 as worker_pb
from runekeep.v1 import session_service_pb2 as pb
from runekeep.v1 import task_service_pb2, turn_memory_service_pb2
from runekeep_common import failpoints
from tests.integration.conftest import Callers
from tests.support.callers import Caller, failure, policy, said, unique, used_tool
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.waiting import until
from tests.support.worker import Worker, write

HOUR = Duration(seconds=3600)
SKIP_HOUR = 3600 * 1_000_000

Servers = Callable[..., ServerProcess]


async def session_with(caller: Caller, rules: pb.AutoCommit, session_id: str = "") -> str:
    request = pb.CreateSessionRequest(session_id=session_id, auto_commit=rules)
    made = (await caller.sessions.CreateSession(request)).session
    assert made.auto_commit == rules
    return str(made.session_id)


async def info(caller: Caller, session: str) -> pb.Session:
    answer = await caller.sessions.GetSession(pb.GetSessionRequest(session=session))
    found: pb.Session = answer.session
    return found


async def update(caller: Caller, session: str, *paths: str, **fields: Any) -> pb.Session:
    request = pb.UpdateSessionRequest(session=session, update_mask={"paths": paths}, **fields)  # type: ignore[arg-type]  # as a dict
    changed: pb.Session = (await caller.sessions.UpdateSession(request)).session
    return changed


async def texts(caller: Caller, place: str) -> list[str]:
    """What was said in an archive, or is live in a session."""
    found = (await caller.sessions.ListMessages(pb.ListMessagesRequest(session=place, page_size=200))).messages
    return [message.parts[0].text.text for message in found]


async def archives(caller: Caller, session: str) -> list[Any]:
    """Oldest first."""
    found = (await caller.sessions.ListArchives(pb.ListArchivesRequest(session=session, page_size=200))).archives
    return list(reversed(found))


def make_due(server: ServerProcess, session: str) -> None:
    """Lets an hour pass for a session that is to be idle for so long."""
    with sqlite3.connect(server.data_dir / "runekeep.db", timeout=20) as store:
        changed = store.execute(
            "UPDATE sessions SET idle_at = idle_at - ?1 WHERE session_id = ?2 AND idle_at > ?1", (SKIP_HOUR, session)
        )
        assert changed.rowcount == 1
    store.close()


async def test_a_session_is_changed_where_the_mask_says_so(caller: Caller) -> None:
    session = await caller.session(policy(peer=True, types=["events"]))
    before = await info(caller, session)
    rules = pb.AutoCommit(pending_tokens=4000, message_count=40, idle=HOUR, keep_recent_count=4)

    changed = await update(caller, session, "title", title="Tea", memory_policy=policy(), auto_commit=rules)
    assert (changed.title, changed.memory_policy) == ("Tea", before.memory_policy)
    assert not changed.HasField("auto_commit")
    assert changed.update_time.ToMicroseconds() > before.update_time.ToMicroseconds()
    changed = await update(caller, session, "auto_commit", "memory_policy", auto_commit=rules)
    assert (changed.title, changed.memory_policy, changed.auto_commit) == ("Tea", policy(), rules)
    for name in (session, changed.uri):
        assert await info(caller, name) == changed
    (listed,) = (await caller.sessions.ListSessions(pb.ListSessionsRequest())).sessions
    assert listed == changed

    # Named and absent: as it is by default.
    changed = await update(caller, session, "auto_commit", "title")
    assert changed.title == "" and not changed.HasField("auto_commit")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "update_mask"),
        ({"update_mask": {}}, "update_mask"),
        ({"update_mask": {"paths": ["title", "uri"]}}, "update_mask.paths[1]"),
        ({"update_mask": {"paths": ["auto_commit.idle"]}}, "update_mask.paths[0]"),
        ({"update_mask": {"paths": ["*"]}}, "update_mask.paths[0]"),
        ({"update_mask": {"paths": ["title"]}, "title": "x" * 201}, "title"),
    ],
)
async def test_a_mask_that_says_nothing_sound_is_named(caller: Caller, fields: dict[str, Any], path: str) -> None:
    session = await caller.session()
    before = await info(caller, session)
    failed = await failure(caller.sessions.UpdateSession(pb.UpdateSessionRequest(session=session, **fields)))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == [path]
    assert await info(caller, session) == before


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        (pb.AutoCommit(pending_tokens=-1), "pending_tokens"),
        (pb.AutoCommit(message_count=100_001), "message_count"),
        (pb.AutoCommit(idle=Duration(nanos=999_999_999)), "idle"),
        (pb.AutoCommit(idle=Duration(nanos=1)), "idle"),
        (pb.AutoCommit(idle=Duration(seconds=31_536_001)), "idle"),
        (pb.AutoCommit(idle=Duration(seconds=-1)), "idle"),
        (pb.AutoCommit(idle=Duration(seconds=1, nanos=-1)), "idle"),
        (pb.AutoCommit(idle=Duration(seconds=1, nanos=2_000_000_000)), "idle"),
        (pb.AutoCommit(message_count=5, keep_recent_count=5), "keep_recent_count"),
    ],
)
async def test_rules_that_cannot_be_followed_are_named(caller: Caller, rules: pb.AutoCommit, field: str) -> None:
    session = await caller.session()
    for call in (
        caller.sessions.CreateSession(pb.CreateSessionRequest(auto_commit=rules)),
        caller.sessions.UpdateSession(
            pb.UpdateSessionRequest(session=session, auto_commit=rules, update_mask={"paths": ["auto_commit"]})  # type: ignore[arg-type]  # as a dict
        ),
    ):
        failed = await failure(call)
        assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == [f"auto_commit.{field}"]


async def test_an_unknown_type_is_refused_and_a_session_of_another_user_is_not_there(
    caller: Caller, callers: Callers
) -> None:
    session = await caller.session()
    wrong = pb.UpdateSessionRequest(
        session=session, memory_policy=policy(types=["dreams"]), update_mask={"paths": ["memory_policy"]}  # type: ignore[arg-type]  # as a dict
    )  # fmt: skip
    failed = await failure(caller.sessions.UpdateSession(wrong))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and "dreams" in failed.message
    for stranger in (callers(account=caller.account), callers(caller.user)):
        failed = await failure(update(stranger, session, "title", title="mine"))
        assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    assert (await info(caller, session)).title == ""


async def test_so_many_messages_commit_all_but_the_newest(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await session_with(caller, pb.AutoCommit(message_count=4, keep_recent_count=1))
    first = await caller.add(session, said("one"), said("two"), said("three"))
    assert not first.HasField("auto_commit") and first.live_message_count == 3
    second = await caller.add(session, said("four"), said("five"))
    assert second.live_message_count == 1 and [one.sequence for one in second.messages] == [4, 5]
    done = second.auto_commit
    assert (done.status, done.archived) == (pb.COMMIT_STATUS_ACCEPTED, True)
    assert done.archive_uri == caller.uri(f"sessions/{session}/history/archive_001")
    assert await texts(caller, done.archive_uri) == ["one", "two", "three", "four"]
    assert await texts(caller, session) == ["five"]
    async with Worker(channel) as worker:
        job = await worker.take()
        assert job.task_id == done.task_id
        await worker.deliver(job.lease, write("preferences", topic="Tea", content="Likes tea."))
    assert (await caller.task(done.task_id)).state == task_service_pb2.TASK_STATE_COMPLETED
    now = await info(caller, session)
    assert (now.live_message_count, now.message_count, now.compression_index) == (1, 5, 1)


async def test_so_many_tokens_commit_to_the_token(caller: Caller) -> None:
    """Counted as the session itself tells them, large outputs by what is stored of them."""
    session = await caller.session()
    await caller.add(session, used_tool("call-1", "x" * 90_000), said("näive 你好 " * 50))
    tokens = (await info(caller, session)).live_tokens
    assert 20_000 / 3 < tokens < 25_000 / 3 + 1000

    for more, committed in ((0, True), (1, False)):
        other = await session_with(caller, pb.AutoCommit(pending_tokens=tokens + more))
        answer = await caller.add(other, used_tool("call-1", "x" * 90_000), said("näive 你好 " * 50))
        assert answer.HasField("auto_commit") == committed
        assert (await info(caller, other)).live_tokens == (0 if committed else tokens)


async def test_what_stays_live_is_to_the_letter_that_of_the_newest(caller: Caller, channel: grpc.aio.Channel) -> None:
    """Messages, turns, usages, passages and the tree, of a commit that lets some stay."""
    session = await caller.session()
    turns = ("t1", "t1", "t2", "t2", "t2")
    for number, turn in enumerate(turns, 1):
        await caller.add(session, said(f"kettle number {number}", turn=turn, id=f"m{number}"))
    listed = await caller.turns.ListTurns(turn_memory_service_pb2.ListTurnsRequest(session=session))
    used = caller.uri("memories/preferences/Tea.md")
    await caller.sessions.RecordUsage(pb.RecordUsageRequest(session=session, context_uris=[used]))
    tokens = (await info(caller, session)).live_tokens

    # The turn t2 is cut in two.
    first = await caller.commit(session, keep_recent_count=2)
    now = await info(caller, session)
    assert (now.live_message_count, now.live_tokens * 5) == (2, tokens * 2)
    assert await texts(caller, session) == ["kettle number 4", "kettle number 5"]
    document = await caller.read(caller.uri(f"sessions/{session}/messages.jsonl"))
    assert document.total_lines == 2 and "number 3" not in document.text
    archived = await caller.read(f"{first.archive_uri}/messages.jsonl")
    assert archived.total_lines == 3 and "number 4" not in archived.text

    asked = pb.GetSessionContextRequest(session=session)
    context = await caller.sessions.GetSessionContext(asked)
    assert [one.id for one in context.pending_messages] == ["m1", "m2", "m3"]
    assert [one.id for one in context.live_messages] == ["m4", "m5"]

    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        given = [part async for part in worker.calls.GetJobInput(worker_pb.GetJobInputRequest(lease=lease))]
        assert [one.id for part in given for one in part.messages.messages] == ["m1", "m2", "m3"]
        await worker.deliver(lease, write("preferences", topic="Tea", content="Likes tea."))
        context = await caller.sessions.GetSessionContext(asked)
        assert not context.pending_messages and [one.id for one in context.live_messages] == ["m4", "m5"]
        # Of the usages none was left for the next commit.
        recorded = await caller.sessions.RecordUsage(pb.RecordUsageRequest(session=session, context_uris=[]))
        assert recorded.contexts_used == 0

        found = await caller.find("kettle number", kinds=[2], limit=20)
        while found.pending_passages:
            found = await caller.find("kettle number", kinds=[2], limit=20)
        assert sorted(one.passage.message_id for one in found.results) == ["m1", "m2", "m3"]

        second = await caller.commit(session)
        assert await texts(caller, second.archive_uri) == ["kettle number 4", "kettle number 5"]
        await worker.deliver((await worker.take()).lease)
    assert (await info(caller, session)).live_tokens == 0
    # Turns are the session's, archived or not.
    assert await caller.turns.ListTurns(turn_memory_service_pb2.ListTurnsRequest(session=session)) == listed


async def test_a_repeated_request_gives_its_first_answer(caller: Caller) -> None:
    session = await session_with(caller, pb.AutoCommit(message_count=2))
    request = pb.AddMessagesRequest(session=session, messages=[said("one"), said("two")], request_id="r-1")
    first = await caller.sessions.AddMessages(request)
    assert first.HasField("auto_commit")
    await caller.add(session, said("three"))
    answers = await asyncio.gather(*(caller.sessions.AddMessages(request) for _ in range(8)))
    assert answers == [first] * 8
    assert len(await archives(caller, session)) == 1 and await texts(caller, session) == ["three"]


@asynccontextmanager
async def sixteen(addresses: list[str], user: str) -> AsyncIterator[list[Caller]]:
    """Callers that are one user, each on a channel of its own, in turn at each of the addresses."""
    async with AsyncExitStack() as stack:
        made = []
        for number in range(16):
            address = addresses[number % len(addresses)]
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
            made.append(Caller(channel, user))
        yield made


async def talked_at_once(callers: list[Caller], session: str, most: int, keep: int) -> None:
    """Each caller appends; then every message is archived once or live, and every commit was told to one of them."""

    async def speak(place: int, caller: Caller) -> list[Any]:
        return [await caller.add(session, said(f"{place} says {number}")) for number in range(12)]

    answers = [one for some in await asyncio.gather(*map(speak, range(16), callers)) for one in some]

    caller = callers[0]
    sequences = sorted(one.messages[0].sequence for one in answers)
    assert sequences == list(range(1, 16 * 12 + 1))
    told = sorted(one.auto_commit.archive_uri for one in answers if one.HasField("auto_commit"))
    made = await archives(caller, session)
    assert sorted(one.uri for one in made) == told
    # One after the other, each with all but what stays.
    each = most - keep
    assert [(one.messages.start_sequence, one.messages.end_sequence) for one in made] == [
        (each * number + 1, each * (number + 1)) for number in range(len(made))
    ]
    assert len(made) == (16 * 12 - keep) // each
    kept = [text for one in made for text in await texts(caller, one.uri)] + await texts(caller, session)
    assert sorted(kept) == sorted(f"{place} says {number}" for place in range(16) for number in range(12))
    now = await info(caller, session)
    assert now.message_count == 16 * 12 and now.live_message_count == 16 * 12 - each * len(made)


async def test_sixteen_clients_of_one_session_commit_each_message_once(own_server: Servers) -> None:
    server = own_server({"RUNEKEEP_MAX_OPEN_COMMITS_PER_USER": "1000"})
    async with sixteen([server.address], unique("user")) as callers:
        session = await session_with(callers[0], pb.AutoCommit(message_count=10, keep_recent_count=3))
        await talked_at_once(callers, session, 10, 3)
    server.stop()


async def test_an_idle_session_is_committed_by_the_server(
    caller: Caller, channel: grpc.aio.Channel, server: ServerProcess
) -> None:
    session = await session_with(caller, pb.AutoCommit(message_count=3, idle=HOUR, keep_recent_count=1))
    await caller.add(session, said("one"), said("two"), said("three"))
    other = await session_with(caller, pb.AutoCommit(idle=HOUR))
    await caller.add(other, said("still here"))
    async with Worker(channel) as worker:
        assert (await worker.deliver((await worker.take()).lease)).outcome == worker_pb.JOB_OUTCOME_APPLIED
        assert await texts(caller, session) == ["three"]
        await worker.ready()
        make_due(server, session)
        job = await worker.assignment()
        assert (await worker.deliver(job.lease)).outcome == worker_pb.JOB_OUTCOME_APPLIED
    _, last = await archives(caller, session)
    assert (last.task_id, last.state) == (job.task_id, pb.ARCHIVE_STATE_DONE)
    assert await texts(caller, last.uri) == ["three"] and await texts(caller, session) == []
    assert await archives(caller, other) == [] and await texts(caller, other) == ["still here"]


@pytest.mark.parametrize("way", ["append", "idle"])
@pytest.mark.parametrize("place", [failpoints.COMMIT_BEFORE_COMMIT, failpoints.COMMIT_AFTER_COMMIT])
async def test_a_server_killed_in_such_a_commit_loses_nothing(
    place: str, way: str, own_server: Servers, tmp_path: Path
) -> None:
    """What was not durable is not told, and made by the next server or the next request; what was is made once."""
    fired = tmp_path / "fired"
    armed = {"RUNEKEEP_FAILPOINT": f"{place}:KILL", "RUNEKEEP_FAILPOINT_LOG": str(fired)}
    server = own_server(armed)
    rules = pb.AutoCommit(message_count=2) if way == "append" else pb.AutoCommit(idle=HOUR)
    request = pb.AddMessagesRequest(messages=[said("one"), said("two")], request_id="r-1")
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        request.session = await session_with(caller, rules)
        if way == "append":
            failed = await failure(caller.sessions.AddMessages(request))
            assert failed.code is grpc.StatusCode.UNAVAILABLE
        else:
            await caller.sessions.AddMessages(request)
            make_due(server, request.session)
            await asyncio.to_thread(until, fired.exists)
        server.kill()
    assert fired.read_text().startswith(place)

    again = own_server()
    async with grpc.aio.insecure_channel(again.address) as channel:
        caller = Caller(channel, "anna")
        answer = await caller.sessions.AddMessages(request)
        async with Worker(channel) as worker:
            job = await worker.take()
            await worker.deliver(job.lease)
        (made,) = await archives(caller, request.session)
        assert made.task_id == job.task_id and await texts(caller, made.uri) == ["one", "two"]
        assert await texts(caller, request.session) == []
        if way == "append":
            assert answer.auto_commit.task_id == job.task_id
    again.stop()


@pytest.fixture
def url(postgres_server: PostgresServer) -> Any:
    name = postgres_server.create()
    yield postgres_server.url(name)
    postgres_server.drop(name)


async def test_two_servers_commit_each_message_and_each_idle_session_once(
    url: str, index_url: str, own_server: Servers
) -> None:
    settings = {
        "RUNEKEEP_STORE_URL": url,
        "RUNEKEEP_INDEX_URL": index_url,
        "RUNEKEEP_MAX_OPEN_COMMITS_PER_USER": "1000",
    }
    servers = [own_server(settings, name) for name in ("first", "second")]
    async with sixteen([server.address for server in servers], unique("user")) as callers:
        session = await session_with(callers[0], pb.AutoCommit(message_count=10, keep_recent_count=3))
        await talked_at_once(callers, session, 10, 3)

        idle = [await session_with(callers[0], pb.AutoCommit(idle=HOUR)) for _ in range(20)]
        await asyncio.gather(*(callers[place % 16].add(one, said("a"), said("b")) for place, one in enumerate(idle)))
        connection = await asyncpg.connect(url)
        changed = await connection.execute("UPDATE sessions SET idle_at = idle_at - $1 WHERE idle_at > 0", SKIP_HOUR)
        assert changed == "UPDATE 20"
        async with asyncio.timeout(30):
            left = "SELECT COUNT(*) FROM sessions WHERE idle_at > 0"
            while await connection.fetchval(left):  # noqa: ASYNC110  # told to nobody
                await asyncio.sleep(0.02)
        await connection.close()
        for one in idle:
            (made,) = await archives(callers[0], one)
            assert await texts(callers[1], made.uri) == ["a", "b"]
        states = [task_service_pb2.TASK_STATE_PENDING]
        found = (
            await callers[0].tasks.ListTasks(task_service_pb2.ListTasksRequest(states=states, page_size=200))
        ).tasks
        assert len([task for task in found if task.session.rpartition("/")[2] in idle]) == 20
    for server in servers:
        server.stop()
