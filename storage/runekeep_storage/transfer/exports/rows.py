"""The lines of an export's tables: their columns, the order of rows, and the allowed values.

A line is one JSON object with all columns of a row except account and user. JSON columns are embedded as JSON, an empty
one as null. A reader does not trust an export: a row that passes here may be stored, read and shown like any other,
whoever wrote the line.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from runekeep_schemas.documents.uris import IdKind, Place, parse
from runekeep_storage.transfer.exports.archive import ArchiveError
from runekeep_storage.transfer.exports.layout import MAX_REVISIONS
from runekeep_storage.transfer.exports.proposal_rows import ProposalRow, check_proposal
from runekeep_storage.transfer.exports.turn_rows import ArtifactRow, TurnRow, tags_of
from runekeep_storage.transfer.exports.values import (
    AutoCommitRules,
    Digest,
    Flag,
    Index,
    Json,
    JsonObject,
    MaybeTurnId,
    MessageId,
    Moment,
    Number,
    Policy,
    Revision,
    SessionId,
    Short,
    Strict,
    TaskId,
    Text,
    Time,
    TypeName,
    Uri,
    Whole,
    safe,
)
from runekeep_storage.transfer.exports.work_rows import (
    Empty,
    Extractor,
    JobRow,
    TaskRow,
    check_job,
    check_task,
)

MAX_LINE: Final = 100 * 1024 * 1024
"""Maximum length of a line in bytes. A message of 16 MiB becomes six times as long if every character of it is
escaped."""
_SHORT: Final = 64 * 1024
_MIDDLE: Final = 1024 * 1024
_MAX_VALUES: Final = 2**19
"""Maximum number of commas and opening brackets in a line. No request can hold as many. The line with the most is a
memory whose sources are all messages of a commit: three per message. Parsing more would hold the interpreter for longer
than a tenth of a second."""
_MANY_VALUES: Final = {"archives": 2**21, "messages": 2**21}
"""The same for other kinds of lines: a diff names messages for each memory, and a message accepted by an earlier
version may have more values than a request may have now."""
_WINDOW: Final = 64 * 1024

_SEPARATORS = {ord(character): f"\\u{ord(character):04x}" for character in "\u0085\u2028\u2029"}


def encode(row: Mapping[str, Any]) -> bytes:
    """Returns a row as its line. Unicode line separators are escaped, because some readers would split a line at
    them."""
    try:
        line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).translate(_SEPARATORS)
        return line.encode() + b"\n"
    except UnicodeEncodeError:
        # Half of a surrogate pair, which stored JSON may hold as an escape.
        return json.dumps(row, separators=(",", ":")).encode() + b"\n"


class SessionRow(Strict):
    session_id: SessionId
    title: Short
    policy: Policy
    compression_index: Index
    last_sequence: Whole
    archived_sequence: Whole
    turn_version: Whole
    covered_version: Whole
    covered_at: Time
    auto_commit: AutoCommitRules
    live_tokens: Whole
    said_at: Time
    idle_at: Time
    created_at: Time
    updated_at: Time


class _TextPart(Strict):
    type: Literal["text"]
    text: Text


class _ImagePart(Strict):
    type: Literal["image"]
    url: Text
    detail: Annotated[str, Field(max_length=16)]
    caption: Text


class _ContextPart(Strict):
    type: Literal["context"]
    uri: Short
    abstract: Text


class _ToolPart(Strict):
    """`stored_output`: SHA-256 of an output that is stored separately."""

    type: Literal["tool"]
    tool_id: Short
    tool_name: Short
    skill_name: Short
    input: JsonObject
    output: Text
    status: Literal["pending", "running", "completed", "error"]
    duration_ms: Annotated[int, Field(ge=0, le=315_576_000_000_000)]
    total_tokens: Whole
    stored_output_length: Whole = 0
    stored_output: Digest = ""


class MessageRow(Strict):
    """A message of the session that the entry belongs to."""

    sequence: Number
    message_id: MessageId
    role: Literal["user", "assistant"]
    peer_id: Short
    turn_id: MaybeTurnId
    speaker: Short
    parts: Annotated[
        list[Annotated[_TextPart | _ImagePart | _ContextPart | _ToolPart, Field(discriminator="type")]],
        Field(max_length=64),
    ]
    tokens: Whole
    erased: Flag
    added_at: Time
    created_at: Time


class _Change(Strict):
    uri: Uri
    memory_type: TypeName
    version: Whole
    reason: Short
    message_ids: list[Short]
    shortened: bool = False


class _Add(_Change):
    after: Text


class _Update(_Add):
    before: Text


class _Delete(_Change):
    deleted_content: Text


class _Operations(Strict):
    adds: list[_Add]
    updates: list[_Update]
    deletes: list[_Delete]


class _Diff(Strict):
    extractor: Extractor
    operations: _Operations


class ArchiveRow(Strict):
    session_id: SessionId
    archive_index: Annotated[int, Field(ge=1, lt=10**9)]
    first_sequence: Number
    last_sequence: Number
    state: Literal["pending", "done", "failed"]
    abstract: Text
    overview: Text
    diff: _Diff | None
    task_id: TaskId
    revision: Revision
    created_at: Time
    done_at: Time


class ToolOutputRow(Strict):
    session_id: SessionId
    tool_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,255}$")]
    blob: Digest
    length: Whole


class RecalledRow(Strict):
    session_id: SessionId
    name: Short
    version: Annotated[int, Field(ge=0, le=2**62)]
    level: Annotated[int, Field(ge=0, le=16)]
    sequence: Whole


class _Use(Strict):
    input: Json
    output: Text
    success: bool


class UsageRow(Strict):
    session_id: SessionId
    number: Number
    archive_index: Index
    kind: Literal["context", "skill"]
    uri: Uri
    body: _Use | Empty


class ImageRow(Strict):
    session_id: SessionId
    digest: Digest
    description: Text
    created_at: Time


class CommitRow(Strict):
    revision: Annotated[int, Field(ge=1, le=MAX_REVISIONS)]
    origin: Literal["commit", "caller", "rollback", "erasure", "proposal"]
    job_id: TaskId | Literal[""]
    session_id: Annotated[str, safe(IdKind.SESSION)]
    archive_index: Index
    rolled_back: Revision
    created_at: Time


class _Source(Strict):
    session: SessionId
    message_id: MessageId
    sequence: Whole


class _Origin(Strict):
    session: SessionId
    message_id: MessageId


class MemoryRow(Strict):
    """`origins`: messages that this version was the first to come from, in addition to `sources`, which names the
    newest ones."""

    uri: Uri
    version: Number
    memory_type: TypeName
    peer_id: Annotated[str, safe(IdKind.PEER)]
    fields: dict[Short, bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | float | Text]
    content: Text
    abstract: Text
    overview: Text
    sources: list[_Source]
    extractor: Extractor | None
    deleted: Flag
    rev_from: Annotated[int, Field(ge=1, le=MAX_REVISIONS)]
    rev_to: Revision
    happened_at: Moment | None
    tags: Annotated[list[Text], Field(max_length=1000)]
    created_at: Time
    updated_at: Time
    origins: list[_Origin]


class ActiveCountRow(Strict):
    uri: Uri
    uses: Whole


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a table's lines: their model, the columns that order them, and the columns that hold JSON. An empty
    `nullable` column is null in the line and empty text in the store. `beside`: members that are rows of another
    table. `max_line_bytes`: the maximum length of a line in bytes, somewhat more than the API accepts."""

    model: type[Strict]
    key: tuple[str, ...]
    json: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    max_line_bytes: int = MAX_LINE
    columns: tuple[str, ...] = field(init=False)
    adapter: TypeAdapter[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(name for name in self.model.model_fields if name not in self.beside))
        object.__setattr__(self, "adapter", TypeAdapter(self.model))


