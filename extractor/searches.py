"""Searches of whole memories, whose answers may be larger than what a server sends."""

from collections.abc import Iterable, Sequence

from extractor.calls import as_many_as_fit
from extractor.engine import Job
from runekeep.v1 import memory_service_pb2


async def find_fitting(
    job: Job, search: memory_service_pb2.FindMemoriesRequest
) -> Sequence[memory_service_pb2.FoundItem]:
    """What a search finds, likeliest first: fewer than its limit, or nothing, where they are too much for one answer.
    The search names its limit.

    Raises what `Job.find` raises, but no TooMuch.
    """

    async def ask(limit: int) -> memory_service_pb2.FindMemoriesResponse:
        request = memory_service_pb2.FindMemoriesRequest()
        request.CopyFrom(search)
        request.limit = limit
        return await job.find(request)

    found = await as_many_as_fit(search.limit, ask)
    return found.results if found is not None else ()


def memories_of(found: Iterable[memory_service_pb2.FoundItem]) -> list[memory_service_pb2.Memory]:
    """The memories among what was found, in order."""
    return [item.memory for item in found if item.memory.uri]
