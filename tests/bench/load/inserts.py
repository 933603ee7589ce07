"""The floor of any write: one INSERT a transaction, by the store's own driver, in a process of its own.

    python -m tests.bench.load.inserts STORE_URL

on a store that it has for itself. Reads one order a line from stdin (`Order` as JSON), answers each with one line on
stdout (`client.Taken` as JSON). Transactions that wait are committed together, as a server's are; each returns when
its row is durable.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from tests.bench.load.client import Taken

SQLITE_SCHEME = "sqlite:///"
SPACE = Space("bench", "writer")
_INSERT = "INSERT INTO bench_floor (account, number, body) VALUES ($1, $2, $3)"


@dataclass(frozen=True, slots=True)
class Order:
    """`inserts` in all, shared by `writers` who make one at a time; each row holds `characters`."""

    writers: int
    inserts: int
    characters: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


async def prepare(tx: Tx) -> None:
    await tx.execute(
        "CREATE TABLE bench_floor ("
        "account TEXT NOT NULL, number BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (account, number))"
    )


async def insert(tx: Tx, space: Space, number: int, body: str) -> None:
    # Of a space, so that a driver that holds accounts apart does what it does for an append.
    await tx.execute(_INSERT, space.account, number, body)


async def make(database: Database, order: Order, numbers: Iterator[int]) -> Taken:
    body = "x" * order.characters
    each: list[float] = []
    left = iter(range(order.inserts))

    async def writer() -> None:
        for _ in left:
            began = time.perf_counter()
            await database.write(insert, SPACE, next(numbers), body)
            each.append(time.perf_counter() - began)

    began, spent = time.perf_counter(), time.process_time()
    await asyncio.gather(*(writer() for _ in range(order.writers)))
    seconds, processor = time.perf_counter() - began, time.process_time() - spent
    return Taken(seconds, processor, {"OK": len(each)}, each)


def database_at(url: str) -> Database:
    """Of a store's URL, as the server's setting has it; not open yet."""
    if url.startswith(SQLITE_SCHEME):
        return SqliteDatabase(Path(url.removeprefix(SQLITE_SCHEME)))
    return PostgresDatabase(url)


async def _serve(url: str) -> None:
    database = database_at(url)
    await database.open()
    try:
        await database.write_global(prepare)
        loop = asyncio.get_running_loop()
        numbers = itertools.count()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(asdict(await make(database, Order(**json.loads(line)), numbers))), flush=True)
    finally:
        await database.close()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
