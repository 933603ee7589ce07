"""Changes of memories as callers make them by hand."""

from typing import Any

from runekeep.v1 import memory_service_pb2 as pb
from tests.support.callers import Caller
from tests.support.worker import edit as edit_operation
from tests.support.worker import value


def put(
    memory_type: str, base: int = 0, *, peer: str = "", abstract: str = "", overview: str = "", **fields: Any
) -> pb.MemoryMutation:
    whole = pb.PutMemory(
        memory_type=memory_type,
        fields={name: value(of) for name, of in fields.items()},
        peer_id=peer,
        abstract=abstract,
        overview=overview,
    )
    return pb.MemoryMutation(put=whole, base_version=base)


def change(uri: str, base: int, **changes: Any) -> pb.MemoryMutation:
    """`changes` by field: a value, or pairs (search, replace)."""
    patches = edit_operation(uri, **changes).edit.patches
    return pb.MemoryMutation(edit=pb.EditMemory(uri=uri, patches=patches), base_version=base)


def remove(uri: str, base: int) -> pb.MemoryMutation:
    return pb.MemoryMutation(delete=pb.DeleteMemory(uri=uri), base_version=base)


async def written(caller: Caller, *changes: pb.MemoryMutation, request_id: str = "") -> Any:
    return await caller.memories.WriteMemories(pb.WriteMemoriesRequest(changes=changes, request_id=request_id))
