"""What happened to the memories of a space: its revisions, what can differ between two of them, what came of a
message."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage import memories, memory_origins, sessions
from storage.database import Row, Space, Tx
from storage.errors import NotFound
from storage.leftovers import without
from storage.records import Memory
from storage.statement_lists import filled, places


@dataclass(frozen=True, slots=True)
class Revision:
    """`origin` as in `storage.revisions.Origin`; `archive_index` 0: of no commit. `adds`, `updates` and `deletes` count
    memories. `rolled_back_by`: the newest revision that took this one back, 0 for none."""

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
    """Revisions below `below`, newest first; with `uri` those that made or ended a version of that memory that is still
    there.

    What deleted the user is not among them: it took all rows along.
    """
    of_uri = "FROM memories WHERE account = $1 AND user_id = $2 AND uri = $5"
    # What an erasure took away has left the version before it, which it ended.
    of_memory = f" AND revision IN (SELECT rev_from {of_uri} UNION SELECT rev_to {of_uri})"
    # With a sign before it, `revision` leads no engine to all of them for the sake of their order.
    which = f"+revision < $3{of_memory}" if uri else "revision < $3"
    rows = await tx.fetch(
        "SELECT revision, origin, job_id, session_id, archive_index, rolled_back, created_at FROM commits"
        f" WHERE account = $1 AND user_id = $2 AND {which}"
        " ORDER BY revision DESC LIMIT $4",
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
    """Raises NotFound."""
    # Stores hold no larger numbers than 2**63 - 1.
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
    """By revision the newest one that took it back; one that none did is left out."""
    found: dict[int, int] = {}
    for some in filled(numbers):
        rows = await tx.fetch(
            "SELECT rolled_back, MAX(revision) AS newest FROM commits WHERE account = $1 AND user_id = $2"
            f" AND rolled_back > 0 AND rolled_back IN ({places(3)}) GROUP BY rolled_back",
            space.account,
            space.user,
            *some,
        )
        found |= {row["rolled_back"]: row["newest"] for row in rows}
    return found


async def _counts(tx: Tx, space: Space, numbers: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """By revision how many memories it made, changed and deleted; one without any is left out.

    Of what was erased only the end of the version before is left: it is counted as a delete, for the memory is not
    there at that revision any more, and what the erasure put back as one that was made.
    """
    counts: dict[int, tuple[int, int, int]] = {}
    for some in filled(numbers):
        rows = await tx.fetch(
            "SELECT m.rev_from, COUNT(*) AS made, SUM(m.deleted) AS deletes,"
            # A version that takes the place of another begins where that one ends.
            " SUM(CASE WHEN m.deleted = 0 AND m.version > 1 AND EXISTS (SELECT 1 FROM memories b"
            " WHERE b.account = m.account AND b.user_id = m.user_id AND b.uri = m.uri AND b.version = m.version - 1"
            " AND b.rev_to = m.rev_from) THEN 1 ELSE 0 END) AS updates"
            " FROM memories m WHERE m.account = $1 AND m.user_id = $2"
            f" AND m.rev_from IN ({places(3)}) GROUP BY m.rev_from",
            space.account,
            space.user,
            *some,
        )
        for row in rows:
            updates, deletes = int(row["updates"]), int(row["deletes"])
            counts[row["rev_from"]] = (row["made"] - updates - deletes, updates, deletes)
        rows = await tx.fetch(
            "SELECT m.rev_to, COUNT(*) AS ended FROM memories m WHERE m.account = $1 AND m.user_id = $2"
            f" AND m.rev_to IN ({places(3)}) AND NOT EXISTS (SELECT 1 FROM memories b"
            " WHERE b.account = m.account AND b.user_id = m.user_id AND b.uri = m.uri AND b.version = m.version + 1"
            " AND b.rev_from = m.rev_to) AND m.deleted = 0 GROUP BY m.rev_to",
            space.account,
            space.user,
            *some,
        )
        for row in rows:
            adds, updates, deletes = counts.get(row["rev_to"], (0, 0, 0))
            counts[row["rev_to"]] = (adds, updates, deletes + row["ended"])
    return counts


async def touched_between(
    tx: Tx, space: Space, earlier: int, later: int, below: str, after: str, limit: int
) -> list[str]:
    """URIs of memories of which a version began or ended after revision `earlier` and up to `later`: no other can
    differ. In order, the first `limit` behind `after`; `below`: only this memory or what is below it; empty: all."""
    if below and await memories.newest_version(tx, space, below):
        touched = below > after and await _touched(tx, space, below, earlier, later)
        return [below] if touched else []
    # What is below a directory ends before "0", the character after "/".
    first, end = (f"{below}/", f"{below}0") if below else ("", "\U0010ffff")
    within = "account = $1 AND user_id = $2 AND"
    if earlier == 0:
        # Every version began after that: in the order of the key, as far as is asked for.
        source = f"memories WHERE {within} uri > $5 AND uri < $6 AND +rev_from > $3 AND +rev_from <= $4"
        statement = ""
    else:
        source = "made"
        # A text joined to nothing leads no planner to the key: the whole space would be read in its order, or a large
        # directory, for the sake of a few revisions.
        within = f"SELECT uri FROM memories WHERE {within} (uri || '') > $5 AND (uri || '') < $6 AND"
        statement = (
            f"WITH made AS MATERIALIZED ({within} rev_from > $3 AND rev_from <= $4"
            # One that ended without another that began is left by an erasure.
            f" UNION ALL {within} rev_to > $3 AND rev_to <= $4) "
        )
    rows = await tx.fetch(
        f"{statement}SELECT DISTINCT uri FROM {source} ORDER BY uri LIMIT $7",
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
    """Whether a version of the memory began or ended after revision `earlier` and up to `later`."""
    found = await tx.fetchrow(
        "SELECT 1 AS found FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3"
        " AND ((+rev_from > $4 AND +rev_from <= $5) OR (+rev_to > $4 AND +rev_to <= $5)) LIMIT 1",
        space.account,
        space.user,
        uri,
        earlier,
        later,
    )
    return found is not None


async def states(tx: Tx, space: Space, uris: Iterable[str], revision: int) -> dict[str, Memory]:
    """Those of the memories that are alive at a revision, by URI."""
    found: dict[str, Memory] = {}
    for some in filled(uris):
        rows = await tx.fetch(
            f"SELECT {memories.COLUMNS} FROM memories m WHERE m.account = $1 AND m.user_id = $2"
            f"{memories.ALIVE_AT} AND m.uri IN ({places(4)})",
            space.account,
            space.user,
            revision,
            *some,
        )
        found |= {row["uri"]: memories.memory(row) for row in rows}
    return found


async def stored_bytes(tx: Tx, space: Space, uris: Iterable[str], revisions: Sequence[int]) -> dict[str, int]:
    """By URI about how many bytes `states` reads of the memories that are alive at these revisions, together."""
    found: dict[str, int] = {}
    for some in filled(uris):
        for revision in revisions:
            rows = await tx.fetch(
                f"SELECT m.uri, {memories.STORED_BYTES} AS size FROM memories m WHERE m.account = $1 AND m.user_id = $2"
                f"{memories.ALIVE_AT} AND m.uri IN ({places(4)})",
                space.account,
                space.user,
                revision,
                *some,
            )
            for row in rows:
                found[row["uri"]] = found.get(row["uri"], 0) + row["size"]
    return found


async def last_deletes(tx: Tx, space: Space, uris: Iterable[str], revision: int) -> dict[str, int]:
    """By URI the newest version made until a revision that stands for a delete."""
    found: dict[str, int] = {}
    for some in filled(uris):
        rows = await tx.fetch(
            "SELECT uri, MAX(version) AS version FROM memories WHERE account = $1 AND user_id = $2 AND deleted = 1"
            # The sign as in `memories.ALIVE_AT`.
            f" AND +rev_from <= $3 AND uri IN ({places(4)}) GROUP BY uri",
            space.account,
            space.user,
            revision,
            *some,
        )
        found |= {row["uri"]: row["version"] for row in rows}
    return found


async def of_message(
    tx: Tx, space: Space, session_id: str, message_id: str, after: str, limit: int, most_bytes: int
) -> tuple[list[Memory], bool]:
    """Of each memory that came from a message the newest version that names it, by URI: the first `limit` behind
    `after`, or as many as take about `most_bytes`, at least one. And whether others follow.

    Raises NotFound for a session, or a message of it, that is not there.
    """
    await sessions.get(tx, space, session_id)
    there = await tx.fetchrow(
        "SELECT sequence FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND message_id = $4"
        f" AND erased = 0{without('messages')}",
        space.account,
        space.user,
        session_id,
        message_id,
    )
    if there is None:
        raise NotFound("message", message_id)
    rows = await memory_origins.of_message(tx, space, session_id, message_id, there["sequence"], after, limit + 1)
    found: list[Memory] = []
    for row in rows[:limit]:
        if most_bytes < 0:
            break
        found.append(await _naming(tx, space, row["uri"], row["version"], session_id, message_id))
        most_bytes -= len(found[-1].content) + len(found[-1].fields) + len(found[-1].overview) + len(found[-1].sources)
    return found, len(found) < len(rows)


async def _naming(tx: Tx, space: Space, uri: str, first: int, session_id: str, message_id: str) -> Memory:
    """The newest version that names the message as its source; `first` is the oldest that does.

    Later ones need not: what is put anew comes from no message, and of many messages only the newest ones are kept.
    """
    quoted = json.dumps(message_id).translate({ord(sign): f"!{sign}" for sign in "!%_"})
    found, below = first, memories.LATEST
    while found == first:
        row = await tx.fetchrow(
            "SELECT version, sources FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3 AND version > $4"
            " AND version < $5 AND sources LIKE $6 ESCAPE '!' ORDER BY version DESC LIMIT 1",
            space.account,
            space.user,
            uri,
            first,
            below,
            f"%{quoted}%",
        )
        if row is None:
            break
        below = row["version"]
        # A message of another session may have the same id, and SQLite takes letters of both cases for the same.
        named = {(source["session"], source["message_id"]) for source in json.loads(row["sources"])}
        if (session_id, message_id) in named:
            found = below
    return await memories.get(tx, space, uri, version=found)
