"""How far search has come: which index a store is searched by, and which revision of each space that index holds.

Every space names the index that its watermark belongs to, by the id that the index got when it was made (see
`VectorIndex.open`). A space that names another index than the one that is open is not in that one, whatever its
watermark says, and is written to it from its rows. So an index that was lost, wiped or replaced needs nobody to mark
what it lacks: the marks would be what a crash forgets.
"""

from dataclasses import dataclass

from storage import spaces
from storage.database import Row, Space, Topic, Tx
from storage.index.base import IndexUnavailable

MOVED = "moved"
"""Subject of Topic.INDEX when a watermark moved, for those who wait for one at another server."""
ADDED, ARCHIVED = "added", "archived"
"""Subjects of Topic.INDEX when there is something new in the outbox, and when there are passages to be made."""

Place = tuple[str, str, str]
"""(index id, account, user): where a walk over the spaces stands."""
FIRST: Place = ("", "", "")
IN_NONE = "0"
"""As the index id of a space whose rows are all there, and of which no index was told: it is written as a whole."""
FIRST_IN_AN_INDEX: Place = (IN_NONE, "", "")
"""Behind the spaces that no index was told of; ids are hexadecimal."""
_END = "~"


@dataclass(frozen=True, slots=True)
class Standing:
    """Newest revision of a space, and the newest one that is wholly in the index; -1 while the space is not in it and
    waits to be written from its rows."""

    revision: int
    indexed: int


async def index_of_store(tx: Tx) -> str:
    """Id of the index that the store, all accounts, is searched by; empty before the first."""
    row = await tx.fetchrow("SELECT index_id FROM search_index WHERE slot = 0")
    return str(row["index_id"]) if row else ""


async def adopt(tx: Tx, index_id: str) -> None:
    """From now on the store, all accounts, is searched by this index."""
    await tx.execute(
        "INSERT INTO search_index (slot, index_id) VALUES (0, $1)"
        " ON CONFLICT (slot) DO UPDATE SET index_id = excluded.index_id",
        index_id,
    )


async def confirm(tx: Tx, index_id: str) -> None:
    """Raises IndexUnavailable when the store is searched by another index by now: what was sent to this one counts for
    nothing."""
    _check(await index_of_store(tx), index_id)


def _check(searched: str, index_id: str) -> None:
    if searched != index_id:
        raise IndexUnavailable("the store is searched by another index by now")


async def standing(tx: Tx, space: Space, index_id: str) -> Standing:
    """How far the index is in this space; 0, 0 for an unknown space. Raises IndexUnavailable, see `confirm`."""
    row = await _confirmed(tx, space, index_id)
    if row["index_id"] is None:
        return Standing(0, 0)
    return Standing(row["revision"], row["indexed_revision"] if row["index_id"] in ("", index_id) else -1)


async def join(tx: Tx, space: Space, index_id: str) -> bool:
    """Says of a space that is in no index yet that it is in this one; whether it is now.

    One that is in another index stays there until all of it is in this one. Raises IndexUnavailable, see `confirm`.
    """
    row = await _confirmed(tx, space, index_id)
    if row["index_id"] != "":
        return bool(row["index_id"] == index_id)
    await tx.execute(
        "UPDATE spaces SET index_id = $3 WHERE account = $1 AND user_id = $2 AND index_id = ''",
        space.account,
        space.user,
        index_id,
    )
    return True


async def _confirmed(tx: Tx, space: Space, index_id: str) -> Row:
    """Revisions and index of the space, all None for an unknown one. Raises IndexUnavailable, see `confirm`."""
    row = await tx.fetchrow(
        "SELECT o.searched, s.revision, s.indexed_revision, s.index_id"
        " FROM (SELECT COALESCE((SELECT index_id FROM search_index WHERE slot = 0), '') AS searched) o"
        " LEFT JOIN spaces s ON s.account = $1 AND s.user_id = $2",
        space.account,
        space.user,
    )
    assert row is not None
    _check(row["searched"], index_id)
    return row


async def move(tx: Tx, space: Space, indexed_revision: int) -> tuple[int, int]:
    """Moves the watermark, never back; where it was and where it is."""
    _, before = await spaces.revisions(tx, space)
    if indexed_revision <= before:
        return before, before
    await tx.execute(
        "UPDATE spaces SET indexed_revision = $3 WHERE account = $1 AND user_id = $2",
        space.account,
        space.user,
        indexed_revision,
    )
    tx.notify(Topic.INDEX, MOVED)
    return before, indexed_revision


async def written(tx: Tx, space: Space, index_id: str) -> bool:
    """Says that all of the space is in this index now; False when another server said so before."""
    await confirm(tx, index_id)
    changed = await tx.execute(
        "UPDATE spaces SET index_id = $3, checked_at = $4 WHERE account = $1 AND user_id = $2 AND index_id <> $3",
        space.account,
        space.user,
        index_id,
        tx.now(),
    )
    tx.notify(Topic.INDEX, MOVED)
    return bool(changed)


async def elsewhere(tx: Tx, index_id: str, after: Place, limit: int) -> list[Place]:
    """The next spaces, over all accounts, that are not in this index."""
    found: list[Place] = []
    # Past the spaces that are in it, of which there may be millions: "~" comes after all that a name may hold.
    behind: Place = (index_id, "~", "")
    for start, end in ((after, index_id), (max(after, behind), _END)):
        rows = await tx.fetch(
            "SELECT index_id, account, user_id FROM spaces WHERE (index_id, account, user_id) > ($1, $2, $3)"
            # The end is of the first column alone: PostgreSQL would go through all spaces of that index for an end
            # within it.
            " AND index_id < $4 ORDER BY index_id, account, user_id LIMIT $5",
            *start,
            end,
            limit - len(found),
        )
        found += [(row["index_id"], row["account"], row["user_id"]) for row in rows]
    return found


async def due_for_check(tx: Tx, index_id: str, interval: int) -> tuple[Space, int] | None:
    """The space of this index, over all accounts, that was compared with it the longest ago, if that is `interval`
    microseconds or more, and when it was."""
    row = await tx.fetchrow(
        "SELECT account, user_id, checked_at FROM spaces WHERE checked_at <= $1 AND index_id = $2"
        " ORDER BY checked_at LIMIT 1",
        tx.now() - interval,
        index_id,
    )
    return (Space(row["account"], row["user_id"]), row["checked_at"]) if row else None


async def claim_check(tx: Tx, space: Space, last: int) -> bool:
    """Says that the space is compared now; False when another server said so since `last`."""
    changed = await tx.execute(
        "UPDATE spaces SET checked_at = $4 WHERE account = $1 AND user_id = $2 AND checked_at = $3",
        space.account,
        space.user,
        last,
        tx.now(),
    )
    return bool(changed)


async def set_checked(tx: Tx, space: Space, at: int) -> None:
    """When the points of the space were last compared with its rows."""
    await tx.execute(
        "UPDATE spaces SET checked_at = $3 WHERE account = $1 AND user_id = $2", space.account, space.user, at
    )
