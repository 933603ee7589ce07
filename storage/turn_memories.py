"""What extractors found out about turns, filled in under what is there: nothing that somebody has said is changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.turns import summary as summaries
from schemas.turns.fingerprint import Fingerprint
from schemas.turns.summary import Summary
from storage import fingerprints, turns
from storage.database import Space, Tx
from storage.errors import NotFound


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """Of one turn. None, or a summary that is empty: nothing was found out."""

    turn_id: str
    fingerprint: Fingerprint | None
    summary: Summary


@dataclass(frozen=True, slots=True)
class Filled:
    """Turns whose fingerprint says more than before, and those of them that had none."""

    changed: int
    made: int


async def fill_in(tx: Tx, space: Space, session_id: str, memories: Sequence[TurnMemory]) -> Filled:
    """Fills in fingerprints and summaries, each turn named once. Raises NotFound for a turn that is not there."""
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
