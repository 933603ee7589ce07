"""Defines the JSON that the model must answer with, and reads it tolerantly.

The limits of structured output shape the schema. Every key is required, because optional keys are rationed. A field is
a name and a value, not a key of an object per memory type: one small grammar for all types compiles quickly and does
not grow with an operator's own types. The registry's type names form an enumeration. Field names are listed in the
prompt and read in any case.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from functools import lru_cache
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from runekeep.v1 import memory_service_pb2
from runekeep_extractor.answers.parse import find_object, known_name, plain_name, with_names
from runekeep_schemas.memory_types.model import VIEW_FIELDS

Scalar = str | int | float | bool | None

TURNS: Final = "turns"
"""Key of an answer that holds the turn notes."""

_SAID_RANGE = re.compile(r"#?(\d{1,9})(?:\s*(?:-|–|to)\s*#?(\d{1,9}))?")


def _said(value: object) -> str:
    """Returns a value as text for people: lists are joined, other values become empty. An odd value in such a field
    must not cost the operation.
    """
    if isinstance(value, list):
        return ", ".join(filter(None, map(_said, value)))
    return str(value) if isinstance(value, str | int | float) else ""


Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Said = Annotated[str, BeforeValidator(_said)]
Lines = list[str]

# Bounds that the schema of a shorter answer has, in characters and entries: a model that repeats itself without end
# then ends. Longer values are read too.
_PHRASE: Final[JsonDict] = {"maxLength": 160}
_ITEMS: Final[JsonDict] = {"maxItems": 8}
_ENTRIES: Final[JsonDict] = {"maxItems": 20}

Phrase = Annotated[Said, Field(json_schema_extra=_PHRASE)]
Phrases = Annotated[list[Annotated[str, Field(json_schema_extra=_PHRASE)]], Field(json_schema_extra=_ITEMS)]


class AnswerPart(BaseModel):
    """What is common to all parts of an answer: unknown keys are ignored, and known ones taken in any case."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _keys_in_any_case(cls, value: object) -> object:
        return with_names(value, cls.model_fields) if isinstance(value, Mapping) else value


class NamedValue(AnswerPart):
    name: str = Field(description="Field of the memory type.")
    value: Scalar = Field(description="Text, number or flag, as the field's type says.")


class Range(AnswerPart):
    start: int = Field(description="Number of the first message.")
    end: int = Field(description="Number of the last message, included.")

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: object) -> object:
        """Accepts `5`, `"3-5"`, `[3, 5]` and `{"start": 5}` as ranges."""
        if isinstance(value, str) and (said := _SAID_RANGE.fullmatch(value.strip())):
            return {"start": said[1], "end": said[2] or said[1]}
        if isinstance(value, int) and not isinstance(value, bool):
            return {"start": value, "end": value}
        if isinstance(value, list) and len(value) in (1, 2):
            return {"start": value[0], "end": value[-1]}
        if isinstance(value, Mapping) and value.get("end") is None and "start" in value:
            return {"start": value["start"], "end": value["start"]}
        return value

    @model_validator(mode="after")
    def _messages_are_numbered_from_one(self) -> Self:
        if not 0 < min(self.start, self.end) <= max(self.start, self.end) < 2**63:
            raise ValueError("no numbers of messages")
        return self


Ranges = Annotated[list[Range], BeforeValidator(lambda value: as_list(value)), Field(json_schema_extra=_ENTRIES)]


class WriteOperation(AnswerPart):
    memory_type: str
    fields: list[NamedValue] = Field(description="The fields to set.", json_schema_extra=_ENTRIES)
    peer_id: Text = Field(default="", description="Peer that the memory is about; empty: none.")
    ranges: Ranges = Field(default_factory=list, description="Messages that it rests on.")
    reason: Phrase = Field(default="", description="Why, in a few words.")
    abstract: Said = Field(default="", description="The memory in one sentence.")
    overview: Said = Field(default="", description="Short Markdown summary; empty when the memory itself is short.")


class Block(AnswerPart):
    search: Text = Field(description="Text that is there now, exact to the character.")
    replace: Text = Field(description="Text that takes its place.")
    start_line: int = Field(default=0, description="Line of the field where the text starts, from 1; 0: not said.")


