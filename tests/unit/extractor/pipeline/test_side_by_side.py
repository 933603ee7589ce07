"""Calls that are made at the same time: none goes on after the one who waits for them has heard of a failure."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runekeep.v1 import extractor_service_pb2
from runekeep_extractor.engine.concurrency import side_by_side
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.offline import OfflineEngine
from runekeep_extractor.pipeline.existing_memories import ListedMemories, list_spaces
from runekeep_extractor.pipeline.prefetch import prefetch
from runekeep_extractor.pipeline.similar_memories import find_near
from runekeep_extractor.pipeline.targets import Targets
from tests.doubles.fixed_job import SPACE, FixedJob, memory, message
from tests.support.worker import write

TALK = [
    message(1, "Actually, I drink tea in the garden, every morning."),
    message(2, "Actually, on Sundays I mend the old violin."),
    message(3, "Actually, I drink tea again in the evening."),
]


async def test_results_come_in_the_order_of_the_calls():
    last = asyncio.Event()

    async def first() -> int:
        await last.wait()
        return 1

    async def second() -> int:
        last.set()
        return 2

    assert await side_by_side([first(), second()]) == [1, 2]
    assert await side_by_side([]) == []


async def test_where_one_fails_the_others_have_ended():
    ended = []

    async def waits(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("no")

    with pytest.raises(LookupError):
        await side_by_side([waits("a"), fails(), waits("b")])
    assert ended == ["a", "b"]


@pytest.mark.parametrize("beside", [0, 1])
async def test_they_end_with_the_one_who_waits(beside):
    ended = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await side_by_side([waits() for _ in range(1 + beside)])
    assert len(ended) == 1 + beside


class Stuck(FixedJob):
    """The first call of one method fails once another one waits; that one waits for ever."""

    method = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.begun = 0
        self.waiting: set[int] = set()
        self._second = asyncio.Event()

    async def list(self, uri: str = "", **options: int) -> extractor_service_pb2.ListForJobResponse:
        await self._stuck("list")
        listing = (await super().list(uri, **options)).listing
        return extractor_service_pb2.ListForJobResponse(listing=listing)

    async def read(self, *args: Any) -> Any:
        await self._stuck("read")
        return await super().read(*args)

    async def find(self, request: Any) -> Any:
        await self._stuck("find")
        return await super().find(request)

    async def _stuck(self, method: str) -> None:
        if method != self.method:
            return
        self.begun += 1
        if self.begun == 1:
            await self._second.wait()
            raise JobFailed(extractor_service_pb2.FAILURE_CLASS_INTERNAL, f"{method} failed")
        mine = self.begun
        self.waiting.add(mine)
        self._second.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting.discard(mine)


async def silent(done: int, steps: int) -> None:
    pass


async def prefetched(job: FixedJob) -> None:
    await prefetch(job, TALK, 80_000, silent)


async def compared(job: FixedJob) -> None:
    made = [
        write("preferences", topic="Tea", content="Green."),
        write("preferences", topic="Violin", content="Old."),
    ]
    await find_near(job, Targets(job), made, {}, ListedMemories())


async def listed(job: FixedJob) -> None:
    await list_spaces(job, [f"{SPACE}/memories", f"{SPACE}/peers/anna/memories"], 80, 12)


async def offline(job: FixedJob) -> None:
    await OfflineEngine().extract(job)


@pytest.mark.parametrize(
    ("method", "work"),
    [
        ("list", listed),
        ("read", prefetched),
        ("find", prefetched),
        ("find", compared),
        ("find", offline),
    ],
)
async def test_no_read_goes_on_when_another_has_failed(method: str, work: Callable[[FixedJob], Awaitable[None]]):
    profile = memory("profile.md", "profile", {"content": "Lives in Porto."})
    of_anna = memory("profile.md", "profile", {"content": "Lives in Faro."})
    of_anna.uri = f"{SPACE}/peers/anna/memories/profile.md"
    job = Stuck(TALK, [profile, of_anna], peers=["anna"])
    job.method = method
    with pytest.raises(JobFailed):
        await work(job)
    assert job.begun > 1 and not job.waiting


async def test_no_search_of_one_type_goes_on_when_another_has_failed():
    """Those that follow a search that was full."""

    class Crowded(Stuck):
        async def find(self, request: Any) -> Any:
            self.method = "find" if len(request.memory_types) == 1 else ""
            return await super().find(request)

    events = [memory(f"events/{n}.md", "events", {"event_name": f"{n}", "content": "I drink tea."}) for n in range(90)]
    job = Crowded(TALK[:1], events, long_term=("profile", "events", "preferences"), execution=())
    with pytest.raises(JobFailed):
        await prefetched(job)
    assert job.begun > 1 and not job.waiting
