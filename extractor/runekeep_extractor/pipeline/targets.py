"""Predicts the owners and URIs of an output's operations, as far as an engine can. The server routes by the
same table.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from runekeep.v1 import common_pb2, extractor_service_pb2, memory_service_pb2
from runekeep_extractor.answers.operations import MAX_RANGES, plain_value
from runekeep_extractor.engine.interface import Job
from runekeep_schemas.documents.filenames import FileNameError, memory_uri
from runekeep_schemas.documents.uris import UriError, canonicalize, parse
from runekeep_schemas.memory_types.model import Field, MemoryType
from runekeep_schemas.memory_types.templates import placeholders

SELF: Final = ""
"""The owner id of the user; other owners are peer ids."""

_USER: Final = re.compile(r"viking://user/([^/]+)/?")


@dataclass(frozen=True, slots=True)
class Target:
    """A memory that a write creates or merges into. `operation` is the write restricted to this owner."""

    owner: str
    uri: str
    operation: extractor_service_pb2.MemoryOperation


class Targets:
    """Owners and URIs for one job."""

    def __init__(self, job: Job) -> None:
        self.types = {kind.name: kind for kind in job.memory_types}
        self._plan = job.assignment.plan
        self._allowed = frozenset(self._plan.allowed_peer_ids) | ({SELF} if self._plan.allow_self else set())
        self._owners = {message.sequence: message.peer_id for message in job.messages}
        self._numbers = sorted(self._owners)
        self._places = {number: place for place, number in enumerate(self._numbers)}
        found = _USER.fullmatch(job.assignment.user_space)
        self._user = found[1] if found else ""

    def of(self, operation: extractor_service_pb2.MemoryOperation) -> list[Target]:
        """Returns the targets of a write, the user's first. Empty if the server will refuse or skip the operation."""
        kind = self.types.get(operation.write.memory_type)
        if kind is None:
            return []
        name = operation.write.memory_type
        owners = self._owners_of(operation, name)
        try:
            uris = [self._uri(kind, operation.write, owner) for owner in owners]
        except (FileNameError, UriError):
            return []
        narrowed = [self.narrowed(operation, name, [owner]) for owner in owners]
        return [
            Target(owner, uri, made)
            for owner, uri, made in zip(owners, uris, narrowed, strict=True)
            if made is not None and None not in narrowed
        ]

    def reached(self, operation: extractor_service_pb2.MemoryOperation, memory_type: str) -> list[str]:
        """Returns the owners whose memories the operation changes, the user first; none if the server excludes it.

        `memory_type`: type of the memory concerned; empty if unknown.
        """
        if operation.HasField("write"):
            return self._owners_of(operation, memory_type)
        owner = self._owner_by_uri(operation)
        if owner is None or (operation.peer_id and operation.peer_id != owner and not self._is_execution(memory_type)):
            return []
        return [owner] if owner in self._owners_of(operation, memory_type, owner) else []

    def narrowed(
        self, operation: extractor_service_pb2.MemoryOperation, memory_type: str, owners: Collection[str]
    ) -> extractor_service_pb2.MemoryOperation | None:
        """Returns a copy that goes to these owners only; the operation must reach all of them.

        If its ranges determine the owner, messages of other owners are removed, and a single peer is named. Returns
        None if that takes more ranges than an operation may have.
        """
        made = extractor_service_pb2.MemoryOperation()
        made.CopyFrom(operation)
        if self._is_execution(memory_type):
            # It belongs to the user, whoever sent the source messages.
            return made
        named = operation.peer_id or (SELF if operation.HasField("write") else self._owner_by_uri(operation))
        made.peer_id = next(iter(owners)) if len(owners) == 1 else ""
        if named:
            # The operation names its owner, so its ranges do not matter.
            return made
        runs: list[tuple[int, int]] = []
        for number in self._sequences(operation.ranges):
            if self._owners[number] not in owners:
                continue
            if runs and self._places[number] == self._places[runs[-1][1]] + 1:
                runs[-1] = (runs[-1][0], number)
            else:
                runs.append((number, number))
        if len(runs) > MAX_RANGES:
            return None
        del made.ranges[:]
        made.ranges.extend(common_pb2.MessageRange(start_sequence=first, end_sequence=last) for first, last in runs)
        return made

    def _owners_of(
        self, operation: extractor_service_pb2.MemoryOperation, memory_type: str, peer_id: str | None = None
    ) -> list[str]:
        peer = operation.peer_id if peer_id is None else peer_id
        if self._is_execution(memory_type):
            owners = {SELF}
        elif not all(one.start_sequence <= one.end_sequence and self._has(one) for one in operation.ranges):
            owners = set()
        elif operation.ranges and not peer:
            owners = {self._owners[number] for number in self._sequences(operation.ranges)}
        else:
            owners = {peer}
        return sorted(owners & self._allowed)

    def _owner_by_uri(self, operation: extractor_service_pb2.MemoryOperation) -> str | None:
        """Returns the owner of the memory that an edit or a delete names; None if its URI is invalid."""
        uri = operation.edit.uri if operation.HasField("edit") else operation.delete.uri
        try:
            return parse(canonicalize(uri, self._user)).peer or SELF
        except UriError:
            return None

    def _is_execution(self, memory_type: str) -> bool:
        """Returns whether the type is an execution type. An unknown (empty) type follows the stricter rule of long-term
        types.
        """
        return memory_type != "" and memory_type not in self._plan.long_term_types

    def _has(self, one: common_pb2.MessageRange) -> bool:
        return one.start_sequence in self._owners and one.end_sequence in self._owners

    def _sequences(self, ranges: Sequence[common_pb2.MessageRange]) -> list[int]:
        """Returns the sequences of the messages in the ranges, in order."""
        found: set[int] = set()
        for one in ranges:
            first, last = bisect_left(self._numbers, one.start_sequence), bisect_right(self._numbers, one.end_sequence)
            found.update(self._numbers[first:last])
        return sorted(found)

    def _uri(self, kind: memory_service_pb2.MemoryType, write: extractor_service_pb2.WriteOp, owner: str) -> str:
        keys = placeholders(kind.filename_template)
        named = {name: str(plain_value(write.fields[name])) for name in keys if name in write.fields}
        if keys and not any(value.strip() for value in named.values()):
            raise FileNameError(f"{kind.name}: nothing names the memory")
        # The contract does not say which of them may be empty; the server refuses an invalid one.
        shape = MemoryType(
            kind.name,
            "",
            kind.directory,
            kind.filename_template,
            fields=tuple(Field(name, optional=True) for name in keys),
        )
        return memory_uri(shape, dict(named), self._user, owner or None)
