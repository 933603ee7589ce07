"""Plain records that cross the store's boundary. Times are microseconds since 1970 (UTC)."""

import json
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

STORED_OUTPUT = "stored_output"
"""Key of a stored tool part: the blob of an output that was moved out of the message. Internal to the store; no caller
sees it."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `parts` are JSON objects with a `type` of text, image, context or tool."""

    message_id: str
    role: str
    parts: tuple[Json, ...]
    peer_id: str = ""
    turn_id: str = ""
    speaker: str = ""
    created_at: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """`auto_commit`: JSON of `runekeep_schemas.auto_commit_rules`, empty for never; `live_tokens`: tokens of its live
    messages."""

    session_id: str
    title: str
    policy: str
    compression_index: int
    last_sequence: int
    archived_sequence: int
    created_at: int
    updated_at: int
    auto_commit: str = ""
    live_tokens: int = 0
    abstract: str = ""
    overview: str = ""

    @property
    def live_count(self) -> int:
        return self.last_sequence - self.archived_sequence


@dataclass(frozen=True, slots=True)
class Usage:
    """A context or skill that an agent reported as used. `kind`: `context` or `skill`; `body` holds a skill's input,
    output and success."""

    kind: str
    uri: str
    body: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Archive:
    """The messages of one commit. `state`: pending, done or failed."""

    session_id: str
    index: int
    first_sequence: int
    last_sequence: int
    state: str
    abstract: str
    overview: str
    diff: str
    task_id: str
    revision: int
    created_at: int
    done_at: int


@dataclass(frozen=True, slots=True)
class Task:
    """Work that a caller watches. `state`: pending, running, completed, failed or cancelled. JSON texts may be empty.

    `usage` holds what `earlier` attempts spent, and what the `attempt` under `token` spent: see `tasks.spent`.
    """

    task_id: str
    kind: str
    session_id: str
    archive_index: int
    turn_id: str
    state: str
    attempt: int
    lost_leases: int
    progress: str
    result: str
    error: str
    usage: str
    last_event: int
    created_at: int
    started_at: int
    ended_at: int

    @property
    def ended(self) -> bool:
        return self.state in ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """`kind`: `state`, `progress` or `attempt_failed`; `body` is its JSON."""

    sequence: int
    attempt: int
    kind: str
    body: str
    created_at: int


@dataclass(frozen=True, slots=True)
class LeaseId:
    """Identifies one attempt. Only the newest token of a job is valid, and only from its holder, see
    `runekeep_storage.jobs.lease_holders`.

    `holder`: the principal that presents the lease. `digest`: hash of the secret that it presents, in hexadecimal
    digits. `secret`: set only in a lease that came from a worker or goes to one. Leases that differ only in these three
    fields identify the same attempt.
    """

    job_id: str
    token: int
    holder: str = field(default="", compare=False)
    digest: str = field(default="", compare=False, repr=False)
    secret: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Job:
    """Work for a worker. `state`: pending, leased, succeeded, failed or cancelled.

    `revision`: the revision that an attempt reads at; after success, the revision that the job created. `started`:
    number of attempts ever started. `token_budget`: tokens that the current attempt may spend; None: no limit. `holder`
    and `digest`: to whom the lease with the token `bound_token` was given. `lost_by`: see
    `runekeep_storage.jobs.worker_records`.
    """

    account: str
    user: str
    job_id: str
    kind: str
    session_id: str
    archive_index: int
    plan: str
    traceparent: str
    state: str
    attempts: int
    lost_leases: int
    conflicts: int
    token: int
    lease_expires: int
    attempt_ends: int
    worker_id: str
    output_id: str
    revision: int
    failures: str
    created_at: int
    started: int
    token_budget: int | None
    bound_token: int
    holder: str
    digest: str
    lost_by: str

    @property
    def lease(self) -> LeaseId:
        """The lease as its holder presents it, so that code that has read the job may act for the holder."""
        return LeaseId(self.job_id, self.token, self.holder, self.digest)


@dataclass(frozen=True, slots=True)
class Memory:
    """One version of a memory. `fields`, `sources`, `extractor` and `tags` are JSON texts."""

    uri: str
    version: int
    memory_type: str
    peer_id: str
    fields: str
    content: str
    abstract: str
    overview: str
    sources: str
    extractor: str
    deleted: bool
    rev_from: int
    rev_to: int
    created_at: int
    updated_at: int
    happened_at: int | None = None
    tags: str = "[]"
    active_count: int = 0

    @property
    def time(self) -> int:
        """When the event that it describes happened; if that is unknown, when the memory was changed."""
        return self.updated_at if self.happened_at is None else self.happened_at

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions that it came from."""
        return tuple(dict.fromkeys(source["session"] for source in json.loads(self.sources)))


@dataclass(frozen=True, slots=True)
class Listed:
    """A memory as a directory lists it. `uses`: how often it was used so far."""

    uri: str
    memory_type: str
    abstract: str
    version: int
    updated_at: int
    uses: int


@dataclass(frozen=True, slots=True)
class MessageRun:
    """Consecutive messages of a session, both ends included. `message_id` is the id of the first; see
    `runekeep_storage.memories.origins` for the maximum length. `erased`: how many of the messages are erased, so that
    no memory can come from them."""

    session_id: str
    message_id: str
    first_sequence: int
    last_sequence: int
    erased: int = 0


@dataclass(frozen=True, slots=True)
class MemoryWrite:
    """A version to write. `base_version` is the current version that it is based on, 0 for none. `created_at`: creation
    time of the memory that it restores; 0: that of the base version, or now."""

    uri: str
    base_version: int
    version: int
    memory_type: str
    peer_id: str
    fields: str
    content: str
    abstract: str
    overview: str
    sources: str
    dense: bytes | None
    dense_model: str
    sparse: bytes
    deleted: bool = False
    happened_at: int | None = None
    tags: tuple[str, ...] = ()
    origins: tuple[MessageRun, ...] = ()
    """Source messages that earlier versions do not have. `sources` names only the newest ones, for readers."""
    renamed_from: str = ""
    """The URI of a memory whose source messages this version has too, because it is the same memory with a new name."""
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class Passage:
    """A message of an archive in its searchable form: `Speaker (date): text`."""

    session_id: str
    sequence: int
    archive_index: int
    message_id: str
    peer_id: str
    content: str
    created_at: int

    @property
    def speaker(self) -> str:
        return self.content.partition(" (")[0]

    @property
    def words(self) -> str:
        """The text, without speaker and date."""
        return self.content.partition("): ")[2]


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages of one session that share a turn id. `sequence`: that of the first message, which orders turns;
    `summary` is JSON or empty."""

    session_id: str
    turn_id: str
    sequence: int
    last_sequence: int
    started_at: int
    ended_at: int
    summary: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """Turn memory in its stored form, see `runekeep_schemas.turns.stored`. `name` is unique within its session and
    kind."""

    session_id: str
    kind: str
    name: str
    turn_id: str
    sequence: int
    text: str
    tags: tuple[str, ...] = ()
    blob: str = ""
    hosted_uri: str = ""
    version: int = 0
    origin: str = ""
    reaction: str = ""
    said_at: int = 0
    updated_at: int = 0
