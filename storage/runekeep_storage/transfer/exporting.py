"""Reads a space as it is at one moment, while writes go on and without a long transaction.

What may change later is read first, in one transaction, and written to a file of its own (`begin`): sessions, turn
memory, the states of archives and tasks, counts. What never changes once written is read afterwards in slices, each in
its own transaction, up to that moment: messages up to the session's last sequence, versions of memories and commits up
to the revision of the space, summaries and diffs of the archives that were finished. A version that was superseded
since is exported as it was then.

The next slice notices if data was deleted in between: every deletion and every erasure increments `spaces.losses`,
which `begin` records. So an export is of one moment, or it fails (`SpaceChanged`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

from runekeep_common.tokens import BYTES_A_TOKEN
from runekeep_schemas.turns.stored import BUCKET
from runekeep_storage.blobs.blobs import digest_of
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.byte_limits import count_within
from runekeep_storage.errors import SpaceChanged
from runekeep_storage.memories import origins as memory_origins
from runekeep_storage.records import STORED_OUTPUT
from runekeep_storage.tables import BY_NAME, TABLES, Export, Table
from runekeep_storage.transfer import statements
from runekeep_storage.transfer.exports.layout import Counts
from runekeep_storage.transfer.exports.rows import FORMS
from runekeep_storage.turns.jobs import TAKEN

SLICE = 500
"""Maximum number of rows that one statement reads."""
FIRST_SLICE = 20
SLICE_BYTES = 1024 * 1024
"""Approximate maximum size of a slice."""

AT_ONCE: Final = {
    table.name: table.exported
    for table in TABLES
    if isinstance(table.exported, Export) and not table.exported.is_read_later
}
"""Tables that are read at one moment; archives without what their commits wrote about them."""

_STATES: Final[Mapping[str, str]] = {"leased": "pending", "running": "pending"}

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of an export: the newest revision, the count of deletions in `spaces.losses`, and the amounts of
    data."""

    revision: int
    losses: int
    counts: Counts


