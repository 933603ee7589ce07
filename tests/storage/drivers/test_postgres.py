"""PostgreSQL: several servers on one database, connections that break, notices, migrations."""

import asyncio
import contextlib
from typing import Any

import asyncpg
import pytest

from runekeep_storage.database import Space, Topic, Tx
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.drivers.common.idempotent_requests import RequestKey
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.errors import LeaseLost, StoreUnavailable
from runekeep_storage.indexing import outbox
from runekeep_storage.jobs import claiming, jobs, tasks
from runekeep_storage.memories import apply
from runekeep_storage.migrations.migrate import HEAD, SchemaTooNew, migrate_postgres
from runekeep_storage.records import Job
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import spaces, watermarks
from tests.support.appending import add_messages
from tests.support.cutting_proxy import CuttingProxy
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.storage.databases import ANN, BOB, CAT, TERMS, prepared, queue, talk, text, write
from tests.support.storage.postgres_servers import Servers


async def test_servers_that_take_work_at_once_do_every_job_once(servers: Servers) -> None:
    """Queueing, claiming and ending by both servers at the same time, over lanes that they share."""
    users = (ANN, BOB, CAT)
    ended: list[str] = []
    running: dict[str, str] = {}

    async def give(server: PostgresDatabase, space: Space, name: str) -> None:
        for number in range(8):
            await queue(server, space, f"{space.user}-{name}-{number}")

    async def work(server: PostgresDatabase, worker: str) -> None:
        while len(ended) < 48:
            claimed = await server.write_global(claiming.claim, worker, TERMS)
            if claimed is None:
                await asyncio.sleep(0.01)
                continue
            job = claimed[0]
            assert running.setdefault(job.user, job.job_id) == job.job_id, "two jobs of one user ran at once"
            await asyncio.sleep(0)
            del running[job.user]
            applied = await server.write(apply.apply, jobs.space_of(job), prepared(job.lease, [], job.job_id))
            assert not applied.again
            ended.append(job.job_id)

    async with asyncio.timeout(120):
        await asyncio.gather(
            *(give(server, space, f"{at}") for at, server in enumerate(servers) for space in users),
            *(work(server, f"w{at}") for at, server in enumerate(servers * 3)),
        )

    assert sorted(ended) == sorted(f"{space.user}-{at}-{n}" for space in users for at in range(2) for n in range(8))
    rows = await servers[0].read_global(_everything)
    assert {row["state"] for row in rows["jobs"]} == {"succeeded"} and not any(row["is_head"] for row in rows["jobs"])
    assert [row["ready_jobs"] for row in rows["accounts"]] == [0, 0]
    for space in users:
        revisions = [row["revision"] for row in rows["commits"] if row["user_id"] == space.user]
        assert revisions == list(range(1, 17))
    # In each lane jobs were done in the order in which they were queued.
    for space in users:
        lane = sorted((r for r in rows["jobs"] if r["user_id"] == space.user), key=lambda row: row["lane_sequence"])
        assert [row["lane_sequence"] for row in lane] == list(range(1, 17))
        assert [row["revision"] for row in lane] == list(range(1, 17))
    for row in rows["events"]:
        assert (row["least"], row["last"], row["count"]) == (1, row["last_event"], row["last_event"])


async def _everything(tx: Tx) -> dict[str, list[Any]]:
    return {
        "jobs": await tx.fetch("SELECT * FROM jobs"),
        "accounts": await tx.fetch("SELECT * FROM accounts"),
        "commits": await tx.fetch("SELECT * FROM commits ORDER BY user_id, revision"),
        "events": await tx.fetch(
            "SELECT t.last_event, MIN(e.sequence) AS least, MAX(e.sequence) AS last, COUNT(*) AS count FROM tasks t"
            " JOIN task_events e ON e.account = t.account AND e.user_id = t.user_id AND e.task_id = t.task_id"
            " GROUP BY t.account, t.user_id, t.task_id, t.last_event"
        ),
    }


