"""What a deployment grows by: memory of each process, bytes and processor time of a message, of a memory, of a point.

    python -m tests.bench.sizing [--users 20] [--messages 60] [--points 10000 50000] [--datatype float32] [--json]

On each store a real server with the built-in embedder and two extractors that work offline. Conversations of many
users are first appended, ten messages a call, then committed, until all tasks have ended and everything can be found;
after each step stands what the store, the index and the processes have grown by. Processor time, unlike the time by
the clock, hardly depends on what else the machine does. Then a server is started on indexes of many points.
"""

import argparse
import asyncio
import json
import math
import os
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from runekeep import AsyncClient, Message, TextPart
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.embedders import open_embedder
from runekeep_storage.index.base import VectorDatatype, VectorSpace
from tests.acceptance.processes import Processes, processes
from tests.bench import resources
from tests.bench.conversations import long
from tests.bench.find import crowd
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess

ACCOUNT = "bench"
MESSAGES_A_CALL = 10
SIDE_BY_SIDE = 8
EXTRACTORS = 2
COMMIT_SECONDS = 900.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Process:
    """MiB of memory that are its own or its share of what several use, and seconds of processor time so far."""

    mib: float
    seconds: float

    @classmethod
    def of(cls, *pids: int) -> "Process":
        """All of them together."""
        mib = resources.Standing.of(*pids).megabytes * resources.MEGABYTE / MIB
        return cls(mib, sum(map(resources.processor_seconds, pids)))


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is at one moment; bytes of the log ahead of PostgreSQL's tables are 0 with SQLite."""

    server: Process
    index: Process
    extractors: Process
    store_bytes: int
    index_bytes: int
    logged_bytes: int


class Subject:
    """A server on one store, its extractors, and where its bytes are."""

    def __init__(
        self, fleet: Processes, server: ServerProcess, extractors: Sequence[int], database: "Database"
    ) -> None:
        self.address = fleet.address
        self._data = DataDirectory(fleet.data_dir)
        self._server = server
        self._extractors = extractors
        self._database = database

    def standing(self) -> Standing:
        children = self._server.children()
        return Standing(
            Process.of(self._server.pid),
            Process.of(*children),
            Process.of(*self._extractors),
            self._database.stored(self._data.root),
            size(self._data.index),
            self._database.logged(),
        )


class Database:
    """SQLite, which needs no settings and has its log in its own files."""

    settings: Mapping[str, str] = MappingProxyType({})

    def stored(self, directory: Path) -> int:
        with closing(sqlite3.connect(f"file:{directory / 'runekeep.db'}?mode=ro", uri=True)) as connection:
            # Pages that are in the log only are counted, and those that are in both are counted once.
            return math.prod(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))

    def logged(self) -> int:
        return 0


class PostgresDatabase(Database):
    def __init__(self, postgres: PostgresServer) -> None:
        self._postgres = postgres
        self._name = postgres.create()
        self.settings = {"RUNEKEEP_STORE_URL": postgres.url(self._name)}

    def stored(self, directory: Path) -> int:
        return int(self._postgres.sql(f"SELECT pg_database_size('{self._name}')"))

    def logged(self) -> int:
        return int(self._postgres.sql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))


def size(directory: Path) -> int:
    """Bytes that its files take on the disk, which of those with holes is less than their length."""
    return sum(file.stat().st_blocks * 512 for file in directory.rglob("*") if file.is_file())


async def everyone(users: int, work: Any) -> list[Any]:
    """`work` for every user, a few at a time."""
    turns = asyncio.Semaphore(SIDE_BY_SIDE)

    async def one(number: int) -> Any:
        async with turns:
            return await work(number)

    return await asyncio.gather(*(one(number) for number in range(users)))


async def measure(subject: Subject, users: int, messages: int) -> dict[str, Any]:
    """Figures of one store."""
    talk = [message.parts[0].text.text for message in long(users * messages)]
    idle = subject.standing()
    clients = [AsyncClient(subject.address, account=ACCOUNT, user=f"user-{number}") for number in range(users)]

    async def say(number: int) -> None:
        session = await clients[number].create_session("talk")
        own = talk[number * messages : (number + 1) * messages]
        for start in range(0, messages, MESSAGES_A_CALL):
            some = own[start : start + MESSAGES_A_CALL]
            await session.add_messages([Message("user", [TextPart(text)]) for text in some])

    async def commit(number: int) -> int:
        session = await clients[number].get_session("talk")
        committed = await session.commit()
        task = await clients[number].wait_task(committed["task_id"], timeout=COMMIT_SECONDS)
        assert task["status"] == "completed", task
        return sum(task["result"]["memories_extracted"].values())

    async def found(number: int) -> None:
        async with asyncio.timeout(COMMIT_SECONDS):
            while True:
                answer = await clients[number].find("anything", limit=1)
                if not answer["pending_passages"]:
                    return
                await asyncio.sleep(0.2)

    await everyone(users, say)
    said = subject.standing()
    memories = sum(await everyone(users, commit))
    await everyone(users, found)
    done = subject.standing()
    for client in clients:
        await client.close()
    return {
        "characters_a_message": round(sum(map(len, talk)) / len(talk)),
        "messages": users * messages,
        "commits": users,
        "memories": memories,
        "idle_mib": {"server": idle.server.mib, "index": idle.index.mib, "extractor": idle.extractors.mib / EXTRACTORS},
        "loaded_mib": {
            "server": done.server.mib,
            "index": done.index.mib,
            "extractor": done.extractors.mib / EXTRACTORS,
        },
        "append": growth(idle, said, users * messages),
        "commit": growth(said, done, users * messages),
    }


