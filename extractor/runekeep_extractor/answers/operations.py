"""Converts a model's answer to operations of the contract, and operations back to an answer for a repair."""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from runekeep.v1 import common_pb2, extractor_service_pb2, memory_service_pb2
from runekeep_extractor.answers.answer import (
    Answer,
    DeleteOperation,
    EditOperation,
    Patch,
    Range,
    WriteOperation,
)
from runekeep_extractor.engine.tool_counts import counted_by_system
from runekeep_schemas.memory_types.coerce import FieldError, coerce_value
from runekeep_schemas.memory_types.model import VIEW_FIELDS, Field, FieldType
from runekeep_schemas.memory_types.templates import placeholders
from runekeep_schemas.type_files.registry import Registry

_FIELD_TYPES: Final = {
    memory_service_pb2.FIELD_TYPE_STRING: FieldType.STRING,
    memory_service_pb2.FIELD_TYPE_INT64: FieldType.INT64,
    memory_service_pb2.FIELD_TYPE_FLOAT32: FieldType.FLOAT32,
    memory_service_pb2.FIELD_TYPE_BOOL: FieldType.BOOL,
}
# Bounds of the contract.
MAX_REASON: Final = 500
"""Maximum length of an operation's reason, in characters."""
MAX_RANGES: Final = 256
"""Maximum number of message ranges of an operation."""
_ABSTRACT: Final = 4000
_OVERVIEW_BYTES: Final = 65536


