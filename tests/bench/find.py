"""What one search takes: a space of a million characters, and 100,000 points of other users beside it.

    python -m tests.bench.find [--characters 1000000] [--points 100000] [--calls 300] [--json]

One real server with the built-in embedder on SQLite and Qdrant Edge, one caller, one call at a time. The space is
filled through the API; the points of the others are put into the index as they are, with vectors drawn by lot, for
nobody searches them. Beside the search stands its floor, measured in the same run: an embedding of the same query with
the index asked for the words beside it, and then for what is near, which is how a search has them. What is left is the
share of everything else, the call over the network included. Embedding and index are measured one by one as well.
Then commits of 20 messages are timed until all of them can be found, with the time that their embedding takes alone.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from runekeep.v1 import memory_service_pb2, memory_service_pb2_grpc, session_service_pb2, session_service_pb2_grpc
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.embedders import Embedder, open_embedder
from runekeep_storage.index import sparse
from runekeep_storage.index.base import IndexPoint, IndexQuery, PointKind, VectorDatatype, VectorSpace
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.search.ranking import Ranking
from tests.bench.conversations import long
from tests.bench.figures import p95
from tests.support.server_process import ServerProcess

ACCOUNT, USER = "bench", "searcher"
METADATA = (("x-runekeep-account", ACCOUNT), ("x-runekeep-user", USER))
DEADLINE = 60.0
MESSAGES_A_SESSION = 50
OTHERS = 200
"""Users that the other points belong to."""
POINTS_A_CALL = 1000
LIMIT = 10
WARM = 10
"""Searches ahead of those that are measured."""
COMMITTED = 20
"""Messages of each commit whose way into the index is timed."""
ROUNDS = 20

QUESTIONS = (
    "When does the dew-point sensor drift?",
    "What did Marta say about changing two settings in one night?",
    "Which firmware of the guide camera is the one that works?",
    "How long does the focus motor need to warm up?",
    "Who types up the notes of that night?",
    "When do the visitors come, and what must be kept free?",
    "Why did the tape robot stop in the archive cluster?",
    "What helped the spectrograph in the cryostat lab?",
    "Where did Priya find checksum errors?",
    "What does Lucien want to be told at once?",
)


async def fill(address: str, characters: int, progress: Progress) -> int:
    """Sessions of the one user, until so many characters are said and can be found; how many messages that took."""
    bar = progress.add_task("a space", total=characters)
    said = count = 0
    async with grpc.aio.insecure_channel(address) as channel:
        sessions: Any = session_service_pb2_grpc.SessionServiceStub(channel)
        memories: Any = memory_service_pb2_grpc.MemoryServiceStub(channel)
        talk = iter(long(max(characters // 100, MESSAGES_A_SESSION)))
        for number in itertools.count(1):
            some = list(itertools.islice(talk, MESSAGES_A_SESSION))
            if said >= characters or not some:
                break
            name = f"session-{number:05d}"
            made = session_service_pb2.CreateSessionRequest(session_id=name)
            await sessions.CreateSession(made, metadata=METADATA, timeout=DEADLINE)
            added = session_service_pb2.AddMessagesRequest(session=name, messages=some)
            await sessions.AddMessages(added, metadata=METADATA, timeout=DEADLINE)
            commit = session_service_pb2.CommitSessionRequest(session=name)
            await sessions.CommitSession(commit, metadata=METADATA, timeout=DEADLINE)
            said += sum(len(part.text.text) for message in some for part in message.parts)
            count += len(some)
        waiting = progress.add_task("its vectors", total=count)
        while True:
            request = memory_service_pb2.FindMemoriesRequest(query="anything", limit=1)
            found = await memories.FindMemories(request, metadata=METADATA, timeout=DEADLINE)
            progress.update(bar, completed=said)
            progress.update(waiting, completed=count - found.pending_passages)
            if not found.pending_passages:
                return count
            await asyncio.sleep(0.5)


def asked() -> Iterator[str]:
    """Questions that all differ."""
    for number in itertools.count():
        yield f"{QUESTIONS[number % len(QUESTIONS)]} ({number})"


def points_of_others(count: int, dimension: int) -> list[IndexPoint]:
    """Points as large as real ones, drawn by lot, always the same."""
    lot = np.random.default_rng(7)
    vectors = lot.standard_normal((count, dimension), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    made = []
    for number in range(count):
        terms = tuple(sorted(lot.choice(50_000, 15, replace=False).tolist()))
        user, session = f"user-{number % OTHERS:03d}", f"session-{number // OTHERS:05d}"
        made.append(
            IndexPoint(
                id=str(uuid.UUID(int=number)),
                account=ACCOUNT,
                user=user,
                kind=PointKind.PASSAGE,
                uri=f"viking://user/{user}/sessions/{session}/history/archive_001/messages.jsonl",
                version=1,
                order=number,
                sparse=sparse.SparseVector(terms, (1.5,) * len(terms)),
                dense=vectors[number].tobytes(),
                session=session,
                sequence=number,
                sources=(session,),
                time=1_770_000_000 + number,
            )
        )
    return made


async def crowd(
    directory: Path,
    space: VectorSpace,
    count: int,
    progress: Progress,
    datatype: VectorDatatype = VectorDatatype.FLOAT32,
) -> None:
    """Puts points of others into the index of a server that does not run."""
    index = EdgeIndex(directory, datatype=datatype)
    try:
        await index.open(space)
        made = points_of_others(count, space.dimension)
        for start in progress.track(range(0, count, POINTS_A_CALL), description="points of others"):
            await index.upsert(made[start : start + POINTS_A_CALL])
        await index.flush()
    finally:
        await index.close()


async def timed(ask: Callable[[str], Awaitable[Any]], questions: Sequence[str]) -> list[float]:
    """Milliseconds of each, one after the other."""
    taken = []
    for question in questions:
        started = time.perf_counter()
        await ask(question)
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def search(channel: grpc.aio.Channel) -> Callable[[str], Awaitable[None]]:
    """Asks a question. None is to be asked twice: the server knows what it has embedded lately."""
    memories: Any = memory_service_pb2_grpc.MemoryServiceStub(channel)

    async def ask(question: str) -> None:
        request = memory_service_pb2.FindMemoriesRequest(query=question, limit=LIMIT)
        found = await memories.FindMemories(request, metadata=METADATA, timeout=DEADLINE)
        assert len(found.results) == LIMIT and not found.degraded, found

    return ask


async def findable(address: str, rounds: int) -> list[float]:
    """Milliseconds from the answer of a commit of COMMITTED messages until all of them can be found, while nothing else
    waits for the embedder."""
    taken = []
    async with grpc.aio.insecure_channel(address) as channel:
        sessions: Any = session_service_pb2_grpc.SessionServiceStub(channel)
        memories: Any = memory_service_pb2_grpc.MemoryServiceStub(channel)
        talk = long(COMMITTED * rounds)
        for number in range(rounds):
            name = f"fresh-{number:03d}"
            made = session_service_pb2.CreateSessionRequest(session_id=name)
            await sessions.CreateSession(made, metadata=METADATA, timeout=DEADLINE)
            # Others every time: the embedder knows what it has computed lately.
            some = talk[number * COMMITTED : (number + 1) * COMMITTED]
            added = session_service_pb2.AddMessagesRequest(session=name, messages=some)
            await sessions.AddMessages(added, metadata=METADATA, timeout=DEADLINE)
            commit = session_service_pb2.CommitSessionRequest(session=name)
            await sessions.CommitSession(commit, metadata=METADATA, timeout=DEADLINE)
            started = time.perf_counter()
            request = memory_service_pb2.FindMemoriesRequest(query="anything", limit=1)
            while (await memories.FindMemories(request, metadata=METADATA, timeout=DEADLINE)).pending_passages:
                pass
            taken.append((time.perf_counter() - started) * 1000)
    return taken


class Floors:
    """What a search cannot do without, on an index that is open."""

    def __init__(self, index: EdgeIndex, embedder: Embedder) -> None:
        self._index = index
        self._embedder = embedder

    async def take(self, questions: Sequence[str]) -> dict[str, list[float]]:
        """Milliseconds by name: all of them for one question before the next one, so that none finds the processor's
        caches full of itself."""
        taken: dict[str, list[float]] = {"embedding": [], "index": [], "floor": []}
        # Embedded anew each time: what is of no user is not kept.
        for question in questions:
            stamps = [time.perf_counter()]
            vector = await self._embed(question)
            stamps.append(time.perf_counter())
            await self._ask(vector, sparse.encode_query(question))
            stamps.append(time.perf_counter())
            await self._both(question)
            stamps.append(time.perf_counter())
            for milliseconds, (started, ended) in zip(taken.values(), itertools.pairwise(stamps), strict=True):
                milliseconds.append((ended - started) * 1000)
        return taken

    async def _both(self, question: str) -> None:
        vector, _ = await asyncio.gather(self._embed(question), self._ask(None, sparse.encode_query(question)))
        await self._ask(vector, None)

    async def _embed(self, question: str) -> bytes:
        return (await self._embedder.embed([question]))[0]

    async def _ask(self, dense: bytes | None, words: sparse.SparseVector | None) -> None:
        query = IndexQuery(account=ACCOUNT, user=USER, dense=dense, sparse=words, limit_per_leg=Ranking().candidates)
        found = await self._index.query(query)
        assert bool(found.dense) == (dense is not None)


@contextlib.asynccontextmanager
async def floors(directory: Path, embedder: Embedder, space: VectorSpace) -> AsyncIterator[Floors]:
    """Of an index that no server has open."""
    index = EdgeIndex(directory)
    try:
        await embedder.warm()
        await index.open(space)
        yield Floors(index, embedder)
    finally:
        await index.close()


async def run(characters: int, points: int, calls: int, progress: Progress) -> dict[str, Any]:
    some = asked()
    warm, questions = list(itertools.islice(some, WARM)), list(itertools.islice(some, calls))
    embedder = open_embedder("minilm")
    assert embedder is not None
    space = VectorSpace(embedder.model, embedder.dimension)
    with tempfile.TemporaryDirectory() as temporary:
        data_dir = Path(temporary) / "data"
        settings = {"RUNEKEEP_EMBEDDER": "minilm", "RUNEKEEP_MAX_OPEN_COMMITS_PER_USER": "10000"}
        server = ServerProcess(data_dir, settings, quick=False)
        server.start()
        messages = await fill(server.address, characters, progress)
        await asyncio.to_thread(server.stop)
        directory = DataDirectory(data_dir).index
        await crowd(directory, space, points, progress)
        await asyncio.to_thread(server.start)
        async with grpc.aio.insecure_channel(server.address) as channel:
            await timed(search(channel), warm)
            found = await timed(search(channel), questions)
        fresh = await findable(server.address, ROUNDS)
        await asyncio.to_thread(server.stop)
        async with floors(directory, embedder, space) as beside:
            await beside.take(warm)
            beneath = await beside.take(questions)
        said = [message.parts[0].text.text for message in long(COMMITTED)]
        started = time.perf_counter()
        await embedder.embed(said, bulk=True)
        embedding_of_a_commit = (time.perf_counter() - started) * 1000
        await embedder.close()
    figures = {
        f"{name}_{percentile}_ms": round(value, 2)
        for name, taken in {"find": found, **beneath, "findable": fresh}.items()
        for percentile, value in (("p50", statistics.median(taken)), ("p95", p95(taken)))
    }
    rest = figures["find_p50_ms"] - figures["floor_p50_ms"]
    return {
        "bench": "find",
        "characters": characters,
        "messages": messages,
        "points_of_others": points,
        "calls": calls,
        **figures,
        "rest_p50_ms": round(rest, 2),
        "embedding_of_a_commit_ms": round(embedding_of_a_commit, 1),
    }


def table(made: dict[str, Any]) -> Table:
    drawn = Table(title=f"find, {made['messages']} messages, {made['points_of_others']} points of others (ms)")
    for column in ("", "p50", "p95", "share of p50"):
        drawn.add_column(column, justify="right" if column else "left")
    for name in ("find", "embedding", "index", "floor"):
        share = made[f"{name}_p50_ms"] / made["find_p50_ms"]
        drawn.add_row(name, f"{made[f'{name}_p50_ms']:.2f}", f"{made[f'{name}_p95_ms']:.2f}", f"{share:.2f}")
    drawn.add_row("all else", f"{made['rest_p50_ms']:.2f}", "", f"{made['rest_p50_ms'] / made['find_p50_ms']:.2f}")
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--characters", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    given = parser.parse_args()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        made = asyncio.run(run(given.characters, given.points, given.calls, progress))
    if not given.json:
        console = Console()
        console.print(table(made))
        console.print(
            f"{COMMITTED} messages committed: found after {made['findable_p50_ms']:.0f} ms (p50), p95"
            f" {made['findable_p95_ms']:.0f}; their embedding alone {made['embedding_of_a_commit_ms']:.0f} ms"
        )
    print(json.dumps(made))


if __name__ == "__main__":
    main()
