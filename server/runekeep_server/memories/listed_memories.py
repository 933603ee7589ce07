"""Lists a directory for a job together with its memories, so that the job need not search for them or read them one by
one."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from runekeep.v1 import extractor_service_pb2
from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories import reads
from runekeep_server.wire import memories as wire
from runekeep_storage.database import Tx
from runekeep_storage.drivers.common.statement_lists import SIZE
from runekeep_storage.errors import SpaceShut
from runekeep_storage.jobs import jobs
from runekeep_storage.memories import memories
from runekeep_storage.records import LeaseId

Key = tuple[str, int]
"""URI and version."""


async def for_job(
    tx: Tx, registry: Registry, lease: LeaseId, request: extractor_service_pb2.ListForJobRequest, most_bytes: int
) -> extractor_service_pb2.ListForJobResponse:
    """Returns the answer of ListForJob, with rows of at most `most_bytes`. Raises LeaseLost, SpaceShut, NotFound,
    ApiError."""
    job = await jobs.held(tx, lease)
    space = jobs.space_of(job)
    # The space is known only from here on, so the database has not checked its lock.
    if tx.is_shut(space):
        raise SpaceShut(space.user)
    reads.check_of_lease(request.list)
    listing = await reads.listing(tx, space, registry, request.list, job.revision, most_bytes)
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
    """Returns all memories of a list if there are at most `memory_limit`, otherwise those of types with at most
    `type_limit` memories. Returns none for a truncated list."""
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
    """Returns all memories of a type or none, in the given order, in at most `room` bytes of an answer.

    `read` gets as many keys as one statement takes, ordered by type. It gets no more keys of a type that does not fit.
    `measure` returns a lower bound of each memory's bytes; a type with a memory above `room` is not read.
    """
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
                # Plus tag and length.
                sizes[kind] += found[key].ByteSize() + 6
                if sizes.total() > room:
                    crowded_out.add(kind)
                    del sizes[kind]
        waiting = [(kind, key) for kind, key in waiting[SIZE:] if kind not in crowded_out]
    given = (entry for entry in entries if entry.memory_type not in crowded_out)
    return [taken[entry.uri, entry.version] for entry in given if (entry.uri, entry.version) in taken]
