"""What the suites of the store share: stores of every driver, a clock that moves when told to, and short ways to say
what is written.

A driver joins by a branch in `new_store`; a suite asks for `database`, or for `new_store` where it reopens one.
"""

import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from runekeep_schemas.policy import Plan
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.drivers.sqlite.file_lock import DatabaseLock
from runekeep_storage.index import sparse
from runekeep_storage.jobs import claiming
from runekeep_storage.jobs.extraction_records import AttemptRecord, pack
from runekeep_storage.jobs.jobs import LeaseTerms
from runekeep_storage.memories import apply
from runekeep_storage.memories.apply import Applied, PreparedCommit
from runekeep_storage.records import Job, LeaseId, MemoryWrite, Message
from runekeep_storage.sessions import archives, sessions
from tests.support.appending import add_messages
from tests.support.postgres import PostgresServer

SECOND = 1_000_000
TERMS = LeaseTerms(first=10 * SECOND, renewed=60 * SECOND, attempt=600 * SECOND)
ANN = Space("acme", "ann")
BOB = Space("acme", "bob")
CAT = Space("other", "cat")

DRIVERS = ("sqlite", "postgres")
PLAN = json.dumps(Plan(True, (), ("preferences",), (), session_skills=False).to_json())
MADE = AttemptRecord("{}", pack([]), {})
"""What an attempt without a model was made of."""


class Clock:
    """Microseconds since 1970; stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


@dataclass(frozen=True, slots=True)
class StoredDatabase:
    """An empty, migrated store; every call of `connect` gives an unopened driver over that same store. `discard`: it is
    not used any more, and its drivers are closed."""

    connect: Callable[[], Database]
    discard: Callable[[], None] = lambda: None


NewStore = Callable[[], StoredDatabase]


class Unowned(SqliteDatabase):
    """A driver that does not claim its file, so that two of them can stand for two servers. Real servers on one file
    are refused, see tests/integration/stores/test_one_owner.py."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        super().__init__(path, clock=clock)
        self._lock = NoLock(path)


class NoLock(DatabaseLock):
    def acquire(self, wait_seconds: float) -> None:
        """Claims nothing."""


ON_SQLITE = pytest.mark.parametrize("new_store", ["sqlite"], indirect=True)
"""Marks tests of what lies above the drivers: which one is below makes no difference to them."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=DRIVERS)
def new_store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[NewStore]:
    """Makes stores that know nothing of each other."""
    if request.param == "sqlite":
        template: Path = request.getfixturevalue("migrated_file")
        made = count()

        def sqlite() -> StoredDatabase:
            path = tmp_path / f"store-{next(made)}.db"
            shutil.copy(template, path)
            return StoredDatabase(lambda: Unowned(path, clock=clock))

        yield sqlite
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        names: list[str] = []

        def postgres() -> StoredDatabase:
            name = server.borrow()
            names.append(name)

            def discard() -> None:
                names.remove(name)
                server.give_back(name)

            return StoredDatabase(lambda: PostgresDatabase(server.url(name), clock=clock), discard)

        yield postgres
        for name in names:
            server.give_back(name)


@pytest.fixture
async def database(new_store: NewStore) -> AsyncIterator[Database]:
    made = new_store().connect()
    await made.open()
    yield made
    await made.close()


def text(message_id: str, words: str, *, at: int = 0, **columns: Any) -> Message:
    """A message of one text part by the user, unless the columns say otherwise."""
    return Message(
        message_id, columns.pop("role", "user"), ({"type": "text", "text": words},), created_at=at, **columns
    )


async def talk(database: Database, space: Space, session_id: str, *words: str) -> list[Message]:
    """Appends messages to a session, which is made when it is not there."""

    async def work(tx: Tx, space: Space) -> list[Message]:
        session, _ = await sessions.get_or_create(tx, space, session_id)
        batch = [text(f"m{session.last_sequence + number}", word) for number, word in enumerate(words, 1)]
        return (await add_messages(tx, space, session_id, batch, {})).messages

    return await database.write(work, space)


async def commit(
    database: Database, space: Space, session_id: str, task_id: str, *, keep_recent: int = 0, plan: str = PLAN
) -> int:
    """Archives the live messages; the index of the archive."""

    async def work(tx: Tx, space: Space) -> int:
        batch = await archives.to_archive(tx, space, session_id, keep_recent)
        assert batch is not None
        return await archives.commit(tx, space, batch, task_id=task_id, plan=plan, traceparent="")

    return await database.write(work, space)


async def queue(database: Database, space: Space, task_id: str, *words: str) -> None:
    """Queues a commit of a session of its own."""
    await talk(database, space, f"s-{task_id}", *(words or ("hello",)))
    await commit(database, space, f"s-{task_id}", task_id)


async def claim(database: Database, worker: str = "w1") -> Job:
    """Leases the next job, which must be there."""
    claimed = await database.write_global(claiming.claim, worker, TERMS)
    assert claimed is not None
    return claimed[0]


def uri(space: Space, name: str) -> str:
    return f"viking://user/{space.user}/memories/preferences/{name}.md"


def write(space: Space, name: str, base: int, version: int, content: str = "", **columns: Any) -> MemoryWrite:
    """A version of a preference; it has no vector unless the columns bring one."""
    return MemoryWrite(
        uri=uri(space, name),
        base_version=base,
        version=version,
        memory_type="preferences",
        peer_id="",
        fields=columns.pop("fields", "{}"),
        content=content,
        abstract=f"about {name}",
        overview="",
        sources="[]",
        dense=columns.pop("dense", None),
        dense_model=columns.pop("dense_model", ""),
        sparse=sparse.encode_document(content).to_bytes(),
        **columns,
    )


def prepared(lease: LeaseId, writes: Iterable[MemoryWrite] = (), output_id: str = "out") -> PreparedCommit:
    return PreparedCommit(
        lease=lease,
        output_id=output_id,
        writes=list(writes),
        abstract="what was said",
        overview="# What was said",
        diff='{"operations":{}}',
        extractor='{"name":"test"}',
        result={"outcome": "applied"},
        usage=[],
        made=MADE,
    )


async def revise(database: Database, space: Space, task_id: str, *writes: MemoryWrite) -> Applied:
    """A whole commit, from talk to revision. No other job may be due."""
    await queue(database, space, task_id)
    job = await claim(database)
    assert job.job_id == task_id
    return await database.write(apply.apply, space, prepared(job.lease, writes, f"out-{task_id}"))
