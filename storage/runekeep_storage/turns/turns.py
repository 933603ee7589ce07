"""Turns: messages of one session that share a turn id. The first message creates the turn, and later ones extend it.

Turns are ordered by `sequence`, that of their first message, which is unique. Leftovers of deleted sessions are
invisible, see `runekeep_storage.spaces.pending_deletions`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.statement_lists import filled, in_rows
from runekeep_storage.errors import NotFound
from runekeep_storage.message_rows import message
from runekeep_storage.records import Message, Turn
from runekeep_storage.turns import statements


@dataclass(frozen=True, slots=True)
class Outline:
    """A message with its parts in their stored JSON: `head` and `tail` together are the whole text, unless the middle
    was cut out."""

    role: str
    head: str
    tail: str
    is_cut: bool


def _turn(row: Row) -> Turn:
    return Turn(**dict(row))


async def extend(tx: Tx, account: str, added: Iterable[tuple[str, str, Message]]) -> None:
    """Creates and extends the turns of messages that were just added, given as (user, session id, message), in order
    within each session."""
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
        await tx.execute(statements.extend_turns(len(some)), account, *values)


async def get(tx: Tx, space: Space, session_id: str, turn_id: str) -> Turn:
    """Returns a turn. Raises NotFound for a turn that has no messages."""
    row = await tx.fetchrow(statements.TURN, space.account, space.user, session_id, turn_id)
    if row is None:
        raise NotFound("turn", turn_id)
    return _turn(row)


async def find(tx: Tx, space: Space, session_id: str, ids: Iterable[str]) -> dict[str, Turn]:
    """Returns the existing turns by id."""
    found: dict[str, Turn] = {}
    for some in filled(ids):
        rows = await tx.fetch(statements.TURNS, space.account, space.user, session_id, *some)
        found |= {row["turn_id"]: _turn(row) for row in rows}
    return found


async def before(
    tx: Tx, space: Space, session_id: str, sequence: int, limit: int, fingerprinted_only: bool = False
) -> list[Turn]:
    """Returns turns whose first message is before `sequence`, newest first."""
    rows = await tx.fetch(
        statements.FINGERPRINTED_TURNS_BEFORE if fingerprinted_only else statements.TURNS_BEFORE,
        space.account,
        space.user,
        session_id,
        sequence,
        limit,
    )
    return [_turn(row) for row in rows]


async def between(tx: Tx, space: Space, session_id: str, first: int, last: int) -> list[Turn]:
    """Returns turns that have a message among `first` to `last`, both included, oldest first."""
    rows = await tx.fetch(statements.TURN_IDS_BETWEEN, space.account, space.user, session_id, first, last)
    found = await find(tx, space, session_id, (row["turn_id"] for row in rows if row["turn_id"]))
    return sorted(found.values(), key=lambda turn: turn.sequence)


async def set_summary(tx: Tx, space: Space, session_id: str, turn_id: str, text: str) -> None:
    """Replaces the turn's summary, which is JSON. Raises NotFound."""
    changed = await tx.execute(statements.SET_SUMMARY, space.account, space.user, session_id, turn_id, text)
    if not changed:
        raise NotFound("turn", turn_id)


async def messages(tx: Tx, space: Space, turn: Turn, most: int) -> list[Message]:
    """Returns the turn's first `most` and last `most` messages, each once, oldest first; no messages of other turns."""
    rows = await tx.fetch(statements.ENDS, space.account, space.user, turn.session_id, turn.turn_id, most)
    return [message(row) for row in rows]


async def ends(tx: Tx, space: Space, turn: Turn, most: int) -> list[tuple[int, int]]:
    """Returns (sequence, tokens) of the messages that `messages` returns."""
    rows = await tx.fetch(statements.SIZES_OF_ENDS, space.account, space.user, turn.session_id, turn.turn_id, most)
    return [(row["sequence"], row["tokens"]) for row in rows]


async def outlines(tx: Tx, space: Space, turn: Turn, most: int, head: int, tail: int) -> list[Outline]:
    """Returns the messages that `messages` returns, each with the first `head` and the last `tail` characters of its
    parts."""
    rows = await tx.fetch(
        statements.OUTLINES_OF_ENDS, space.account, space.user, turn.session_id, turn.turn_id, most, head, tail
    )
    return [Outline(row["role"], row["head"], row["tail"], bool(row["is_cut"])) for row in rows]
