"""Stores which messages a memory came from: one row of `memory_sources` for each run of consecutive messages.

A row says that a version of a memory came from messages `first_sequence` to `last_sequence` of a session. If several
versions name one message, the first of them counts. Sequences are valid only while the session exists: a later session
of the same name counts from 1 again, so a row also stores when its session was created. A row whose sequences are
unknown (the session was deleted before an export, or a server of an earlier release wrote the row) has 0 for all three
and stands for one message, by its id.

A run spans messages that were erased before it was written, since no memory can have come from them. `erased` counts
them: if more are erased now, one was erased without its memory.

No run crosses a multiple of BLOCK, so that the runs that hold a message are all in its block.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, Final

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.statement_lists import filled, in_rows
from runekeep_storage.memories import statements
from runekeep_storage.records import MessageRun

BLOCK: Final = 16_384
"""Maximum length of a run, in messages. Shorter blocks make more rows for a large archive; longer ones make each lookup
read more rows."""

MAX_STORED_RUNS: Final = 10_000
"""Maximum number of stored runs that one step of an import reads to skip messages that are recorded already."""

Origin = tuple[str, int, MessageRun]
"""(URI, version, run): a version of a memory, and messages that it came from."""
Named = tuple[str, int, str, str]
"""(URI, version, session id, message id): a version of a memory, and a message that it came from."""


def cut(first: int, last: int) -> list[tuple[int, int]]:
    """Returns the sequences `first` to `last` as runs, none of which crosses a multiple of BLOCK."""
    starts = [first, *range((first // BLOCK + 1) * BLOCK, last + 1, BLOCK)]
    return list(zip(starts, [start - 1 for start in starts[1:]] + [last], strict=True))


async def write(tx: Tx, space: Space, origins: Sequence[Origin]) -> None:
    """Stores runs of messages. Runs of one memory must not overlap."""
    created = await _created(tx, space, {run.session_id for _, _, run in origins})
    for some in in_rows(origins):
        values: list[Any] = []
        for uri, version, run in some:
            created_at = created.get(run.session_id, 0) if run.first_sequence else 0
            known = (run.first_sequence, run.last_sequence, created_at, run.erased) if created_at else (0, 0, 0, 0)
            values += [run.session_id, run.message_id, uri, version, *known]
        await tx.execute(statements.insert_origins(len(some)), space.account, space.user, *values)


async def copy(tx: Tx, space: Space, uri: str, other: str, version: int) -> None:
    """Stores all messages that any version of the memory at `uri` came from as those of a version of another one."""
    await tx.execute(statements.COPY_ORIGINS, space.account, space.user, uri, other, version)


async def _created(tx: Tx, space: Space, session_ids: Iterable[str]) -> dict[str, int]:
    """Returns when sessions were created, by id; missing sessions are left out."""
    found: dict[str, int] = {}
    for some in filled(session_ids):
        there = await tx.fetch(statements.SESSIONS_CREATED_AT, space.account, space.user, *some)
        found |= {row["session_id"]: row["created_at"] for row in there}
    return found


async def write_named(tx: Tx, space: Space, named: Sequence[Named]) -> None:
    """Stores messages that memories came from, as runs. Versions of one memory must come in order. A message that does
    not exist gets a row of its own; one that an earlier version of the memory came from is skipped."""
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
    """The runs of one session that one memory came from; they may overlap."""

    def __init__(self, runs: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(runs)
        self._firsts = [first for first, _ in ordered]
        # The largest end among each run and those before it.
        self._lasts = list(accumulate((last for _, last in ordered), max))

    def hold(self, sequence: int) -> bool:
        place = bisect_right(self._firsts, sequence) - 1
        return place >= 0 and sequence <= self._lasts[place]


async def _stored(
    tx: Tx, space: Space, uris: Iterable[str], created: Mapping[str, int]
) -> dict[tuple[str, str], _StoredRuns]:
    """Returns the stored runs of existing sessions, by URI and session.

    Reads at most MAX_STORED_RUNS, so that a step of an import stays short. A missing run costs only additional rows: a
    message that is stored twice is found by either row.
    """
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for some in in_rows(sorted(set(uris))):
        there = await tx.fetch(statements.stored_origins(len(some)), space.account, space.user, MAX_STORED_RUNS, *some)
        for row in there:
            if row["first_sequence"] and created.get(row["session_id"]) == row["session_created_at"]:
                key = row["uri"], row["session_id"]
                found.setdefault(key, []).append((row["first_sequence"], row["last_sequence"]))
    return {key: _StoredRuns(runs) for key, runs in found.items()}


def runs_of(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """Returns the ordered sequences as the fewest runs that hold exactly them."""
    found: list[tuple[int, int]] = []
    for one in sequences:
        if found and found[-1][1] == one - 1 and one % BLOCK:
            found[-1] = found[-1][0], one
        else:
            found.append((one, one))
    return found


async def _sequences(tx: Tx, space: Space, messages: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Returns the sequences of existing messages, by session and message id."""
    found: dict[tuple[str, str], int] = {}
    for some in in_rows(sorted(messages)):
        there = await tx.fetch(
            statements.sequences_of_messages(len(some)),
            space.account,
            space.user,
            *(value for message in some for value in message),
        )
        found |= {(row["session_id"], row["message_id"]): row["sequence"] for row in there}
    return found


async def covering(tx: Tx, space: Space, session_id: str, sequences: Sequence[int]) -> list[Row]:
    """Returns the runs of a session that hold one of the messages, given in order: rows of `uri`, `version`,
    `first_sequence` and `last_sequence`."""
    found: list[Row] = []
    for block, of_block in groupby(sequences, key=lambda one: one // BLOCK):
        some = list(of_block)
        there = await tx.fetch(
            statements.ORIGINS_BETWEEN,
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
    """Returns `uri` of the memories after `after` that came from a message, in order, each with its first such
    `version`."""
    return await tx.fetch(
        statements.MEMORIES_OF_MESSAGE,
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
    """Returns the first version of each memory that came from one of the messages, by URI. `messages` are rows of
    `message_id` and `sequence`."""
    named = await covering(tx, space, session_id, sorted(row["sequence"] for row in messages))
    for some in filled(row["message_id"] for row in messages):
        named += await tx.fetch(statements.VERSIONS_OF_MESSAGES, space.account, space.user, session_id, *some)
    firsts: dict[str, int] = {}
    for row in named:
        firsts[row["uri"]] = min(row["version"], firsts.get(row["uri"], row["version"]))
    return firsts


async def forget(tx: Tx, space: Space, firsts: Mapping[str, int]) -> None:
    """Deletes the rows of each memory from the given version on."""
    for uri, first in firsts.items():
        await tx.execute(statements.FORGET_ORIGINS, space.account, space.user, uri, first)


async def messages_of(tx: Tx, space: Space, first: tuple[str, int], last: tuple[str, int]) -> list[Row]:
    """Returns the messages that versions of memories came from, for versions `first` to `last` by (URI, version): rows
    of `uri`, `version`, `session_id` and `message_id`, in that order.

    For a run whose session was deleted only the first message is known. That is enough to erase by session.
    """
    return await tx.fetch(statements.MESSAGES_OF_VERSIONS, space.account, space.user, *first, *last)
