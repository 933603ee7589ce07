"""Turns: messages of one session that carry one turn id. A turn is made by its first message and grows with the others.

Turns are ordered by `sequence`, that of their first message, which never ties. What is left of a deleted session is
not seen, see `storage.leftovers`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from schemas.turns.stored import FINGERPRINT
from storage.database import Row, Space, Tx
from storage.errors import NotFound
from storage.leftovers import without
from storage.message_rows import message
from storage.records import Message, Turn
from storage.statement_lists import filled, in_rows, places, rows

_COLUMNS = "session_id, turn_id, sequence, last_sequence, started_at, ended_at, summary"
_OF_SESSION = f"WHERE account = $1 AND user_id = $2 AND session_id = $3{without('turns')}"
_BEFORE_FINGERPRINTED = (
    f"SELECT {', '.join(f't.{name}' for name in _COLUMNS.split(', '))} FROM turn_artifacts f CROSS JOIN turns t"
    f" WHERE f.account = $1 AND f.user_id = $2 AND f.session_id = $3 AND f.kind = '{FINGERPRINT}' AND f.sequence < $4"
    " AND t.account = f.account AND t.user_id = f.user_id AND t.session_id = f.session_id AND t.turn_id = f.turn_id"
    f"{without('f')} ORDER BY f.sequence DESC LIMIT $5"
)
# Numbers first: the index `messages_of_turn` holds nothing but them.
_NUMBERS = (
    "SELECT sequence FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND turn_id = $4"
    f" AND turn_id <> ''{without('messages')} ORDER BY sequence"
)
_ENDS = (
    f"SELECT m.* FROM (SELECT sequence FROM ({_NUMBERS} LIMIT $5) f"
    f" UNION SELECT sequence FROM ({_NUMBERS} DESC LIMIT $5) l) n CROSS JOIN messages m"
    " WHERE m.account = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.sequence = n.sequence ORDER BY m.sequence"
)

_SIZES_OF_ENDS = _ENDS.replace("SELECT m.*", "SELECT m.sequence, m.tokens", 1)
_OUTLINES = _ENDS.replace(
    "SELECT m.*",
    "SELECT m.role, substr(m.parts, 1, $6) AS head,"
    " substr(m.parts, CASE WHEN length(m.parts) > $6 + $7 THEN length(m.parts) - $7 + 1 ELSE $6 + 1 END) AS tail,"
    " CASE WHEN length(m.parts) > $6 + $7 THEN 1 ELSE 0 END AS is_cut",
    1,
)


@dataclass(frozen=True, slots=True)
class Outline:
    """A message with its parts as JSON, as they are stored: `head` and `tail` together are all of it, but where the
    middle was cut out."""

    role: str
    head: str
    tail: str
    is_cut: bool


def _turn(row: Row) -> Turn:
    return Turn(**dict(row))


async def extend(tx: Tx, account: str, added: Iterable[tuple[str, str, Message]]) -> None:
    """Makes and lengthens the turns of messages that were added just now, given with user and session, those of a
    session in their order."""
    by_turn: dict[tuple[str, str, str], tuple[Message, Message]] = {}
    for user, session_id, one in added:
        if one.turn_id:
            turn = user, session_id, one.turn_id
            first, _ = by_turn.get(turn, (one, one))
            by_turn[turn] = first, one
    for some in in_rows(list(by_turn.items())):
        values = [
            value
            for turn, (first, last) in some
            for value in (*turn, first.sequence, last.sequence, first.created_at, last.created_at)
        ]
        await tx.execute(_extend(len(some)), account, *values)


@cache
def _extend(count: int) -> str:
    return (
        "INSERT INTO turns (account, user_id, session_id, turn_id, sequence, last_sequence, started_at, ended_at)"
        f" VALUES {rows('($1, ?, ?, ?, ?, ?, ?, ?)', count, 2)}"
        " ON CONFLICT (account, user_id, session_id, turn_id)"
        " DO UPDATE SET last_sequence = excluded.last_sequence, ended_at = excluded.ended_at"
    )


async def get(tx: Tx, space: Space, session_id: str, turn_id: str) -> Turn:
    """Raises NotFound for a turn that has no messages."""
    row = await tx.fetchrow(
        f"SELECT {_COLUMNS} FROM turns {_OF_SESSION} AND turn_id = $4", space.account, space.user, session_id, turn_id
    )
    if row is None:
        raise NotFound("turn", turn_id)
    return _turn(row)


async def find(tx: Tx, space: Space, session_id: str, ids: Iterable[str]) -> dict[str, Turn]:
    """Those of the turns that there are, by id."""
    found: dict[str, Turn] = {}
    for some in filled(ids):
        rows = await tx.fetch(
            f"SELECT {_COLUMNS} FROM turns {_OF_SESSION} AND turn_id IN ({places(4)})",
            space.account,
            space.user,
            session_id,
            *some,
        )
        found |= {row["turn_id"]: _turn(row) for row in rows}
    return found


async def before(
    tx: Tx, space: Space, session_id: str, sequence: int, limit: int, fingerprinted_only: bool = False
) -> list[Turn]:
    """Turns whose first message is before `sequence`, newest first."""
    every = f"SELECT {_COLUMNS} FROM turns {_OF_SESSION} AND sequence < $4 ORDER BY sequence DESC LIMIT $5"
    rows = await tx.fetch(
        _BEFORE_FINGERPRINTED if fingerprinted_only else every,
        space.account,
        space.user,
        session_id,
        sequence,
        limit,
    )
    return [_turn(row) for row in rows]


async def between(tx: Tx, space: Space, session_id: str, first: int, last: int) -> list[Turn]:
    """Turns that have a message among `first` to `last`, both included, oldest first."""
    rows = await tx.fetch(
        "SELECT DISTINCT turn_id FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
        " AND sequence >= $4 AND sequence <= $5",
        space.account,
        space.user,
        session_id,
        first,
        last,
    )
    found = await find(tx, space, session_id, (row["turn_id"] for row in rows if row["turn_id"]))
    return sorted(found.values(), key=lambda turn: turn.sequence)


async def set_summary(tx: Tx, space: Space, session_id: str, turn_id: str, text: str) -> None:
    """Puts a summary, JSON, in the place of the one before. Raises NotFound."""
    changed = await tx.execute(
        f"UPDATE turns SET summary = $5 {_OF_SESSION} AND turn_id = $4",
        space.account,
        space.user,
        session_id,
        turn_id,
        text,
    )
    if not changed:
        raise NotFound("turn", turn_id)


async def messages(tx: Tx, space: Space, turn: Turn, most: int) -> list[Message]:
    """The turn's first `most` messages and its last `most`, each once, oldest first; none of the turns between them."""
    rows = await tx.fetch(_ENDS, space.account, space.user, turn.session_id, turn.turn_id, most)
    return [message(row) for row in rows]


async def ends(tx: Tx, space: Space, turn: Turn, most: int) -> list[tuple[int, int]]:
    """(sequence, tokens) of the messages that `messages` gives."""
    rows = await tx.fetch(_SIZES_OF_ENDS, space.account, space.user, turn.session_id, turn.turn_id, most)
    return [(row["sequence"], row["tokens"]) for row in rows]


async def outlines(tx: Tx, space: Space, turn: Turn, most: int, head: int, tail: int) -> list[Outline]:
    """The messages that `messages` gives, each with the first `head` characters of its parts and the last `tail`."""
    rows = await tx.fetch(_OUTLINES, space.account, space.user, turn.session_id, turn.turn_id, most, head, tail)
    return [Outline(row["role"], row["head"], row["tail"], bool(row["is_cut"])) for row in rows]