class Patch(AnswerPart):
    field: str = Field(description="Field to change, or abstract or overview.")
    blocks: Annotated[list[Block], BeforeValidator(lambda value: as_list(value or []))] = Field(
        default_factory=list, description="Changes of a text. Empty when value is given.", json_schema_extra=_ENTRIES
    )
    value: Scalar = Field(default=None, description="New value, or for a sum what to add. Null when blocks are given.")


class EditOperation(AnswerPart):
    uri: str
    patches: list[Patch] = Field(description="At least one.", json_schema_extra=_ENTRIES)
    ranges: Ranges = Field(default_factory=list, description="Messages that it rests on.")
    reason: Phrase = Field(default="", description="Why, in a few words.")


class DeleteOperation(AnswerPart):
    uri: str
    ranges: Ranges = Field(default_factory=list, description="Messages that it rests on.")
    reason: Phrase = Field(default="", description="Why, in a few words.")


class SummaryAnswer(AnswerPart):
    """The archive's summary, by its sections."""

    topic: Phrase = Field(default="", description="What it was about, in a few words.")
    intent: Phrase = Field(default="", description="What the user wanted, in a few words.")
    result: Phrase = Field(default="", description="What came of it, in a few words.")
    status: Phrase = Field(default="", description="Where it stands, in a word or two.")
    analysis: Phrases = Field(default_factory=list, description="Key steps, in order.")
    primary_request: Phrase = Field(default="", description="The user's core goal.")
    key_concepts: Phrases = Field(default_factory=list, description="Key concepts, technical ones above all.")
    pending_tasks: Phrases = Field(default_factory=list, description="What is not done yet.")


Reasoning = Annotated[
    str,
    Field(
        description="What is new, what is known already, what follows. A few sentences.",
        json_schema_extra={"maxLength": 400},
    ),
]


class WireAnswer(AnswerPart):
    """A whole answer, as its schema shows it. What comes back is read item by item instead, by `read_answer`."""

    reasoning: Reasoning
    write_operations: list[WriteOperation] = Field(json_schema_extra=_ENTRIES)
    edit_operations: list[EditOperation] = Field(json_schema_extra=_ENTRIES)
    delete_operations: list[DeleteOperation] = Field(json_schema_extra=_ENTRIES)
    summary: SummaryAnswer


class SummaryAlone(AnswerPart):
    """A whole answer to a job without memory types."""

    reasoning: Reasoning
    summary: SummaryAnswer


@dataclass(slots=True)
class Answer:
    """The parts of an answer that could be read. `dropped` counts the items that could not."""

    writes: list[WriteOperation] = member(default_factory=list)
    edits: list[EditOperation] = member(default_factory=list)
    deletes: list[DeleteOperation] = member(default_factory=list)
    summary: SummaryAnswer | None = None
    turns: object = None
    """The turn notes, unparsed: a separate reader handles them, and they exist only if the prompt asks for them."""
    dropped: int = 0


P = TypeVar("P", bound=AnswerPart)


def read_text(text: str, types: Sequence[memory_service_pb2.MemoryType]) -> Answer:
    """Returns the answer in a model's text. Raises Unreadable if there is none."""
    found = find_object(text, (*WireAnswer.model_fields, TURNS), open_ended=("summary",))
    answer = read_answer(found.data, types)
    # A cut-off answer loses the item that it ends in, and everything that would have followed.
    answer.dropped += found.cut
    return answer


def read_answer(data: Mapping[str, Any], types: Sequence[memory_service_pb2.MemoryType] = ()) -> Answer:
    """Reads the decoded JSON of an answer. Bad items are dropped and counted, unknown keys are ignored, and names known
    from the types are matched in any case.

    An operation with unreadable ranges is dropped as a whole: without its ranges it would be routed to another owner.
    """
    return _Reading(types).answer(with_names(data, (*WireAnswer.model_fields, TURNS)))


