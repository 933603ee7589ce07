"""The reconciler's selection, one per session."""

from dataclasses import replace

from runekeep_schemas.turns.selection import Selection
from runekeep_schemas.turns.stored import ACTIVE_SET
from runekeep_storage.database import Space, Tx
from runekeep_storage.records import Artifact
from runekeep_storage.turns import artifacts, fingerprints

_NAME = ""
"""A session has one selection, so it needs no name."""


async def get(tx: Tx, space: Space, session_id: str) -> Selection | None:
    """Returns the selection; None if there never was one, which differs from an empty selection."""
    there = await artifacts.get(tx, space, session_id, ACTIVE_SET, _NAME)
    return Selection.from_text(there.text) if there else None


async def put(tx: Tx, space: Space, session_id: str, selection: Selection) -> Selection:
    """Stores the selection, even if empty, in place of the previous one; returns it as stored. Raises NotFound.

    Limits `memory_version`, which comes from the caller, to the session's version: a higher one would hide the next
    changes.
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
    await artifacts.put(tx, space, artifact)
    return stored
