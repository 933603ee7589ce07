"""What the reconciler chose, one for each session."""

from dataclasses import replace

from schemas.turns.selection import Selection
from schemas.turns.stored import ACTIVE_SET
from storage import fingerprints, turn_artifacts
from storage.database import Space, Tx
from storage.records import Artifact

_NAME = ""
"""There is no other of its kind in a session."""


async def get(tx: Tx, space: Space, session_id: str) -> Selection | None:
    """None: nothing was ever chosen, which is not the same as an empty choice."""
    there = await turn_artifacts.get(tx, space, session_id, ACTIVE_SET, _NAME)
    return Selection.from_text(there.text) if there else None


async def put(tx: Tx, space: Space, session_id: str, selection: Selection) -> Selection:
    """Stores it in place of the one before, also when it is empty; as it is stored. Raises NotFound.

    Its `memory_version` came by way of the caller: one that the session has not reached would hide what changes next.
    """
    reached = await fingerprints.turn_version(tx, space, session_id)
    stored = replace(selection, memory_version=min(selection.memory_version, reached))
    artifact = Artifact(
        session_id=session_id,
        kind=ACTIVE_SET,
        name=_NAME,
        turn_id="",
        sequence=0,
        text=stored.to_text(),
        tags=(ACTIVE_SET,),
        said_at=stored.last_reconciled_at,
    )
    await turn_artifacts.put(tx, space, artifact)
    return stored
