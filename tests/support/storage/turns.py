"""Short ways to say what the suites of turn memory store."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from runekeep_schemas.turns.feedback import Reaction
from runekeep_schemas.turns.fingerprint import Fingerprint, Signal
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.records import Message, Turn
from runekeep_storage.sessions import sessions
from runekeep_storage.turns import feedback, fingerprints, turns
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, NewStore, text

TABLES = ("sessions", "messages", "turns", "turn_artifacts", "turn_tags")


async def say(
    database: Database, turn_ids: str, *, space: Space = ANN, session: str = "s", at: int = 0
) -> list[Message]:
    """Adds a message to each of these turns, named by words, in their order; `-` is none. Ids count on."""

    async def work(tx: Tx, space: Space) -> list[Message]:
        there, _ = await sessions.get_or_create(tx, space, session)
        batch = [
            text(f"m{there.last_sequence + number}", f"word {number}", turn_id=turn_id.strip("-"), at=at)
            for number, turn_id in enumerate(turn_ids.split(), 1)
        ]
        return (await add_messages(tx, space, session, batch, {})).messages

    return await database.write(work, space)


async def turn(database: Database, turn_id: str, *, space: Space = ANN, session: str = "s") -> Turn:
    return await database.read(turns.get, space, session, turn_id)


async def submit(
    database: Database, turn_id: str, *, space: Space = ANN, session: str = "s", **said: Any
) -> Fingerprint:
    """As SubmitTurn does: the turn is read in the transaction that merges."""

    async def work(tx: Tx, space: Space) -> Fingerprint:
        of = await turns.get(tx, space, session, turn_id)
        return await fingerprints.submit(tx, space, of, Fingerprint(turn_id, **said))

    return await database.write(work, space)


async def fill(database: Database, turn_id: str, *, space: Space = ANN, session: str = "s", **said: Any) -> bool:
    async def work(tx: Tx, space: Space) -> bool:
        of = await turns.get(tx, space, session, turn_id)
        there = (await fingerprints.of(tx, space, session, [turn_id])).get(turn_id)
        return await fingerprints.fill(tx, space, of, there, Fingerprint(turn_id, **said))

    return await database.write(work, space)


async def react(
    database: Database,
    turn_id: str,
    words: str = "good",
    *,
    name: str = "",
    reaction: str = "ok",
    space: Space = ANN,
    session: str = "s",
    at: int = 0,
) -> Reaction:
    """The user's reaction, or that of a machine when it has a `name`."""
    origin = "machine" if name else "user"
    said = Reaction(name or f"by-user-{words}", "", reaction, words, origin, 0.9, turn_id, at)

    async def work(tx: Tx, space: Space) -> Reaction:
        return await feedback.put(tx, space, session, await turns.get(tx, space, session, turn_id), said)

    return await database.write(work, space)


def signal(key: str, value: Any = 1, severity: str = "mention") -> Signal:
    return Signal(key, value, severity)


async def rows_of(database: Database, condition: str = "1 = 1") -> dict[str, list[dict[str, Any]]]:
    """All rows, of the tables of turn memory and those beside them, for which the condition holds."""

    async def work(tx: Tx) -> dict[str, list[dict[str, Any]]]:
        found = {table: await tx.fetch(f"SELECT * FROM {table} WHERE {condition}") for table in TABLES}
        return {table: sorted((dict(row) for row in rows), key=repr) for table, rows in found.items()}

    return await database.read_global(work)


@asynccontextmanager
async def two_servers(new_store: NewStore) -> AsyncIterator[tuple[Database, Database]]:
    """Two drivers on one store, each with its own writer: what they do runs beside each other."""
    connect: Callable[[], Database] = new_store().connect
    first, second = connect(), connect()
    await first.open()
    try:
        await second.open()
        try:
            yield first, second
        finally:
            await second.close()
    finally:
        await first.close()
