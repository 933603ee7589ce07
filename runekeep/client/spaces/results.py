"""Shapes of what calls about a user's data as a whole return: dictionaries, with times as ISO 8601 in UTC."""

from typing import Literal, TypedDict

ErasureScope = Literal["user", "peer", "session", "messages"]
ErasureState = Literal["removing", "purging", "verified"]


class SpaceContents(TypedDict):
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


class Erasure(TypedDict):
    """A receipt. `erased` counts what was erased. `left_to_operator`: sentences about what the server cannot reach."""

    erasure_id: str
    scope: ErasureScope
    state: ErasureState
    erased: SpaceContents
    memories_reverted: int
    cancelled_tasks: int
    left_to_operator: list[str]
    create_time: str
    verify_time: str | None


class DeletedUser(TypedDict):
    """Counts of what was deleted; memories without their older versions."""

    sessions: int
    memories: int
    cancelled_tasks: int