class Converter:
    """Converts answers to operations, with field types from the registry. `dropped` counts items that could not be
    converted.

    `known` maps the URIs shown to the model to their memory types.
    """

    def __init__(self, types: Sequence[memory_service_pb2.MemoryType], known: Mapping[str, str]) -> None:
        self._types = {one.name: one for one in types}
        self._counted = {one.name: counted_by_system(one) for one in types}
        self._known = known
        self.dropped = 0

    def operations(self, answer: Answer) -> list[extractor_service_pb2.MemoryOperation]:
        """Returns all operations with content: deletes, writes, edits.

        Deletes come first: a delete before a write of the same memory replaces it, while the server refuses a delete
        after the write. Deleting and editing one memory is contradictory: that delete comes last, so that the server
        refuses it and the edit is applied.
        """
        edits = [kept for one in answer.edits for kept in self._without_counters(one)]
        edited = {one.uri for one in edits}
        made = [
            *(self._delete(one) for one in answer.deletes if one.uri not in edited),
            *(self._write(one) for one in answer.writes),
            *(self._edit(one) for one in edits),
            *(self._delete(one) for one in answer.deletes if one.uri in edited),
        ]
        there = [one for one in made if one is not None]
        self.dropped += len(made) - len(there)
        return there

    def _write(self, one: WriteOperation) -> extractor_service_pb2.MemoryOperation | None:
        kind = self._types.get(one.memory_type)
        if kind is None:
            return _write_without_fields(one)
        views = {"abstract": one.abstract, "overview": one.overview}
        fields: dict[str, common_pb2.FieldValue] = {}
        for named in one.fields:
            # Null means that the model has no value. The server sets the counters.
            if named.value is None or named.name in self._counted[kind.name]:
                continue
            if named.name in views and not _has_field(kind, named.name):
                views[named.name] = str(named.value)
                continue
            value = typed_value(kind, named.name, named.value)
            if value is None:
                self.dropped += 1
            else:
                fields[named.name] = value
        if not fields:
            return None
        write = extractor_service_pb2.WriteOp(
            memory_type=kind.name,
            fields=fields,
            abstract=views["abstract"][:_ABSTRACT],
            overview=_cut_bytes(views["overview"], _OVERVIEW_BYTES),
        )
        operation = extractor_service_pb2.MemoryOperation(
            write=write, peer_id=one.peer_id, reason=one.reason[:MAX_REASON]
        )
        return self._with_ranges(operation, one.ranges)

    def _without_counters(self, one: EditOperation) -> list[EditOperation]:
        """Returns the edit without patches of counters; no edit if it has only those."""
        counted = self._counted.get(self._known.get(one.uri, ""), frozenset())
        patches = [patch for patch in one.patches if patch.field not in counted]
        return [one.model_copy(update={"patches": patches})] if patches or not one.patches else []

    def _edit(self, one: EditOperation) -> extractor_service_pb2.MemoryOperation | None:
        kind = self._types.get(self._known.get(one.uri, ""))
        patches = []
        for patch in one.patches:
            made = self._patch(kind, patch)
            if made is None:
                self.dropped += 1
            else:
                patches.append(made)
        if not one.uri or not patches:
            return None
        operation = extractor_service_pb2.MemoryOperation(
            edit=extractor_service_pb2.EditOp(uri=one.uri, patches=patches), reason=one.reason[:MAX_REASON]
        )
        return self._with_ranges(operation, one.ranges)

    def _patch(self, kind: memory_service_pb2.MemoryType | None, patch: Patch) -> common_pb2.FieldPatch | None:
        if patch.blocks:
            blocks = [
                common_pb2.SearchReplaceBlock(
                    search=block.search, replace=block.replace, start_line=max(0, block.start_line)
                )
                for block in patch.blocks
            ]
            return common_pb2.FieldPatch(field=patch.field, search_replace=common_pb2.SearchReplace(blocks=blocks))
        if patch.value is None:
            return None
        value = self._value(kind, patch.field, patch.value)
        if value is None:
            return None
        if self._names_memory(kind, patch.field):
            return common_pb2.FieldPatch(field=patch.field, rename=value)
        return common_pb2.FieldPatch(field=patch.field, value=value)

    def _names_memory(self, kind: memory_service_pb2.MemoryType | None, name: str) -> bool:
        """Returns whether a field is part of the name of a memory. `kind`: None if its type is unknown."""
        kinds = [kind] if kind is not None else self._types.values()
        return any(name in placeholders(one.filename_template) for one in kinds)

    def _delete(self, one: DeleteOperation) -> extractor_service_pb2.MemoryOperation | None:
        if not one.uri:
            return None
        operation = extractor_service_pb2.MemoryOperation(
            delete=extractor_service_pb2.DeleteOp(uri=one.uri), reason=one.reason[:MAX_REASON]
        )
        return self._with_ranges(operation, one.ranges)

    def _with_ranges(
        self, operation: extractor_service_pb2.MemoryOperation, ranges: Sequence[Range]
    ) -> extractor_service_pb2.MemoryOperation | None:
        """Returns the operation with its ranges sorted and merged, or None if there are more than the
        contract allows.
        """
        joined: list[tuple[int, int]] = []
        for start, end in sorted((min(one.start, one.end), max(one.start, one.end)) for one in ranges):
            if joined and start <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
        if len(joined) > MAX_RANGES:
            return None
        operation.ranges.extend(
            common_pb2.MessageRange(start_sequence=start, end_sequence=end) for start, end in joined
        )
        return operation

    def _value(
        self, kind: memory_service_pb2.MemoryType | None, name: str, value: str | int | float | bool
    ) -> common_pb2.FieldValue | None:
        """As `typed_value`. The type of a memory that was never shown is unknown; then all types with such a field must
        agree on the value.
        """
        kinds = [kind] if kind is not None else list(self._types.values())
        values = [typed_value(one, name, value) for one in kinds if name in VIEW_FIELDS or _has_field(one, name)]
        return values[0] if values and all(one == values[0] for one in values) else None


def _write_without_fields(one: WriteOperation) -> extractor_service_pb2.MemoryOperation | None:
    """Returns a write of a built-in type that the policy leaves out, without its fields. The server skips and names it.

    None for any other type. Execution types are excluded, because the worker also removes them if no agent worked.
    """
    if one.memory_type not in _long_term_names():
        return None
    write = extractor_service_pb2.WriteOp(memory_type=one.memory_type)
    return extractor_service_pb2.MemoryOperation(write=write, reason=one.reason[:MAX_REASON])


