"""What a session was told by Recall, and what its live messages tell by themselves.

What was given counts as given while the newest message of then is live: with a commit of it the agent's context is
taken to have gone. What was given while no message was live counts until the next one is archived.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from storage.database import Space, Tx
from storage.errors import NotFound
from storage.leftovers import without
from storage.records import Memory, Passage
from storage.statement_lists import SIZE, filled, places

NEWEST: Final = 200
"""Live messages of a session that are looked at, from the end."""
MOST_COUNTED: Final = 5000
"""Names that a search passes over; more than it has candidates."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a session is."""

    last_sequence: int
    archived_sequence: int

    @property
    def looked_at(self) -> int:
        """The message behind which those begin that are looked at."""
        return max(self.archived_sequence, self.last_sequence - NEWEST)

    @property
    def mark(self) -> int:
        """The message with which what is given now goes."""
        return max(self.last_sequence, self.archived_sequence + 1)


@dataclass(frozen=True, slots=True)
class Given:
    """`version`: of a memory; of a passage when it was said, for a session made anew counts its messages from 1 again.
    `level`: a RecallLevel of the contract."""

    version: int
    level: int


async def standing(tx: Tx, space: Space, session_id: str) -> Standing:
    """Raises NotFound."""
    row = await tx.fetchrow(
        "SELECT last_sequence, archived_sequence FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    if row is None:
        raise NotFound("session", session_id)
    return Standing(row["last_sequence"], row["archived_sequence"])


async def newest_of_user(tx: Tx, space: Space, session_id: str, now: Standing, limit: int) -> list[str]:
    """The parts, as JSON, of what was said last in the role of the user, newest first, among the messages that are
    looked at."""
    rows = await tx.fetch(
        "SELECT parts FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence > $4"
        " AND role = 'user' AND erased = 0 ORDER BY sequence DESC LIMIT $5",
        space.account,
        space.user,
        session_id,
        now.looked_at,
        limit,
    )
    return [row["parts"] for row in rows]


async def shown(tx: Tx, space: Space, session_id: str, now: Standing) -> dict[tuple[str, int], int]:
    """What the messages that are looked at show: by URI and level when that came last, by the server's clock."""
    rows = await tx.fetch(
        "SELECT shown, added_at FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence > $4"
        " AND shown <> ''",
        space.account,
        space.user,
        session_id,
        now.looked_at,
    )
    found: dict[tuple[str, int], int] = {}
    for row in rows:
        for place in json.loads(row["shown"]).items():
            found[place] = max(row["added_at"], found.get(place, 0))
    return found


async def versions(tx: Tx, space: Space, session_id: str, now: Standing) -> dict[str, int]:
    """Names that count as given, each with its version; at most MOST_COUNTED of them."""
    rows = await tx.fetch(
        "SELECT name, version FROM recalled WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence > $4"
        " LIMIT $5",
        space.account,
        space.user,
        session_id,
        now.archived_sequence,
        MOST_COUNTED,
    )
    return {row["name"]: row["version"] for row in rows}


async def given(tx: Tx, space: Space, session_id: str, now: Standing, names: Iterable[str]) -> dict[str, Given]:
    """Those of the names that count as given."""
    found: dict[str, Given] = {}
    for some in filled(names):
        rows = await tx.fetch(
            "SELECT name, version, level FROM recalled"
            " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence > $4"
            f" AND name IN ({places(5)})",
            space.account,
            space.user,
            session_id,
            now.archived_sequence,
            *some,
        )
        found |= {row["name"]: Given(row["version"], row["level"]) for row in rows}
    return found


async def gone(tx: Tx, space: Space, found: Iterable[Memory | Passage]) -> set[Memory | Passage]:
    """Those that are there no more: what was erased, or went with its session, since it was found."""
    looked_for = set(found)
    there: set[tuple[str, int]] = set()
    for kind, table, first, second, but in (
        (Memory, "memories", "uri", "version", ""),
        (Passage, "passages", "session_id", "sequence", without("passages")),
    ):
        wanted = [_place(one) for one in looked_for if isinstance(one, kind)]
        for some in filled(wanted):
            # Both lists apart use the key from its beginning to its end; what they find across does no harm.
            rows = await tx.fetch(
                f"SELECT {first}, {second} FROM {table} WHERE account = $1 AND user_id = $2"
                f" AND {first} IN ({places(3)}) AND {second} IN ({places(3 + SIZE)}){but}",
                space.account,
                space.user,
                *(one for one, _ in some),
                *(other for _, other in some),
            )
            there |= {(row[first], row[second]) for row in rows}
    return {one for one in looked_for if _place(one) not in there}


def _place(one: Memory | Passage) -> tuple[str, int]:
    return (one.uri, one.version) if isinstance(one, Memory) else (one.session_id, one.sequence)


async def keep(tx: Tx, space: Space, session_id: str, now: Standing, told: Mapping[str, Given]) -> None:
    """Keeps what is given now; what the session was given before and does not count any more goes.

    Of the same version the deeper telling stays, and goes with the message of then: that the session was told less
    since, by a repeat, takes nothing back. As deep a one is kept as it is given now.
    """
    of_session = (space.account, space.user, session_id)
    await tx.execute(
        "DELETE FROM recalled WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence <= $4",
        *of_session,
        now.archived_sequence,
    )
    values = [(name, one.version, one.level) for name, one in told.items()]
    while values:
        size = next(size for size in _SIZES if size <= len(values))
        some, values = values[:size], values[size:]
        await tx.execute(_INSERTS[size], *of_session, now.mark, *(value for row in some for value in row))


_SIZES: Final[Sequence[int]] = (16, 4, 1)
"""Rows that one statement writes."""


def _insert(rows: int) -> str:
    values = ", ".join(f"($1, $2, $3, ${at}, ${at + 1}, ${at + 2}, $4)" for at in range(5, 5 + 3 * rows, 3))
    return (
        f"INSERT INTO recalled (account, user_id, session_id, name, version, level, sequence) VALUES {values}"
        " ON CONFLICT (account, user_id, session_id, name)"
        " DO UPDATE SET version = excluded.version, level = excluded.level, sequence = excluded.sequence"
        " WHERE recalled.version <> excluded.version OR recalled.level <= excluded.level"
    )


_INSERTS: Final = {size: _insert(size) for size in _SIZES}
