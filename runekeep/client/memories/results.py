"""Results of calls about memories."""

from datetime import datetime
from typing import Literal

from runekeep.client.wire.arguments import ViewName
from runekeep.client.wire.result import Result
from runekeep.client.wire.values import Extractor, Scalar

LevelName = Literal["uri", "abstract", "overview", "full"]


class MessageSource(Result):
    """A message that a memory came from."""

    session: str
    message_id: str
    sequence: int


class Memory(Result):
    """`content`: Markdown; `abstract` and `overview`: shorter forms. `superseded_revision`: the revision that replaced
    this version; 0: it is the current one. `deleted`: the version records a deletion. `event_time`: when it happened.
    `shortened`: it is larger than a response may be, so texts and lists are cut."""

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
    sources: list[MessageSource]
    extractor: Extractor | None
    create_time: datetime | None
    update_time: datetime | None
    deleted: bool
    event_time: datetime | None
    tags: list[str]
    shortened: bool


class WrittenMemories(Result):
    """The memories as they are now, in the order of the changes; a deleted one says `deleted`."""

    revision: int
    memories: list[Memory]


class DirectoryEntry(Result):
    """A document or a directory; `depth` from 1."""

    uri: str
    name: str
    directory: bool
    depth: int
    memory_type: str
    abstract: str
    version: int
    update_time: datetime | None


class Directory(Result):
    """`truncated`: there are more entries than were asked for."""

    uri: str
    entries: list[DirectoryEntry]
    truncated: bool


class GrepMatch(Result):
    """A line, by its number from 0, and those before and after it."""

    uri: str
    line: int
    text: str
    before: list[str]
    after: list[str]


class ScorePart(Result):
    """`value` was measured; `added` is what it added to the score."""

    name: str
    value: float
    added: float


class ScoreDetail(Result):
    """Ranks from 1 and scores of the two kinds of search, 0 where that one did not find it; `parts` where it was
    asked to explain."""

    dense_rank: int
    dense_score: float
    sparse_rank: int
    sparse_score: float
    neighbours: float
    parts: list[ScorePart]


class SearchResult(Memory):
    """A memory or a passage, with its `kind`, `score` and `detail`. `view` of a memory: how much of it is here, less
    than asked for where an answer had no room. A passage has `text`, `session`, `message_id`, `sequence`, `speaker`,
    `peer_id`, `uri` and `create_time`; what only memories have is empty."""

    kind: Literal["memory", "passage"]
    score: float
    relevance: float | None
    detail: ScoreDetail
    view: ViewName | None
    session: str
    message_id: str
    sequence: int
    text: str
    speaker: str


class SearchResults(Result):
    """`pending_passages`, `pending_memories`: not in the index in full yet. `degraded`: parts of the search that could
    not run. `passage_lag`: for how many seconds the oldest message has waited for the index; None: none does."""

    results: list[SearchResult]
    revision: int
    latest_revision: int
    pending_passages: int
    degraded: list[str]
    passage_lag: float | None
    pending_memories: int


class SearchExplanation(Result):
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


class MemoryField(Result):
    """A field of a memory type. `merge_op`: how it takes a new value."""

    name: str
    type: Literal["string", "int64", "float32", "bool"]
    description: str
    merge_op: str


class MemoryType(Result):
    """`max_deletes`: how many of its memories one commit may delete; 0: none. `review` None: no operation waits
    for review."""

    name: str
    description: str
    directory: str
    filename_template: str
    content_template: str
    fields: list[MemoryField]
    agent_only: bool
    enabled: bool
    operation_mode: Literal["upsert", "add_only"]
    max_deletes: int
    review: Literal["destructive", "all"] | None


class MemoryTypes(Result):
    """`digest`: SHA-256 of the types; it changes if a type does."""

    memory_types: list[MemoryType]
    digest: str


class RecallEntry(Result):
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
    time: datetime | None
    peer_id: str
    mark: int


class RecallOmitted(Result):
    """Candidates that an answer leaves out: given to the session before, over a quota, without room."""

    given: int
    over_quota: int
    over_budget: int


class RecallResult(Result):
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
