"""Reactions to turns: of the user one for each turn, replaced in one statement; of machines many, up to a limit."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from schemas.turns.feedback import MACHINE, MOST_OF_MACHINES, USER, Reaction, artifact_name, settled
from schemas.turns.fingerprint import objective_of
from schemas.turns.stored import FINGERPRINT, REACTION, reaction_tags
from storage import turn_artifacts
from storage.database import Row, Space, Tx
from storage.errors import TooManyReactions
from storage.leftovers import without
from storage.records import Artifact, Turn
from storage.statement_lists import SIZE
from storage.turn_artifacts import LATEST

_COUNTED = ", ".join(
    f"COALESCE(SUM(CASE WHEN {condition} THEN 1 ELSE 0 END), 0) AS {name}"
    for name, condition in (
        ('"user"', f"r.origin = '{USER}'"),
        ("machine", f"r.origin = '{MACHINE}'"),
        ("ok", "r.reaction = 'ok'"),
        ("not_ok", "r.reaction = 'not_ok'"),
        ("neutral", "r.reaction IN ('neutral', 'none')"),
    )
)


@dataclass(frozen=True, slots=True)
class Said:
    """A reaction with its session and the objective of the turn that it is about, which may be empty."""

    session_id: str
    reaction: Reaction
    objective: str


@dataclass(frozen=True, slots=True)
class Counts:
    """`neutral`: also those that are words alone."""

    total: int
    user: int
    machine: int
    ok: int
    not_ok: int
    neutral: int


async def put(tx: Tx, space: Space, session_id: str, turn: Turn, reaction: Reaction) -> Reaction:
    """Adds a reaction to the turn, the user's in place of the one before; as it is stored. Its time is now, unless it
    has one. Raises TooManyReactions for one of a machine beyond MOST_OF_MACHINES."""
    stored = settled(replace(reaction, turn_id=turn.turn_id, created_at=reaction.created_at or tx.now()))
    name = artifact_name(stored)
    if stored.origin == MACHINE and await _of_machines(tx, space, session_id, turn, but=name) >= MOST_OF_MACHINES:
        raise TooManyReactions(turn.turn_id, MOST_OF_MACHINES)
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
    await turn_artifacts.put(tx, space, artifact)
    return stored


async def _of_machines(tx: Tx, space: Space, session_id: str, turn: Turn, *, but: str) -> int:
    row = await tx.fetchrow(
        "SELECT COUNT(*) AS n FROM turn_artifacts WHERE account = $1 AND user_id = $2 AND session_id = $3"
        " AND turn_id = $4 AND origin <> '' AND origin = $5 AND name <> $6",
        space.account,
        space.user,
        session_id,
        turn.turn_id,
        MACHINE,
        but,
    )
    return row["n"] if row else 0


async def clear(tx: Tx, space: Space, session_id: str, turn_id: str) -> bool:
    """Takes the user's reaction to the turn away; whether there was one."""
    return await turn_artifacts.remove(tx, space, session_id, REACTION, f"{USER}:{turn_id}")


async def said_in(tx: Tx, space: Space, session_id: str, turn_ids: Collection[str]) -> list[Row]:
    """Rows of reactions that quote what was said in one of the turns, whatever turn they are about."""
    rows = await tx.fetch(
        "SELECT kind, name, sequence, text, updated_at FROM turn_artifacts WHERE account = $1 AND user_id = $2"
        " AND session_id = $3 AND origin <> '' AND origin = $4",
        space.account,
        space.user,
        session_id,
        MACHINE,
    )
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
    """Reactions in a session, of all sessions when that is empty, about these turns, if any are named (which goes with
    a session alone), from `start` and before `end` (0: no end). Newest first: by (created_at, session_id, name), all
    falling, behind those of the page before; the name is `schemas.turns.feedback.artifact_name`.
    """
    source, args = _matching(space, session_id, turn_ids, start, end, after)
    rows = await tx.fetch(
        "SELECT a.session_id, a.text, (SELECT f.text FROM turn_artifacts f WHERE f.account = a.account"
        f" AND f.user_id = a.user_id AND f.session_id = a.session_id AND f.kind = '{FINGERPRINT}'"
        f" AND f.name = a.turn_id) AS fingerprint FROM (SELECT r.said_at, r.session_id, r.name FROM {source}"
        f" ORDER BY r.said_at DESC, r.session_id DESC, r.name DESC LIMIT ${len(args) + 1}) p"
        " CROSS JOIN turn_artifacts a WHERE a.account = $1 AND a.user_id = $2 AND a.session_id = p.session_id"
        f" AND a.kind = '{REACTION}' AND a.name = p.name ORDER BY p.said_at DESC, p.session_id DESC, p.name DESC",
        *args,
        limit,
    )
    return [
        Said(
            row["session_id"],
            Reaction.from_text(row["text"]),
            objective_of(row["fingerprint"]) if row["fingerprint"] else "",
        )
        for row in rows
    ]


async def counts(tx: Tx, space: Space, session_id: str, turn_ids: Sequence[str], start: int, end: int) -> Counts:
    """Of all that `page` gives over its pages. It goes through each of them, in an index that holds what is counted."""
    source, args = _matching(space, session_id, turn_ids, start, end, None)
    row = await tx.fetchrow(f"SELECT COUNT(*) AS total, {_COUNTED} FROM {source}", *args)
    assert row is not None
    return Counts(**dict(row))


def _matching(
    space: Space, session_id: str, turn_ids: Sequence[str], start: int, end: int, after: tuple[int, str, str] | None
) -> tuple[str, list[object]]:
    """Reactions as `r`: what follows FROM, ending in a condition, and its arguments.

    Each way to ask has an index that holds all that is asked of `r`: without statistics SQLite takes no other for sure.
    """
    source = "turn_artifacts r"
    # One bound above: of two, SQLite would begin at either.
    where = (
        "WHERE r.account = $1 AND r.user_id = $2 AND r.origin <> '' AND r.said_at >= $3"
        f" AND (r.said_at, r.session_id, r.name) < ($4, $5, $6){without('r')}"
    )
    before = (end or LATEST, "", "")
    args: list[object] = [space.account, space.user, start, *min(after or before, before)]
    if session_id:
        args.append(session_id)
        where += f" AND r.session_id = ${len(args)}"
    if turn_ids:
        wanted: list[object] = list(dict.fromkeys(turn_ids))
        # Filled up with what is equal to nothing.
        wanted += [None] * (-len(wanted) % SIZE)
        rows = ", ".join(f"(${len(args) + number})" for number in range(1, 1 + len(wanted)))
        source = f"(WITH k (turn_id) AS (VALUES {rows}) SELECT turn_id FROM k) k CROSS JOIN {source}"
        where += " AND r.turn_id = k.turn_id"
        args += wanted
    return f"{source} {where}", args
