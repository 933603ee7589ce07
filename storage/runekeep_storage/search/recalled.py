"""Stores what Recall gave a session, and reads what its live messages already show.

An item counts as given while the message that was the newest at that time is live; after its commit the agent's context
is assumed to be gone. What was given while no message was live counts until the next message is archived.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.errors import NotFound
from runekeep_storage.records import Memory, Passage
from runekeep_storage.search import statements

NEWEST: Final = 200
"""Maximum number of live messages of a session that are examined, newest first."""
MAX_COUNTED: Final = 5000
"""Maximum number of given names that a search skips; more than it has candidates."""


@dataclass(frozen=True, slots=True)
class SessionPosition:
    """How far a session has got."""

    last_sequence: int
    archived_sequence: int

    @property
    def looked_at(self) -> int:
        """Sequence of the message after which the examined messages begin."""
        return max(self.archived_sequence, self.last_sequence - NEWEST)

    @property
    def mark(self) -> int:
        """Sequence of the message whose archiving ends what is given now."""
        return max(self.last_sequence, self.archived_sequence + 1)


@dataclass(frozen=True, slots=True)
class Given:
    """What was given. `version`: the version of a memory, or when a passage was said, because a session created again
    counts its messages from 1. `level`: a RecallLevel of the contract."""

    version: int
    level: int


async def standing(tx: Tx, space: Space, session_id: str) -> SessionPosition:
    """Returns the position of a session. Raises NotFound."""
    row = await tx.fetchrow(statements.SESSION_POSITION, space.account, space.user, session_id)
    if row is None:
        raise NotFound("session", session_id)
    return SessionPosition(row["last_sequence"], row["archived_sequence"])


async def newest_of_user(tx: Tx, space: Space, session_id: str, now: SessionPosition, limit: int) -> list[str]:
    """Returns the parts, as JSON, of the newest messages in the role of the user among those examined, newest first."""
    rows = await tx.fetch(statements.NEWEST_OF_USER, space.account, space.user, session_id, now.looked_at, limit)
    return [row["parts"] for row in rows]


async def shown(tx: Tx, space: Space, session_id: str, now: SessionPosition) -> dict[tuple[str, int], int]:
    """Returns what the examined messages show: when each (URI, level) came last, by the server's clock."""
    rows = await tx.fetch(statements.SHOWN, space.account, space.user, session_id, now.looked_at)
    found: dict[tuple[str, int], int] = {}
    for row in rows:
        for place in json.loads(row["shown"]).items():
            found[place] = max(row["added_at"], found.get(place, 0))
    return found


async def versions(tx: Tx, space: Space, session_id: str, now: SessionPosition) -> dict[str, int]:
    """Returns names that count as given with their versions; at most MAX_COUNTED."""
    rows = await tx.fetch(
        statements.GIVEN_VERSIONS,
        space.account,
        space.user,
        session_id,
        now.archived_sequence,
        MAX_COUNTED,
    )
    return {row["name"]: row["version"] for row in rows}


async def given(tx: Tx, space: Space, session_id: str, now: SessionPosition, names: Iterable[str]) -> dict[str, Given]:
    """Returns those of the names that count as given."""
    found: dict[str, Given] = {}
    for some in filled(names):
        rows = await tx.fetch(statements.GIVEN, space.account, space.user, session_id, now.archived_sequence, *some)
        found |= {row["name"]: Given(row["version"], row["level"]) for row in rows}
    return found


async def gone(tx: Tx, space: Space, found: Iterable[Memory | Passage]) -> set[Memory | Passage]:
    """Returns the items that no longer exist, because they were erased or deleted with their session after they were
    found."""
    looked_for = set(found)
    there: set[tuple[str, int]] = set()
    for kind, statement in ((Memory, statements.MEMORIES_THERE), (Passage, statements.PASSAGES_THERE)):
        wanted = [_place(one) for one in looked_for if isinstance(one, kind)]
        for some in filled(wanted):
            rows = await tx.fetch(
                statement,
                space.account,
                space.user,
                *(one for one, _ in some),
                *(other for _, other in some),
            )
            there |= {(row["name"], row["number"]) for row in rows}
    return {one for one in looked_for if _place(one) not in there}


def _place(one: Memory | Passage) -> tuple[str, int]:
    return (one.uri, one.version) if isinstance(one, Memory) else (one.session_id, one.sequence)


async def keep(tx: Tx, space: Space, session_id: str, now: SessionPosition, told: Mapping[str, Given]) -> None:
    """Stores what is given now, and deletes what no longer counts as given.

    A deeper level of the same version stays and ends with its own message: giving it again at a lower level takes
    nothing back. An equal level is stored anew.
    """
    of_session = (space.account, space.user, session_id)
    await tx.execute(statements.FORGET_GIVEN, *of_session, now.archived_sequence)
    values = [(name, one.version, one.level) for name, one in told.items()]
    while values:
        size = next(size for size in _SIZES if size <= len(values))
        some, values = values[:size], values[size:]
        await tx.execute(statements.store_given(size), *of_session, now.mark, *(value for row in some for value in row))


_SIZES: Final[Sequence[int]] = (16, 4, 1)
"""Numbers of rows that one statement writes."""
