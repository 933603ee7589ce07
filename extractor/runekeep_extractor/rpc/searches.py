"""Searches of whole memories, whose answers may exceed the server's message size."""

from collections.abc import Iterable, Sequence

from runekeep.v1 import memory_service_pb2
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.rpc.calls import as_many_as_fit


async def find_fitting(
    job: Job, search: memory_service_pb2.FindMemoriesRequest
) -> Sequence[memory_service_pb2.FoundItem]:
    """Returns the results of a search, likeliest first: fewer than its limit, or none, if they exceed one answer. The
    search must set its limit.

    Raises what `Job.find` raises, except TooMuch.
    """

    async def ask(limit: int) -> memory_service_pb2.FindMemoriesResponse:
        request = memory_service_pb2.FindMemoriesRequest()
        request.CopyFrom(search)
        request.limit = limit
        return await job.find(request)

    found = await as_many_as_fit(search.limit, ask)
    return found.results if found is not None else ()


def memories_of(found: Iterable[memory_service_pb2.FoundItem]) -> list[memory_service_pb2.Memory]:
    """Returns the memories among the results, in order."""
    return [item.memory for item in found if item.memory.uri]
