"""Reads the history of a space's memories: revisions, the memories that may differ between two of them, and the
memories that came from a message."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.errors import NotFound
from runekeep_storage.history import statements
from runekeep_storage.memories import memories, origins
from runekeep_storage.records import Memory
from runekeep_storage.sessions import sessions


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision. `origin` as in `runekeep_storage.memories.revisions.Origin`; `archive_index`: 0 if it was no commit.
    `adds`, `updates` and `deletes` count memories. `rolled_back_by`: the newest revision that took this one back, 0 if
    there is none."""

    number: int
    origin: str
    job_id: str
    session_id: str
    archive_index: int
    rolled_back: int
    rolled_back_by: int
    created_at: int
    adds: int
    updates: int
    deletes: int


async def page(tx: Tx, space: Space, below: int, limit: int, uri: str = "") -> list[Revision]:
    """Returns up to `limit` revisions below `below`, newest first; with `uri` only those that made or ended a version
    of that memory that still exists.

    Revisions that deleted the user are not among them, because that deletion removed all rows.
    """
    rows = await tx.fetch(
        statements.revisions(bool(uri)),
        space.account,
        space.user,
        below,
        limit,
        *([uri] if uri else []),
    )
    numbers = [row["revision"] for row in rows]
    counts = await _counts(tx, space, numbers)
    taken_back = await _rolled_back_by(tx, space, numbers)
    return [_revision(row, counts.get(row["revision"], (0, 0, 0)), taken_back.get(row["revision"], 0)) for row in rows]


async def get(tx: Tx, space: Space, number: int) -> Revision:
    """Returns a revision. Raises NotFound."""
    # The store holds no number above 2**63 - 1.
    found = await page(tx, space, min(number, memories.LATEST) + 1, 1)
    if not found or found[0].number != number:
        raise NotFound("revision", str(number))
    return found[0]


def _revision(row: Row, counts: tuple[int, int, int], rolled_back_by: int) -> Revision:
    columns = dict(row)
    adds, updates, deletes = counts
    return Revision(
        number=columns.pop("revision"),
        **columns,
        rolled_back_by=rolled_back_by,
        adds=adds,
        updates=updates,
        deletes=deletes,
    )


async def _rolled_back_by(tx: Tx, space: Space, numbers: Sequence[int]) -> dict[int, int]:
    """Returns the newest revision that took each revision back; revisions that none took back are left out."""
    found: dict[int, int] = {}
    for some in filled(numbers):
        rows = await tx.fetch(statements.ROLLED_BACK_BY, space.account, space.user, *some)
        found |= {row["rolled_back"]: row["newest"] for row in rows}
    return found


