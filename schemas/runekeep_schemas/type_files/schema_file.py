"""Reads one YAML file into a MemoryType, and reports errors with their exact line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError
from pydantic import Field as Constrained
from pydantic_core import PydanticCustomError
from yaml.constructor import SafeConstructor
from yaml.reader import ReaderError

from runekeep_schemas.documents.filenames import EXTENSION
from runekeep_schemas.documents.uris import is_unseen
from runekeep_schemas.memory_types.coerce import FieldError, coerce_value
from runekeep_schemas.memory_types.merge_rules import MERGE_RULES, MergeOp
from runekeep_schemas.memory_types.model import (
    MAX_DELETES,
    VIEW_FIELDS,
    Derived,
    DerivedFormat,
    Field,
    FieldType,
    FieldValue,
    MemoryType,
    OperationMode,
    Review,
)
from runekeep_schemas.memory_types.templates import placeholders, split
from runekeep_schemas.type_files.derivations import known_derivations

RESERVED_TYPE_NAMES: Final = frozenset({"session_skills"})
"""Names of outputs that are not types of the registry."""

_IDENTIFIER = r"^[a-z][a-z0-9_]{0,63}$"
_DIRECTORY = re.compile(
    r"viking://(user/\{user_space\}|agent/\{agent_space\})/memories(/[A-Za-z0-9][A-Za-z0-9_-]{0,63})*"
)
# Maximum of the contract's integer.
_MAX_DELETES: Final = 2**31 - 1
_QUICK_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Takes a tenth of the time, if PyYAML was built with libyaml."""
_MERGE_OPS = [op.value for op in MERGE_RULES]
_NUMBERS = frozenset({FieldType.INT64, FieldType.FLOAT32})

Location = tuple[str | int, ...]
"""The path to a value in the YAML document: keys and positions."""


