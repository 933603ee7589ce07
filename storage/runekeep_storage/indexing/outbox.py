"""The outbox: changes that the index must still receive, written in the transaction of the change itself."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace

from runekeep_common import failpoints
from runekeep_storage.database import Row, Space, Topic, Tx
from runekeep_storage.drivers.common.statement_lists import in_rows
from runekeep_storage.indexing import statements
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.spaces import spaces, watermarks

_FEW = 64
"""Maximum number of entries that multi-row statements delete. For these PostgreSQL may read all waiting entries of the
space, so larger batches use one statement for each entry, which finds it by key. A whole batch of the relay then takes
as many round trips as it has entries: a quarter of a second at a millisecond each."""
GRACE = 10 * 1_000_000
"""How long a superseded point stays after the watermark passed its successor, in microseconds, so that a search that
began before still finds it."""
REMOVALS = 2000
"""Maximum number of points of one space removed at once, plus at most those of one `delete` entry. A deleted archive
may have any number of points; neither its user's new memories nor other users wait for all of them."""
POINTS = 200
"""Maximum number of points that one entry removes. Few entries: the relay reads and drops each one separately."""

Name = tuple[str, str]
"""(account, user): the position of a walk over the spaces."""
FIRST: Name = ("", "")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the outbox. `upsert`: write memory (uri, version) to the index; `passage`: write passage (uri =
    session id, version = sequence) again, if it is still `point_id`; `delete`: remove `point_id`, which may be several
    ids separated by spaces; `delete_passages`: remove the points of messages `first_sequence` to `last_sequence`
    archived by the commit `task_id`, whether or not they are in the index yet. Nothing is removed before `due_at` or
    before the watermark reaches the entry's revision."""

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

    @property
    def takes(self) -> bool:
        """Whether the entry removes points instead of writing one."""
        return self.op in ("delete", "delete_passages")

    @property
    def removed(self) -> int:
        """The number of points that the entry removes."""
        if self.op == "delete_passages":
            return self.last_sequence - self.first_sequence + 1
        return len(self.point_id.split()) if self.op == "delete" else 0

    def removed_points(self, space: Space) -> Iterator[str]:
        """Yields the points to remove; an archive may have any number of them."""
        if self.op == "delete":
            yield from self.point_id.split()
        elif self.op == "delete_passages":
            for sequence in range(self.first_sequence, self.last_sequence + 1):
                yield passage_point(space, self.task_id, sequence)


async def add(tx: Tx, space: Space, revision: int, entries: Iterable[Entry]) -> None:
    """Adds entries of a revision, 0 for entries without one.

    Entry numbers only increase: a late relay must not mistake a new entry for one that is done.
    """
    added = list(entries)
    await put(tx, space, revision, added, await _numbers(tx, space, len(added)) if added else 0)


async def remove(tx: Tx, space: Space, points: Sequence[str]) -> None:
    """Adds entries that remove points, with up to POINTS in each."""
    groups = [points[start : start + POINTS] for start in range(0, len(points), POINTS)]
    await add(tx, space, 0, [Entry("delete", point_id=" ".join(some)) for some in groups])


async def put(tx: Tx, space: Space, revision: int, entries: Sequence[Entry], number: int) -> None:
    """Like `add`, with numbers that the caller has reserved from the space's `outbox_number`; `number`: the one before
    the first."""
    numbered = [
        (*astuple(replace(entry, revision=revision, number=number + offset)), int(entry.takes))
        for offset, entry in enumerate(entries, 1)
    ]
    for some in in_rows(numbered):
        await tx.execute(
            statements.add_entries(len(some)), space.account, space.user, *(value for entry in some for value in entry)
        )
    tx.notify(Topic.INDEX, watermarks.ADDED)


async def _numbers(tx: Tx, space: Space, count: int) -> int:
    """Reserves `count` numbers. Returns the one before the first."""
    while True:
        row = await tx.fetchrow(statements.RESERVE_NUMBERS, space.account, space.user, count)
        if row is not None:
            return int(row["outbox_number"]) - count
        await spaces.ensure(tx, space)


async def waiting_spaces(tx: Tx, index_id: str, after: Name = FIRST, limit: int = 100) -> tuple[list[Space], Name]:
    """Returns spaces with something to do now, over all accounts, by name, and where to go on; FIRST at the end.

    Something to do are due entries, and revisions that the watermark has not reached. Spaces that are not in this index
    are left out, because they are written to it as a whole. Examines at most `limit` spaces with entries and `limit`
    with such revisions, however long the outbox is; the result may be empty although more follow.
    """
    walked = await tx.fetch(statements.SPACES_WITH_ENTRIES, *after, limit, tx.now())
    unmarked = await tx.fetch(statements.SPACES_WITH_REVISIONS, *after, limit)
    ends = [_name(rows[-1]) for rows in (walked, unmarked) if len(rows) == limit]
    wanted = [row for row in walked if row["due"]] + unmarked
    names = {_name(row) for row in wanted if row["index_id"] in ("", index_id)}
    end = min(ends) if ends else FIRST
    return [Space(*name) for name in sorted(names) if not ends or name <= end], end


