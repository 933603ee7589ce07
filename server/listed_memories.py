"""A list of a directory with memories of it, so that a job need neither search for them nor read one by one."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from runekeep.v1 import extractor_service_pb2
from runekeep.v1 import memory_service_pb2 as pb
from schemas.registry import Registry
from server import memory_reads
from server.wire import memories as wire
from storage import jobs, memories
from storage.database import Tx
from storage.errors import SpaceShut
from storage.records import LeaseId
from storage.statement_lists import SIZE

Key = tuple[str, int]
"""URI and version."""


async def for_job(
    tx: Tx, registry: Registry, lease: LeaseId, request: extractor_service_pb2.ListForJobRequest, most_bytes: int
) -> extractor_service_pb2.ListForJobResponse:
    """What ListForJob answers; its rows take at most so many bytes. Raises LeaseLost, SpaceShut, NotFound, ApiError."""
    job = await jobs.held(tx, lease)
    space = jobs.space_of(job)
    # Known from here on only, so that nobody has seen to it yet.
    if tx.is_shut(space):
        raise SpaceShut(space.user)
    memory_reads.check_of_lease(request.list)
    listing = await memory_reads.listing(tx, space, registry, request.list, job.revision, most_bytes)
    answer = extractor_service_pb2.ListForJobResponse(listing=listing)
    full = pb.MEMORY_VIEW_FULL

    async def read(keys: Sequence[Key]) -> dict[Key, pb.Memory]:
        found = await memories.alive(tx, space, keys, job.revision)
        return {key: wire.memory(space.user, one, registry, full) for key, one in found.items()}

    async def measure(keys: Sequence[Key]) -> Mapping[Key, int]:
        return await memories.content_bytes(tx, space, keys, job.revision)

    wanted = few(listing, request.memory_limit, request.type_limit)
    answer.memories.extend(await with_room(wanted, read, measure, most_bytes - listing.ByteSize()))
    return answer


def few(listing: pb.ListDirectoryResponse, memory_limit: int, type_limit: int) -> list[pb.DirectoryEntry]:
    """The memories of a list, where it has at most `memory_limit`; else those of types of which it has at most
    `type_limit`. None of a list that was cut."""
    entries = [] if listing.truncated else [entry for entry in listing.entries if entry.memory_type]
    count = Counter(entry.memory_type for entry in entries)
    most = memory_limit if len(entries) <= memory_limit else type_limit
    return [entry for entry in entries if count[entry.memory_type] <= most]


async def with_room(
    entries: Sequence[pb.DirectoryEntry],
    read: Callable[[Sequence[Key]], Awaitable[Mapping[Key, pb.Memory]]],
    measure: Callable[[Sequence[Key]], Awaitable[Mapping[Key, int]]],
    room: int,
) -> list[pb.Memory]:
    """Of each type all that are there or none, in the order given, as far as `room` bytes of an answer go. `read` is
    asked for as many as one statement takes, type after type, and for no more of a type once it has no room; nor for a
    type of which one takes more by itself: `measure` tells at least how many bytes each takes."""
    by_kind: dict[str, list[Key]] = {}
    for entry in entries:
        by_kind.setdefault(entry.memory_type, []).append((entry.uri, entry.version))
    waiting = [(kind, key) for kind, keys in by_kind.items() for key in keys] if room > 0 else []
    taken: dict[Key, pb.Memory] = {}
    sizes: Counter[str] = Counter()
    crowded_out: set[str] = set()
    while waiting:
        some = waiting[:SIZE]
        measured = await measure([key for _, key in some])
        crowded_out |= {kind for kind, key in some if measured.get(key, 0) > room}
        some = [(kind, key) for kind, key in some if kind not in crowded_out]
        found = await read([key for _, key in some]) if some else {}
        for kind, key in some:
            if key in found and kind not in crowded_out:
                taken[key] = found[key]
                # With its tag and length.
                sizes[kind] += found[key].ByteSize() + 6
                if sizes.total() > room:
                    crowded_out.add(kind)
                    del sizes[kind]
        waiting = [(kind, key) for kind, key in waiting[SIZE:] if kind not in crowded_out]
    given = (entry for entry in entries if entry.memory_type not in crowded_out)
    return [taken[entry.uri, entry.version] for entry in given if (entry.uri, entry.version) in taken]