@lru_cache(maxsize=1)
def _long_term_names() -> frozenset[str]:
    """Returns the names of the built-in long-term types."""
    return frozenset(one.name for one in Registry.load().long_term())


def typed_value(
    kind: memory_service_pb2.MemoryType, name: str, value: str | int | float | bool
) -> common_pb2.FieldValue | None:
    """Returns the value with the type of the field or view, or None if there is no such field or it does not accept the
    value.
    """
    types = {field.name: _FIELD_TYPES.get(field.type) for field in kind.fields}
    type = types.get(name) or (FieldType.STRING if name in VIEW_FIELDS else None)
    if type is None:
        return None
    try:
        return field_value(type, coerce_value(Field(name, type), value))
    except FieldError:
        return None


def field_value(kind: FieldType, value: str | int | float | bool) -> common_pb2.FieldValue:
    """Returns a contract value from a value that `coerce_value` made for a field of that type."""
    match kind:
        case FieldType.STRING:
            return common_pb2.FieldValue(string_value=str(value))
        case FieldType.INT64:
            return common_pb2.FieldValue(int64_value=int(value))
        case FieldType.FLOAT32:
            return common_pb2.FieldValue(float32_value=float(value))
        case FieldType.BOOL:
            return common_pb2.FieldValue(bool_value=bool(value))


def plain_value(value: common_pb2.FieldValue) -> str | int | float | bool:
    """Returns the Python value of a contract value."""
    match value.WhichOneof("kind"):
        case "int64_value":
            return value.int64_value
        case "float32_value":
            return _shortest(value.float32_value)
        case "bool_value":
            return value.bool_value
        case _:
            return value.string_value


def _shortest(number: float) -> float:
    """Returns the shortest decimal that names the same 32-bit number. As a double it would show noise
    (0.1000000015).
    """
    for digits in range(6, 9):
        shorter = float(f"{number:.{digits}g}")
        if struct.pack("<f", shorter) == struct.pack("<f", number):
            return shorter
    return number


def as_answer(operation: extractor_service_pb2.MemoryOperation) -> dict[str, Any]:
    """Returns an operation in the form of an answer, for the model to read."""
    ranges = [{"start": one.start_sequence, "end": one.end_sequence} for one in operation.ranges]
    match operation.WhichOneof("operation"):
        case "write":
            write = operation.write
            return {
                "memory_type": write.memory_type,
                "fields": [{"name": name, "value": plain_value(value)} for name, value in sorted(write.fields.items())],
                "peer_id": operation.peer_id,
                "ranges": ranges,
                "reason": operation.reason,
                "abstract": write.abstract,
                "overview": write.overview,
            }
        case "edit":
            return {
                "uri": operation.edit.uri,
                "patches": [_patch_as_answer(patch) for patch in operation.edit.patches],
                "ranges": ranges,
                "reason": operation.reason,
            }
        case _:
            return {"uri": operation.delete.uri, "ranges": ranges, "reason": operation.reason}


def _patch_as_answer(patch: common_pb2.FieldPatch) -> dict[str, Any]:
    blocks = [
        {"search": block.search, "replace": block.replace, "start_line": block.start_line}
        for block in patch.search_replace.blocks
    ]
    given = patch.value if patch.HasField("value") else patch.rename if patch.HasField("rename") else None
    value = None if given is None else plain_value(given)
    return {"field": patch.field, "blocks": blocks, "value": value}


def _has_field(kind: memory_service_pb2.MemoryType, name: str) -> bool:
    return any(field.name == name for field in kind.fields)


def _cut_bytes(text: str, most: int) -> str:
    encoded = text.encode("utf-8", errors="replace")
    return text if len(encoded) <= most else encoded[:most].decode("utf-8", errors="ignore")
