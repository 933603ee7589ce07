"""Changes of memories by hand, for `write_memories`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runekeep.client.memories.requests import field_value
from runekeep.client.wire.values import Scalar
from runekeep.v1 import common_pb2, memory_service_pb2


@dataclass(frozen=True, slots=True)
class Replace:
    """Replaces a piece of text: of several places the one nearest to `start_line`, counted from 1. Without `start_line`
    (0) the text must occur exactly once.
    """

    search: str
    replace: str
    start_line: int = 0


FieldEdit = Scalar | Replace | Sequence[Replace]
"""A new value (for a counter: a number to add), or replacements to apply in order, all or none."""


@dataclass(frozen=True, slots=True)
class PutMemory:
    """Writes a whole memory. Its fields determine its name; fields that are not given become empty.

    `base_version` is the version that it replaces; 0: the memory must not exist yet.
    """

    memory_type: str
    fields: Mapping[str, Scalar]
    base_version: int = 0
    peer_id: str = ""
    abstract: str = ""
    overview: str = ""

    def to_wire(self) -> memory_service_pb2.MemoryMutation:
        put = memory_service_pb2.PutMemory(
            memory_type=self.memory_type,
            fields={name: field_value(value) for name, value in self.fields.items()},
            peer_id=self.peer_id,
            abstract=self.abstract,
            overview=self.overview,
        )
        return memory_service_pb2.MemoryMutation(put=put, base_version=self.base_version)


@dataclass(frozen=True, slots=True)
class EditMemory:
    """Changes fields of a memory whose current version is `base_version`. Other fields stay."""

    uri: str
    fields: Mapping[str, FieldEdit]
    base_version: int

    def to_wire(self) -> memory_service_pb2.MemoryMutation:
        patches = [_patch(name, change) for name, change in self.fields.items()]
        edit = memory_service_pb2.EditMemory(uri=self.uri, patches=patches)
        return memory_service_pb2.MemoryMutation(edit=edit, base_version=self.base_version)


@dataclass(frozen=True, slots=True)
class DeleteMemory:
    """Deletes the memory whose current version is `base_version`. Its versions stay readable."""

    uri: str
    base_version: int

    def to_wire(self) -> memory_service_pb2.MemoryMutation:
        delete = memory_service_pb2.DeleteMemory(uri=self.uri)
        return memory_service_pb2.MemoryMutation(delete=delete, base_version=self.base_version)


MemoryChange = PutMemory | EditMemory | DeleteMemory


def _patch(name: str, change: FieldEdit) -> common_pb2.FieldPatch:
    if isinstance(change, str | int | float):
        return common_pb2.FieldPatch(field=name, value=field_value(change))
    replacements = [change] if isinstance(change, Replace) else change
    blocks = [
        common_pb2.SearchReplaceBlock(search=one.search, replace=one.replace, start_line=one.start_line)
        for one in replacements
    ]
    return common_pb2.FieldPatch(field=name, search_replace=common_pb2.SearchReplace(blocks=blocks))
