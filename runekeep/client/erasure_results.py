"""Shapes of what is answered about a user's data as a whole; see `runekeep.client.results`."""

from typing import Literal, TypedDict

ErasureScope = Literal["user", "peer", "session", "messages"]
ErasureState = Literal["removing", "purging", "verified"]


class SpaceContents(TypedDict):
    """How much there is of what; `memories` are those that are there now, `memory_versions` all of their versions."""

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
    """A receipt. `erased` is what was taken away; `left_to_operator` what the server cannot reach, as sentences."""

    erasure_id: str
    scope: ErasureScope
    state: ErasureState
    erased: SpaceContents
    memories_reverted: int
    cancelled_tasks: int
    left_to_operator: list[str]
    create_time: str
    verify_time: str | None