def _name(row: Row) -> Name:
    return row["account"], row["user_id"]


async def due(tx: Tx, space: Space, limit: int) -> tuple[int, list[Entry]]:
    """Returns the newest revision of the space and up to `limit` due entries, see `due_at`."""
    newest, indexed = await spaces.revisions(tx, space)
    return newest, await due_at(tx, space, newest, indexed, limit)


async def due_at(tx: Tx, space: Space, newest: int, indexed: int, limit: int) -> list[Entry]:
    """Returns up to `limit` due entries of a space whose newest revision is `newest` and whose index holds `indexed`:
    first entries that write points, in the order of revisions, then removals of REMOVALS points or a few more.

    A user's writes thus do not wait for removals, and no removed point is written again. A `delete_passages` entry that
    is too long is cut. A removal waits for the watermark, however late the relay is: until then searches read the old
    version.
    """
    found = await tx.fetch(statements.DUE_ENTRIES, space.account, space.user, tx.now(), limit, newest, indexed)
    entries = [Entry(**dict(row)) for row in found]
    brought = [entry for entry in entries if not entry.takes]
    return brought + _cut([entry for entry in entries if entry.takes][: limit - len(brought)])


def _cut(entries: list[Entry]) -> list[Entry]:
    taken: list[Entry] = []
    left = REMOVALS
    for entry in entries:
        if left <= 0:
            break
        if entry.op == "delete_passages":
            entry = replace(entry, last_sequence=min(entry.last_sequence, entry.first_sequence + left - 1))
        taken.append(entry)
        left -= entry.removed
    return taken


async def done(tx: Tx, space: Space, entries: list[Entry], indexed_revision: int) -> list[Entry]:
    """Deletes entries that the index has received, and moves the watermark, never back. A `delete_passages` entry that
    is only partly done stays with the rest.

    Returns the entries that were gone, because another relay had done them.
    """
    few = len(entries) <= _FEW
    there = await _drop_all(tx, space, [entry for entry in entries if entry.op != "delete_passages"] if few else [])
    gone = []
    for entry in entries:
        is_dropped = few and entry.op != "delete_passages"
        if not (entry.number in there if is_dropped else await _drop(tx, space, entry)):
            gone.append(entry)
    failpoints.reached(failpoints.RELAY_BEFORE_WATERMARK)
    await _move_watermark(tx, space, indexed_revision)
    return gone


async def _drop_all(tx: Tx, space: Space, entries: Sequence[Entry]) -> set[int]:
    """Deletes the entries. Returns the numbers of those that existed; a number is enough, because none is used
    twice."""
    there: set[int] = set()
    for some in in_rows(entries):
        dropped = await tx.fetch(
            statements.drop_entries(len(some)),
            space.account,
            space.user,
            *(entry.revision for entry in some),
            *(entry.number for entry in some),
        )
        there |= {row["number"] for row in dropped}
    return there


async def _drop(tx: Tx, space: Space, entry: Entry) -> bool:
    """Deletes the entry, or the part of it that is done. Returns whether it was there."""
    key = (space.account, space.user, entry.revision, entry.number)
    if entry.op != "delete_passages":
        return bool(await tx.execute(statements.DROP_ENTRY, *key))
    rest = entry.last_sequence + 1
    if await tx.execute(statements.DROP_ENTRY_UP_TO, *key, rest):
        return True
    return bool(await tx.execute(statements.SHORTEN_ENTRY, *key, rest))


async def written(tx: Tx, space: Space, index_id: str, revision: int) -> None:
    """Records that the index holds the space at `revision`, written from its rows, so upserts up to it are dropped.
    Removals and later entries stay."""
    if not await watermarks.written(tx, space, index_id):
        return
    await tx.execute(statements.DROP_WRITTEN_ENTRIES, space.account, space.user, revision)
    await _move_watermark(tx, space, revision)


async def removals(tx: Tx, space: Space) -> set[str]:
    """Returns the points of the space that are still to be removed."""
    found = await tx.fetch(statements.REMOVALS, space.account, space.user)
    return {point for row in found for point in Entry(**dict(row)).removed_points(space)}


async def removes_up_to(tx: Tx, space: Space, number: int, *, superseded: bool) -> bool:
    """Returns whether an entry up to that number must still remove points. `superseded`: also count removals of
    superseded versions that wait for their grace."""
    statement = statements.HAS_REMOVALS if superseded else statements.HAS_REMOVALS_OF_ERASED
    return await tx.fetchrow(statement, space.account, space.user, number) is not None


async def _move_watermark(tx: Tx, space: Space, indexed_revision: int) -> None:
    """Moves the watermark. From then on searches read at the new revisions, so the grace of the superseded versions
    begins."""
    before, now = await watermarks.move(tx, space, indexed_revision)
    if now == before:
        return
    await tx.execute(statements.BEGIN_GRACE, space.account, space.user, before, now, tx.now() + GRACE)
