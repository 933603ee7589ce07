"""Shapes of what calls about sessions return: dictionaries that `json.dumps` takes, with times as ISO 8601 in UTC."""

from typing import Any, Literal, TypedDict

from runekeep.client.wire.values import Extractor


class Summary(TypedDict):
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


class SessionInfo(TypedDict):
    """`auto_commit` None: it never commits by itself."""

    uri: str
    session_id: str
    title: str
    memory_policy: dict[str, Any] | None
    compression_index: int
    live_message_count: int
    message_count: int
    summary: Summary | None
    create_time: str | None
    update_time: str | None
    auto_commit: AutoCommit | None
    live_tokens: int


class Archive(TypedDict):
    uri: str
    index: int
    messages: dict[str, int] | None
    state: Literal["pending", "done", "failed"]
    summary: Summary | None
    task_id: str
    revision: int
    create_time: str | None
    done_time: str | None


class AddedMessage(TypedDict):
    id: str
    sequence: int


class AddedMessages(TypedDict):
    """`auto_commit`: the commit that these messages made, see AutoCommit; None: they made none."""

    messages: list[AddedMessage]
    live_message_count: int
    auto_commit: "Commit | None"


class RecordedUsage(TypedDict):
    contexts_used: int
    skills_used: int


class Commit(TypedDict):
    """`skipped` when there was nothing to archive: then the names are empty and `archived` is False."""

    status: Literal["accepted", "skipped"]
    task_id: str
    archive_uri: str
    archived: bool


class DiffOperations(TypedDict):
    adds: list[dict[str, Any]]
    updates: list[dict[str, Any]]
    deletes: list[dict[str, Any]]


class MemoryDiff(TypedDict):
    """The keys of `memory_diff.json`, and what the server says beside them.

    An add has `after`, an update `before` and `after`, a delete `deleted_content`; each also has `uri`,
    `memory_type`, `version`, `reason`, `message_ids` and `shortened`: whether texts or ids are cut or left out.
    """

    archive_uri: str
    extracted_at: str | None
    operations: DiffOperations
    summary: dict[str, int]
    revision: int
    extractor: Extractor | None