async def _release(tx: Tx, job: Job) -> str:
    await jobs.requeue(tx, await jobs.held(tx, job.lease), None, delay=0, counts=None)
    return "released"


async def _give_up(tx: Tx, job: Job) -> str:
    await jobs.give_up(tx, await jobs.held(tx, job.lease), jobs.Failure("internal", "no"), {})
    return "given up"


async def _complete(tx: Tx, job: Job) -> str:
    await apply.apply(tx, jobs.space_of(job), prepared(job.lease, [write(jobs.space_of(job), "tea", 0, 1, "green")]))
    return "applied"


async def test_one_lease_has_one_holder_whoever_asks(servers: Servers) -> None:
    """The ends that an attempt may come to, all tried at once at both servers: one of them counts."""
    for number in range(12):
        space = Space("acme", f"user-{number}")
        await queue(servers[0], space, f"t{number}")
        claims = await asyncio.gather(*(server.write_global(claiming.claim, "w", TERMS) for server in servers * 3))
        (job,) = [claimed[0] for claimed in claims if claimed is not None]

        calls = [server.write_global(end, job) for server in servers for end in (_release, _give_up, _complete)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert all(isinstance(outcome, (str, LeaseLost)) for outcome in outcomes), outcomes
        # The same output twice is one apply and one repeat; the other ends shut each other out.
        done = [outcome for outcome in outcomes if isinstance(outcome, str)]
        assert done in (["released"], ["given up"], ["applied", "applied"])
        revision, _ = await servers[1].read(spaces.revisions, space)
        assert revision == (done[0] == "applied")
        if done == ["released"]:
            await servers[0].write(jobs.cancel, space, job.job_id, "")


async def test_one_session_takes_messages_from_everywhere(servers: Servers) -> None:
    await talk(servers[0], ANN, "s", "first")

    async def append(server: PostgresDatabase, message_id: str) -> None:
        await server.write(add_messages, ANN, "s", [text(message_id, "hello")], {})

    await asyncio.gather(*(append(servers[number % 2], f"n{number}") for number in range(40)))

    stored = await servers[0].read(sessions.messages_between, ANN, "s", 1, 1000)
    assert [message.sequence for message in stored] == list(range(1, 42))
    assert {message.message_id for message in stored} == {"m1", *(f"n{number}" for number in range(40))}


async def test_a_request_sent_to_two_servers_is_done_once(servers: Servers) -> None:
    for number in range(10):
        key = RequestKey("CreateSession", f"r{number}", "body")

        async def make(tx: Tx, number: int = number) -> bytes:
            return (await sessions.create(tx, ANN, f"s{number}")).session_id.encode()

        answers = await asyncio.gather(
            *(server.write(idempotent_requests.run_once, ANN, key, make) for server in servers * 3)
        )

        assert answers == [f"s{number}".encode()] * 6


async def test_outbox_entries_of_several_servers_have_numbers_of_their_own(servers: Servers) -> None:
    async def put_out(server: PostgresDatabase, number: int) -> None:
        await server.write(outbox.add, ANN, 0, [outbox.Entry("delete", point_id=f"{number}-{one}") for one in (1, 2)])

    await asyncio.gather(*(put_out(servers[number % 2], number) for number in range(20)))

    _, entries = await servers[0].read(outbox.due, ANN, 1000)
    assert [entry.number for entry in entries] == list(range(1, 41))
    assert len({entry.point_id for entry in entries}) == 40


async def test_what_a_language_sorts_otherwise_is_sorted_by_code_points(servers: Servers) -> None:
    names = ["B", "_c", "a", "Ä", "ab", "a-b", "é", "z", "🦀"]
    for name in names:
        await servers[0].write(sessions.create, ANN, name)

    async def ordered(tx: Tx) -> list[str]:
        rows = await tx.fetch("SELECT session_id FROM sessions WHERE session_id >= $1 ORDER BY session_id", "B")
        return [row["session_id"] for row in rows]

    assert await servers[0].read_global(ordered) == sorted(names)


async def test_a_text_with_a_nul_is_stored(servers: Servers) -> None:
    await servers[0].write(sessions.create, ANN, "s", "a\0b")
    await servers[0].write(add_messages, ANN, "s", [text("m", "a\0b")], {})

    assert (await servers[0].read(sessions.get, ANN, "s")).title == "a\ufffdb"
    (message,) = await servers[0].read(sessions.messages_between, ANN, "s", 1, 1)
    assert message.parts == ({"type": "text", "text": "a\0b"},)


async def test_the_clock_is_that_of_the_database(servers: Servers) -> None:
    async def now(tx: Tx) -> tuple[int, int, int]:
        row = await tx.fetchrow(
            "SELECT CAST(extract(epoch FROM transaction_timestamp()) * 1000000 AS BIGINT) AS began,"
            " CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS later"
        )
        assert row is not None
        return row["began"], tx.now(), row["later"]

    for answer in (await servers[0].write_global(now), await servers[1].read_global(now)):
        assert list(answer) == sorted(answer)


async def test_a_swallowed_error_is_never_taken_for_success(servers: Servers) -> None:
    async def careless(tx: Tx) -> str:
        await sessions.create(tx, ANN, "s")
        with contextlib.suppress(asyncpg.PostgresError):
            await tx.execute("SELECT nonsense")
        return "fine"

    with pytest.raises(RuntimeError, match="not written"):
        await servers[0].write_global(careless)

    assert await servers[0].read(sessions.page, ANN, None, 10) == []


async def test_cancelled_calls_leave_no_transaction_behind(servers: Servers) -> None:
    """Cancelled at any moment, from before BEGIN to after COMMIT: connections are fit for the next call."""
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    kept = set()
    for number in range(60):
        names = [f"s{number}-{one}" for one in range(6)]
        calls = [asyncio.create_task(servers[0].write(sessions.create, Space("acme", name), name)) for name in names]
        for _ in range(number):
            await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, sessions.Session) for outcome in outcomes[1::2])
        kept |= {name for name in names[1::2]}

    async def open_transactions(tx: Tx) -> list[Any]:
        return await tx.fetch(
            "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND state LIKE 'idle in transaction%'"
        )

    async def names_of_all(tx: Tx) -> set[str]:
        return {row["session_id"] for row in await tx.fetch("SELECT session_id FROM sessions")}

    assert kept <= await servers[1].read_global(names_of_all)
    assert await servers[1].read_global(open_transactions) == [] and complaints == []


