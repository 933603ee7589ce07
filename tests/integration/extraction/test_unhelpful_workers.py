"""Workers that take jobs and do nothing, beside others that work: all jobs are done, and one that kills workers
fails."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest

from runekeep.cli.doctor.server_checks import check_server
from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import TASK_ENDED, Caller, unique
from tests.support.keys import ADMIN_KEY, KEYED, Operator, bearer, in_store, sending
from tests.support.scrapes import metrics_address, scraped
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

pytestmark = pytest.mark.postgres_long

NOTE = write("preferences", topic="Tea", content="Likes green tea.")
MAX_JOBS = 10
PAUSED = "server.paused_workers"
SHORT = {
    **KEYED,
    "RUNEKEEP_LEASE_SECONDS": "6",
    "RUNEKEEP_HEARTBEAT_SECONDS": "1",
    # Long enough that an honest worker on a busy machine does not lose one.
    "RUNEKEEP_FIRST_LEASE_SECONDS": "2",
    "RUNEKEEP_BACKOFF_FIRST_SECONDS": "0.5",
    "RUNEKEEP_BACKOFF_MAX_SECONDS": "1",
    "RUNEKEEP_POLL_SECONDS": "0.1",
    "RUNEKEEP_WORKER_MAX_JOBS": str(MAX_JOBS),
    "RUNEKEEP_METRICS_ADDRESS": "127.0.0.1:0",
}


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return {**SHORT, **either_store}


class Scene:
    """Callers, and channels of workers with their own keys."""

    def __init__(self, server: ServerProcess, settings: dict[str, str], operator: Operator) -> None:
        self.server = server
        self.settings = settings
        self._operator = operator
        self._open = AsyncExitStack()
        self._callers: list[Caller] = []

    async def worker(self, *accounts: str) -> grpc.aio.Channel:
        key = (await self._operator.make(admin_service_pb2.SCOPE_WORKER, accounts=accounts)).secret
        return await self._open.enter_async_context(sending(self.server.address, key))

    async def caller(self) -> Caller:
        account, user = unique("account"), unique("user")
        key = (await self._operator.make(admin_service_pb2.SCOPE_USER, account, user)).secret
        caller = Caller(await self._open.enter_async_context(sending(self.server.address, key)), user, account)
        self._callers.append(caller)
        return caller

    async def tasks(self, count: int) -> list[tuple[Caller, str]]:
        """Creates that many commits, none of which waits for another."""
        callers = [await self.caller() for _ in range(count)]
        return [(caller, (await caller.committed()).task_id) for caller in callers]

    async def in_store(self, sql: str) -> list[Any]:
        return await in_store(self.settings, self.server.data_dir, sql)

    async def lost(self) -> dict[str, int]:
        """Returns the workers that have not made up for lost jobs, by name, with the number of jobs."""
        rows = await self.in_store("SELECT worker_id, lost FROM workers WHERE lost <> '' AND worker_id <> ''")
        return {name: len(json.loads(lost)) for name, lost in rows}

    async def losses(self, tasks: list[tuple[Caller, str]], count: int) -> bool:
        """Returns when these tasks have lost that many leases together; False if one ended instead."""

        async def look() -> list[Any]:
            found = [await caller.task(task_id) for caller, task_id in tasks]
            is_over = any(task.state in TASK_ENDED for task in found)
            return found if is_over or sum(task.lost_leases for task in found) >= count else []

        return not any(task.state in TASK_ENDED for task in await until(look))

    async def no_more_lost(self) -> bool:
        return not await self.lost()

    async def close(self) -> None:
        """Ends what the test left in the queue: the next test's workers must not get it."""
        for caller in self._callers:
            await caller.cancel_open()
        await self._open.aclose()


@pytest.fixture
async def scene(
    server: ServerProcess, server_settings: dict[str, str], channel: grpc.aio.Channel
) -> AsyncIterator[Scene]:
    scene = Scene(server, server_settings, Operator(channel))
    await scene.in_store("DELETE FROM workers")
    yield scene
    await scene.close()


Found = TypeVar("Found")


async def until(found: Callable[[], Awaitable[Found]]) -> Found:
    """Polls, for conditions that send no notice."""
    async with asyncio.timeout(60):
        while True:
            if value := await found():
                return value
            await asyncio.sleep(0.02)


async def work(worker: Worker, credits: int = 4) -> None:
    """Does what an extractor does, until it is cancelled."""
    await worker.ready(credits)
    while True:
        with suppress(TimeoutError):
            job = await worker.assignment()
            await worker.heartbeat(job.lease)
            await worker.deliver(job.lease, NOTE)
            await worker.ready()


