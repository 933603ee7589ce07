"""Adds extracted turn memory to what is stored. It fills empty fields and adds topics, but changes nothing that is
stored."""

from collections.abc import Sequence
from dataclasses import dataclass

from runekeep_schemas.turns import summary as summaries
from runekeep_schemas.turns.fingerprint import Fingerprint
from runekeep_schemas.turns.summary import Summary
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import NotFound
from runekeep_storage.turns import fingerprints, turns


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """Extracted memory of one turn. `fingerprint` None or an empty `summary`: nothing was found."""

    turn_id: str
    fingerprint: Fingerprint | None
    summary: Summary


@dataclass(frozen=True, slots=True)
class Filled:
    """Number of turns whose fingerprint changed, and how many of them had none before."""

    changed: int
    made: int


async def fill_in(tx: Tx, space: Space, session_id: str, memories: Sequence[TurnMemory]) -> Filled:
    """Fills in fingerprints and summaries; each turn may appear once. Raises NotFound for an unknown turn."""
    names = [memory.turn_id for memory in memories]
    there = await turns.find(tx, space, session_id, names)
    known = await fingerprints.of(tx, space, session_id, names)
    changed = []
    for memory in memories:
        turn = there.get(memory.turn_id)
        if turn is None:
            raise NotFound("turn", memory.turn_id)
        if memory.fingerprint is not None:
            before = known.get(turn.turn_id)
            if await fingerprints.fill(tx, space, turn, before, memory.fingerprint):
                changed.append(turn.turn_id)
        summary = summaries.fill(Summary.from_text(turn.summary), memory.summary)
        if (text := summary.to_text()) != turn.summary:
            await turns.set_summary(tx, space, session_id, turn.turn_id, text)
    return Filled(len(changed), sum(turn_id not in known for turn_id in changed))
