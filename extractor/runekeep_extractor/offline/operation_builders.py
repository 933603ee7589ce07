"""Reads a job's permissions, and builds operations whose fields are all bounded."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from runekeep.v1 import common_pb2, extractor_service_pb2, memory_service_pb2
from runekeep_extractor.engine.interface import Job

SELF: Final = ""
MAX_FIELD_CHARS: Final = 8_000
MAX_RANGES: Final = 256
MAX_REASON_CHARS: Final = 500
_SPACE_ROOT: Final = re.compile(r"viking://(?:user/\{user_space\}|agent/\{agent_space\})")
_PLACEHOLDER: Final = re.compile(r"{[^{}]*}")


@dataclass(frozen=True, slots=True)
class Permit:
    """The long-term types that a job may write, by name, and the owners that it may write for."""

    types: Mapping[str, memory_service_pb2.MemoryType]
    allow_self: bool
    peers: frozenset[str]
    space: str

    @classmethod
    def of(cls, job: Job) -> "Permit":
        """Reads the plan. A type that the plan names but the input does not describe is left out."""
        plan = job.assignment.plan
        types = {type.name: type for type in job.memory_types if type.name in set(plan.long_term_types)}
        return cls(types, plan.allow_self, frozenset(plan.allowed_peer_ids), job.assignment.user_space)

    def type(self, name: str, *fields: str) -> memory_service_pb2.MemoryType | None:
        """Returns the type if it may be written and has these fields. An operator may have replaced the
        built-in type.
        """
        type = self.types.get(name)
        if type is None or not set(fields) <= {field.name for field in type.fields}:
            return None
        return type

    def owner(self, message: common_pb2.Message) -> str | None:
        """Returns the owner whose memory a message feeds: SELF, a peer id, or None for no owner."""
        if not message.peer_id:
            return SELF if self.allow_self else None
        return message.peer_id if message.peer_id in self.peers else None

    def root(self, owner: str) -> str:
        """Returns the URI of an owner's space."""
        return self.space if owner == SELF else f"{self.space}/peers/{owner}"

    def uri(self, type: memory_service_pb2.MemoryType, owner: str, key: str = "") -> str:
        """Returns the URI of a memory; `key` is the value of its only naming field."""
        directory = _SPACE_ROOT.sub(lambda _: self.root(owner), type.directory, count=1)
        return f"{directory}/{_PLACEHOLDER.sub(lambda _: key, type.filename_template)}"


def write(
    type: memory_service_pb2.MemoryType,
    fields: Mapping[str, str],
    *,
    peer_id: str,
    sequences: Iterable[int],
    reason: str,
) -> extractor_service_pb2.MemoryOperation:
    """Returns an operation that creates a memory. Fields that the type lacks are omitted; the server makes
    the views.
    """
    operation = _about(peer_id, sequences, reason)
    operation.write.memory_type = type.name
    known = {field.name for field in type.fields}
    for name, value in fields.items():
        if name in known:
            operation.write.fields[name].string_value = value[:MAX_FIELD_CHARS]
    return operation


def edit(
    uri: str,
    field: str,
    blocks: Iterable[tuple[str, str, int]],
    *,
    peer_id: str,
    sequences: Iterable[int],
    reason: str,
) -> extractor_service_pb2.MemoryOperation:
    """Returns an operation that edits a text field by blocks of (old text, new text, line of the old text from 1). An
    empty old text stands for an empty field.
    """
    operation = _about(peer_id, sequences, reason)
    operation.edit.uri = uri
    patch = operation.edit.patches.add(field=field)
    for search, replace, line in blocks:
        if search:
            patch.search_replace.blocks.add(search=search, replace=replace, start_line=line)
        else:
            patch.value.string_value = replace[:MAX_FIELD_CHARS]
    return operation


def delete(uri: str, *, peer_id: str, sequences: Iterable[int], reason: str) -> extractor_service_pb2.MemoryOperation:
    """Returns an operation that deletes a memory; its versions stay."""
    operation = _about(peer_id, sequences, reason)
    operation.delete.uri = uri
    return operation


def ranges_of(sequences: Iterable[int]) -> list[common_pb2.MessageRange]:
    """Returns inclusive ranges of these message sequences. Returns none, which means the whole batch, if there are more
    than MAX_RANGES.
    """
    ranges: list[common_pb2.MessageRange] = []
    for sequence in sorted(set(sequences)):
        if ranges and ranges[-1].end_sequence == sequence - 1:
            ranges[-1].end_sequence = sequence
        else:
            ranges.append(common_pb2.MessageRange(start_sequence=sequence, end_sequence=sequence))
    return ranges if len(ranges) <= MAX_RANGES else []


def _about(peer_id: str, sequences: Iterable[int], reason: str) -> extractor_service_pb2.MemoryOperation:
    ranges = ranges_of(sequences)
    return extractor_service_pb2.MemoryOperation(peer_id=peer_id, ranges=ranges, reason=reason[:MAX_REASON_CHARS])