@asynccontextmanager
async def meanwhile(doing: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(doing)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def ended(tasks: list[tuple[Caller, str]]) -> list[Any]:
    """Returns the tasks, once all of them have ended."""

    async def one(caller: Caller, task_id: str) -> Any:
        task = await caller.task(task_id)
        return task if task.state in TASK_ENDED else None

    return [await until(partial(one, caller, task_id)) for caller, task_id in tasks]


def states(tasks: list[Any]) -> set[str]:
    return {f"{task_service_pb2.TaskState.Name(task.state)} {task.error.message}".strip() for task in tasks}


@pytest.mark.parametrize("shared", [False, True], ids=["keys of their own", "one key"])
async def test_one_that_never_works_beside_an_honest_one(scene: Scene, shared: bool) -> None:
    honest = await scene.worker()
    idle = honest if shared else await scene.worker()
    async with Worker(idle, "deadbeat") as deadbeat, Worker(honest, "honest") as worker:
        for _ in range(3):
            await deadbeat.ready(1000)
        tasks = await scene.tasks(12)
        async with meanwhile(work(worker)):
            found = await ended(tasks)
        assert deadbeat.seen("assignment"), "it was given nothing to lose"
    assert states(found) == {"TASK_STATE_COMPLETED"}
    assert any(task.lost_leases for task in found)


async def test_another_name_each_time_is_no_way_out(scene: Scene) -> None:
    idle, honest = await scene.worker(), await scene.worker()
    tasks = await scene.tasks(3)

    async def take_and_leave() -> None:
        while True:
            async with Worker(idle, unique("name")) as deadbeat:
                await deadbeat.ready(1000)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await deadbeat.assignment()

    async with meanwhile(take_and_leave()):
        # Alone with the queue, until a job was lost at least as often as one that is to blame.
        assert await scene.losses(tasks, 8)
        async with Worker(honest, "honest") as worker, meanwhile(work(worker)):
            assert states(await ended(tasks)) == {"TASK_STATE_COMPLETED"}


async def test_one_that_never_works_and_is_alone_fails_no_task(scene: Scene) -> None:
    tasks = await scene.tasks(3)
    async with Worker(await scene.worker(), "deadbeat") as deadbeat:
        await deadbeat.ready(1000)
        assert await scene.losses(tasks, 8)
    async with Worker(await scene.worker(), "honest") as worker, meanwhile(work(worker)):
        assert states(await ended(tasks)) == {"TASK_STATE_COMPLETED"}


async def test_a_job_that_kills_three_workers_is_given_up_and_they_are_not_blamed(scene: Scene) -> None:
    workers = await scene.worker()
    ((caller, killer),) = await scene.tasks(1)
    names = ["one", "two", "three"]
    async with AsyncExitStack() as others:
        # Workers that are connected and ask for nothing.
        for name in (*names, "four"):
            await others.enter_async_context(Worker(workers, name))
        for name in names:
            async with Worker(workers, name) as worker:
                assert (await worker.take()).task_id == killer
        await caller.reaches(killer, task_service_pb2.TASK_STATE_FAILED)
    task = await caller.task(killer)
    assert (task.lost_leases, task.error.message.partition(":")[0]) == (3, "lease_expired")
    assert await scene.lost() == {}
    tasks = await scene.tasks(4)
    async with Worker(workers, "one") as worker:
        # All at once, so the worker is not in doubt.
        await worker.ready(4)
        assert {(await worker.assignment()).task_id for _ in range(4)} == {task_id for _, task_id in tasks}


async def test_a_job_that_one_worker_alone_loses_is_done_by_another(scene: Scene) -> None:
    """The same worker loses it three times, while there is another one, which is busy."""
    workers = await scene.worker()
    ((caller, task_id),) = await scene.tasks(1)
    async with Worker(workers, "busy") as other:
        for _ in range(4):
            async with Worker(workers, "unlucky") as worker:
                assert (await worker.take()).task_id == task_id
        job = await other.take()
        assert (job.task_id, job.attempt) == (task_id, 5)
        await other.deliver(job.lease, NOTE)
    task = await caller.task(task_id)
    assert (task.state, task.lost_leases) == (task_service_pb2.TASK_STATE_COMPLETED, 4)


async def test_a_job_that_kills_the_only_worker_is_given_up_the_third_time(scene: Scene) -> None:
    ((caller, killer),) = await scene.tasks(1)
    workers, elsewhere = await scene.worker(), await scene.worker("another")
    # A worker that may not have the job does not count as another one.
    async with Worker(elsewhere, "elsewhere"):
        for _ in range(3):
            async with Worker(workers, "only") as worker:
                assert (await worker.take()).task_id == killer
        await caller.reaches(killer, task_service_pb2.TASK_STATE_FAILED)
    assert (await caller.task(killer)).lost_leases == 3
    assert await scene.lost() == {}


async def test_a_worker_that_loses_several_jobs_is_paused_and_comes_back(
    own_server: Callable[[dict[str, str]], ServerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    # For the doctor.
    monkeypatch.setenv("RUNEKEEP_API_KEY", ADMIN_KEY)
    # Long enough to be seen.
    pause = {"RUNEKEEP_BACKOFF_FIRST_SECONDS": "5", "RUNEKEEP_BACKOFF_MAX_SECONDS": "5"}
    server = own_server({**SHORT, **pause})
    async with grpc.aio.insecure_channel(server.address) as channel:
        scene = Scene(server, {}, Operator(channel))
        await is_paused_and_comes_back(scene, channel)
        await scene.close()


async def is_paused_and_comes_back(scene: Scene, channel: grpc.aio.Channel) -> None:
    workers = await scene.worker()
    tasks = await scene.tasks(3)
    admin = admin_service_pb2_grpc.AdminServiceStub(channel)

    async def paused() -> Any:
        request = admin_service_pb2.GetServerStatusRequest()
        status = await admin.GetServerStatus(request, metadata=bearer(ADMIN_KEY))
        return next((one for one in status.paused_workers if (one.worker_id, one.lost_jobs) == ("ill", 3)), None)

    async def owes(count: int) -> bool:
        return (await scene.lost()).get("ill") == count

    async with Worker(workers, "ill") as worker:
        await worker.ready(3)
        for _ in tasks:
            await worker.assignment()
        ill = await until(paused)
        assert ill.actor.startswith("key:") and 0 < ill.remaining.ToMilliseconds() <= 5000
        address = metrics_address(Path(f"{scene.server.data_dir}.log"))
        # The worker, and all new ones with its key.
        assert scraped(address)["runekeep_workers_paused", {}] == 2
        (finding,) = [one for one in await check_server(scene.server.address, expected=True) if one["check"] == PAUSED]
        assert finding["state"] == "warning" and f"ill ({ill.actor})" in finding["found"]
        # Its pause ends by itself. Then it gets one job at a time, until it has made up for the jobs that it lost.
        await worker.ready(3)
        for rest in (2, 1):
            job = await worker.assignment()
            await worker.heartbeat(job.lease)
            assert not worker.seen("assignment")
            await worker.deliver(job.lease, NOTE)
            await until(partial(owes, rest))
        await worker.deliver((await worker.assignment()).lease, NOTE)
        assert states(await ended(tasks)) == {"TASK_STATE_COMPLETED"}
        await until(scene.no_more_lost)
        await worker.ready(3)
        await scene.tasks(3)
        for _ in range(3):
            await worker.assignment()
        assert not [one for one in await check_server(scene.server.address, expected=True) if one["check"] == PAUSED]
        assert scraped(address)["runekeep_worker_pauses_total", {}] == 2
    events = [json.loads(line) for line in scene.server.log().splitlines() if '"worker_paused"' in line]
    assert next(event for event in events if event["worker"] == "ill")["actor"] == ill.actor


async def keep_leases(*workers: Worker) -> None:
    """Sends heartbeats for all jobs of the workers until it is cancelled."""
    while True:
        for worker in workers:
            if leases := [job.lease for job in worker.seen("assignment")]:
                await worker.heartbeat(*leases)
        await asyncio.sleep(0.2)


async def test_workers_take_turns_whatever_they_ask_for(scene: Scene) -> None:
    one, two = await scene.worker(), await scene.worker()
    async with Worker(one, "greedy") as greedy, Worker(one, "second") as second, Worker(two, "modest") as modest:
        for _ in range(3):
            await greedy.ready(1000)
        await second.ready(1000)
        await modest.ready(4)
        await modest.heartbeat()

        async def all_taken() -> bool:
            return sum(len(worker.seen("assignment")) for worker in (greedy, second, modest)) == len(tasks)

        async with meanwhile(keep_leases(greedy, second, modest)):
            tasks = await scene.tasks(8)
            await until(all_taken)
        # Half for each key, and half of that for each worker of the shared key.
        assert [len(worker.seen("assignment")) for worker in (greedy, second, modest)] == [2, 2, 4]


async def test_one_principal_holds_so_many_jobs_and_no_more(scene: Scene) -> None:
    """The limit holds over all streams, including closed ones."""
    workers, other = await scene.worker(), await scene.worker()
    tasks = await scene.tasks(MAX_JOBS + 2)
    leases = []
    for name in ("one", "two"):
        async with Worker(workers, name) as worker:
            await worker.ready(MAX_JOBS // 2)
            leases += [(await worker.assignment()).lease for _ in range(MAX_JOBS // 2)]
            await worker.heartbeat(*leases)
    async with Worker(workers, "three", resume=leases) as worker, Worker(other, "other") as last:
        assert {state.status for state in worker.welcome.resumed} == {pb.LEASE_STATUS_HELD}
        await worker.ready(1000)
        # Served after the worker that waits longer.
        await last.ready(1000)
        taken = {(await last.assignment()).task_id for _ in range(2)}
        assert taken <= {task_id for _, task_id in tasks}
        assert not worker.seen("assignment")
        # A job that it gives back makes room.
        await last.break_off()
        await worker.deliver(leases[0], NOTE)
        await worker.assignment()
