"""Which memories go with a list of their directory, so that a job need neither search for them nor read one by one."""

from collections import Counter
from collections.abc import Sequence

from runekeep.v1 import memory_service_pb2 as pb


def few(listing: pb.ListDirectoryResponse, memory_limit: int, type_limit: int) -> list[tuple[str, int]]:
    """URI and version of the memories of a list, where it has at most `memory_limit`; else of types of which it has at
    most `type_limit`. None of a list that was cut."""
    entries = [] if listing.truncated else [entry for entry in listing.entries if entry.memory_type]
    count = Counter(entry.memory_type for entry in entries)
    most = memory_limit if len(entries) <= memory_limit else type_limit
    return [(entry.uri, entry.version) for entry in entries if count[entry.memory_type] <= most]


def with_room(memories: Sequence[pb.Memory], room: int) -> list[pb.Memory]:
    """Of each type all or none, in the order given, as far as `room` bytes of an answer go."""
    sizes: Counter[str] = Counter()
    for memory in memories:
        # With its tag and length.
        sizes[memory.memory_type] += memory.ByteSize() + 6
    given = set()
    for kind, size in sizes.items():
        if size <= room:
            room -= size
            given.add(kind)
    return [memory for memory in memories if memory.memory_type in given]
