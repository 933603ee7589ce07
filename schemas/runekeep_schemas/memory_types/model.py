"""The parts of a memory type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runekeep_schemas.memory_types.merge_rules import MERGE_RULES, MergeRule
from runekeep_schemas.memory_types.merge_rules import MergeOp as MergeOp
from runekeep_schemas.memory_types.templates import placeholders

FieldValue = str | int | float | bool
"""A value of a field: text, a 64-bit integer, a finite 32-bit float, or a flag."""


class FieldType(StrEnum):
    """The type of a field's values."""

    STRING = "string"
    INT64 = "int64"
    FLOAT32 = "float32"
    BOOL = "bool"


class OperationMode(StrEnum):
    """Whether memories of a type are updated in place or only ever added."""

    UPSERT = "upsert"
    ADD_ONLY = "add_only"


class Review(StrEnum):
    """Which operations of commits wait for review: none, those that take something away, or all."""

    NONE = ""
    DESTRUCTIVE = "destructive"
    ALL = "all"


class DerivedFormat(StrEnum):
    """The format of a quotient.

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

    `initial`: value in a memory that the type creates by itself; None if there is none. `optional`: a key field that
    may be empty and is then omitted from the file name. `keep_ratio`: the share of the old text's words that an update
    must keep. `keep_from`: minimum number of words for `keep_ratio` to apply; a shorter text may be replaced
    completely. `required_headings`: lines that a non-empty text must contain exactly. `choices`: the only values
    allowed; empty if any value is.
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
    def merge_rule(self) -> MergeRule:
        """The merge rule of the field."""
        return MERGE_RULES[self.merge_op]

    @property
    def default(self) -> FieldValue:
        """The value in a memory without a given one."""
        return self.zero if self.initial is None else self.initial


@dataclass(frozen=True, slots=True)
class Derived:
    """A value computed when rendering and never stored: `of` divided by `per`.

    `when_zero` is shown while `per` is zero. `unknown`: a field that counts the cases whose amount is unknown; it is
    subtracted from `per`. If it is set, an `of` of zero also counts as unknown. Empty: all amounts are known.
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
describe its views.
"""


MAX_DELETES: Final = 10
"""Maximum deletes per commit for a type that sets no limit of its own."""


@dataclass(frozen=True, slots=True)
class MemoryType:
    """A kind of memory, as one YAML file declares it.

    `directory` contains `{user_space}` or `{agent_space}`; both mean the user's space, or the peer's part of it for a
    memory about a peer. Without `content_template` the field `content` is the file. `max_deletes`: maximum memories of
    the type that one commit may delete; 0 for none. `delete_evidence`: whether a delete by an extractor must name its
    source messages. `time_field`: the field with the event time, see `runekeep_schemas.memory_types.event_time`; empty
    if there is none. `supersedes_field`: the field that names the memories of the same type that a memory replaces;
    empty if there is none. `review`: which operations of commits on its memories wait for review.
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
    review: Review = Review.NONE
    fields: tuple[Field, ...] = ()
    derived: tuple[Derived, ...] = ()

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Names of the fields that form the file name, in its order."""
        return placeholders(self.filename_template)

    @property
    def mergeable(self) -> bool:
        """Whether deduplication may merge one memory of this type into another."""
        return self.operation_mode is OperationMode.UPSERT

    @property
    def has_initial(self) -> bool:
        """Whether a new space starts with one memory of this type."""
        return any(one.initial is not None for one in self.fields)

    def field(self, name: str) -> Field:
        """Returns the field of that name, including `abstract` and `overview`. Raises KeyError if there is none."""
        for one in self.fields:
            if one.name == name:
                return one
        return VIEW_FIELDS[name]

    def has_field(self, name: str) -> bool:
        """Returns whether `field(name)` finds a field."""
        return name in VIEW_FIELDS or any(one.name == name for one in self.fields)

    def is_derived(self, name: str) -> bool:
        """Returns whether a derived value has that name."""
        return any(one.name == name for one in self.derived)
