"""Reactions to turns: one of the user per turn, replaced in one statement; several of machines, up to a limit."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from runekeep_schemas.turns.feedback import MACHINE, MAX_OF_MACHINES, USER, Reaction, artifact_name, settled
from runekeep_schemas.turns.fingerprint import objective_of
from runekeep_schemas.turns.stored import REACTION, reaction_tags
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.statement_lists import SIZE
from runekeep_storage.errors import TooManyReactions
from runekeep_storage.records import Artifact, Turn
from runekeep_storage.turns import artifacts, statements
from runekeep_storage.turns.artifacts import LATEST


@dataclass(frozen=True, slots=True)
class Said:
    """A reaction with its session and the objective of its turn, which may be empty."""

    session_id: str
    reaction: Reaction
    objective: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of reactions. `neutral` includes those that consist of words only."""

    total: int
    user: int
    machine: int
    ok: int
    not_ok: int
    neutral: int


async def put(tx: Tx, space: Space, session_id: str, turn: Turn, reaction: Reaction) -> Reaction:
    """Stores a reaction to the turn and returns it as stored; one of the user replaces the previous one. Its time is
    now, unless it has one. Raises TooManyReactions for one of a machine beyond MAX_OF_MACHINES."""
    stored = settled(replace(reaction, turn_id=turn.turn_id, created_at=reaction.created_at or tx.now()))
    name = artifact_name(stored)
    if stored.origin == MACHINE and await _of_machines(tx, space, session_id, turn, but=name) >= MAX_OF_MACHINES:
        raise TooManyReactions(turn.turn_id, MAX_OF_MACHINES)
    artifact = Artifact(
        session_id=session_id,
        kind=REACTION,
        name=name,
        turn_id=turn.turn_id,
        sequence=turn.sequence,
        text=stored.to_text(),
        tags=reaction_tags(turn.turn_id, stored.origin),
        origin=stored.origin,
        reaction=stored.reaction,
        said_at=stored.created_at,
    )
    await artifacts.put(tx, space, artifact)
    return stored


async def _of_machines(tx: Tx, space: Space, session_id: str, turn: Turn, *, but: str) -> int:
    row = await tx.fetchrow(statements.COUNT_OTHERS, space.account, space.user, session_id, turn.turn_id, MACHINE, but)
    return row["n"] if row else 0


async def clear(tx: Tx, space: Space, session_id: str, turn_id: str) -> bool:
    """Deletes the user's reaction to the turn; returns whether there was one."""
    return await artifacts.remove(tx, space, session_id, REACTION, f"{USER}:{turn_id}")


async def said_in(tx: Tx, space: Space, session_id: str, turn_ids: Collection[str]) -> list[Row]:
    """Returns rows of reactions that quote one of the turns, whatever turn they are about."""
    rows = await tx.fetch(statements.REACTIONS_OF_ORIGIN, space.account, space.user, session_id, MACHINE)
    return [row for row in rows if Reaction.from_text(row["text"]).from_turn_id in turn_ids]


async def page(
    tx: Tx,
    space: Space,
    session_id: str,
    turn_ids: Sequence[str],
    start: int,
    end: int,
    after: tuple[int, str, str] | None,
    limit: int,
) -> list[Said]:
    """Returns reactions in a session, or in all sessions if `session_id` is empty. `turn_ids` limits them to these
    turns and requires a session. `start` is inclusive, `end` exclusive (0: no end). Newest first: by (created_at,
    session_id, name), all descending, after those of the previous page; the name is
    `runekeep_schemas.turns.feedback.artifact_name`."""
    turns, args = _filters(space, session_id, turn_ids, start, end, after)
    rows = await tx.fetch(statements.reactions(turns, bool(session_id)), *args, limit)
    return [
        Said(
            row["session_id"],
            Reaction.from_text(row["text"]),
            objective_of(row["fingerprint"]) if row["fingerprint"] else "",
        )
        for row in rows
    ]


async def counts(tx: Tx, space: Space, session_id: str, turn_ids: Sequence[str], start: int, end: int) -> Counts:
    """Counts all reactions that `page` returns over its pages. Reads each of them from an index that covers the counted
    columns."""
    turns, args = _filters(space, session_id, turn_ids, start, end, None)
    row = await tx.fetchrow(statements.count_reactions(turns, bool(session_id)), *args)
    assert row is not None
    return Counts(**dict(row))


def _filters(
    space: Space, session_id: str, turn_ids: Sequence[str], start: int, end: int, after: tuple[int, str, str] | None
) -> tuple[int, list[object]]:
    """Returns the number of turns and the parameters for `statements.reactions` and `statements.count_reactions`."""
    before = (end or LATEST, "", "")
    args: list[object] = [space.account, space.user, start, *min(after or before, before)]
    if session_id:
        args.append(session_id)
    turns: list[object] = list(dict.fromkeys(turn_ids))
    # Pad with NULL, which equals nothing.
    turns += [None] * (-len(turns) % SIZE)
    return len(turns), args + turns
