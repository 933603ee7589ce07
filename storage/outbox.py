"""What the index still has to be told, written in the transaction of the change itself."""

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace

from schemas import failpoints
from storage import spaces, watermarks
from storage.database import Space, Topic, Tx
from storage.points import passage_point

GRACE = 10 * 1_000_000
"""A superseded point stays this long (microseconds) after the watermark passed its successor, so that a search that
began before still finds it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """op `upsert`: bring memory (uri, version) into the index; `passage`: bring passage (uri = session id, version =
    sequence) into it once more, if it is still `point_id`; `delete`: take out `point_id`, which may be several, apart
    by spaces; `delete_passages`: take out the points of all messages from `first_sequence` to `last_sequence` that the
    commit `task_id` archived, whether they are in the index yet or not. Nothing is taken out before `due_at` or before
    the watermark has reached the entry's revision."""

    op: str
    uri: str = ""
    version: int = 0
    point_id: str = ""
    task_id: str = ""
    first_sequence: int = 0
    last_sequence: int = 0
    due_at: int = 0
    revision: int = 0
    number: int = 0

    def removed_points(self, space: Space) -> Iterator[str]:
        """Points that are to leave the index; an archive may have any number of them."""
        if self.op == "delete":
            yield from self.point_id.split()
        elif self.op == "delete_passages":
            for sequence in range(self.first_sequence, self.last_sequence + 1):
                yield passage_point(space, self.task_id, sequence)


_COLUMNS = "op, uri, version, point_id, task_id, first_sequence, last_sequence, due_at, revision, number"
_GROUP = 50
"""Entries that one statement writes; the deletion of a user has one for every archive."""


def _insert(rows: int) -> str:
    values = ", ".join(
        "($1, $2, " + ", ".join(f"${10 * row + column}" for column in range(3, 13)) + ")" for row in range(rows)
    )
    return f"INSERT INTO outbox (account, user_id, {_COLUMNS}) VALUES {values}"


_INSERTS = {rows: _insert(rows) for rows in (1, _GROUP)}


async def add(tx: Tx, space: Space, revision: int, entries: Iterable[Entry]) -> None:
    """Entries of a revision; 0 for what belongs to none.

    Their numbers go up for ever: a relay that comes late with an entry that was done must not take a new one for it.
    """
    added = list(entries)
    number = await _numbers(tx, space, len(added)) if added else 0
    numbered = [
        astuple(replace(entry, revision=revision, number=number + offset)) for offset, entry in enumerate(added, 1)
    ]
    while numbered:
        rows = _GROUP if len(numbered) >= _GROUP else 1
        values = [value for entry in numbered[:rows] for value in entry]
        await tx.execute(_INSERTS[rows], space.account, space.user, *values)
        del numbered[:rows]
    tx.notify(Topic.INDEX)


async def _numbers(tx: Tx, space: Space, count: int) -> int:
    """Takes so many numbers; the one before the first."""
    while True:
        row = await tx.fetchrow(
            "UPDATE spaces SET outbox_number = outbox_number + $3 WHERE account = $1 AND user_id = $2"
            " RETURNING outbox_number",
            space.account,
            space.user,
            count,
        )
        if row is not None:
            return int(row["outbox_number"]) - count
        await spaces.ensure(tx, space)


async def waiting_spaces(tx: Tx, index_id: str, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[Space]:
    """Spaces with something to do now, over all accounts, by name: entries that are due, or revisions not yet marked.

    Those that are not in this index are left out: they are written to it whole.
    """
    # Written so that no index on the id is taken: nearly all spaces have the same one.
    here = "(s.index_id || '') IN ('', $2)"
    rows = await tx.fetch(
        "SELECT o.account, o.user_id FROM"
        " (SELECT DISTINCT account, user_id FROM outbox WHERE due_at <= $1 AND (account, user_id) > ($3, $4)) o"
        f" JOIN spaces s ON s.account = o.account AND s.user_id = o.user_id WHERE {here}"
        " UNION SELECT s.account, s.user_id FROM spaces s"
        f" WHERE s.indexed_revision < s.revision AND (s.account, s.user_id) > ($3, $4) AND {here}"
        " ORDER BY account, user_id LIMIT $5",
        tx.now(),
        index_id,
        *after,
        limit,
    )
    return [Space(row["account"], row["user_id"]) for row in rows]


async def due(tx: Tx, space: Space, limit: int) -> tuple[int, list[Entry]]:
    """Newest revision of the space and its entries that are due, in revision order.

    A delete waits for the watermark, however late the relay is: until then searches read at the old version.
    """
    newest, indexed = await spaces.revisions(tx, space)
    rows = await tx.fetch(
        f"SELECT {_COLUMNS} FROM outbox"
        " WHERE account = $1 AND user_id = $2 AND due_at <= $3 AND (op IN ('upsert', 'passage') OR revision <= $4)"
        " ORDER BY revision, number LIMIT $5",
        space.account,
        space.user,
        tx.now(),
        indexed,
        limit,
    )
    return newest, [Entry(**dict(row)) for row in rows]


async def done(tx: Tx, space: Space, entries: list[Entry], indexed_revision: int) -> list[Entry]:
    """Drops entries that the index has, and moves the watermark; it never moves back.

    Gives those that were gone: another relay had done them.
    """
    gone = []
    for entry in entries:
        dropped = await tx.execute(
            "DELETE FROM outbox WHERE account = $1 AND user_id = $2 AND revision = $3 AND number = $4",
            space.account,
            space.user,
            entry.revision,
            entry.number,
        )
        if not dropped:
            gone.append(entry)
    failpoints.reached(failpoints.RELAY_BEFORE_WATERMARK)
    await _move_watermark(tx, space, indexed_revision)
    return gone


async def written(tx: Tx, space: Space, index_id: str, revision: int) -> None:
    """Says that the index holds the space as it was at `revision`, written from its rows: entries that brought points
    up to there have nothing left to do. Deletes stay, and so does what came later."""
    if not await watermarks.written(tx, space, index_id):
        return
    await tx.execute(
        "DELETE FROM outbox WHERE account = $1 AND user_id = $2 AND revision > 0 AND revision <= $3 AND op = 'upsert'",
        space.account,
        space.user,
        revision,
    )
    await _move_watermark(tx, space, revision)


async def removals(tx: Tx, space: Space) -> set[str]:
    """Points of the space that are still to be taken out."""
    rows = await tx.fetch(
        f"SELECT {_COLUMNS} FROM outbox WHERE account = $1 AND user_id = $2 AND op IN ('delete', 'delete_passages')",
        space.account,
        space.user,
    )
    return {point for row in rows for point in Entry(**dict(row)).removed_points(space)}


async def _move_watermark(tx: Tx, space: Space, indexed_revision: int) -> None:
    """From here on searches read at the new revisions: the grace of the versions that these superseded begins."""
    before, now = await watermarks.move(tx, space, indexed_revision)
    if now == before:
        return
    await tx.execute(
        "UPDATE outbox SET due_at = $5"
        " WHERE account = $1 AND user_id = $2 AND revision > $3 AND revision <= $4 AND op NOT IN ('upsert', 'passage')",
        space.account,
        space.user,
        before,
        now,
        tx.now() + GRACE,
    )
