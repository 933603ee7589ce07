"""What the suites of deletion share: users with a row in every table, and all that a store holds of them."""

from typing import Any

import pytest

from runekeep_schemas.turns.buckets import Bucket
from runekeep_schemas.turns.feedback import MACHINE, USER, Reaction
from runekeep_schemas.turns.fingerprint import Fingerprint, Signal
from runekeep_schemas.turns.selection import Selection
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.drivers.common.idempotent_requests import RequestKey
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.indexing import outbox, passages
from runekeep_storage.jobs import jobs
from runekeep_storage.memories import apply
from runekeep_storage.records import Usage
from runekeep_storage.search import recalled
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import pending_deletions, watermarks
from runekeep_storage.tables import SLICES
from runekeep_storage.turns import buckets, feedback, fingerprints, selections, turns
from tests.support.appending import add_messages
from tests.support.storage.databases import BOB, CAT, claim, commit, prepared, talk, text, uri, write

NAMESAKE = Space("other", "ann")
"""The same user name in another account."""
OTHERS = (BOB, CAT, NAMESAKE)

# What a deleted user leaves: the counter of revisions, ids of requests and of points, marks for the cleaner.
STAYS = {"spaces", "requests", "outbox", "blob_sweeps"}


def slices_of(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Makes each slice of what sessions leave one of so few rows."""
    monkeypatch.setattr(pending_deletions, "SLICE", most)
    for table in SLICES:
        monkeypatch.setitem(SLICES, table, most)


async def dump(database: Database, space: Space) -> dict[str, list[dict[str, Any]]]:
    """All rows of a user in every table that has any."""
    columns = (
        "SELECT m.name AS name FROM sqlite_master m JOIN pragma_table_info(m.name) c ON c.name = 'user_id'"
        " WHERE m.type = 'table'"
        if isinstance(database, SqliteDatabase)
        else "SELECT table_name AS name FROM information_schema.columns"
        " WHERE column_name = 'user_id' AND table_schema = 'public'"
    )

    async def work(tx: Tx) -> dict[str, list[dict[str, Any]]]:
        found = {}
        for table in [row["name"] for row in await tx.fetch(columns)]:
            held = await tx.fetch(
                f"SELECT * FROM {table} WHERE account = $1 AND user_id = $2", space.account, space.user
            )
            if held:
                found[table] = sorted((dict(row) for row in held), key=repr)
        return found

    return await database.read_global(work)


TURN_TABLES = ("turns", "turn_artifacts", "turn_tags")


async def take_turn(database: Database, space: Space, session_id: str, turn_id: str, *, machines: int = 1) -> None:
    """A message of a turn, with all that can be remembered of it, and reactions of so many machines."""

    async def work(tx: Tx) -> None:
        session, _ = await sessions.get_or_create(tx, space, session_id)
        message = text(f"m{session.last_sequence + 1}", "words", turn_id=turn_id)
        await add_messages(tx, space, session_id, [message], {})
        turn = await turns.get(tx, space, session_id, turn_id)
        await turns.set_summary(tx, space, session_id, turn_id, "{}")
        promoted = Signal("tea", "green", "mention")
        said = Fingerprint(turn_id, "an objective", assistant_signals=(promoted,))
        await fingerprints.submit(tx, space, turn, said)
        for number in range(machines + 1):
            by = USER if number == 0 else MACHINE
            reaction = Reaction(f"r-{turn_id}-{number}", turn_id, "ok", "good", by, 1.0, turn_id, 0)
            await feedback.put(tx, space, session_id, turn, reaction)

    await database.write_global(work)


async def choose(database: Database, space: Space, session_id: str, blob: str = "1" * 64) -> None:
    """A selection and a bucket, which belong to the session and to no turn."""
    await database.write(selections.put, space, session_id, Selection(turn_ids=("t1",)))
    theme = Bucket("obj-tea-1", "tea", updated_at=1)
    await database.write(buckets.write, space, session_id, theme, blob, f"blob:{blob}", base="")


async def live_a_little(database: Database, space: Space) -> None:
    """A row in every table: commits that are done, that failed, that wait; memories with a history; usage; outputs;
    turns and what is remembered of them."""
    await talk(database, space, "s", "one", "two")
    await database.write(sessions.record_usage, space, "s", [Usage("context", uri(space, "tea"))])
    await database.write(add_messages, space, "s", [text("m3", "three")], {"call": ("0" * 64, 30_000)})
    await database.write(
        recalled.keep, space, "s", recalled.SessionPosition(3, 0), {uri(space, "tea"): recalled.Given(1, 2)}
    )
    await take_turn(database, space, "s", "t1")
    await choose(database, space, "s")
    await commit(database, space, "s", f"{space.account}-{space.user}-1")
    await done(database, write(space, "tea", 0, 1, "green tea"), write(space, "milk", 0, 1, "milk"))
    await talk(database, space, "s", "four")
    await commit(database, space, "s", f"{space.account}-{space.user}-2")
    await done(database, write(space, "tea", 1, 2, "black tea"), write(space, "milk", 1, 2, deleted=True))
    await index_passages(database)


async def done(database: Database, *writes: Any) -> None:
    job = await claim(database)
    await database.write(apply.apply, jobs.space_of(job), prepared(job.lease, writes, f"out-{job.job_id}"))


async def index_passages(database: Database) -> None:
    index_id = await database.read_global(watermarks.index_of_store)
    owners, _ = await database.read_global(passages.waiting_spaces, outbox.FIRST, 1000)
    waiting = [(owner, archive) for owner in owners for archive in await database.read(passages.waiting, owner, 1000)]
    for owner, archive in waiting:
        messages = await database.read(
            sessions.messages_between, owner, archive.session_id, archive.first_sequence, archive.last_sequence
        )
        made = passages.with_words(passages.of_messages(archive, messages), [None] * len(messages))
        await database.write(passages.store, owner, index_id, archive, made, "", whole=True)


async def answer(
    database: Database, space: Space, method: str, request_id: str, body: str = "body", says: bytes = b"done"
) -> bytes:
    """The answer of a request whose work gives `says`."""

    async def work(tx: Tx) -> bytes:
        return says

    return await database.write(idempotent_requests.run_once, space, RequestKey(method, request_id, body), work)


async def fill(database: Database, space: Space, session_id: str, messages: int) -> None:
    """A session with so many messages, all of them archived, with passages."""
    await talk(database, space, session_id, *(f"copper {number}" for number in range(1, messages + 1)))
    await commit(database, space, session_id, f"{space.user}-{session_id}")
    await index_passages(database)


async def held(database: Database, space: Space) -> dict[str, int]:
    found = await dump(database, space)
    return {table: len(found.get(table, [])) for table in ("messages", "passages", "leftovers")}
