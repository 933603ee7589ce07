"""Answers that are larger than a server sends, or than a worker takes."""

from collections.abc import Sequence
from typing import Any

import grpc.aio
import pytest

from runekeep.transport.transport import transport
from runekeep.v1 import extractor_service_pb2, extractor_service_pb2_grpc, memory_service_pb2
from runekeep_extractor.offline import OfflineEngine
from runekeep_extractor.pipeline.existing_memories import ListedMemories, list_spaces
from runekeep_extractor.pipeline.prefetch import Existing, prefetch
from runekeep_extractor.pipeline.similar_memories import find_near
from runekeep_extractor.pipeline.targets import Targets
from runekeep_extractor.prompts.reads import Reader
from runekeep_extractor.rpc.calls import TooMuch
from runekeep_extractor.rpc.channel import open_channel
from runekeep_extractor.rpc.searches import find_fitting
from runekeep_extractor.settings import NAMES
from runekeep_extractor.worker.job import RemoteJob
from tests.doubles.fixed_job import SPACE, FixedJob, memory, message
from tests.support.worker import write
from tests.unit.extractor.embedding_job import EmbeddingJob
from tests.unit.extractor.server_double import ServerDouble, assignment

pb = extractor_service_pb2

TALK = [
    message(1, "I drink tea in the garden, every morning."),
    message(2, "On Sundays I mend the old violin."),
    message(3, "And tea again in the evening."),
]
ANY = memory_service_pb2.FindMemoriesRequest(query="tea", limit=4)


class Finding(ServerDouble):
    """Finds one memory of 5 MiB."""

    async def FindForJob(self, request, context):
        found = memory_service_pb2.Memory(uri=f"{SPACE}/memories/a.md", content="x" * (5 << 20))
        results = [memory_service_pb2.FoundItem(memory=found)]
        return pb.FindForJobResponse(found=memory_service_pb2.FindMemoriesResponse(results=results))


