"""Plain records that cross the border of the store. Times are microseconds since 1970 (UTC)."""

import json
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

STORED_OUTPUT = "stored_output"
"""Key of a stored tool part: the blob of an output that is kept apart. The store's own; no caller sees it."""


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
    """`auto_commit`: JSON of `schemas.auto_commit`, empty for never; `live_tokens`: of its live messages."""

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
    """What an agent said it used: kind `context` or `skill`; `body` holds a skill's input, output and success."""

    kind: str
    uri: str
    body: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Archive:
    """The messages of one commit; state pending, done or failed."""

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
    """What a caller watches; state pending, running, completed, failed or cancelled. JSON texts may be empty.

    `usage` holds what `earlier` attempts spent, and what the `attempt` under `token` did: see `tasks.spent`.
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
    """kind `state`, `progress` or `attempt_failed`; `body` is its JSON."""

    sequence: int
    attempt: int
    kind: str
    body: str
    created_at: int


@dataclass(frozen=True, slots=True)
class LeaseId:
    """Names one attempt. Only the newest token of a job is obeyed, and only from its holder, see `storage.leases`.

    `holder`: the principal that shows the lease; `digest`: of the secret that it shows, in hexadecimal digits;
    `secret`: set only in a lease that came from a worker or goes to one. Leases that differ only in these three name
    the same attempt.
    """

    job_id: str
    token: int
    holder: str = field(default="", compare=False)
    digest: str = field(default="", compare=False, repr=False)
    secret: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Job:
    """Work for a worker; state pending, leased, succeeded, failed or cancelled.

    `revision`: the one that an attempt reads at, or once succeeded the one that the job made. `started`: all attempts
    that it ever had. `token_budget`: tokens that the current attempt may spend; None: any number. `holder` and
    `digest`: to whom the lease with the token `bound_token` was given. `lost_by`: see `storage.worker_standings`.
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
        """The lease as its holder shows it, so that code that has read the job may act for the holder."""
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
        """When what it tells happened, or when it was changed."""
        return self.updated_at if self.happened_at is None else self.happened_at

    @property
    def sessions(self) -> tuple[str, ...]:
        """Those that it came from."""
        return tuple(dict.fromkeys(source["session"] for source in json.loads(self.sources)))


@dataclass(frozen=True, slots=True)
class Listed:
    """A memory as a directory shows it. `uses`: how often it was used, up to now."""

    uri: str
    memory_type: str
    abstract: str
    version: int
    updated_at: int
    uses: int


@dataclass(frozen=True, slots=True)
class MessageRun:
    """Consecutive messages of a session, both ends included. `message_id` is that of the first; see
    `storage.memory_origins` for how long a run may be. `erased`: how many messages between are erased, of which nothing
    can have come."""

    session_id: str
    message_id: str
    first_sequence: int
    last_sequence: int
    erased: int = 0


@dataclass(frozen=True, slots=True)
class MemoryWrite:
    """A version to be made. `base_version` is the current version it was prepared on, 0 for none. `created_at`: of the
    memory that it brings back; 0: of the base version, or now."""

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
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class Passage:
    """A message of an archive as it is searched: `Speaker (date): text`."""

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
        """What was said, without speaker and date."""
        return self.content.partition("): ")[2]


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages of one session that carry one turn id. `sequence`: of the first of them, which orders turns; `summary`
    is JSON, or empty.
    """

    session_id: str
    turn_id: str
    sequence: int
    last_sequence: int
    started_at: int
    ended_at: int
    summary: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """Turn memory in its stored form, see `schemas.turns.stored`. `name` is unique within its session and kind."""

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
