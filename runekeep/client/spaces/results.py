"""What calls about a user's data as a whole return."""

from datetime import datetime
from typing import Literal

from runekeep.client.wire.result import Result

ErasureScope = Literal["user", "peer", "session", "messages"]
ErasureState = Literal["removing", "purging", "verified"]


class SpaceContents(Result):
    """Counts of a user's data. `memories` counts current ones, `memory_versions` all versions."""

    sessions: int
    messages: int
    archives: int
    memories: int
    memory_versions: int
    passages: int
    turns: int
    turn_artifacts: int
    blobs: int
    tasks: int
    answers: int


class Erasure(Result):
    """A receipt. `erased` counts what was erased. `left_to_operator`: sentences about what the server cannot reach."""

    erasure_id: str
    scope: ErasureScope
    state: ErasureState
    erased: SpaceContents
    memories_reverted: int
    cancelled_tasks: int
    left_to_operator: list[str]
    create_time: datetime
    verify_time: datetime | None


class DeletedUser(Result):
    """Counts of what was deleted; memories without their older versions."""

    sessions: int
    memories: int
    cancelled_tasks: int
