"""Which messages a memory came from: rows of `memory_sources`, one for each run of consecutive messages.

A row says that a version of a memory came from messages `first_sequence` to `last_sequence` of a session. Several
versions may name one message; the first of them counts. Sequences mean something only while the session is there: a
session of the same name that is created later counts from 1 again, so a row also has the time when its session was
created. A row whose messages are not known by their sequences (their session was deleted before an export, or a server
of an earlier release wrote the row) has 0 for all three and stands for one message, by its id.

A run goes on across messages that were erased before it was written, since nothing can have come of them. `erased` of
its row counts them: when there are more, one was erased without the memory.

No run crosses a multiple of BLOCK, so that the runs that hold a message are found among those of its block.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, groupby
from typing import Any, Final

from storage.database import Row, Space, Tx
from storage.records import MessageRun
from storage.statement_lists import by_keys, filled, in_rows, places, rows

BLOCK: Final = 16_384
"""Sequences that one run spans at most. Shorter blocks make more rows of a large archive, longer ones have more rows
read for each look-up."""

MAX_STORED_RUNS: Final = 10_000
"""Runs of the memories of one step of an import that are read to pass over messages that they came from already."""

OF_SESSION_NOW: Final = (
    "o.session_created_at = x.created_at AND x.account = o.account AND x.user_id = o.user_id"
    " AND x.session_id = o.session_id"
)
"""Condition on a row `o` of `memory_sources` and one `x` of `sessions`: the sequences are of that session."""

_OF_SESSION = "account = $1 AND user_id = $2 AND session_id = $3"

Origin = tuple[str, int, MessageRun]
"""URI and version of a memory, and messages that it came from."""
Named = tuple[str, int, str, str]
"""URI and version of a memory, session and id of a message that it came from."""


def cut(first: int, last: int) -> list[tuple[int, int]]:
    """Returns the sequences `first` to `last` as runs of which none crosses a multiple of BLOCK."""
    starts = [first, *range((first // BLOCK + 1) * BLOCK, last + 1, BLOCK)]
    return list(zip(starts, [start - 1 for start in starts[1:]] + [last], strict=True))


async def write(tx: Tx, space: Space, origins: Sequence[Origin]) -> None:
    """Stores runs of messages. Runs of one memory must not overlap each other."""
    created = await _created(tx, space, {run.session_id for _, _, run in origins})
    for some in in_rows(origins):
        values: list[Any] = []
        for uri, version, run in some:
            created_at = created.get(run.session_id, 0) if run.first_sequence else 0
            known = (run.first_sequence, run.last_sequence, created_at, run.erased) if created_at else (0, 0, 0, 0)
            values += [run.session_id, run.message_id, uri, version, *known]
        await tx.execute(_insert(len(some)), space.account, space.user, *values)


@cache
def _insert(count: int) -> str:
    # One that is there is of an earlier session of the same name, or of an earlier release. Of the messages of both the
    # older version counts: an erasure may take more away than it has to, never less.
    same = "memory_sources.session_created_at = excluded.session_created_at"
    longer = "memory_sources.last_sequence > excluded.last_sequence"
    return (
        "INSERT INTO memory_sources (account, user_id, session_id, message_id, uri, version, first_sequence,"
        f" last_sequence, session_created_at, erased) VALUES {rows('($1, $2, ?, ?, ?, ?, ?, ?, ?, ?)', count, 3)}"
        " ON CONFLICT (account, user_id, session_id, message_id, uri) DO UPDATE SET"
        " version = CASE WHEN memory_sources.version < excluded.version"
        " THEN memory_sources.version ELSE excluded.version END,"
        f" erased = CASE WHEN {same} AND {longer} THEN memory_sources.erased ELSE excluded.erased END,"
        f" last_sequence = CASE WHEN {same} AND {longer}"
        " THEN memory_sources.last_sequence ELSE excluded.last_sequence END,"
        " first_sequence = excluded.first_sequence, session_created_at = excluded.session_created_at"
    )


async def _created(tx: Tx, space: Space, session_ids: Iterable[str]) -> dict[str, int]:
    """When sessions were created, by id; one that is not there is left out."""
    found: dict[str, int] = {}
    for some in filled(session_ids):
        there = await tx.fetch(
            "SELECT session_id, created_at FROM sessions WHERE account = $1 AND user_id = $2"
            f" AND session_id IN ({places(3)})",
            space.account,
            space.user,
            *some,
        )
        found |= {row["session_id"]: row["created_at"] for row in there}
    return found


async def write_named(tx: Tx, space: Space, named: Sequence[Named]) -> None:
    """Stores messages that memories came from, as runs; versions of one memory come in order. A message that is not
    there gets a row of its own. One that an earlier version of the memory came from is passed over."""
    created = await _created(tx, space, {session_id for _, _, session_id, _ in named})
    sequences = await _sequences(tx, space, {one[2:] for one in named if one[2] in created})
    stored = await _stored(tx, space, {uri for uri, *_ in named}, created)
    messages: dict[tuple[str, int, str], list[str]] = {}
    for uri, version, session_id, message_id in named:
        messages.setdefault((uri, version, session_id), []).append(message_id)
    passed: set[tuple[str, str, str]] = set()
    origins: list[Origin] = []
    for (uri, version, session_id), ids in messages.items():
        known: dict[int, str] = {}
        before = stored.get((uri, session_id))
        for message_id in ids:
            if (uri, session_id, message_id) in passed:
                continue
            passed.add((uri, session_id, message_id))
            sequence = sequences.get((session_id, message_id))
            if sequence is None:
                origins.append((uri, version, MessageRun(session_id, message_id, 0, 0)))
            elif before is None or not before.hold(sequence):
                known[sequence] = message_id
        origins += [
            (uri, version, MessageRun(session_id, known[first], first, last)) for first, last in runs_of(sorted(known))
        ]
    await write(tx, space, origins)


class _StoredRuns:
    """Runs of messages of one session that one memory came from; they may overlap."""

    def __init__(self, runs: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(runs)
        self._firsts = [first for first, _ in ordered]
        # Of each run and those before it the furthest.
        self._lasts = list(accumulate((last for _, last in ordered), max))

    def hold(self, sequence: int) -> bool:
        place = bisect_right(self._firsts, sequence) - 1
        return place >= 0 and sequence <= self._lasts[place]


async def _stored(
    tx: Tx, space: Space, uris: Iterable[str], created: Mapping[str, int]
) -> dict[tuple[str, str], _StoredRuns]:
    """Returns the runs of sessions that are there that memories came from already, by URI and session.

    Of a memory of very many runs some are left out, so that an import that goes on with it stays short: they only save
    rows. One whose message is stored twice is found by both.
    """
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    of_space = (
        "SELECT uri, session_id, first_sequence, last_sequence, session_created_at FROM memory_sources"
        " WHERE account = $1 AND user_id = $2"
    )
    for some in in_rows(sorted(set(uris))):
        # Without a range of versions SQLite reads all rows of the user.
        of_memories = by_keys(of_space, ("uri",), len(some), 4, behind=" AND version > 0")
        there = await tx.fetch(
            f"{of_memories} LIMIT $3",
            space.account,
            space.user,
            MAX_STORED_RUNS,
            *some,
        )
        for row in there:
            if row["first_sequence"] and created.get(row["session_id"]) == row["session_created_at"]:
                key = row["uri"], row["session_id"]
                found.setdefault(key, []).append((row["first_sequence"], row["last_sequence"]))
    return {key: _StoredRuns(runs) for key, runs in found.items()}


def runs_of(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """Returns the sequences, which are in order, as the fewest runs that hold them and no other."""
    found: list[tuple[int, int]] = []
    for one in sequences:
        if found and found[-1][1] == one - 1 and one % BLOCK:
            found[-1] = found[-1][0], one
        else:
            found.append((one, one))
    return found


async def _sequences(tx: Tx, space: Space, messages: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Of messages that are there, by session and id."""
    found: dict[tuple[str, str], int] = {}
    of_space = "SELECT session_id, message_id, sequence FROM messages WHERE account = $1 AND user_id = $2"
    for some in in_rows(sorted(messages)):
        there = await tx.fetch(
            by_keys(of_space, ("session_id", "message_id"), len(some), 3),
            space.account,
            space.user,
            *(value for message in some for value in message),
        )
        found |= {(row["session_id"], row["message_id"]): row["sequence"] for row in there}
    return found


