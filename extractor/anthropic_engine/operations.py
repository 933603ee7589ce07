"""An answer of the model as operations of the contract, and back again for a repair."""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from extractor.anthropic_engine.answer import Answer, DeleteOperation, EditOperation, Patch, Range, WriteOperation
from extractor.counts import counted_by_system
from runekeep.v1 import common_pb2, extractor_service_pb2, memory_service_pb2
from schemas.coerce import FieldError, coerce_value
from schemas.registry import Registry
from schemas.types import VIEW_FIELDS, Field, FieldType

_FIELD_TYPES: Final = {
    memory_service_pb2.FIELD_TYPE_STRING: FieldType.STRING,
    memory_service_pb2.FIELD_TYPE_INT64: FieldType.INT64,
    memory_service_pb2.FIELD_TYPE_FLOAT32: FieldType.FLOAT32,
    memory_service_pb2.FIELD_TYPE_BOOL: FieldType.BOOL,
}
# The contract's bounds.
MOST_REASON: Final = 500
"""Characters of an operation's reason."""
MOST_RANGES: Final = 256
"""Ranges of messages that an operation may name."""
_ABSTRACT: Final = 4000
_OVERVIEW_BYTES: Final = 65536


class Converter:
    """Makes operations, typed by the registry; `dropped` counts what could not be converted.

    `known` maps the URIs that the model was shown to their memory types.
    """

    def __init__(self, types: Sequence[memory_service_pb2.MemoryType], known: Mapping[str, str]) -> None:
        self._types = {one.name: one for one in types}
        self._counted = {one.name: counted_by_system(one) for one in types}
        self._known = known
        self.dropped = 0

    def operations(self, answer: Answer) -> list[extractor_service_pb2.MemoryOperation]:
        """All operations that hold something: deletes, writes, edits.

        A delete and a write of one memory replace it that way round; the other way the server refuses the delete. One
        that is deleted and edited makes no sense: that delete comes last, where it is refused and the edit holds.
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
            # Null means that the model has no value. Counters are the server's.
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
            write=write, peer_id=one.peer_id, reason=one.reason[:MOST_REASON]
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
            edit=extractor_service_pb2.EditOp(uri=one.uri, patches=patches), reason=one.reason[:MOST_REASON]
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
        return None if value is None else common_pb2.FieldPatch(field=patch.field, value=value)

    def _delete(self, one: DeleteOperation) -> extractor_service_pb2.MemoryOperation | None:
        if not one.uri:
            return None
        operation = extractor_service_pb2.MemoryOperation(
            delete=extractor_service_pb2.DeleteOp(uri=one.uri), reason=one.reason[:MOST_REASON]
        )
        return self._with_ranges(operation, one.ranges)

    def _with_ranges(
        self, operation: extractor_service_pb2.MemoryOperation, ranges: Sequence[Range]
    ) -> extractor_service_pb2.MemoryOperation | None:
        """The operation with its ranges in order and joined; None when there are more than the contract takes."""
        joined: list[tuple[int, int]] = []
        for start, end in sorted((min(one.start, one.end), max(one.start, one.end)) for one in ranges):
            if joined and start <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
        if len(joined) > MOST_RANGES:
            return None
        operation.ranges.extend(
            common_pb2.MessageRange(start_sequence=start, end_sequence=end) for start, end in joined
        )
        return operation

    def _value(
        self, kind: memory_service_pb2.MemoryType | None, name: str, value: str | int | float | bool
    ) -> common_pb2.FieldValue | None:
        """As `typed_value`. Of a memory that was never shown the type is not known; then all types that have such a
        field must agree about it.
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
    return extractor_service_pb2.MemoryOperation(write=write, reason=one.reason[:MOST_REASON])


@lru_cache(maxsize=1)
def _long_term_names() -> frozenset[str]:
    """Names of the built-in long-term types."""
    return frozenset(one.name for one in Registry.load().long_term())


def typed_value(
    kind: memory_service_pb2.MemoryType, name: str, value: str | int | float | bool
) -> common_pb2.FieldValue | None:
    """The value with the type of the field or view; None when there is no such field, or it does not take it."""
    types = {field.name: _FIELD_TYPES.get(field.type) for field in kind.fields}
    type = types.get(name) or (FieldType.STRING if name in VIEW_FIELDS else None)
    if type is None:
        return None
    try:
        return field_value(type, coerce_value(Field(name, type), value))
    except FieldError:
        return None


def field_value(kind: FieldType, value: str | int | float | bool) -> common_pb2.FieldValue:
    """A value of the contract from one that `coerce_value` made for a field of that type."""
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
    """What a value of the contract holds."""
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
    """The number of 32 bits with the fewest digits that name it; those of a double would show noise (0.1000000015)."""
    for digits in range(6, 9):
        shorter = float(f"{number:.{digits}g}")
        if struct.pack("<f", shorter) == struct.pack("<f", number):
            return shorter
    return number


def as_answer(operation: extractor_service_pb2.MemoryOperation) -> dict[str, Any]:
    """An operation in the words of an answer, for the model to read."""
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
    value = plain_value(patch.value) if patch.HasField("value") else None
    return {"field": patch.field, "blocks": blocks, "value": value}


def _has_field(kind: memory_service_pb2.MemoryType, name: str) -> bool:
    return any(field.name == name for field in kind.fields)


def _cut_bytes(text: str, most: int) -> str:
    encoded = text.encode("utf-8", errors="replace")
    return text if len(encoded) <= most else encoded[:most].decode("utf-8", errors="ignore")
