"""What a worker reads for its job: at the job's revision, in its space, and for as long as the lease holds."""

from typing import Any

import grpc

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2
from tests.support.callers import Caller, failure
from tests.support.worker import Worker, write

NOTE = write("preferences", topic="Tea", content="Likes green tea.")


async def test_reads_of_a_job_stay_at_its_base_revision_and_in_its_space(
    callers: Any, channel: grpc.aio.Channel
) -> None:
    caller, stranger = callers(), callers()
    uri = caller.uri("memories/preferences/Tea.md")
    async with Worker(channel) as worker:
        await caller.committed()
        await worker.deliver((await worker.take()).lease, NOTE)
        await caller.committed()
        lease = (await worker.take()).lease
        read = await worker.calls.ReadForJob(
            pb.ReadForJobRequest(
                lease=lease,
                read=memory_service_pb2.ReadDocumentRequest(uri="viking://user/memories/preferences/Tea.md"),
            )
        )
        assert read.document.text == "Likes green tea." and read.memory.uri == uri and read.memory.version == 1
        listed = await worker.calls.ListForJob(
            pb.ListForJobRequest(
                lease=lease, list=memory_service_pb2.ListDirectoryRequest(uri="viking://user/memories", depth=3)
            )
        )
        assert uri in [entry.uri for entry in listed.listing.entries]
        found = await worker.calls.FindForJob(
            pb.FindForJobRequest(lease=lease, find=memory_service_pb2.FindMemoriesRequest(query="green tea"))
        )
        assert found.found.results[0].memory.uri == uri and found.found.revision == 1
        foreign = memory_service_pb2.ReadDocumentRequest(uri=stranger.uri("memories/profile.md"))
        failed = await failure(worker.calls.ReadForJob(pb.ReadForJobRequest(lease=lease, read=foreign)))
        assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
        assert (await failure(worker.calls.EmbedForJob(pb.EmbedForJobRequest(lease=lease, texts=["a"])))).seen == (
            "UNAVAILABLE", "DEPENDENCY_UNAVAILABLE",
        )  # fmt: skip
        await worker.deliver(lease)
        for call in (
            worker.calls.GetJobInput(pb.GetJobInputRequest(lease=lease)),
            worker.calls.ReadForJob(
                pb.ReadForJobRequest(lease=lease, read=memory_service_pb2.ReadDocumentRequest(uri=uri))
            ),
            worker.calls.ListForJob(pb.ListForJobRequest(lease=lease, list=memory_service_pb2.ListDirectoryRequest())),
            worker.calls.FindForJob(
                pb.FindForJobRequest(lease=lease, find=memory_service_pb2.FindMemoriesRequest(query="tea"))
            ),
            worker.calls.EmbedForJob(pb.EmbedForJobRequest(lease=lease, texts=["tea"])),
        ):
            assert (await failure(call)).seen == ("ABORTED", "LEASE_LOST")


async def test_a_list_comes_with_the_memories_that_are_few(callers: Any, channel: grpc.aio.Channel) -> None:
    caller = callers()
    first = [write("preferences", ranges=((1, 1),), topic=f"Tea {n}", content=f"Likes tea {n}.") for n in range(3)]
    first.append(write("entities", ranges=((1, 1),), entity_name="Anna", content="Drinks tea."))
    async with Worker(channel) as worker:

        async def given(lease: pb.Lease, **limits: int) -> list[str]:
            wanted = memory_service_pb2.ListDirectoryRequest(
                uri="viking://user/memories", depth=2, node_limit=limits.pop("node_limit", 0)
            )
            listed = await worker.calls.ListForJob(pb.ListForJobRequest(lease=lease, list=wanted, **limits))
            order = [entry.uri for entry in listed.listing.entries]
            assert [one.uri for one in listed.memories] == sorted((one.uri for one in listed.memories), key=order.index)
            for one in listed.memories:
                told = one.fields["content"].string_value
                assert told.startswith(("Likes tea", "Drinks tea"))
            return [one.uri.rpartition("/")[2] for one in listed.memories]

        await caller.committed()
        await worker.deliver((await worker.take()).lease, *first)
        await caller.committed()
        late = (await worker.take()).lease
        everything = ["Anna.md", "Tea 0.md", "Tea 1.md", "Tea 2.md"]
        assert await given(late) == []
        assert await given(late, memory_limit=4) == everything
        assert await given(late, memory_limit=3, type_limit=2) == ["Anna.md"]
        assert await given(late, memory_limit=3, type_limit=3) == everything
        assert await given(late, memory_limit=5, type_limit=5, node_limit=4) == [], "of a list that was cut"
        # As they were at the job's revision, whatever has become of them since.
        gone = memory_service_pb2.DeleteMemory(uri=caller.uri("memories/entities/Anna.md"))
        change = memory_service_pb2.MemoryMutation(delete=gone, base_version=1)
        await caller.memories.WriteMemories(memory_service_pb2.WriteMemoriesRequest(changes=[change]))
        assert await given(late, memory_limit=5) == everything


async def test_a_list_comes_with_no_more_than_the_server_sends(own_server: Any) -> None:
    server = own_server({"RUNEKEEP_MAX_MESSAGE_BYTES": "65536"})
    long = [write("preferences", ranges=((1, 1),), topic=f"Tea {n}", content="Likes tea. " * 900) for n in range(3)]
    short = write("entities", ranges=((1, 1),), entity_name="Anna", content="Drinks tea.")
    async with grpc.aio.insecure_channel(server.address) as channel, Worker(channel) as worker:
        caller = Caller(channel, "anna", "home")
        for some in ([short], *([one] for one in long)):
            await caller.committed()
            await worker.deliver((await worker.take()).lease, *some)
        await caller.committed()
        lease = (await worker.take()).lease
        wanted = memory_service_pb2.ListDirectoryRequest(uri="viking://user/memories", depth=2)
        listed = await worker.calls.ListForJob(pb.ListForJobRequest(lease=lease, list=wanted, memory_limit=100))
        assert {one.memory_type for one in listed.memories} == {"entities"}
        assert len([one for one in listed.listing.entries if one.memory_type == "preferences"]) == 3
        await caller.cancel_open()