class SchemaError(ValueError):
    """A file does not declare a valid memory type. `line` counts from 1; it is 0 if the error has no line."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(f"{file}:{line}: {reason}" if line else f"{file}: {reason}")
        self.file = file
        self.line = line
        self.reason = reason


class _Wrong(Exception):
    """A rule that a well-formed document breaks, with the location in the document."""

    def __init__(self, location: Location, reason: str) -> None:
        super().__init__(reason)
        self.location = location
        self.reason = reason


_Name = Annotated[str, StringConstraints(pattern=_IDENTIFIER)]
_Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def _merge_op(value: object) -> object:
    if value == MergeOp.AVG.value:
        reason = "an average cannot be a field: declare it under derived, with the fields that it is computed from"
        raise PydanticCustomError("average", reason)
    if value not in _MERGE_OPS:
        *others, last = map(repr, _MERGE_OPS)
        raise PydanticCustomError("merge_op", f"Input should be {', '.join(others)} or {last}")
    return MergeOp(value)


class _FieldModel(_Model):
    name: _Name
    type: Annotated[FieldType, Constrained(strict=False)] = FieldType.STRING
    description: _Text
    merge_op: Annotated[MergeOp, BeforeValidator(_merge_op)] = MergeOp.PATCH
    initial: str | int | float | bool | None = None
    optional: bool = False
    keep_ratio: Annotated[float, Constrained(gt=0, le=1)] | None = None
    keep_from: Annotated[int, Constrained(ge=0)] = 0
    required_headings: list[_Text] = []
    choices: list[_Text] = []


class _DerivedModel(_Model):
    name: _Name
    of: str
    per: str
    format: Annotated[DerivedFormat, Constrained(strict=False)]
    when_zero: str
    unknown: str = ""


class _TypeModel(_Model):
    name: _Name
    description: _Text
    directory: str
    filename_template: str
    content_template: _Text | None = None
    enabled: bool = True
    agent_only: bool = False
    operation_mode: Annotated[OperationMode, Constrained(strict=False)] = OperationMode.UPSERT
    max_deletes: Annotated[int, Constrained(ge=0, le=_MAX_DELETES)] = MAX_DELETES
    delete_evidence: bool = True
    time_field: str = ""
    supersedes_field: str = ""
    review: Annotated[Review, Constrained(strict=False)] = Review.NONE
    fields: Annotated[list[_FieldModel], Constrained(min_length=1)]
    derived: list[_DerivedModel] = []


class SchemaFile:
    """A parsed file: the type it declares, and the line of each part of it.

    `built_in`: the built-in types by name. A file that replaces one inherits `operation_mode`, `time_field` and the
    `optional` of key fields unless it sets them, because the type files of the design have no such keys. Raises
    SchemaError if the text is not YAML or the document breaks a rule.
    """

    def __init__(self, file: str, text: str, built_in: Mapping[str, MemoryType] = MappingProxyType({})) -> None:
        self.file = file
        try:
            root = _compose(text)
            if not isinstance(root, yaml.MappingNode):
                raise SchemaError(file, 1, "a memory type is a mapping of names to values")
            self._root = root
            # Checked before construction, which copies the values merged with `<<` into the nodes.
            self._refuse_repeated_keys(root, set())
            document = SafeConstructor().construct_document(root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            reason = f"this is no YAML: {error.problem or error.context}"
            raise SchemaError(file, mark.line + 1 if mark else 0, reason) from error
        except ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise SchemaError(file, line, f"this is no YAML: {error.reason}") from error
        try:
            model = _TypeModel.model_validate(document)
            self.type = _build(model, built_in.get(model.name))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(map(str, first["loc"]))
            raise self.error(first["loc"], f"{path}: {_lower(first['msg'])}") from error
        except _Wrong as wrong:
            raise self.error(wrong.location, wrong.reason) from wrong

    def error(self, location: Location, reason: str) -> SchemaError:
        """Returns an error that points at the value at `location`, or at the nearest enclosing value."""
        return SchemaError(self.file, self._line(location), reason)

    def _line(self, location: Location) -> int:
        node: yaml.Node = self._root
        line: int = node.start_mark.line + 1
        for step in location:
            match node:
                case yaml.MappingNode():
                    pairs = [pair for pair in node.value if pair[0].value == step]
                    if not pairs:
                        return line
                    # The last pair: pairs merged with `<<` come first and are overridden.
                    key, node = pairs[-1]
                    line = key.start_mark.line + 1
                case yaml.SequenceNode() if isinstance(step, int) and step < len(node.value):
                    node = node.value[step]
                    line = node.start_mark.line + 1
                case _:
                    return line
        return line

    def _refuse_repeated_keys(self, node: yaml.Node, visited: set[int]) -> None:
        """Raises SchemaError for a repeated key. YAML readers let the last one win, which hides a typing error."""
        if id(node) in visited:
            return
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if str(key.value) in seen:
                    reason = f"the key {key.value!r} is there twice"
                    raise SchemaError(self.file, key.start_mark.line + 1, reason)
                seen.add(str(key.value))
                self._refuse_repeated_keys(value, visited)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                self._refuse_repeated_keys(value, visited)


def _compose(text: str) -> yaml.Node | None:
    """Returns the document's root. Raises what PyYAML raises."""
    try:
        return yaml.compose(text, Loader=_QUICK_LOADER)
    except (yaml.MarkedYAMLError, ReaderError):
        # The pure Python loader gives the same error text on every system.
        return yaml.compose(text, Loader=yaml.SafeLoader)


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _build(model: _TypeModel, built_in: MemoryType | None) -> MemoryType:
    fields = tuple(_field(one, ("fields", at), built_in) for at, one in enumerate(model.fields))
    derived = tuple(Derived(**dict(one)) for one in model.derived)
    scalars: dict[str, Any] = {name: value for name, value in dict(model).items() if name not in ("fields", "derived")}
    if built_in is not None:
        unsaid = {"operation_mode", "time_field"} - model.model_fields_set
        scalars |= {name: getattr(built_in, name) for name in unsaid}
        if scalars["time_field"] not in {field.name for field in fields}:
            scalars["time_field"] = model.time_field
    added, more = known_derivations(model.content_template or "", fields, derived)
    type = MemoryType(**scalars, fields=fields + added, derived=derived + more)
    for wrong in _wrongs(type):
        raise wrong
    return type


def _field(model: _FieldModel, location: Location, built_in: MemoryType | None) -> Field:
    values: dict[str, Any] = dict(model)
    values["required_headings"] = tuple(model.required_headings)
    values["choices"] = tuple(model.choices)
    values["initial"] = None
    if built_in is not None and "optional" not in model.model_fields_set and model.name in built_in.key_fields:
        values["optional"] = built_in.field(model.name).optional
    field = Field(**values)
    text = field.type is FieldType.STRING
    if not text and (field.keep_ratio is not None or field.required_headings or field.choices):
        raise _Wrong(location, f"{field.name}: keep_ratio, required_headings and choices are for strings")
    if field.keep_from and field.keep_ratio is None:
        raise _Wrong((*location, "keep_from"), f"{field.name}: keep_from is for fields with a keep_ratio")
    if field.merge_rule.numbers_only and field.type not in _NUMBERS:
        raise _Wrong((*location, "merge_op"), f"{field.name}: merge_op {field.merge_op} is for numbers")
    if model.initial is None:
        return field
    try:
        values["initial"] = coerce_value(field, model.initial)
    except FieldError as error:
        raise _Wrong((*location, "initial"), f"{field.name}: initial: {error.reason}") from error
    return Field(**values)