async def covering(tx: Tx, space: Space, session_id: str, sequences: Sequence[int]) -> list[Row]:
    """Returns the runs of a session that hold one of the messages, which are in order: rows of `uri`, `version`,
    `first_sequence` and `last_sequence`."""
    found: list[Row] = []
    for block, of_block in groupby(sequences, key=lambda one: one // BLOCK):
        some = list(of_block)
        there = await tx.fetch(
            "SELECT o.uri, o.version, o.first_sequence, o.last_sequence FROM memory_sources o, sessions x"
            " WHERE o.account = $1 AND o.user_id = $2 AND o.session_id = $3"
            " AND o.first_sequence >= $4 AND o.first_sequence <= $5 AND o.last_sequence >= $6"
            f" AND {OF_SESSION_NOW}",
            space.account,
            space.user,
            session_id,
            max(1, block * BLOCK),
            some[-1],
            some[0],
        )
        found += [row for row in there if some[bisect_left(some, row["first_sequence"])] <= row["last_sequence"]]
    return found


async def of_message(
    tx: Tx, space: Space, session_id: str, message_id: str, sequence: int, after: str, limit: int
) -> list[Row]:
    """Returns `uri` of memories behind `after` that came from a message, in order, and of each the first `version` that
    did."""
    return await tx.fetch(
        "SELECT n.uri, MIN(n.version) AS version FROM ("
        f" SELECT uri, version FROM memory_sources WHERE {_OF_SESSION} AND message_id = $4 AND uri > $7"
        " UNION ALL SELECT o.uri, o.version FROM memory_sources o, sessions x"
        " WHERE o.account = $1 AND o.user_id = $2 AND o.session_id = $3"
        " AND o.first_sequence >= $5 AND o.first_sequence <= $6 AND o.last_sequence >= $6"
        f" AND {OF_SESSION_NOW} AND o.uri > $7) n GROUP BY n.uri ORDER BY n.uri LIMIT $8",
        space.account,
        space.user,
        session_id,
        message_id,
        max(1, sequence // BLOCK * BLOCK),
        sequence,
        after,
        limit,
    )


async def first_versions(tx: Tx, space: Space, session_id: str, messages: Sequence[Row]) -> dict[str, int]:
    """Returns the first version of each memory that came from one of the messages, by URI. Messages have `message_id`
    and `sequence`."""
    named = await covering(tx, space, session_id, sorted(row["sequence"] for row in messages))
    for some in filled(row["message_id"] for row in messages):
        named += await tx.fetch(
            f"SELECT uri, version FROM memory_sources WHERE {_OF_SESSION} AND message_id IN ({places(4)})",
            space.account,
            space.user,
            session_id,
            *some,
        )
    firsts: dict[str, int] = {}
    for row in named:
        firsts[row["uri"]] = min(row["version"], firsts.get(row["uri"], row["version"]))
    return firsts


async def forget(tx: Tx, space: Space, firsts: Mapping[str, int]) -> None:
    """Deletes the rows of memories, by URI, from a version on."""
    for uri, first in firsts.items():
        await tx.execute(
            "DELETE FROM memory_sources WHERE account = $1 AND user_id = $2 AND uri = $3 AND version >= $4",
            space.account,
            space.user,
            uri,
            first,
        )


async def messages_of(tx: Tx, space: Space, first: tuple[str, int], last: tuple[str, int]) -> list[Row]:
    """Returns the messages that versions of memories came from, `first` to `last` by URI and version: rows of `uri`,
    `version`, `session_id` and `message_id`, in that order.

    Of a run whose session was deleted only the first message is known; that is enough to erase by session.
    """
    return await tx.fetch(
        "SELECT DISTINCT o.uri, o.version, o.session_id, COALESCE(m.message_id, o.message_id) AS message_id"
        f" FROM memory_sources o LEFT JOIN sessions x ON {OF_SESSION_NOW}"
        " LEFT JOIN messages m ON m.account = x.account AND m.user_id = x.user_id AND m.session_id = x.session_id"
        " AND m.sequence >= o.first_sequence AND m.sequence <= o.last_sequence AND m.erased = 0"
        " WHERE o.account = $1 AND o.user_id = $2 AND (o.uri, o.version) >= ($3, $4) AND (o.uri, o.version) <= ($5, $6)"
        " ORDER BY 1, 2, 3, 4",
        space.account,
        space.user,
        *first,
        *last,
    )
