"""Results of calls about sessions."""

from datetime import datetime
from typing import Literal, TypedDict

from runekeep.client.wire.result import Result
from runekeep.client.wire.values import Extractor, MessageRange


class Summary(Result):
    """Of an archive: one sentence, and Markdown."""

    abstract: str
    overview: str


class AutoCommit(TypedDict, total=False):
    """When a session commits by itself: once its live messages have so many tokens, once there are so many, once
    nothing was added for `idle` seconds. `keep_recent_count` of the newest stay live. What is 0, None or left out plays
    no part."""

    pending_tokens: int
    message_count: int
    idle: float | None
    keep_recent_count: int


class AutoCommitRules(Result):
    """The rules of a session, as AutoCommit describes them."""

    pending_tokens: int
    message_count: int
    idle: float | None
    keep_recent_count: int


class TargetPolicy(Result):
    """Whether memory about a target is written."""

    enabled: bool


class MemoryTypeAllowlist(Result):
    """The memory types that may be written."""

    names: list[str]


class MemoryPolicy(Result):
    """What commits may write; None: the default. `memory_types`: only these. `review`: which operations wait."""

    self: TargetPolicy | None
    peer: TargetPolicy | None
    memory_types: MemoryTypeAllowlist | None
    session_skills: TargetPolicy | None
    review: Literal["destructive", "all"] | None


class SessionInfo(Result):
    """`auto_commit` None: it never commits by itself."""

    uri: str
    session_id: str
    title: str
    memory_policy: MemoryPolicy | None
    compression_index: int
    live_message_count: int
    message_count: int
    summary: Summary | None
    create_time: datetime | None
    update_time: datetime | None
    auto_commit: AutoCommitRules | None
    live_tokens: int


class Archive(Result):
    """The messages of one commit. `revision` 0: the commit changed no memory, or is not finished."""

    uri: str
    index: int
    messages: MessageRange | None
    state: Literal["pending", "done", "failed"]
    summary: Summary | None
    task_id: str
    revision: int
    create_time: datetime | None
    done_time: datetime | None


class AddedMessage(Result):
    """`sequence`: its position in the session, from 1."""

    id: str
    sequence: int


class AddedMessages(Result):
    """`auto_commit`: the commit that these messages made, see AutoCommit; None: they made none."""

    messages: list[AddedMessage]
    live_message_count: int
    auto_commit: "Commit | None"


class RecordedUsage(Result):
    """How many contexts and skills are recorded since the last commit."""

    contexts_used: int
    skills_used: int


class Commit(Result):
    """`skipped` when there was nothing to archive: then the names are empty and `archived` is False."""

    status: Literal["accepted", "skipped"]
    task_id: str
    archive_uri: str
    archived: bool


class DiffEntry(Result):
    """A changed memory. An add has `after`, an update `before` and `after`, a delete `deleted_content`. `shortened`:
    texts or ids are cut or left out."""

    uri: str
    memory_type: str
    version: int
    reason: str
    message_ids: list[str]
    shortened: bool
    before: str
    after: str
    deleted_content: str


class DiffOperations(Result):
    """The changed memories, by what was done."""

    adds: list[DiffEntry]
    updates: list[DiffEntry]
    deletes: list[DiffEntry]


class DiffSummary(Result):
    """How many memories were changed, by what was done."""

    total_adds: int
    total_updates: int
    total_deletes: int


class MemoryDiff(Result):
    """What is in `memory_diff.json`, with the revision and the extractor."""

    archive_uri: str
    extracted_at: datetime | None
    operations: DiffOperations
    summary: DiffSummary
    revision: int
    extractor: Extractor | None
