"""Shapes of what recalls and session contexts answer. Times are ISO 8601 strings in UTC."""

from dataclasses import dataclass
from typing import Literal, TypedDict

from runekeep.client.messages import Message

LevelName = Literal["uri", "abstract", "overview", "full"]


class RecallEntry(TypedDict):
    """`text` is its part of the answer's text. `session`, `message_id` and `sequence` are those of a passage,
    `memory_type` and `version` those of a memory. `time`: when it was said, happened or was last changed."""

    uri: str
    kind: Literal["memory", "passage"]
    memory_type: str
    level: LevelName
    text: str
    tokens: int
    score: float
    version: int
    session: str
    message_id: str
    sequence: int
    time: str | None
    peer_id: str


class RecallOmitted(TypedDict):
    """Candidates that an answer leaves out: given to the session before, over a quota, without room."""

    given: int
    over_quota: int
    over_budget: int


class Recalled(TypedDict):
    """`text` can be put into a prompt as it is; `entries` is what it tells, in its order."""

    text: str
    tokens: int
    entries: list[RecallEntry]
    omitted: RecallOmitted
    revision: int
    latest_revision: int
    pending_passages: int
    degraded: list[str]
    pending_memories: int


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What a model needs to go on with a conversation: `overview` of what is archived and extracted, with the URI of
    its archive, then messages, oldest first. `pending`: archived, not extracted; `live`: not archived.

    `tokens`: of overview and messages; `omitted_messages` and `overview_omitted`: what had no room.
    """

    overview: str
    overview_uri: str
    pending: list[Message]
    live: list[Message]
    tokens: int
    omitted_messages: int
    overview_omitted: bool

    @property
    def messages(self) -> list[Message]:
        """All of them, oldest first."""
        return [*self.pending, *self.live]
