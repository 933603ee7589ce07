"""Qdrant Edge in its child process: killed, stuck, cancelled, handed over."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
import uvloop

from runekeep_storage.index.base import IndexPoint, IndexUnavailable
from runekeep_storage.index.edge import EdgeIndex
from tests.support.storage.index_points import SPACE, opened, point

ROOT = Path(__file__).resolve().parents[3]
Result = TypeVar("Result")


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[EdgeIndex]:
    async with opened(EdgeIndex(tmp_path / "index")) as index:
        yield index


def signal_child(index: EdgeIndex, number: signal.Signals) -> int:
    pid = index.child_pid
    assert pid is not None
    os.kill(pid, number)
    return pid


async def until_available(call: Callable[[], Awaitable[Result]]) -> Result:
    """A call that was under way when the child died may fail; the next ones go to its successor."""
    while True:
        try:
            return await call()
        except IndexUnavailable:
            await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """For what happens in other processes, which tell this one nothing."""
    while not condition():  # noqa: ASYNC110 (nothing tells of it)
        await asyncio.sleep(0.01)


def has_ended(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return "Z (zombie)" in status


def has_open(pid: int, path: Path) -> bool:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        # A descriptor may be closed between being listed and being looked at.
        with suppress(FileNotFoundError):
            if descriptor.readlink() == path:
                return True
    return False


async def test_acknowledged_points_survive_a_killed_child(edge: EdgeIndex) -> None:
    stored = [point("tea") for _ in range(50)]
    await edge.upsert(stored[:49])
    await edge.upsert(stored[49:])

    killed = signal_child(edge, signal.SIGKILL)

    found = await until_available(lambda: edge.list_ids("acme", "ann"))
    assert found == sorted(one.id for one in stored)
    assert edge.child_pid != killed


async def test_calls_under_way_fail_when_the_child_is_killed(edge: EdgeIndex) -> None:
    signal_child(edge, signal.SIGSTOP)
    calls = [asyncio.create_task(edge.upsert([point("tea")])) for _ in range(10)]
    await asyncio.sleep(0)
    signal_child(edge, signal.SIGKILL)

    for call in calls:
        with pytest.raises(IndexUnavailable, match="ended during a call"):
            await call
    await edge.upsert([point("tea")])
    assert await edge.healthy()


async def test_a_child_killed_between_writes_loses_nothing_acknowledged(edge: EdgeIndex) -> None:
    async def write(stored: IndexPoint) -> str | None:
        try:
            await edge.upsert([stored])
        except IndexUnavailable:
            return None
        return stored.id

    acknowledged: list[str] = []
    for _ in range(3):
        writes = [asyncio.create_task(write(point("tea"))) for _ in range(100)]
        await asyncio.wait(writes, return_when=asyncio.FIRST_COMPLETED)
        signal_child(edge, signal.SIGKILL)
        acknowledged += filter(None, await asyncio.gather(*writes))
        assert await until_available(edge.count_all) >= len(acknowledged)

    assert len(acknowledged) >= 3
    assert set(await edge.list_ids("acme", "ann")).issuperset(acknowledged)


async def test_a_stuck_child_is_replaced(tmp_path: Path) -> None:
    async with opened(EdgeIndex(tmp_path / "index", timeout=0.5)) as index:
        tea = point("tea")
        # On a busy machine that may take longer, and is done once more.
        await until_available(lambda: index.upsert([tea]))
        stuck = signal_child(index, signal.SIGSTOP)

        with pytest.raises(IndexUnavailable, match=r"did not answer count_all within 0\.5 s"):
            await index.count_all()

        assert await until_available(index.count_all) == 1
        assert index.child_pid != stuck


async def test_a_stuck_child_is_replaced_also_where_no_caller_waits_so_long(tmp_path: Path) -> None:
    async with opened(EdgeIndex(tmp_path / "index", timeout=1.0)) as index:
        await until_available(lambda: index.upsert([point("tea")]))
        # It calls only once a minute, with a long timeout, and would notice it then.
        await index._upkeep.stop()
        stuck = signal_child(index, signal.SIGSTOP)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await index.count_all()

        async with asyncio.timeout(60):
            await until(lambda: has_ended(stuck))
        assert await until_available(index.count_all) == 1


async def test_signals_for_the_whole_group_do_not_take_the_index_away(edge: EdgeIndex) -> None:
    pid = signal_child(edge, signal.SIGINT)
    signal_child(edge, signal.SIGTERM)

    assert await edge.count_all() == 0
    assert edge.child_pid == pid


async def test_a_cancelled_caller_disturbs_nobody(edge: EdgeIndex) -> None:
    calls = [asyncio.create_task(edge.count_all()) for _ in range(20)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()

    results = await asyncio.gather(*calls, return_exceptions=True)

    assert results[1::2] == [0] * 10
    assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])


async def test_a_successor_waits_for_its_predecessor(tmp_path: Path) -> None:
    async with opened(EdgeIndex(tmp_path / "index")) as old:
        await old.upsert([point("tea")])
        new = EdgeIndex(tmp_path / "index")
        opening = asyncio.create_task(new.open(SPACE))
        await until(lambda: new.child_pid is not None and has_open(new.child_pid, tmp_path / "index" / "lock"))
        assert await old.count_all() == 1
        assert not opening.done()
    try:
        await opening
        assert await new.count_all() == 1
    finally:
        await new.close()


SERVER_THAT_IS_KILLED = """
import asyncio, sys
from pathlib import Path
from runekeep_storage.index.edge import EdgeIndex
from tests.contract.index.test_index import SPACE, point

async def main():
    index = EdgeIndex(Path(sys.argv[1]))
    await index.open(SPACE)
    await index.upsert([point("tea")])
    print(index.child_pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_server_leaves_no_child_and_no_lock(tmp_path: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER_THAT_IS_KILLED, str(tmp_path / "index")),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    orphan = int(await server.stdout.readline())
    server.kill()
    await server.wait()

    async with opened(EdgeIndex(tmp_path / "index")) as index:
        assert await index.count_all() == 1
        # The lock is held until the very end of a process, so whoever gave it up is ending or gone.
        await until(lambda: has_ended(orphan))


async def test_a_child_that_finds_its_files_gone_is_not_written_to(edge: EdgeIndex) -> None:
    """Whoever writes must first know that it is an empty index."""
    id = await edge.open(SPACE)
    await edge.upsert([point("tea")])
    pid = edge.child_pid
    assert pid is not None
    shutil.rmtree(edge._directory)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: edge.child_pid is None)

    for _ in range(3):
        with pytest.raises(IndexUnavailable):
            await edge.upsert([point("tea")])
    assert await edge.open(SPACE) != id
    assert await edge.count_all() == 0
    await edge.upsert([point("tea")])
    assert await edge.count_all() == 1


async def test_a_closed_index_stays_closed(edge: EdgeIndex) -> None:
    await edge.close()

    with pytest.raises(IndexUnavailable, match="closed"):
        await edge.count_all()


async def test_an_unfinished_shard_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "index" / "shard" / "segments").mkdir(parents=True)

    async with opened(EdgeIndex(tmp_path / "index")) as index:
        assert await index.count_all() == 0


def test_works_under_uvloop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(EdgeIndex(tmp_path / "index")) as index:
            await index.upsert([point("tea")])
            signal_child(index, signal.SIGKILL)
            assert await until_available(index.count_all) == 1

    uvloop.run(scenario())
