"""A server whose index is away, dies, or loses its files: it starts, writes, reads, and finds everything again."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from tests.doubles.qdrant import QdrantDouble
from tests.support.callers import Caller, Failure, said, used_tool
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.waiting import until
from tests.support.worker import Worker, write

Servers = Callable[..., ServerProcess]
UNAVAILABLE = ("UNAVAILABLE", "DEPENDENCY_UNAVAILABLE")


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    name = postgres_server.create()
    yield postgres_server.url(name)
    postgres_server.drop(name)


@asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


def is_gone(directory: Path) -> bool:
    """Removes the index. The server may write its mark there at the same moment, so that a file is left."""
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


async def started(make: Servers, *arguments: object) -> ServerProcess:
    """In a thread: the double answers on this event loop while the server starts."""
    return await asyncio.to_thread(make, *arguments)


def at(double: QdrantDouble) -> dict[str, str]:
    return {"RUNEKEEP_INDEX_URL": f"grpc://127.0.0.1:{double.port}"}


async def remembered(channel: grpc.aio.Channel, caller: Caller, tool: str) -> int:
    """Commits talk that names the tool, and a memory of it; the revision."""
    await caller.committed(said(f"the {tool} was used"), used_tool("call-1", "found", name=tool))
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.deliver(lease, write("tools", tool_name=tool))
    assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.memory(caller.uri(f"memories/tools/{tool}.md"))).version == 1
    return int(verdict.revision)


async def finds(caller: Caller, *tools: str, revision: int) -> None:
    """Waits for an answer that holds these tools with what was said of them, and is not degraded."""
    async with asyncio.timeout(60):
        while True:
            try:
                answer = await caller.find(" ".join(tools), limit=100, min_revision=revision)
            except grpc.aio.AioRpcError as error:
                assert Failure(error).seen in (UNAVAILABLE, ("DEADLINE_EXCEEDED", "INDEX_BEHIND"))
                await asyncio.sleep(0.05)
                continue
            # The embedder is none: an answer is degraded by a rebuild alone.
            if not answer.degraded and not answer.pending_passages:
                break
            assert {caller.uri(f"memories/tools/{tool}.md") for tool in tools} <= {
                result.memory.uri for result in answer.results
            }
    assert answer.revision >= revision
    uris = {result.memory.uri for result in answer.results if result.HasField("memory")}
    assert uris == {caller.uri(f"memories/tools/{tool}.md") for tool in tools}
    texts = [result.passage.text for result in answer.results if result.HasField("passage")]
    assert all(any(f"the {tool} was used" in text for text in texts) for tool in tools)


async def refused(caller: Caller) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await caller.find("grep")
    assert Failure(error.value).seen == UNAVAILABLE


async def test_a_server_starts_and_works_without_its_index(own_server: Servers, double: QdrantDouble) -> None:
    server = await started(own_server, at(double))
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        revision = await remembered(channel, caller, "grep")
        await refused(caller)

        await double.start()
        await finds(caller, "grep", revision=revision)

        await double.stop()
        revision = await remembered(channel, caller, "sed")
        await refused(caller)
        await double.start()
        await finds(caller, "grep", "sed", revision=revision)

        double.drop()
        revision = await remembered(channel, caller, "awk")
        await finds(caller, "grep", "sed", "awk", revision=revision)
    await asyncio.to_thread(server.stop)


async def test_two_servers_share_an_index_and_its_watermarks(
    own_server: Servers, double: QdrantDouble, url: str
) -> None:
    """Polling is set to longer than the call may take: a server is told of the watermark that the other one moved."""
    await double.start()
    settings = {**at(double), "RUNEKEEP_STORE_URL": url, "RUNEKEEP_POLL_SECONDS": "3600"}
    servers = [await started(own_server, settings, name) for name in ("first", "second")]
    async with connected(servers[0]) as first, connected(servers[1]) as second:
        here, there = Caller(first, "anna"), Caller(second, "anna")
        for tool in ("grep", "sed", "awk"):
            revision = await remembered(first, here, tool)
            for caller in (there, here):
                answer = await caller.find(tool, min_revision=revision)
                assert answer.revision >= revision
                assert here.uri(f"memories/tools/{tool}.md") in {one.memory.uri for one in answer.results}
    for server in servers:
        await asyncio.to_thread(server.stop)


def index_process(server: ServerProcess) -> int:
    (pid,) = (
        pid
        for pid in server.children()
        if b"runekeep_storage.index.edge_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return pid


async def test_an_index_process_that_is_killed_and_files_that_are_lost(own_server: Servers) -> None:
    server = own_server()
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        revision = await remembered(channel, caller, "grep")
        await finds(caller, "grep", revision=revision)

        os.kill(index_process(server), signal.SIGKILL)
        revision = await remembered(channel, caller, "sed")
        await finds(caller, "grep", "sed", revision=revision)

        await asyncio.to_thread(until, lambda: is_gone(server.data_dir / "index"))
        revision = await remembered(channel, caller, "awk")
        await finds(caller, "grep", "sed", "awk", revision=revision)

        await asyncio.to_thread(until, lambda: is_gone(server.data_dir / "index"))
        os.kill(index_process(server), signal.SIGKILL)
        await finds(caller, "grep", "sed", "awk", revision=revision)
    server.stop()

    # And while nobody looked.
    shutil.rmtree(server.data_dir / "index")
    server.start()
    async with connected(server) as channel:
        await finds(Caller(channel, "anna"), "grep", "sed", "awk", revision=revision)
    server.stop()
