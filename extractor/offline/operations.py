"""Building operations, with every field bounded."""

from collections.abc import Iterable, Mapping
from typing import Final

from runekeep.v1 import common_pb2, extractor_service_pb2, memory_service_pb2

# One field of a memory that the offline engine writes at once, in characters.
FIELD_LIMIT: Final = 8_000
# A contract's bound on ranges of one operation.
_RANGE_LIMIT: Final = 256

Value = str | int


def write(
    type: memory_service_pb2.MemoryType,
    fields: Mapping[str, Value],
    *,
    peer_id: str,
    sequences: Iterable[int],
    reason: str,
) -> extractor_service_pb2.MemoryOperation:
    """Create a memory, or add to its counters. Fields that the type does not have are left out.

    The views are left to the server: one written here would outlive the line that it quotes.
    """
    operation = _about(peer_id, sequences, reason)
    operation.write.memory_type = type.name
    known = {field.name for field in type.fields}
    for name, value in fields.items():
        if name not in known:
            continue
        if isinstance(value, int):
            operation.write.fields[name].int64_value = value
        else:
            operation.write.fields[name].string_value = value[:FIELD_LIMIT]
    return operation


def replace_lines(
    uri: str,
    field: str,
    blocks: Iterable[tuple[str, str, int]],
    *,
    peer_id: str,
    sequences: Iterable[int],
    reason: str,
) -> extractor_service_pb2.MemoryOperation:
    """Edit a text field by blocks of (old text, new text, line of the old text from 1)."""
    operation = _about(peer_id, sequences, reason)
    operation.edit.uri = uri
    patch = operation.edit.patches.add(field=field)
    for search, replace, line in blocks:
        patch.search_replace.blocks.add(search=search, replace=replace, start_line=line)
    return operation


def set_text(
    uri: str, field: str, value: str, *, peer_id: str, sequences: Iterable[int], reason: str
) -> extractor_service_pb2.MemoryOperation:
    """Give a text field of a memory that exists a whole value; for fields that were empty."""
    operation = _about(peer_id, sequences, reason)
    operation.edit.uri = uri
    operation.edit.patches.add(field=field).value.string_value = value[:FIELD_LIMIT]
    return operation


def delete(uri: str, *, peer_id: str, sequences: Iterable[int], reason: str) -> extractor_service_pb2.MemoryOperation:
    """Remove a memory; its versions stay."""
    operation = _about(peer_id, sequences, reason)
    operation.delete.uri = uri
    return operation


def ranges_of(sequences: Iterable[int]) -> list[common_pb2.MessageRange]:
    """Inclusive ranges that hold these message sequences and no other; of more than an operation may have none, which
    stands for the whole conversation."""
    ranges: list[common_pb2.MessageRange] = []
    for sequence in sorted(set(sequences)):
        if ranges and ranges[-1].end_sequence == sequence - 1:
            ranges[-1].end_sequence = sequence
        else:
            ranges.append(common_pb2.MessageRange(start_sequence=sequence, end_sequence=sequence))
    return ranges if len(ranges) <= _RANGE_LIMIT else []


def _about(peer_id: str, sequences: Iterable[int], reason: str) -> extractor_service_pb2.MemoryOperation:
    return extractor_service_pb2.MemoryOperation(peer_id=peer_id, ranges=ranges_of(sequences), reason=reason[:500])
