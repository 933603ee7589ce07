"""Shapes of what calls about memories return: dictionaries that `json.dumps` takes, with times as ISO 8601 in UTC."""

from typing import Any, Literal, TypedDict

from runekeep.client.wire.values import Extractor, Scalar

LevelName = Literal["uri", "abstract", "overview", "full"]


class Memory(TypedDict):
    uri: str
    memory_type: str
    content: str
    fields: dict[str, Scalar]
    abstract: str
    overview: str
    version: int
    revision: int
    superseded_revision: int
    active_count: int
    peer_id: str
    sources: list[dict[str, Any]]
    extractor: Extractor | None
    create_time: str | None
    update_time: str | None
    deleted: bool
    event_time: str | None
    tags: list[str]
    shortened: bool


class WrittenMemories(TypedDict):
    """The memories as they are now, in the order of the changes; a deleted one says `deleted`."""

    revision: int
    memories: list[Memory]


class DirectoryEntry(TypedDict):
    uri: str
    name: str
    directory: bool
    depth: int
    memory_type: str
    abstract: str
    version: int
    update_time: str | None


class Directory(TypedDict):
    uri: str
    entries: list[DirectoryEntry]
    truncated: bool


class GrepMatch(TypedDict):
    """A line, by its number from 0, and those before and after it."""

    uri: str
    line: int
    text: str
    before: list[str]
    after: list[str]


class ScorePart(TypedDict):
    """`value` was measured; `added` is what it added to the score."""

    name: str
    value: float
    added: float


class ScoreDetail(TypedDict):
    """Ranks from 1 and scores of the two kinds of search, 0 where that one did not find it; `parts` where it was
    asked to explain."""

    dense_rank: int
    dense_score: float
    sparse_rank: int
    sparse_score: float
    neighbours: float
    parts: list[ScorePart]


class SearchResult(TypedDict, total=False):
    """A memory or a passage: their own keys, and `kind`, `score` and `detail` beside them. `view` of a memory: how much
    of it is here, less than asked for where an answer had no room."""

    kind: Literal["memory", "passage"]
    score: float
    relevance: float | None
    detail: ScoreDetail
    view: str
    shortened: bool
    uri: str
    memory_type: str
    abstract: str
    overview: str
    content: str
    fields: dict[str, Scalar]
    sources: list[dict[str, Any]]
    version: int
    peer_id: str
    session: str
    message_id: str
    sequence: int
    text: str
    event_time: str | None
    tags: list[str]
    create_time: str | None


class SearchResults(TypedDict):
    results: list[SearchResult]
    revision: int
    latest_revision: int
    pending_passages: int
    degraded: list[str]
    passage_lag: str | None
    pending_memories: int


class SearchExplanation(TypedDict):
    """What became of a document in a search. `outcome`: see `outcomes.OUTCOMES`; `excluded_by`: fields of
    FindMemoriesRequest; `document` and `last`, the last result, with their scores, None where there is none; `rank`: of
    the document among the `candidates`, from 1, 0 if it has none; `without_vector`: it is found by its words alone."""

    outcome: str
    excluded_by: list[str]
    document: SearchResult | None
    last: SearchResult | None
    rank: int
    candidates: int
    without_vector: bool
    revision: int
    latest_revision: int
    degraded: list[str]


class MemoryTypes(TypedDict):
    memory_types: list[dict[str, Any]]
    digest: str


class RecallEntry(TypedDict):
    """`mark` is the number of a memory in the answer's text, as in `[3]`; `text` is its part of that text. `session`,
    `message_id` and `sequence` are those of a passage, `memory_type` and `version` those of a memory. `time`: when it
    was said, happened or was last changed."""

    uri: str
    kind: Literal["memory", "passage"]
    memory_type: str
    level: LevelName
    text: str
    tokens: int
    score: float
    relevance: float | None
    version: int
    session: str
    message_id: str
    sequence: int
    time: str | None
    peer_id: str
    mark: int


class RecallOmitted(TypedDict):
    """Candidates that an answer leaves out: given to the session before, over a quota, without room."""

    given: int
    over_quota: int
    over_budget: int


class RecallResult(TypedDict):
    """An answer of Recall. `text`: ready for a prompt; `entries`: the memories and messages in it, in its order."""

    text: str
    tokens: int
    stable_text: str
    stable_tokens: int
    entries: list[RecallEntry]
    omitted: RecallOmitted
    revision: int
    latest_revision: int
    pending_passages: int
    degraded: list[str]
    pending_memories: int