class _Reading:
    """Reads one answer."""

    def __init__(self, types: Sequence[memory_service_pb2.MemoryType]) -> None:
        self._fields = {one.name: [field.name for field in one.fields] for one in types}
        self._all_fields = [name for names in self._fields.values() for name in names]
        self._dropped = 0

    def answer(self, data: Mapping[str, Any]) -> Answer:
        writes = self._items(WriteOperation, self._with_items(data.get("write_operations"), "fields", NamedValue))
        edits = self._items(EditOperation, self._with_items(data.get("edit_operations"), "patches", Patch))
        deletes = self._items(DeleteOperation, as_list(data.get("delete_operations")))
        summaries = self._items(SummaryAnswer, map(self._with_lines, as_list(data.get("summary"))))
        for write in writes:
            write.memory_type = known_name(write.memory_type, self._fields)
            for value in write.fields:
                value.name = known_name(value.name, [*self._fields.get(write.memory_type, ()), *VIEW_FIELDS])
        for patch in (patch for edit in edits for patch in edit.patches):
            patch.field = known_name(patch.field, [*self._all_fields, *VIEW_FIELDS])
        return Answer(writes, edits, deletes, summaries[0] if summaries else None, data.get(TURNS), self._dropped)

    def _items(self, model: type[P], values: Iterable[object]) -> list[P]:
        read: list[P] = []
        for value in values:
            try:
                read.append(model.model_validate(value))
            except ValidationError:
                self._dropped += 1
        return read

    def _with_items(self, values: object, key: str, inner: type[NamedValue] | type[Patch]) -> Iterator[object]:
        """Yields the operations with their inner items read one by one, so that a bad field does not cost the whole
        operation.
        """
        for value in as_list(values):
            if isinstance(value, Mapping):
                operation = with_names(value, (key,))
                items: list[Any] = self._items(inner, as_list(_unfolded(operation.get(key), inner)))
                yield {**operation, key: items}
            else:
                yield value

    def _with_lines(self, value: object) -> object:
        """Returns a summary whose lists hold only texts."""
        if not isinstance(value, Mapping):
            return value
        summary = with_names(value, SummaryAnswer.model_fields)
        for key in ("analysis", "key_concepts", "pending_tasks"):
            lines = as_list(summary.get(key))
            summary[key] = [str(line) for line in lines if isinstance(line, str | int | float)]
            self._dropped += len(lines) - len(summary[key])
        return summary


def as_list(value: object) -> list[Any]:
    """Returns a value as a list. A single item becomes a list of one, None an empty list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _unfolded(value: object, inner: type[NamedValue] | type[Patch]) -> object:
    """Converts mappings of names to values, which models without a schema tend to write, to the expected lists."""
    if isinstance(value, Mapping):
        named_by, *held = map(plain_name, inner.model_fields)
        keys = set(map(plain_name, value))
        # A type may have a field called `name`.
        return value if named_by in keys and keys & set(held) else _named(value, inner)
    if isinstance(value, list):
        return [one for item in value for one in (_named(item, inner) if _is_mapping(item, inner) else [item])]
    return value


def _is_mapping(item: object, inner: type[AnswerPart]) -> bool:
    """Returns whether an item of a list is itself a mapping of names to values."""
    if not isinstance(item, Mapping) or not item.keys().isdisjoint(inner.model_fields):
        return False
    return set(map(plain_name, item)).isdisjoint(map(plain_name, inner.model_fields))


def _named(value: Mapping[str, Any], inner: type[AnswerPart]) -> list[dict[str, Any]]:
    named_by = next(iter(inner.model_fields))
    return [{named_by: name, "value": given} for name, given in value.items()]


class BareSchema(GenerateJsonSchema):
    """Omits titles, which tell the model nothing, and defaults, which the API does not accept."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def wire_schema(types: Sequence[memory_service_pb2.MemoryType], shape: type[AnswerPart] = WireAnswer) -> dict[str, Any]:
    """Returns the JSON schema of an answer for these types. Equal types give an equal schema, so that its compiled
    grammar stays cached.
    """
    schema: dict[str, Any] = json.loads(_wire_schema(tuple(one.name for one in types), shape))
    return schema


@lru_cache(maxsize=64)
def _wire_schema(types: tuple[str, ...], shape: type[AnswerPart]) -> str:
    """Returns the schema as JSON. Cached, because it takes several milliseconds and nearly every job needs the same
    one.
    """
    schema = shape.model_json_schema(mode="serialization", schema_generator=BareSchema)
    if types:
        schema["$defs"]["WriteOperation"]["properties"]["memory_type"]["enum"] = types
    return json.dumps(schema)
