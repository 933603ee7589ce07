"""The rows of a deleted user, taken away in slices.

What must follow a row goes in the transaction that takes it: the removal of its points from the index, and the name of
a session whose messages still stand. Sessions go first, so that passages that a relay stores late, for an archive that
is still there, are named already as what is left of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage import leftovers, outbox, requests
from storage.database import Row, Space, Tx
from storage.outbox import Entry
from storage.points import memory_point

_POINTS = 200
"""Memories that one entry of the outbox takes out of the index."""


@dataclass(frozen=True, slots=True)
class _Table:
    """`key` orders the rows of a space. `more`: columns that are asked for besides; `only`: a condition on rows that
    go."""

    name: str
    key: tuple[str, ...]
    more: tuple[str, ...] = ()
    only: str = ""


_TABLES = (
    _Table("sessions", ("session_id",)),
    _Table("archives", ("session_id", "archive_index"), ("task_id", "first_sequence", "last_sequence")),
    _Table("tool_outputs", ("session_id", "tool_id")),
    _Table("usages", ("session_id", "number")),
    _Table("recalled", ("session_id", "name")),
    _Table("image_descriptions", ("session_id", "digest")),
    # Of the user and of its sessions; what they cost stays in the account's.
    _Table("usage_totals", ("session_id", "day", "phase", "model")),
    # What brings points; what takes them out stays. By the key of its index: removals may be very many.
    _Table("outbox", ("due_at", "revision", "number"), only=" AND takes = 0"),
    _Table("memories", ("uri", "version"), ("rev_from", "rev_to")),
    _Table("memory_sources", ("session_id", "message_id", "uri")),
    _Table("active_counts", ("uri",)),
    _Table("commits", ("revision",)),
    _Table("task_events", ("task_id", "sequence")),
    _Table("jobs", ("job_id",)),
    _Table("tasks", ("task_id",)),
)


async def take(tx: Tx, space: Space, most: int) -> bool:
    """Takes away up to `most` rows of the space, of any table, and empties as many kept answers; whether there may be
    more. No job of the space may be open. Messages, passages and turn memory follow, see `storage.leftovers`."""
    left = most
    for table in _TABLES:
        left -= await _take(tx, space, table, left)
        if left <= 0:
            return True
    return await requests.void(tx, space, most=left) >= left


async def _take(tx: Tx, space: Space, table: _Table, most: int) -> int:
    key = ", ".join(table.key)
    rows = await tx.fetch(
        f"SELECT {', '.join((*table.key, *table.more))} FROM {table.name}"
        f" WHERE account = $1 AND user_id = $2{table.only} ORDER BY {key} LIMIT $3",
        space.account,
        space.user,
        most,
    )
    if not rows:
        return 0
    last = [rows[-1][column] for column in table.key]
    if table.name == "sessions":
        await leftovers.leave_up_to(tx, space, *last)
    places = ", ".join(f"${number}" for number in range(3, 3 + len(last)))
    await tx.execute(
        f"DELETE FROM {table.name} WHERE account = $1 AND user_id = $2{table.only} AND ({key}) <= ({places})",
        space.account,
        space.user,
        *last,
    )
    if table.name == "archives":
        await outbox.add(tx, space, 0, [passages_of(row) for row in rows])
    elif table.name == "memories":
        current = [memory_point(space, row["uri"], row["rev_from"]) for row in rows if row["rev_to"] == 0]
        # Few entries: the relay reads and drops each by itself.
        await outbox.add(tx, space, 0, [Entry("delete", point_id=" ".join(some)) for some in _groups(current)])
    return len(rows)


def passages_of(archive: Row) -> Entry:
    """Takes the points of all messages of an archive out of the index."""
    return Entry(
        "delete_passages",
        task_id=archive["task_id"],
        first_sequence=archive["first_sequence"],
        last_sequence=archive["last_sequence"],
    )


def _groups(points: Sequence[str]) -> list[Sequence[str]]:
    return [points[start : start + _POINTS] for start in range(0, len(points), _POINTS)]