async def _counts(tx: Tx, space: Space, numbers: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """Returns (adds, updates, deletes) by revision; revisions without any are left out.

    An erased version leaves only the end of the version before it. That counts as a delete, since the memory does not
    exist at that revision any more; a version that the erasure restored counts as an add.
    """
    counts: dict[int, tuple[int, int, int]] = {}
    for some in filled(numbers):
        rows = await tx.fetch(statements.COUNT_MADE, space.account, space.user, *some)
        for row in rows:
            updates, deletes = int(row["updates"]), int(row["deletes"])
            counts[row["rev_from"]] = (row["made"] - updates - deletes, updates, deletes)
        rows = await tx.fetch(statements.COUNT_ENDED, space.account, space.user, *some)
        for row in rows:
            adds, updates, deletes = counts.get(row["rev_to"], (0, 0, 0))
            counts[row["rev_to"]] = (adds, updates, deletes + row["ended"])
    return counts


async def touched_between(
    tx: Tx, space: Space, earlier: int, later: int, below: str, after: str, limit: int
) -> list[str]:
    """Returns URIs of memories with a version that began or ended after revision `earlier` and up to `later`, in order:
    the first `limit` after `after`. No other memory can differ. `below`: only this memory or those below it; empty:
    all."""
    if below and await memories.newest_version(tx, space, below):
        touched = below > after and await _touched(tx, space, below, earlier, later)
        return [below] if touched else []
    # URIs below a directory sort before "0", the character after "/".
    first, end = (f"{below}/", f"{below}0") if below else ("", "\U0010ffff")
    rows = await tx.fetch(
        statements.touched(earlier == 0),
        space.account,
        space.user,
        earlier,
        later,
        max(after, first),
        end,
        limit,
    )
    return [row["uri"] for row in rows]


async def _touched(tx: Tx, space: Space, uri: str, earlier: int, later: int) -> bool:
    """Returns whether a version of the memory began or ended after revision `earlier` and up to `later`."""
    found = await tx.fetchrow(statements.IS_TOUCHED, space.account, space.user, uri, earlier, later)
    return found is not None


async def states(tx: Tx, space: Space, uris: Iterable[str], revision: int) -> dict[str, Memory]:
    """Returns the given memories that are alive at a revision, by URI."""
    found: dict[str, Memory] = {}
    for some in filled(uris):
        rows = await tx.fetch(statements.VERSIONS_ALIVE, space.account, space.user, revision, *some)
        found |= {row["uri"]: memories.memory(row) for row in rows}
    return found


async def stored_bytes(tx: Tx, space: Space, uris: Iterable[str], revisions: Sequence[int]) -> dict[str, int]:
    """Returns the approximate number of bytes, by URI, that `states` reads for all given revisions together."""
    found: dict[str, int] = {}
    for some in filled(uris):
        for revision in revisions:
            rows = await tx.fetch(statements.SIZES_ALIVE, space.account, space.user, revision, *some)
            for row in rows:
                found[row["uri"]] = found.get(row["uri"], 0) + row["size"]
    return found


async def last_deletes(tx: Tx, space: Space, uris: Iterable[str], revision: int) -> dict[str, int]:
    """Returns the newest version up to a revision that is a delete, by URI."""
    found: dict[str, int] = {}
    for some in filled(uris):
        rows = await tx.fetch(statements.LAST_DELETES, space.account, space.user, revision, *some)
        found |= {row["uri"]: row["version"] for row in rows}
    return found


async def of_message(
    tx: Tx, space: Space, session_id: str, message_id: str, after: str, limit: int, most_bytes: int
) -> tuple[list[Memory], bool]:
    """Returns the newest version of each memory that names a message as its source, by URI, from after `after` on, and
    whether more follow. Returns at most `limit` memories and about `most_bytes`, but at least one.

    Raises NotFound if the session or the message does not exist.
    """
    await sessions.get(tx, space, session_id)
    there = await tx.fetchrow(statements.SEQUENCE_OF_MESSAGE, space.account, space.user, session_id, message_id)
    if there is None:
        raise NotFound("message", message_id)
    rows = await origins.of_message(tx, space, session_id, message_id, there["sequence"], after, limit + 1)
    found: list[Memory] = []
    for row in rows[:limit]:
        if most_bytes < 0:
            break
        found.append(await _naming(tx, space, row["uri"], row["version"], session_id, message_id))
        most_bytes -= len(found[-1].content) + len(found[-1].fields) + len(found[-1].overview) + len(found[-1].sources)
    return found, len(found) < len(rows)


async def _naming(tx: Tx, space: Space, uri: str, first: int, session_id: str, message_id: str) -> Memory:
    """Returns the newest version that names the message as its source; `first` is the oldest that does.

    Later versions need not name it: a memory written anew comes from no message, and only the newest of many sources
    are kept.
    """
    quoted = json.dumps(message_id).translate({ord(sign): f"!{sign}" for sign in "!%_"})
    found, below = first, memories.LATEST
    while found == first:
        row = await tx.fetchrow(statements.VERSION_NAMING, space.account, space.user, uri, first, below, f"%{quoted}%")
        if row is None:
            break
        below = row["version"]
        # A message of another session may have the same id, and LIKE of SQLite ignores case.
        named = {(source["session"], source["message_id"]) for source in json.loads(row["sources"])}
        if (session_id, message_id) in named:
            found = below
    return await memories.get(tx, space, uri, version=found)