def _wrongs(type: MemoryType) -> Iterator[_Wrong]:
    if type.name in RESERVED_TYPE_NAMES:
        yield _Wrong(("name",), f"the name {type.name} is taken by an output of its own")
    if _DIRECTORY.fullmatch(type.directory) is None:
        reason = (
            "a directory is viking://user/{user_space}/memories or viking://agent/{agent_space}/memories,"
            " or lies below it"
        )
        yield _Wrong(("directory",), reason)
    yield from _name_wrongs(type)
    yield from _key_wrongs(type)
    yield from _content_wrongs(type)
    yield from _derived_wrongs(type)


def _name_wrongs(type: MemoryType) -> Iterator[_Wrong]:
    seen: set[str] = set()
    groups: Mapping[str, Sequence[Field | Derived]] = {"fields": type.fields, "derived": type.derived}
    for group, members in groups.items():
        for at, member in enumerate(members):
            if member.name in seen or (group == "derived" and member.name in VIEW_FIELDS):
                reason = f"{member.name}: the name is there twice, or belongs to a view"
                yield _Wrong((group, at, "name"), reason)
            seen.add(member.name)
    for at, field in enumerate(type.fields):
        if field.name in VIEW_FIELDS:
            yield from _view_wrongs(type, field, ("fields", at))


def _view_wrongs(type: MemoryType, field: Field, location: Location) -> Iterator[_Wrong]:
    """Yields the errors of a view that is declared as a field. A view is rewritten whenever the content changes."""
    if field.type is not FieldType.STRING:
        yield _Wrong((*location, "type"), f"{field.name} is a view, so its type must be string")
    if not field.merge_rule.replaces:
        yield _Wrong((*location, "merge_op"), f"{field.name} is a view, so its merge_op must be patch or replace")
    if field.initial is not None:
        yield _Wrong((*location, "initial"), f"{field.name} is a view, so it takes no initial value")


def _key_wrongs(type: MemoryType) -> Iterator[_Wrong]:
    template = type.filename_template
    where: Location = ("filename_template",)
    if not template.endswith(EXTENSION) or template == EXTENSION:
        yield _Wrong(where, f"a file name has a stem and ends in {EXTENSION}")
    if template.startswith(".") or any(c in "/\\" or is_unseen(c) for c in "".join(split(template)[::2])):
        yield _Wrong(where, "a file name holds no separator, no unseen character and no leading dot")
    positions = {field.name: at for at, field in enumerate(type.fields)}
    for name in type.key_fields:
        if name not in positions:
            yield _Wrong(where, f"the placeholder {name!r} is no field of {type.name}")
            continue
        field, location = type.field(name), ("fields", positions[name])
        if not field.merge_rule.keeps_first:
            yield _Wrong(location, f"{name} names the file, so its merge_op is immutable")
        if field.type not in (FieldType.STRING, FieldType.INT64):
            yield _Wrong(location, f"{name} names the file, so it is a string or an int64")
    for name, at in positions.items():
        if type.field(name).optional and name not in type.key_fields:
            yield _Wrong(("fields", at, "optional"), f"{name} does not name the file: it may be empty anyway")
    texts = {one.name for one in type.fields if one.type is FieldType.STRING}
    for key, name in (("time_field", type.time_field), ("supersedes_field", type.supersedes_field)):
        if name and name not in texts:
            yield _Wrong((key,), f"{name!r} is not a string field of {type.name}")
    if type.supersedes_field and len(type.key_fields) != 1:
        yield _Wrong(("supersedes_field",), "supersedes_field needs a filename_template with exactly one field")
    if type.key_fields and all(type.field(n).optional for n in type.key_fields if n in positions):
        yield _Wrong(where, "at least one field that names the file is not optional")


def _content_wrongs(type: MemoryType) -> Iterator[_Wrong]:
    if type.content_template is None:
        names = {field.name: field.type for field in type.fields}
        if names.get("content") is not FieldType.STRING:
            yield _Wrong(("fields",), "without content_template a type has a string field named content")
        if type.derived:
            yield _Wrong(("derived",), "derived values need a content_template to appear in")
        return
    known = {field.name for field in type.fields} | {one.name for one in type.derived}
    for name in placeholders(type.content_template):
        if name not in known:
            reason = f"the placeholder {name!r} is no field and no derived value of {type.name}"
            yield _Wrong(("content_template",), reason)


def _derived_wrongs(type: MemoryType) -> Iterator[_Wrong]:
    sums: dict[str, FieldValue] = {field.name: field.default for field in type.fields if field.merge_rule.adds}
    for at, derived in enumerate(type.derived):
        for key, name in (("of", derived.of), ("per", derived.per), ("unknown", derived.unknown or derived.per)):
            if name not in sums:
                reason = f"{derived.name}: {name!r} is no field of {type.name} with merge_op sum"
                yield _Wrong(("derived", at, key), reason)