async def found_by(options: Sequence[tuple[str, int]]) -> memory_service_pb2.FindMemoriesResponse:
    """What a job finds at a server with these options."""
    server = grpc.aio.server(options=options)
    extractor_service_pb2_grpc.add_ExtractorServiceServicer_to_server(Finding(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(transport(f"127.0.0.1:{port}", NAMES)) as channel:
            stub = extractor_service_pb2_grpc.ExtractorServiceStub(channel)
            return await RemoteJob(stub, (), assignment(), lambda: None, lambda progress: None).find(ANY)
    finally:
        await server.stop(None)


async def test_an_answer_beyond_the_limit_of_grpc_is_taken():
    assert len((await found_by([])).results[0].memory.content) == 5 << 20


async def test_what_the_server_may_not_send_is_told_as_too_much():
    with pytest.raises(TooMuch, match="FindForJob"):
        await found_by([("grpc.max_send_message_length", 1 << 20)])


class Narrow(EmbeddingJob):
    """Its server sends no answer beyond `most` bytes."""

    most = 0

    async def list(self, uri: str = "", **options: int) -> pb.ListForJobResponse:
        return self._sent(await super().list(uri, **options))

    async def read(self, *args: Any) -> pb.ReadForJobResponse:
        return self._sent(await super().read(*args))

    async def find(self, request: Any) -> memory_service_pb2.FindMemoriesResponse:
        return self._sent(await super().find(request))

    def _sent(self, answer: Any) -> Any:
        if answer.ByteSize() > self.most:
            raise TooMuch(pb.FAILURE_CLASS_INTERNAL, "the answer is too large")
        return answer


def narrow(most: int, memories: Sequence[memory_service_pb2.Memory], **options: Any) -> Narrow:
    job = Narrow(TALK, memories, **options)
    job.most = most
    return job


def some(kind: str, name: str, count: int, length: int) -> list[memory_service_pb2.Memory]:
    """Each of about twice `length` bytes."""
    text = ("I drink tea. " * (length // 13 + 1))[:length]
    return [memory(f"{kind}/{n:03}.md", kind, {name: f"{n}", "content": text}) for n in range(count)]


async def prefetched(job: FixedJob) -> Existing:
    async def silent(done: int, steps: int) -> None:
        pass

    return await prefetch(job, TALK, 80_000, silent)


def shown(existing: Existing, kind: str) -> int:
    return sum(f"/{kind}/" in line for line in existing.memories)


def asked(job: FixedJob) -> list[tuple[tuple[str, ...], int]]:
    """Types and limit of each search for the first passage."""
    return [(tuple(one.memory_types), one.limit) for one in job.finds if one.query == job.finds[0].query]


EVENTS = some("events", "event_name", 60, 2_000)
PREFERENCES = some("preferences", "topic", 60, 2_000)


async def test_where_a_search_is_too_much_each_type_is_searched_for_by_itself():
    job = narrow(30_000, [*EVENTS, *PREFERENCES])
    existing = await prefetched(job)
    assert asked(job) == [(("preferences", "events"), 16), (("preferences",), 4), (("events",), 4)]
    assert (shown(existing, "events"), shown(existing, "preferences")) == (4, 4)


async def test_where_one_type_is_too_much_fewer_of_it_are_searched_for():
    job = narrow(30_000, [*some("events", "event_name", 60, 6_000), *PREFERENCES])
    existing = await prefetched(job)
    assert asked(job)[1:] == [(("preferences",), 4), (("events",), 4), (("events",), 2)]
    assert (shown(existing, "events"), shown(existing, "preferences")) == (2, 4)


async def test_a_type_of_which_not_even_one_fits_fails_nothing():
    job = narrow(30_000, [*some("events", "event_name", 60, 40_000), *PREFERENCES])
    existing = await prefetched(job)
    assert asked(job)[1:] == [(("preferences",), 4), (("events",), 4), (("events",), 2), (("events",), 1)]
    assert (shown(existing, "events"), shown(existing, "preferences")) == (0, 4)


async def test_a_listing_that_is_too_much_comes_without_memories():
    job = narrow(30_000, [*some("events", "event_name", 10, 2_000), *some("preferences", "topic", 10, 2_000)])
    (space,) = (await list_spaces(job, [f"{SPACE}/memories"], 80, 12)).spaces
    assert len([entry for entry in space.entries if entry.memory_type]) == 20
    assert not space.truncated and not space.memories
    assert shown(await prefetched(job), "events") >= 4


async def test_of_a_listing_that_is_too_much_by_itself_the_beginning_is_listed():
    job = narrow(3_000, some("preferences", "topic", 100, 10))
    (space,) = (await list_spaces(job, [f"{SPACE}/memories"], 80, 12)).spaces
    assert space.truncated and 10 <= len(space.entries) < 100
    job.most = 0
    (space,) = (await list_spaces(job, [f"{SPACE}/memories"], 80, 12)).spaces
    assert space.truncated and not space.entries
    assert (await prefetched(job)).truncated


async def test_a_profile_that_is_too_much_is_listed():
    profile = memory("profile.md", "profile", {"content": "Lives in Porto. " * 2_000})
    existing = await prefetched(narrow(30_000, [profile]))
    assert not existing.memories
    assert [line for line in existing.others if profile.uri in line]


async def test_new_memories_are_compared_with_as_many_as_fit(embedder):
    there = some("preferences", "topic", 10, 3_000)
    job = narrow(20_000, there)
    job.embedder = embedder
    content = there[0].content
    near = await find_near(job, Targets(job), [write("preferences", topic="T", content=content)], {}, ListedMemories())
    assert [one.limit for one in job.finds] == [6, 3]
    assert len(near.memories) == 3 and near.asked


async def test_a_memory_that_is_too_much_to_be_read_is_taken_for_one_that_is_there(embedder):
    there = some("preferences", "topic", 10, 3_000)
    long = memory("preferences/T.md", "preferences", {"topic": "T", "content": "Zzz. " * 10_000})
    job = narrow(20_000, [*there, long])
    job.embedder = embedder
    made = [write("preferences", topic="T", content=there[0].content)]
    near = await find_near(job, Targets(job), made, {}, ListedMemories())
    assert job.read_uris == [long.uri] and not near.asked


async def test_a_model_is_told_of_what_is_too_much():
    job = narrow(20_000, some("preferences", "topic", 10, 3_000))
    reader = Reader(job, {})
    text, failed = await reader.run("find", {"query": "tea"})
    assert not failed and text.count("/preferences/") == 2
    job.most = 0
    assert await reader.run("read", {"uri": f"{SPACE}/memories/preferences/000.md"}) == (
        "That is too large for one answer.",
        True,
    )


async def test_the_offline_engine_looks_at_as_many_as_fit():
    job = Narrow([message(1, "Actually, I drink tea every morning.", speaker="Mara")], EVENTS + PREFERENCES)
    job.most = 10_000
    assert (await OfflineEngine().extract(job)).summary is not None
    assert {one.limit for one in job.finds} == {5, 2}


async def test_what_is_too_much_for_the_offline_engine_is_neither_written_anew_nor_in_the_way():
    profile = memory("profile.md", "profile", {"content": "- Lives in Porto.\n" * 2_000})
    talk = [
        message(1, "My name is Mara and I work as a carpenter.", speaker="Mara"),
        message(2, "I prefer green tea to coffee.", speaker="Mara"),
    ]
    small = Narrow(talk, [memory("profile.md", "profile", {"content": "- Lives in Porto."})])
    small.most = 10_000
    job = Narrow(talk, [profile])
    job.most = 10_000

    about = [_uri(operation) for operation in (await OfflineEngine().extract(small)).operations]
    assert profile.uri in about and len(about) > 1, "what is said of her goes there"
    output = await OfflineEngine().extract(job)

    assert [_uri(operation) for operation in output.operations] == [uri for uri in about if uri != profile.uri]
    assert output.summary is not None


def _uri(operation: pb.MemoryOperation) -> str:
    return operation.edit.uri or operation.write.memory_type


async def test_a_search_is_not_changed_by_asking_for_less():
    job = narrow(1_000, PREFERENCES)
    assert await find_fitting(job, ANY) == ()
    assert (ANY.limit, [one.limit for one in job.finds]) == (4, [4, 2, 1])