class Spool:
    """Rows of AT_ONCE as they were at the moment, in a file: one line of JSON each, by table and key."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._starts: dict[str, int] = {}
        self._ends: dict[str, int] = {}

    def clear(self) -> None:
        self._file.seek(0)
        self._file.truncate()

    def begin(self, table: str) -> None:
        self._starts[table] = self._ends[table] = self._file.tell()

    def add(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._file.write(json.dumps(dict(row), separators=(",", ":")).encode() + b"\n")
        self._ends[table] = self._file.tell()

    def some(self, table: str, place: int | None, most: int) -> tuple[list[Line], int]:
        """Returns up to `most` rows, and about SLICE_BYTES, from a position on (None: the first), and the position
        after them. Without rows there are no more. Blocking."""
        start = self._starts[table] if place is None else place
        self._file.seek(start)
        found: list[Line] = []
        at = start
        while at < self._ends[table] and len(found) < most and at - start < SLICE_BYTES:
            line = self._file.readline()
            at += len(line)
            found.append(json.loads(line))
        return found, at


async def begin(tx: Tx, space: Space, spool: Spool) -> Moment:
    """Writes the rows of AT_ONCE to `spool`. Returns the moment."""
    spool.clear()
    row = await tx.fetchrow(statements.MOMENT, space.account, space.user)
    revision, losses = (row["revision"], row["losses"]) if row else (0, 0)
    counted: dict[str, int] = {}
    for table, exported in AT_ONCE.items():
        counted[table] = await _spool(tx, space, BY_NAME[table], bool(exported.size), spool)
    messages = await tx.fetchrow(statements.COUNT_MESSAGES, space.account, space.user)
    memories = await tx.fetchrow(statements.COUNT_MEMORIES, space.account, space.user)
    assert messages is not None and memories is not None
    counted |= {"messages": messages["n"], "memories": memories["now"], "memory_versions": memories["versions"]}
    counts = Counts(**{name: counted[name] for name in Counts.model_fields})
    return Moment(revision, losses, counts)


async def _spool(tx: Tx, space: Space, table: Table, has_sizes: bool, spool: Spool) -> int:
    """Writes the rows of a table to `spool`. Returns how many there are."""
    spool.begin(table.name)
    key = FORMS[table.name].key
    last: list[Any] | None = None
    count, limit = 0, FIRST_SLICE
    while True:
        is_first = last is None
        of_slice = (space.account, space.user, *(last or ()))
        if has_sizes:
            sized = await tx.fetch(statements.exported_sizes(table, is_first), *_with_limit(of_slice, limit))
            limit = count_within([row["size"] for row in sized], SLICE_BYTES) or limit
        rows = await tx.fetch(statements.exported_rows(table, is_first), *_with_limit(of_slice, limit))
        spool.add(table.name, rows)
        count += len(rows)
        if len(rows) < limit:
            return count
        limit = next_limit(limit, rows)
        last = [rows[-1][name] for name in key]


def _with_limit(of_slice: tuple[Any, ...], limit: int) -> tuple[Any, ...]:
    """Returns arguments with the limit in the third place."""
    return (*of_slice[:2], limit, *of_slice[2:])


async def check(tx: Tx, space: Space, moment: Moment) -> None:
    """Raises SpaceChanged if data of the space was deleted since the moment."""
    row = await tx.fetchrow(statements.LOSSES, space.account, space.user)
    if (row["losses"] if row else 0) != moment.losses:
        raise SpaceChanged(space.user)


async def messages(
    tx: Tx, space: Space, moment: Moment, session_id: str, first: int, last: int, limit: int
) -> list[Line]:
    """Returns up to `limit` messages of a session from `first` to `last`, and about SLICE_BYTES. Raises
    SpaceChanged."""
    await check(tx, space, moment)
    of_range = (space.account, space.user, session_id, first, last)
    sized = await tx.fetch(statements.MESSAGE_TOKENS, *of_range, limit)
    limit = count_within([row["tokens"] * BYTES_A_TOKEN for row in sized], SLICE_BYTES)
    rows = await tx.fetch(statements.MESSAGES, *of_range, limit)
    return [dict(row) for row in rows]


async def memories(
    tx: Tx, space: Space, moment: Moment, after: tuple[str, int], limit: int, *, current: bool = False
) -> list[Line]:
    """Returns up to `limit` versions after (uri, version) as they were at the moment, and about SLICE_BYTES; with
    `current` only those that were alive then.

    Raises SpaceChanged.
    """
    await check(tx, space, moment)
    of_slice = (space.account, space.user, moment.revision, *after)
    sized = await tx.fetch(statements.version_sizes(current), *of_slice, limit)
    limit = count_within([row["size"] for row in sized], SLICE_BYTES)
    rows = await tx.fetch(statements.versions(current), *of_slice, limit)
    origins = {} if current or not rows else await _origins(tx, space, rows)
    return [
        {
            **dict(row),
            "rev_to": row["rev_to"] if row["rev_to"] <= moment.revision else 0,
            "origins": origins.get((row["uri"], row["version"]), []),
        }
        for row in rows
    ]


async def _origins(tx: Tx, space: Space, versions: Sequence[Row]) -> dict[tuple[str, int], list[Line]]:
    """Returns messages that consecutive versions were the first to come from and that they do not name as sources."""
    first, last = versions[0], versions[-1]
    rows = await memory_origins.messages_of(tx, space, (first["uri"], first["version"]), (last["uri"], last["version"]))
    named = {
        (row["uri"], row["version"], one["session"], one["message_id"])
        for row in versions
        for one in json.loads(row["sources"])
    }
    found: dict[tuple[str, int], list[Line]] = {}
    for row in rows:
        uri, version, session, message_id = row["uri"], row["version"], row["session_id"], row["message_id"]
        if (uri, version, session, message_id) not in named:
            found.setdefault((uri, version), []).append({"session": session, "message_id": message_id})
    return found


async def commits(tx: Tx, space: Space, moment: Moment, after: int, limit: int) -> list[Line]:
    """Returns up to `limit` commits after a revision. Raises SpaceChanged."""
    await check(tx, space, moment)
    rows = await tx.fetch(statements.COMMITS, space.account, space.user, after, moment.revision, limit)
    return [dict(row) for row in rows]


async def finished(tx: Tx, space: Space, moment: Moment, some: Sequence[Line]) -> list[Line]:
    """Returns rows of archives together with what their commits wrote about them, if they were finished at the moment:
    the first rows, about SLICE_BYTES of them.

    Raises SpaceChanged.
    """
    await check(tx, space, moment)
    found: list[Line] = []
    room = SLICE_BYTES
    for row in some:
        if room < 0:
            break
        texts: Line = dict.fromkeys(statements.LATE, "")
        if row["state"] == "done":
            key = (space.account, space.user, row["session_id"], row["archive_index"])
            there = await tx.fetchrow(statements.LATE_OF_ARCHIVE, *key)
            if there is None:
                raise SpaceChanged(space.user)
            texts = dict(there)
            room -= sum(map(len, texts.values()))
        found.append({**row, **texts})
    return found


def line_of(table: str, row: Mapping[str, Any]) -> Line:
    """Returns the row in the form of an export's line: JSON columns as JSON, blobs by their SHA-256."""
    form = FORMS[table]
    line = {name: row[name] for name in (*form.columns, *form.beside)}
    for name in form.json:
        line[name] = json.loads(line[name])
    for name in form.nullable:
        line[name] = json.loads(line[name]) if line[name] else None
    match table:
        case "messages":
            for part in line["parts"]:
                if STORED_OUTPUT in part:
                    part[STORED_OUTPUT] = digest_of(part[STORED_OUTPUT])
        case "turn_artifacts" | "tool_outputs":
            line["blob"] = digest_of(line["blob"])
        case "tasks":
            line["state"] = _STATES.get(line["state"], line["state"])
        case "jobs":
            line["state"] = _STATES.get(line["state"], line["state"])
            # What one attempt stored there is of no use to another.
            if line["kind"] == "bucket_reconcile":
                line["plan"] = {}
            elif line["kind"] == "turn_fingerprint":
                line["plan"].pop(TAKEN, None)
    return line


def blobs_of(table: str, row: Mapping[str, Any]) -> list[str]:
    """Returns the names of the blobs that a row names."""
    if table == "messages":
        return [part[STORED_OUTPUT] for part in json.loads(row["parts"]) if STORED_OUTPUT in part]
    if table == "tool_outputs" or (table == "turn_artifacts" and row["kind"] == BUCKET):
        return [row["blob"]]
    return []


def next_limit(limit: int, rows: Sequence[Mapping[str, Any]]) -> int:
    """Returns how many rows to read next, about SLICE_BYTES, given `rows` that were read with `limit`."""
    if not rows:
        return limit
    values = [value for row in rows for value in dict(row).values()]
    size = sum(len(value) for value in values if isinstance(value, str))
    size += sum(len(value) * statements.ORIGIN_BYTES for value in values if isinstance(value, list))
    return max(1, min(SLICE, 4 * limit, SLICE_BYTES * len(rows) // max(size, 1)))


async def names_bucket(tx: Tx, space: Space, session_id: str, blob: str) -> bool:
    """Returns whether a bucket of the session is still stored in that blob."""
    row = await tx.fetchrow(statements.NAMES_BLOB, space.account, space.user, session_id, BUCKET, blob)
    return row is not None
