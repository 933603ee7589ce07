"""What a search is asked, and what it answers, as plain records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runekeep_storage.index.base import IndexUnavailable, PointKind
from runekeep_storage.records import Memory, Passage
from runekeep_storage.search.found_texts import ROOM_FOR_ALL, Depth, Room
from runekeep_storage.search.ranking import Ranked
from runekeep_storage.search.result_selector import Known


class SearchUnanswerable(IndexUnavailable):
    """The index works, but this search cannot be answered now. The message is for the caller and says why, in whole
    sentences."""


@dataclass(frozen=True, slots=True)
class FindRequest:
    """A search. Empty filters match everything. `fields`: required values of memory fields; `peers`: None is the user;
    `tags`: all must be present; `sessions`: those that a passage was said in or a memory came from; `since` is
    inclusive and `until` exclusive, in microseconds since 1970."""

    text: str
    limit: int = 10
    uri_prefix: str = ""
    kinds: tuple[PointKind, ...] = ()
    memory_types: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    peers: tuple[str | None, ...] = ()
    tags: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    score_threshold: float | None = None
    at_revision: int | None = None
    """Answer exactly at this revision. Versions that the index does not hold yet or any more are read from their
    rows."""
    archived_by: int | None = None
    """Only passages archived by then, in microseconds since 1970."""
    known: Known | None = None
    """Whether the caller already knows a hit. Known hits come in addition to the `limit` others."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of results of a memory type, or of `passages`, in addition to the `limit` others."""
    room: Room = ROOM_FOR_ALL
    """The room for the texts of memories."""
    rerank: bool = False
    """Whether the reranker, if there is one, orders the best candidates."""


@dataclass(frozen=True, slots=True)
class Found:
    """One result: a memory or a passage, and its rank. `depth`: how much of a memory was read."""

    item: Memory | Passage
    ranked: Ranked
    depth: Depth = Depth.FULL

    @property
    def score(self) -> float:
        return self.ranked.score


@dataclass(frozen=True, slots=True)
class FindAnswer:
    """The answer to a search. `degraded` names parts that could not run in full: `dense`, the embedder is down;
    `vectors`, some memories or passages have no vector in the index yet and are found by their words only;
    `rebuilding`, the space is being written to a new index, so passages may be missing, and at revision 0 all memories
    are; `reranker`, the reranker did not answer in time or as it should, so the order is that without it.

    `pending_passages` counts archived messages that are not in the index yet, or are there without their vectors;
    `pending_memories` counts memories that wait for their vectors. `lag` is how long the oldest message that is not in
    the index at all has waited, in microseconds.
    """

    results: list[Found]
    revision: int
    latest_revision: int
    pending_passages: int
    pending_memories: int
    lag: int
    degraded: list[str]
    model: str
    """Of the embedder that the space is searched by; empty without one."""
    vector: bytes | None = None
    """Vector of the query, made by the embedder `model`; None if the search used words only."""
