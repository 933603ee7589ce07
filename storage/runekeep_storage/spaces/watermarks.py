"""Watermarks of the index: which index the store is searched by, and which revision of each space that index holds.

Every space names the index that its watermark belongs to, by the id that the index got at its creation (see
`VectorIndex.open`). If a space names another index than the open one, the open index does not hold the space, whatever
its watermark says, and the space is written to it from its rows. So a lost, wiped or replaced index needs no marks of
what it lacks, which a crash could lose.
"""

from dataclasses import dataclass

from runekeep_storage.database import Row, Space, Topic, Tx
from runekeep_storage.index.base import IndexUnavailable
from runekeep_storage.spaces import spaces, statements

MOVED = "moved"
"""Subject of Topic.INDEX when a watermark moved, for callers that wait for it on another server."""
ADDED, ARCHIVED = "added", "archived"
"""Subjects of Topic.INDEX for new outbox entries, and for archives that need passages."""

Place = tuple[str, str, str]
"""(index id, account, user): position of a walk over the spaces."""
FIRST: Place = ("", "", "")
IN_NONE = "0"
"""Index id of a space whose rows are complete but that was never announced to an index: it is written as a whole."""
FIRST_IN_AN_INDEX: Place = (IN_NONE, "", "")
"""Start of a walk that skips spaces with an empty index id, which are in no index yet; other ids are hexadecimal."""
_END = "~"


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """Newest revision of a space, and the newest one that is completely in the index; -1 while the space is not in the
    index and waits to be written from its rows."""

    revision: int
    indexed: int


async def index_of_store(tx: Tx) -> str:
    """Returns the id of the index that the store, for all accounts, is searched by; empty before the first."""
    row = await tx.fetchrow(statements.INDEX_OF_STORE)
    return str(row["index_id"]) if row else ""


async def adopt(tx: Tx, index_id: str) -> None:
    """Makes this index the one that the store, for all accounts, is searched by."""
    await tx.execute(statements.ADOPT_INDEX, index_id)


async def confirm(tx: Tx, index_id: str) -> None:
    """Raises IndexUnavailable if the store is searched by another index by now, so that writes to this one do not
    count."""
    _check(await index_of_store(tx), index_id)


def _check(searched: str, index_id: str) -> None:
    if searched != index_id:
        raise IndexUnavailable("the store is searched by another index by now")


async def standing(tx: Tx, space: Space, index_id: str) -> IndexProgress:
    """Returns the index's progress in this space; (0, 0) for an unknown space. Raises IndexUnavailable, see
    `confirm`."""
    row = await _confirmed(tx, space, index_id)
    if row["index_id"] is None:
        return IndexProgress(0, 0)
    return IndexProgress(row["revision"], row["indexed_revision"] if row["index_id"] in ("", index_id) else -1)


async def join(tx: Tx, space: Space, index_id: str) -> bool:
    """Assigns a space without an index to this index; returns whether the space belongs to this index now.

    A space of another index stays there until this index holds all of it. Raises IndexUnavailable, see `confirm`.
    """
    row = await _confirmed(tx, space, index_id)
    if row["index_id"] != "":
        return bool(row["index_id"] == index_id)
    await tx.execute(statements.JOIN_INDEX, space.account, space.user, index_id)
    return True


async def _confirmed(tx: Tx, space: Space, index_id: str) -> Row:
    """Returns the revisions and the index of the space, all None for an unknown one. Raises IndexUnavailable, see
    `confirm`."""
    row = await tx.fetchrow(statements.PROGRESS, space.account, space.user)
    assert row is not None
    _check(row["searched"], index_id)
    return row


async def move(tx: Tx, space: Space, indexed_revision: int) -> tuple[int, int]:
    """Moves the watermark forward, never back; returns its old and new position."""
    _, before = await spaces.revisions(tx, space)
    if indexed_revision <= before:
        return before, before
    await tx.execute(statements.MOVE_WATERMARK, space.account, space.user, indexed_revision)
    tx.notify(Topic.INDEX, MOVED)
    return before, indexed_revision


async def written(tx: Tx, space: Space, index_id: str) -> bool:
    """Records that this index holds all of the space; returns False if another server already recorded it."""
    await confirm(tx, index_id)
    changed = await tx.execute(statements.SPACE_WRITTEN, space.account, space.user, index_id, tx.now())
    tx.notify(Topic.INDEX, MOVED)
    return bool(changed)


async def elsewhere(tx: Tx, index_id: str, after: Place, limit: int) -> list[Place]:
    """Returns the next spaces, over all accounts, that are not in this index."""
    found: list[Place] = []
    # Skip the spaces of this index, of which there may be millions: "~" sorts after everything that a name may hold.
    behind: Place = (index_id, "~", "")
    for start, end in ((after, index_id), (max(after, behind), _END)):
        rows = await tx.fetch(statements.SPACES_ELSEWHERE, *start, end, limit - len(found))
        found += [(row["index_id"], row["account"], row["user_id"]) for row in rows]
    return found


async def due_for_check(tx: Tx, index_id: str, interval: int) -> tuple[Space, int] | None:
    """Returns the space of this index, over all accounts, whose last comparison with it is the oldest, and the time of
    that comparison; None if that is less than `interval` microseconds ago."""
    row = await tx.fetchrow(statements.NEXT_TO_CHECK, tx.now() - interval, index_id)
    return (Space(row["account"], row["user_id"]), row["checked_at"]) if row else None


async def claim_check(tx: Tx, space: Space, last: int) -> bool:
    """Claims the comparison of the space; returns False if another server claimed it since `last`."""
    changed = await tx.execute(statements.CLAIM_CHECK, space.account, space.user, last, tx.now())
    return bool(changed)


async def set_checked(tx: Tx, space: Space, at: int) -> None:
    """Sets when the index points of the space were last compared with its rows, in microseconds."""
    await tx.execute(statements.SET_CHECKED, space.account, space.user, at)