async def test_a_commit_without_an_answer_is_told_as_unknown(url: str) -> None:
    async with CuttingProxy(url) as proxy:
        database = PostgresDatabase(proxy.url, readers=2)
        await database.open()
        proxy.cut_after(b"COMMIT\0")

        with pytest.raises(StoreUnavailable, match="unknown whether the change was written"):
            await database.write(sessions.create, ANN, "s")

        # It was written, as the store says to whoever asks again; another connection serves at once.
        assert [one.session_id for one in await database.read(sessions.page, ANN, None, 10)] == ["s"]
        await database.close()


async def test_a_connection_that_breaks_before_the_commit_writes_nothing(url: str) -> None:
    async with CuttingProxy(url) as proxy:
        database = PostgresDatabase(proxy.url, readers=2)
        await database.open()
        proxy.cut_after(b"INSERT INTO sessions")

        with pytest.raises(StoreUnavailable):
            await database.write(sessions.create, ANN, "s")

        assert await database.read(sessions.page, ANN, None, 10) == []
        await database.write(sessions.create, ANN, "s")
        await database.close()


async def test_a_database_that_is_not_there_is_told_as_such(postgres_server: PostgresServer) -> None:
    for wrong in (postgres_server.url("nothing_of_that_name"), "postgresql://postgres@127.0.0.1:1/x"):
        with pytest.raises(StoreUnavailable):
            await PostgresDatabase(wrong).open()


