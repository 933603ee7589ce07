"""Lines of proposals: operations of commits that wait for review."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from runekeep_storage.proposals.proposals import ProposedOperation
from runekeep_storage.transfer.exports.values import (
    Index,
    Number,
    Revision,
    SessionId,
    Short,
    Small,
    Strict,
    TaskId,
    Text,
    Time,
    TypeName,
    Uri,
    Whole,
    checked,
)
from runekeep_storage.transfer.exports.work_rows import CommitPlan, Extractor

_MAX_FLOAT32: Final = 3.4028235677973366e38
"""Least number that does not round to a 32-bit float. The JSON of the largest one, 3.4028235e+38, is above that one."""


def _is_int64(value: str) -> None:
    if not -(2**63) <= int(value) < 2**63:
        raise ValueError("is no 64-bit integer")


_Int64 = Annotated[str, Field(pattern=r"^-?[0-9]{1,19}$"), checked(_is_int64)]
_Float32 = Annotated[float, Field(gt=-_MAX_FLOAT32, lt=_MAX_FLOAT32)]


class _Value(Strict):
    """A value of a field, as JSON of the contract, in which a 64-bit integer is a text."""

    string_value: Text | None = None
    int64_value: _Int64 | None = None
    float32_value: _Float32 | int | None = None
    bool_value: bool | None = None


class _Block(Strict):
    search: Text = ""
    replace: Text = ""
    start_line: Small = 0


class _Blocks(Strict):
    blocks: Annotated[list[_Block], Field(min_length=1)]


class _Patch(Strict):
    field: Short
    search_replace: _Blocks | None = None
    value: _Value | None = None
    rename: _Value | None = None


class _Write(Strict):
    memory_type: TypeName
    fields: dict[Short, _Value] = Field(default_factory=dict)
    abstract: Text = ""
    overview: Text = ""


class _Edit(Strict):
    uri: Uri
    patches: Annotated[list[_Patch], Field(min_length=1)]


class _Delete(Strict):
    uri: Uri


class _Range(Strict):
    """Sequences, as JSON of the contract."""

    start_sequence: _Int64 = "0"
    end_sequence: _Int64 = "0"


class _Operation(Strict):
    write: _Write | None = None
    edit: _Edit | None = None
    delete: _Delete | None = None
    peer_id: Short = ""
    ranges: Annotated[list[_Range], Field(max_length=256)] = Field(default_factory=list)
    reason: Short = ""


class _Proposed(Strict):
    number: Number
    action: Literal["write", "edit", "delete"]
    memory_type: TypeName
    state: Literal["open", "accepted", "refused"]
    revision: Revision
    operation: _Operation
    targets: dict[Uri, Literal["write", "move", "delete"]]
    base_revision: Revision
    removes: bool
    edited: bool


class ProposalRow(Strict):
    session_id: SessionId
    task_id: TaskId
    archive_index: Index
    plan: CommitPlan
    extractor: Extractor
    operations: list[_Proposed]
    open_count: Whole
    open_bytes: Whole
    revision: Revision
    edition: Whole
    created_at: Time


def check_proposal(row: dict[str, Any]) -> None:
    """Raises ValueError for members that contradict each other."""
    operations = [ProposedOperation(**one) for one in row["operations"]]
    if [one.number for one in operations] != list(range(1, len(operations) + 1)):
        raise ValueError("operations are counted from 1")
    if row["open_count"] != sum(one.is_open for one in operations):
        raise ValueError("another number of operations is open")
    for one in operations:
        if [*one.operation.keys() & {"write", "edit", "delete"}] != ([one.action] if one.is_open else []):
            raise ValueError("an open operation does what it says, and a decided one has no text")