def growth(before: Standing, after: Standing, messages: int) -> dict[str, float]:
    """For each message: bytes, and milliseconds of processor time."""
    return {
        "store_bytes": (after.store_bytes - before.store_bytes) / messages,
        "logged_bytes": (after.logged_bytes - before.logged_bytes) / messages,
        "index_bytes": (after.index_bytes - before.index_bytes) / messages,
        "server_ms": (after.server.seconds - before.server.seconds) * 1000 / messages,
        "index_ms": (after.index.seconds - before.index.seconds) * 1000 / messages,
        "extractor_ms": (after.extractors.seconds - before.extractors.seconds) * 1000 / messages,
    }


async def store(kind: str, users: int, messages: int) -> dict[str, Any]:
    """A fleet on one kind of store, measured."""
    postgres = await asyncio.to_thread(PostgresServer().start) if kind == "PostgreSQL" else None
    database = Database() if postgres is None else PostgresDatabase(postgres)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="runekeep-bench-") as folder,
            processes(Path(folder), prepared=False) as fleet,
        ):
            server = await asyncio.to_thread(lambda: fleet.server(**database.settings, RUNEKEEP_POLL_SECONDS="1"))
            try:
                extractors = [
                    fleet.extractor(f"extractor-{number}", "--engine", "offline").pid for number in range(EXTRACTORS)
                ]
                async with AsyncClient(fleet.address, account=ACCOUNT, user="first") as client:
                    # The first use of everything loads it.
                    session = await client.create_session("first")
                    await session.add_message("user", [TextPart("My name is Ada and I live in Graz.")])
                    task = await client.wait_task((await session.commit())["task_id"], timeout=COMMIT_SECONDS)
                    await client.find("Where does Ada live?", min_revision=task["result"]["revision"])
                return await measure(Subject(fleet, server, extractors, database), users, messages)
            finally:
                # With its children, which write to the folder.
                await asyncio.to_thread(server.kill)
    finally:
        if postgres is not None:
            await asyncio.to_thread(postgres.stop)


async def points(count: int, datatype: VectorDatatype, progress: Progress) -> dict[str, float]:
    """A server that starts on an index of so many points, of passages as large as real ones."""
    embedder = open_embedder("minilm")
    assert embedder is not None
    space = VectorSpace(embedder.model, embedder.dimension)
    await embedder.close()
    with tempfile.TemporaryDirectory(prefix="runekeep-bench-") as folder:
        data = Path(folder) / "data"
        server = ServerProcess(data, {"RUNEKEEP_EMBEDDER": "minilm", "RUNEKEEP_INDEX_DATATYPE": datatype}, quick=False)
        try:
            await asyncio.to_thread(server.start)
            await asyncio.to_thread(server.stop)
            empty = size(DataDirectory(data).index)
            await crowd(DataDirectory(data).index, space, count, progress, datatype)
            await asyncio.to_thread(server.start)
            async with AsyncClient(server.address, account=ACCOUNT, user="user-000") as client:
                for _ in range(20):
                    await client.find("A question of one of them")
            index = Process.of(*server.children())
            await asyncio.to_thread(server.stop)
            return {
                "points": count,
                "index_mib": index.mib,
                "disk_bytes_a_point": (size(DataDirectory(data).index) - empty) / count,
            }
        finally:
            server.discard()


def table(made: dict[str, Any]) -> Table:
    drawn = Table(title="Memory in MiB; for each message bytes, and milliseconds of processor time")
    for column in ("", *made["stores"]):
        drawn.add_column(column, justify="right" if column else "left")
    for step in ("idle_mib", "loaded_mib", "append", "commit") if made["stores"] else ():
        for name in next(iter(made["stores"].values()))[step]:
            drawn.add_row(f"{step} {name}", *(f"{figures[step][name]:,.1f}" for figures in made["stores"].values()))
    for figures in made["index"]:
        drawn.add_row(f"index of {figures['points']:,} points", f"{figures['index_mib']:,.0f} MiB")
        drawn.add_row("  bytes of disk a point", f"{figures['disk_bytes_a_point']:,.0f}")
    return drawn


async def run(
    users: int, messages: int, counts: Sequence[int], datatype: VectorDatatype, progress: Progress
) -> dict[str, Any]:
    return {
        "bench": "sizing",
        "stores": {kind: await store(kind, users, messages) for kind in ("SQLite", "PostgreSQL") if users},
        "datatype": datatype,
        "index": [await points(count, datatype, progress) for count in counts],
        "load_average": os.getloadavg()[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=20, help="0: measure the index alone")
    parser.add_argument("--messages", type=int, default=60, help="of each user, in one session and one commit")
    parser.add_argument("--points", type=int, nargs="*", default=[10_000, 50_000])
    parser.add_argument(
        "--datatype",
        type=VectorDatatype,
        choices=list(VectorDatatype),
        default=VectorDatatype.FLOAT32,
        help="of --points",
    )
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    given = parser.parse_args()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        made = asyncio.run(run(given.users, given.messages, given.points, given.datatype, progress))
    if not given.json:
        Console().print(table(made))
    print(json.dumps(made))


if __name__ == "__main__":
    main()
