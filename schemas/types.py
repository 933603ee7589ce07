"""What a memory type consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from schemas.templates import placeholders

FieldValue = str | int | float | bool
"""A value of a field: text, an integer of 64 bits, a finite float of 32 bits, or a flag."""


class FieldType(StrEnum):
    """What a field holds."""

    STRING = "string"
    INT64 = "int64"
    FLOAT32 = "float32"
    BOOL = "bool"


class MergeOp(StrEnum):
    """How a field takes a new value; the table is in `schemas.merge`."""

    PATCH = "patch"
    REPLACE = "replace"
    SUM = "sum"
    AVG = "avg"
    IMMUTABLE = "immutable"


class OperationMode(StrEnum):
    """Whether memories of a type are updated in place or only ever added."""

    UPSERT = "upsert"
    ADD_ONLY = "add_only"


class DerivedFormat(StrEnum):
    """How a quotient is written.

    PERCENT: `92.0%`. DURATION_MS: milliseconds as `850ms` or `1.2s`. NUMBER: `1500`, `1500.5`.
    """

    PERCENT = "percent"
    DURATION_MS = "duration_ms"
    NUMBER = "number"


_ZERO: Mapping[FieldType, FieldValue] = {
    FieldType.STRING: "",
    FieldType.INT64: 0,
    FieldType.FLOAT32: 0.0,
    FieldType.BOOL: False,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a memory type.

    `initial`: value of a memory that the type makes by itself; None when it has none.
    `optional`: a key field that may be empty; its place in the file name is then left out.
    `keep_ratio`: the share of the old text, counted in words, that an update must keep.
    `keep_from`: words from which on a text is guarded by it; a shorter one may be replaced as a whole.
    `required_headings`: lines that a text that is not empty must hold exactly.
    `choices`: the only values allowed; empty when any value is.
    """

    name: str
    type: FieldType = FieldType.STRING
    description: str = ""
    merge_op: MergeOp = MergeOp.PATCH
    initial: FieldValue | None = None
    optional: bool = False
    keep_ratio: float | None = None
    keep_from: int = 0
    required_headings: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()

    @property
    def zero(self) -> FieldValue:
        """The empty value of the field's type."""
        return _ZERO[self.type]

    @property
    def default(self) -> FieldValue:
        """The value of a memory for which nothing was given."""
        return self.zero if self.initial is None else self.initial


@dataclass(frozen=True, slots=True)
class Derived:
    """A value computed when rendering and never stored: `of` divided by `per`.

    `when_zero` is shown while `per` is zero. `unknown`: a field that counts the cases whose amount is unknown; it is
    subtracted from `per`. If it is set, an `of` of zero counts as unknown too. Empty: all amounts are known.
    """

    name: str
    of: str
    per: str
    format: DerivedFormat
    when_zero: str
    unknown: str = ""

    @property
    def merge_op(self) -> MergeOp:
        return MergeOp.AVG


ABSTRACT = Field("abstract", description="One sentence that says what this memory holds.", merge_op=MergeOp.REPLACE)
OVERVIEW = Field("overview", description="A short Markdown summary of this memory.")
VIEW_FIELDS: Mapping[str, Field] = {ABSTRACT.name: ABSTRACT, OVERVIEW.name: OVERVIEW}
"""The views L0 and L1, which every type has besides its own fields. A type may declare fields of these names to
describe its views."""


MAX_DELETES: Final = 10
"""Deletes in one commit of a type that sets no number of its own."""


@dataclass(frozen=True, slots=True)
class MemoryType:
    """A kind of memory, as one YAML file declares it.

    `directory` holds `{user_space}` or `{agent_space}`; both mean the user's space, and the peer's
    part of it for a memory about a peer. Without `content_template` the field `content` is the file.
    `max_deletes`: the most memories of the type that one commit may delete; 0: none. `delete_evidence`:
    whether a delete by an extractor must name the messages that it rests on. `time_field`: the field that says when
    what a memory tells happened, see `schemas.moments`; empty: none does. `supersedes_field`: the field that names the
    memories of the same type that a memory replaces; empty: no field does.
    """

    name: str
    description: str
    directory: str
    filename_template: str
    content_template: str | None = None
    enabled: bool = True
    agent_only: bool = False
    operation_mode: OperationMode = OperationMode.UPSERT
    max_deletes: int = MAX_DELETES
    delete_evidence: bool = True
    time_field: str = ""
    supersedes_field: str = ""
    fields: tuple[Field, ...] = ()
    derived: tuple[Derived, ...] = ()

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Names of the fields that make up the file name, in its order."""
        return placeholders(self.filename_template)

    @property
    def mergeable(self) -> bool:
        """Whether deduplication may merge one memory of this type into another."""
        return self.operation_mode is OperationMode.UPSERT

    @property
    def has_initial(self) -> bool:
        """Whether a space starts out with one memory of this type."""
        return any(one.initial is not None for one in self.fields)

    def field(self, name: str) -> Field:
        """The field of that name, `abstract` and `overview` included. KeyError when there is none."""
        for one in self.fields:
            if one.name == name:
                return one
        return VIEW_FIELDS[name]

    def has_field(self, name: str) -> bool:
        """Whether `field(name)` finds one."""
        return name in VIEW_FIELDS or any(one.name == name for one in self.fields)

    def is_derived(self, name: str) -> bool:
        """Whether that name is a derived value."""
        return any(one.name == name for one in self.derived)
