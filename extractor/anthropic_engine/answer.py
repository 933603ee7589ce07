"""What the model is asked to answer: the shape on the wire, and the same shape read forgivingly.

The limits of structured output made it what it is. Every key is required, because optional ones are rationed. A
field is a name and a value rather than a key of an object for each memory type: one small grammar for all types
compiles quickly and does not grow with an operator's own types. Names come as enumerations from the registry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from runekeep.v1 import memory_service_pb2
from schemas.types import VIEW_FIELDS

Scalar = str | int | float | bool | None


def _texts(value: object) -> object:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Lines = Annotated[list[Text], BeforeValidator(_texts)]


class _Part(BaseModel):
    model_config = ConfigDict(json_schema_serialization_defaults_required=True, extra="ignore")


class NamedValue(_Part):
    name: str = Field(description="Field of the memory type.")
    value: Scalar = Field(description="Text, number or flag, as the field's type says.")


class Range(_Part):
    start: int = Field(description="Number of the first message.")
    end: int = Field(description="Number of the last message, included.")

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: object) -> object:
        """`5`, `[3, 5]` and `{"start": 5}` are taken for what they mean."""
        if isinstance(value, int) and not isinstance(value, bool):
            return {"start": value, "end": value}
        if isinstance(value, list) and len(value) in (1, 2):
            return {"start": value[0], "end": value[-1]}
        if isinstance(value, Mapping) and value.get("end") is None and "start" in value:
            return {"start": value["start"], "end": value["start"]}
        return value


Ranges = Annotated[list[Range], BeforeValidator(lambda value: [] if value is None else value)]


class WriteOperation(_Part):
    memory_type: str
    fields: list[NamedValue] = Field(description="The fields to set.")
    peer_id: Text = Field(default="", description="Peer that the memory is about; empty: none.")
    ranges: Ranges = Field(default_factory=list, description="Messages that it rests on.")
    reason: Text = Field(default="", description="Why, in a few words.")
    abstract: Text = Field(default="", description="The memory in one sentence.")
    overview: Text = Field(default="", description="Short Markdown summary; empty when the memory itself is short.")


class Block(_Part):
    search: Text = Field(description="Text that is there now, exact to the character.")
    replace: Text = Field(description="Text that takes its place.")
    start_line: int = Field(default=0, description="Line of the field where the text starts, from 1; 0: not said.")


class Patch(_Part):
    field: str = Field(description="Field to change, or abstract or overview.")
    blocks: Annotated[list[Block], BeforeValidator(lambda value: value or [])] = Field(
        default_factory=list, description="Changes of a text. Empty when value is given."
    )
    value: Scalar = Field(default=None, description="New value, or for a sum what to add. Null when blocks are given.")


class EditOperation(_Part):
    uri: str
    patches: list[Patch] = Field(description="At least one.")
    ranges: Ranges = Field(default_factory=list, description="Messages that it rests on.")
    reason: Text = Field(default="", description="Why, in a few words.")


class DeleteOperation(_Part):
    uri: str
    reason: Text = Field(default="", description="Why, in a few words.")


class SummaryAnswer(_Part):
    """The archive's summary, by its sections."""

    topic: Text = Field(default="", description="What it was about, in a few words.")
    intent: Text = Field(default="", description="What the user wanted, in a few words.")
    result: Text = Field(default="", description="What came of it, in a few words.")
    status: Text = Field(default="", description="Where it stands, in a word or two.")
    analysis: Lines = Field(default_factory=list, description="Key steps, in order.")
    primary_request: Text = Field(default="", description="The user's core goal.")
    key_concepts: Lines = Field(default_factory=list, description="Key concepts, technical ones above all.")
    pending_tasks: Lines = Field(default_factory=list, description="What is not done yet.")
    abstract: Text = Field(default="", description="The whole conversation in one sentence.")


class WireAnswer(_Part):
    """A whole answer, as its schema shows it. What comes back is read item by item instead, by `read_answer`."""

    reasoning: str = Field(description="What is new, what is known already, what follows. A few sentences.")
    write_operations: list[WriteOperation]
    edit_operations: list[EditOperation]
    delete_operations: list[DeleteOperation]
    summary: SummaryAnswer


@dataclass(slots=True)
class Answer:
    """What could be read of an answer; `dropped` counts the items that could not."""

    writes: list[WriteOperation] = member(default_factory=list)
    edits: list[EditOperation] = member(default_factory=list)
    deletes: list[DeleteOperation] = member(default_factory=list)
    summary: SummaryAnswer | None = None
    dropped: int = 0


P = TypeVar("P", bound=_Part)


def read_answer(data: Mapping[str, Any]) -> Answer:
    """Read the decoded JSON of an answer: bad items are dropped and counted, unknown keys ignored.

    An operation whose ranges cannot be read is dropped as a whole: without them it would be routed elsewhere.
    """
    answer = Answer()

    def items(model: type[P], value: object) -> list[P]:
        read: list[P] = []
        for item in _as_list(value):
            try:
                read.append(model.model_validate(item))
            except ValidationError:
                answer.dropped += 1
        return read

    def with_items(model: type[P], value: object, key: str, inner: type[_Part], named_by: str) -> list[P]:
        # The inner items are read one by one too, so that a bad field does not cost the whole operation.
        outer = [
            {**item, key: items(inner, _unfolded(item.get(key), named_by))} if isinstance(item, Mapping) else item
            for item in _as_list(value)
        ]
        return items(model, outer)

    answer.writes = with_items(WriteOperation, data.get("write_operations"), "fields", NamedValue, "name")
    answer.edits = with_items(EditOperation, data.get("edit_operations"), "patches", Patch, "field")
    answer.deletes = items(DeleteOperation, data.get("delete_operations"))
    summaries = items(SummaryAnswer, data.get("summary"))
    answer.summary = summaries[0] if summaries else None
    return answer


def _as_list(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _unfolded(value: object, named_by: str) -> object:
    """A mapping of names to values, which models without a schema tend to write, as the list that it stands for."""
    if not isinstance(value, Mapping) or (named_by in value and {"value", "blocks"} & value.keys()):
        return value
    return [{named_by: name, "value": held} for name, held in value.items()]


class _BareSchema(GenerateJsonSchema):
    """Leaves out what says nothing to the model: titles, and defaults, which the API does not take."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def wire_schema(types: Sequence[memory_service_pb2.MemoryType]) -> dict[str, Any]:
    """JSON schema of an answer about these types. The same for the same types, so that its grammar stays cached."""
    schema = WireAnswer.model_json_schema(mode="serialization", schema_generator=_BareSchema)
    if types:
        fields = sorted({field.name for one in types for field in one.fields})
        definitions = schema["$defs"]
        definitions["WriteOperation"]["properties"]["memory_type"]["enum"] = [one.name for one in types]
        definitions["NamedValue"]["properties"]["name"]["enum"] = fields
        definitions["Patch"]["properties"]["field"]["enum"] = list(dict.fromkeys([*fields, *VIEW_FIELDS]))
    return schema