class Ear:
    """What one server hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Topic, str]] = []
        self._news = asyncio.Event()

    def __call__(self, topic: Topic, subject: str) -> None:
        self.heard.append((topic, subject))
        self._news.set()

    async def hears(self, topic: Topic, subject: str = "") -> None:
        async with asyncio.timeout(30):
            while (topic, subject) not in self.heard:
                self._news.clear()
                await self._news.wait()

    async def some_time(self) -> None:
        """Until something is heard, but not long."""
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self._news.wait()


async def test_notices_are_heard_by_all_after_the_commit_and_only_then(servers: Servers) -> None:
    ears = [Ear(), Ear()]
    for server, ear in zip(servers, ears, strict=True):
        await server.listen(ear)

    async def say(tx: Tx, subject: str, fails: bool) -> None:
        for _ in range(3):
            tx.notify(Topic.TASK, subject)
        if fails:
            raise LeaseLost("x")

    with pytest.raises(LeaseLost):
        await servers[0].write_global(say, "never", True)
    await servers[0].write_global(say, "it's", False)
    for ear in ears:
        await ear.hears(Topic.TASK, "it's")
        assert ear.heard == [(Topic.TASK, "it's")]

    await queue(servers[1], ANN, "t1")
    for ear in ears:
        await ear.hears(Topic.TASK, "t1 1")
        await ear.hears(Topic.JOBS)
        await ear.hears(Topic.INDEX, watermarks.ARCHIVED)


async def test_a_restart_of_the_database_is_survived() -> None:
    """With a cluster of its own: the other tests' connections must not break."""
    cluster = await asyncio.to_thread(PostgresServer().start)
    try:
        database = PostgresDatabase(cluster.url(cluster.create()), readers=3)
        await database.open()
        ear = Ear()
        await database.listen(ear)
        await asyncio.gather(*(database.write(sessions.create, ANN, f"s{number}") for number in range(6)))

        await asyncio.to_thread(cluster.restart)

        async def told(tx: Tx) -> None:
            tx.notify(Topic.TASK, "again")

        async with asyncio.timeout(60):
            while (Topic.TASK, "again") not in ear.heard:
                with contextlib.suppress(StoreUnavailable):
                    await database.write_global(told)
                await ear.some_time()
        assert len(await database.read(sessions.page, ANN, None, 10)) == 6
        await database.close()
    finally:
        cluster.stop()


async def test_servers_that_start_at_once_migrate_once(postgres_server: PostgresServer) -> None:
    name = postgres_server.create(EMPTY)
    url = postgres_server.url(name)

    await asyncio.gather(*(migrate_postgres(url) for _ in range(4)))

    assert postgres_server.sql("SELECT version_num FROM alembic_version", name) == HEAD
    database = PostgresDatabase(url)
    await database.open()
    await queue(database, ANN, "t1")
    assert (await database.read(tasks.get, ANN, "t1")).state == "pending"
    await database.close()
    postgres_server.drop(name)


async def test_a_schema_from_the_future_is_refused(postgres_server: PostgresServer) -> None:
    name = postgres_server.create()
    postgres_server.sql("UPDATE alembic_version SET version_num = 'r9999'", name)

    with pytest.raises(SchemaTooNew, match="r9999"):
        await PostgresDatabase(postgres_server.url(name)).open()

    assert postgres_server.sql("SELECT version_num FROM alembic_version", name) == "r9999"
    postgres_server.drop(name)


async def test_reads_go_on_while_a_migration_adds_columns(servers: Servers, url: str) -> None:
    """PostgreSQL refuses a prepared statement whose result has other columns than when it was prepared."""
    reader = servers[0]

    async def columns(tx: Tx) -> int:
        (row,) = await tx.fetch("SELECT * FROM messages WHERE account = $1", ANN.account)
        return len(row)

    await talk(reader, ANN, "s", "hello")
    before = {await reader.read_global(columns) for _ in range(20)}
    connection = await asyncpg.connect(url)
    await connection.execute("ALTER TABLE messages ADD COLUMN added integer NOT NULL DEFAULT 0")
    await connection.close()
    after = {await reader.read_global(columns) for _ in range(20)}
    assert len(before) == 1 and after == {count + 1 for count in before}