FORMS: Final[Mapping[str, Form]] = {
    "sessions": Form(SessionRow, ("session_id",), ("policy",), ("auto_commit",), max_line_bytes=_MIDDLE),
    # The plan of a commit names all peers of its batch.
    "jobs": Form(JobRow, ("lane", "lane_sequence"), ("plan",), max_line_bytes=16 * _MIDDLE),
    "messages": Form(MessageRow, ("sequence",), ("parts",)),
    "archives": Form(ArchiveRow, ("session_id", "archive_index"), (), ("diff",)),
    "turns": Form(TurnRow, ("session_id", "turn_id"), (), ("summary",), max_line_bytes=_MIDDLE),
    "turn_artifacts": Form(ArtifactRow, ("session_id", "kind", "name")),
    "tool_outputs": Form(ToolOutputRow, ("session_id", "tool_id"), max_line_bytes=_SHORT),
    "recalled": Form(RecalledRow, ("session_id", "name"), max_line_bytes=_SHORT),
    "usages": Form(UsageRow, ("session_id", "number"), ("body",)),
    "image_descriptions": Form(ImageRow, ("session_id", "digest"), max_line_bytes=_MIDDLE),
    # A task states the reason for each operation that was refused.
    "tasks": Form(TaskRow, ("task_id",), ("usage",), ("progress", "result", "error"), max_line_bytes=16 * _MIDDLE),
    "proposals": Form(ProposalRow, ("task_id",), ("plan", "extractor", "operations")),
    "commits": Form(CommitRow, ("revision",), max_line_bytes=_SHORT),
    "memories": Form(MemoryRow, ("uri", "version"), ("fields", "sources", "tags"), ("extractor",), ("origins",)),
    "active_counts": Form(ActiveCountRow, ("uri",), max_line_bytes=_SHORT),
}

JsonRow = dict[str, Any]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _check_size(table: str, line: bytes) -> None:
    """Raises ValueError for a line that becomes very much larger when it is parsed."""
    if len(line) <= _MIDDLE:
        return
    # Every remaining quotation mark begins or ends a text.
    plain = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    values = inside = 0
    for start in range(0, len(plain), _WINDOW):
        parts = plain[start : start + _WINDOW].split(b'"')
        outside = b"".join(parts[inside::2])
        values += sum(outside.count(one) for one in (b",", b"{", b"["))
        inside ^= (len(parts) - 1) & 1
        if values > _MANY_VALUES.get(table, _MAX_VALUES):
            raise ValueError("has too many values")


def decode(table: str, line: bytes) -> JsonRow:
    """Returns the row of a line, unchanged. Raises ArchiveError, which names the column but not its value."""
    try:
        _check_size(table, line)
        row: JsonRow = json.loads(line, parse_constant=_refuse_constant)
        FORMS[table].adapter.validate_python(row)
        if table in _CHECKS:
            _CHECKS[table](row)
        return row
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:100]
        raise ArchiveError(f"a line of {table} is not of its form: {place}: {first['type']}") from error
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ArchiveError(f"a line of {table} is not of its form") from error


def in_order(table: str, before: Sequence[Any] | None, row: JsonRow) -> tuple[Any, ...]:
    """Returns the key of a row. Raises ArchiveError if it does not come after `before`, so that none comes twice."""
    key = tuple(row[name] for name in FORMS[table].key)
    if before is not None and not tuple(before) < key:
        raise ArchiveError(f"the lines of {table} are not in their order")
    return key


def _check_memory(row: JsonRow) -> None:
    place = parse(row["uri"])
    if place.kind not in (Place.MEMORIES, Place.SKILLS) or not place.path or (place.peer or "") != row["peer_id"]:
        raise ValueError("no memory lies there")
    if row["rev_to"] and row["rev_to"] < row["rev_from"]:
        raise ValueError("a version ends before it begins")
    if row["deleted"] and row["rev_to"] != row["rev_from"]:
        raise ValueError("a version of something deleted is there at some revision")


def _check_message(row: JsonRow) -> None:
    if row["erased"] and any(row[name] for name in ("parts", "speaker", "peer_id", "turn_id", "tokens")):
        raise ValueError("an erased message still says something")


def _check_archive(row: JsonRow) -> None:
    if row["first_sequence"] > row["last_sequence"] or (row["state"] == "done") != (row["diff"] is not None):
        raise ValueError("the archive is not what it says")


_CHECKS: Final[Mapping[str, Callable[[JsonRow], object]]] = {
    "turn_artifacts": tags_of,
    "memories": _check_memory,
    "messages": _check_message,
    "archives": _check_archive,
    "jobs": check_job,
    "tasks": check_task,
    "proposals": check_proposal,
}
