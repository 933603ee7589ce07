"""A lease belongs to the worker that got it: another key, or a caller without its secret, gets nothing by its name."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.message import Message

from runekeep.v1 import admin_service_pb2, memory_service_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import Caller, Failure, failure, said, unique
from tests.support.keys import KEYED, WORKER_KEY, Operator, in_store, sending
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

pytestmark = pytest.mark.postgres_long

SECRET = "the word is heliotrope"
OWN = write("preferences", topic="Tea", content="Likes green tea.")
HIJACK = write("preferences", topic="Hijack", content="Was here.")

CALLS: dict[str, Callable[[pb.Lease], Message]] = {
    "GetJobInput": lambda lease: pb.GetJobInputRequest(lease=lease),
    "ReadForJob": lambda lease: pb.ReadForJobRequest(
        lease=lease, read=memory_service_pb2.ReadDocumentRequest(uri="viking://user/memories")
    ),
    "ListForJob": lambda lease: pb.ListForJobRequest(lease=lease, list=memory_service_pb2.ListDirectoryRequest()),
    "FindForJob": lambda lease: pb.FindForJobRequest(
        lease=lease, find=memory_service_pb2.FindMemoriesRequest(query=SECRET)
    ),
    "EmbedForJob": lambda lease: pb.EmbedForJobRequest(lease=lease, texts=[SECRET]),
}


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return {**KEYED, **either_store}


class Scene:
    """Callers, and channels of workers with their own keys."""

    def __init__(self, server: ServerProcess, settings: dict[str, str], operator: Operator) -> None:
        self.server = server
        self.settings = settings
        self.operator = operator
        self._open = AsyncExitStack()
        self._callers: list[Caller] = []

    async def worker(self, **fields: Any) -> grpc.aio.Channel:
        key = (await self.operator.make(admin_service_pb2.SCOPE_WORKER, **fields)).secret
        return await self._open.enter_async_context(sending(self.server.address, key))

    async def caller(self, account: str = "") -> Caller:
        account, user = account or unique("account"), unique("user")
        key = (await self.operator.make(admin_service_pb2.SCOPE_USER, account, user)).secret
        caller = Caller(await self._open.enter_async_context(sending(self.server.address, key)), user, account)
        self._callers.append(caller)
        return caller

    async def in_store(self, sql: str) -> list[Any]:
        return await in_store(self.settings, self.server.data_dir, sql)

    async def job(self, job_id: str) -> Any:
        """Returns everything that the store has of a job and its task, except what changes with time."""
        columns = "state, lease_epoch, lease_expires, attempts, failures, output_id, lease_holder, lease_digest"
        return (
            await self.in_store(f"SELECT {columns} FROM jobs WHERE job_id = '{job_id}'"),
            await self.in_store(f"SELECT state, progress, usage, last_event FROM tasks WHERE task_id = '{job_id}'"),
        )

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
    yield scene
    await scene.close()


async def ending(worker: Worker, method: str, request: Message) -> Failure | None:
    """Returns the status of a call of the worker."""

    async def call() -> None:
        called = getattr(worker.calls, method)(request, timeout=20)
        if method == "GetJobInput":
            async for _ in called:
                pass
        else:
            await called

    try:
        await call()
    except grpc.aio.AioRpcError as error:
        return Failure(error)
    return None


async def tries(worker: Worker, lease: pb.Lease) -> int:
    """Tries everything that a worker may do with a lease. Each call is refused as for a lease that never existed.
    Returns the number of refusals."""
    refusals = 0
    unknown = pb.Lease(job_id=str(uuid4()), fencing_token=lease.fencing_token, secret=lease.secret)
    for method, request in CALLS.items():
        failed, of_unknown = [await ending(worker, method, request(one)) for one in (lease, unknown)]
        assert failed is not None and of_unknown is not None, f"{method} was answered"
        assert failed.seen == of_unknown.seen == ("ABORTED", "LEASE_LOST"), method
        assert failed.message.replace(lease.job_id, "") == of_unknown.message.replace(unknown.job_id, ""), method
        refusals += 2
    for one in (lease, unknown):
        update = await worker.heartbeat(one, sequence=7)
        assert [state.status for state in update.leases] == [pb.LEASE_STATUS_LOST]
        await worker.progress(one, 1, 50, "mine now")
        told = await worker.next("lease_update", lambda update: update.heartbeat_sequence == 0)
        assert [state.status for state in told.leases] == [pb.LEASE_STATUS_LOST]
        assert await worker.chunk(one, uuid4().hex, 0, [pb.OutputItem(operation=HIJACK)]) is None
        # Breaking the contract ends one's own attempt only.
        await worker.send(
            output=pb.OutputChunk(lease=one, output_id="", index=0, items=[pb.OutputItem(operation=HIJACK)])
        )
        verdicts = [
            await worker.verdict(one),
            await worker.complete(one, "empty", 0),
            await worker.complete(one, "chunks", 1),
            await worker.fail(one, pb.FAILURE_CLASS_INPUT_INVALID, retryable=False),
            await worker.release(one),
        ]
        assert {verdict.outcome for verdict in verdicts} == {pb.JOB_OUTCOME_LEASE_LOST}
        assert len({(verdict.status.code, verdict.status.message) for verdict in verdicts}) == 1
        # Heartbeat, progress and chunk, and what the verdicts are about.
        refusals += 3 + len(verdicts)
    return refusals


async def resumed(channel: grpc.aio.Channel, lease: pb.Lease, name: str = "again") -> int:
    """Returns what Welcome says of a lease that a new stream resumes."""
    async with Worker(channel, name, resume=[lease]) as worker:
        (state,) = worker.welcome.resumed
        assert state.lease == lease
        return state.status


async def test_a_worker_with_another_key_gets_nothing_by_a_lease_that_it_knows_whole(scene: Scene) -> None:
    caller, holders, thieves = await scene.caller(), await scene.worker(), await scene.worker()
    committed = await caller.committed(said(SECRET))
    async with Worker(holders, "holder") as holder, Worker(thieves, "thief") as thief:
        lease = (await holder.take()).lease
        assert len(lease.secret) == 16
        await holder.heartbeat(lease)
        before = await scene.job(lease.job_id)
        # Even if the secret leaked, and the thief uses the holder's name.
        await tries(thief, lease)
        assert await resumed(thieves, lease, "holder") == pb.LEASE_STATUS_LOST
        assert await scene.job(lease.job_id) == before
        assert (await holder.input(lease)).messages[0].parts[0].text.text == SECRET
        assert (await holder.deliver(lease, OWN, output_id="o")).outcome == pb.JOB_OUTCOME_APPLIED
        # Only the holder learns what became of it.
        assert (await thief.complete(lease, "o", 1)).outcome == pb.JOB_OUTCOME_LEASE_LOST
        assert await resumed(thieves, lease) == pb.LEASE_STATUS_LOST
        assert (await holder.complete(lease, "o", 1)).outcome == pb.JOB_OUTCOME_ALREADY_APPLIED
        assert await resumed(holders, lease) == pb.LEASE_STATUS_APPLIED
    assert (await caller.task(committed.task_id)).state == task_service_pb2.TASK_STATE_COMPLETED
    names = [entry.name for entry in (await caller.listing("viking://user/memories/preferences")).entries]
    assert names == ["Tea.md"]


@pytest.mark.parametrize("shown", [b"", b"\0" * 16, b"longer than a secret is", "of another job"])
async def test_the_key_alone_is_not_enough(scene: Scene, shown: bytes | str) -> None:
    """Two workers share one key, and one guesses what the other works on."""
    caller, other, workers = await scene.caller(), await scene.caller(), await scene.worker()
    committed = await caller.committed(said(SECRET))
    await other.committed()
    async with Worker(workers, "holder") as holder, Worker(workers, "guesser") as guesser:
        lease = (await holder.take()).lease
        await holder.heartbeat(lease)
        own = (await guesser.take()).lease
        await guesser.heartbeat(own)
        before = await scene.job(lease.job_id)
        guess = pb.Lease(job_id=lease.job_id, fencing_token=lease.fencing_token)
        guess.secret = own.secret if isinstance(shown, str) else shown
        await tries(guesser, guess)
        assert await resumed(workers, guess) == pb.LEASE_STATUS_LOST
        assert await scene.job(lease.job_id) == before
        assert (await holder.deliver(lease, OWN)).outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.task(committed.task_id)).attempt == 1


async def test_who_gave_a_job_back_cannot_guess_who_has_it_next(scene: Scene) -> None:
    caller, earlier, later = await scene.caller(), await scene.worker(), await scene.worker()
    await caller.committed(said(SECRET))
    async with Worker(earlier, "earlier") as first, Worker(later, "later") as second:
        lease = (await first.take()).lease
        assert (await first.release(lease)).outcome == pb.JOB_OUTCOME_REQUEUED
        waiting = await scene.job(lease.job_id)
        for token in range(lease.fencing_token, lease.fencing_token + 4):
            guess = pb.Lease(job_id=lease.job_id, fencing_token=token, secret=lease.secret)
            assert (await first.deliver(guess, HIJACK)).outcome == pb.JOB_OUTCOME_LEASE_LOST
        assert await scene.job(lease.job_id) == waiting
        # Its own new job must not reach it, because it asked for none.
        own = (await second.take()).lease
        await second.heartbeat(own)
        leased = await scene.job(lease.job_id)
        guess = pb.Lease(job_id=lease.job_id, fencing_token=own.fencing_token, secret=lease.secret)
        assert (await first.deliver(guess, HIJACK)).outcome == pb.JOB_OUTCOME_LEASE_LOST
        assert (await ending(first, "GetJobInput", pb.GetJobInputRequest(lease=guess))) is not None
        assert await scene.job(lease.job_id) == leased
        assert (await second.deliver(own, OWN)).revision == 1
    names = [entry.name for entry in (await caller.listing("viking://user/memories/preferences")).entries]
    assert names == ["Tea.md"]


async def test_the_holder_goes_on_over_another_stream_with_its_secret(scene: Scene) -> None:
    caller, workers = await scene.caller(), await scene.worker()
    await caller.committed()
    async with Worker(workers, "one") as worker:
        lease = (await worker.take()).lease
        await worker.heartbeat(lease)
    async with Worker(workers, "one", resume=[lease]) as worker:
        assert [state.status for state in worker.welcome.resumed] == [pb.LEASE_STATUS_HELD]
        assert (await worker.deliver(lease, OWN)).outcome == pb.JOB_OUTCOME_APPLIED


async def test_the_store_has_no_secret(scene: Scene) -> None:
    caller, workers = await scene.caller(), await scene.worker()
    await caller.committed()
    async with Worker(workers) as worker:
        lease = (await worker.take()).lease
        (row,) = await scene.in_store(f"SELECT lease_digest FROM jobs WHERE job_id = '{lease.job_id}'")
        assert len(row[0]) == 64 and lease.secret.hex() not in row[0]
        await worker.deliver(lease)
    log = scene.server.log()
    assert lease.job_id in log and lease.secret.hex() not in log


async def test_a_lease_from_a_server_of_the_release_before_is_bound_to_who_renews_it(scene: Scene) -> None:
    caller, workers, others = await scene.caller(), await scene.worker(), await scene.worker()
    await caller.committed()
    async with Worker(workers) as worker, Worker(others) as other:
        given = (await worker.take()).lease
        # As such a server leaves it: it raises the token, and does not know the new columns.
        await scene.in_store(
            f"UPDATE jobs SET lease_epoch = lease_epoch + 2 WHERE job_id = '{given.job_id}' AND lease_digest <> ''"
        )
        lease = pb.Lease(job_id=given.job_id, fencing_token=given.fencing_token + 2)
        assert await resumed(workers, lease) == pb.LEASE_STATUS_HELD
        await tries(other, lease)
        await tries(other, given)
        assert (await worker.heartbeat(given, sequence=9)).leases[0].status == pb.LEASE_STATUS_LOST
        async with Worker(workers, resume=[lease]) as again:
            assert (await again.deliver(lease, OWN)).outcome == pb.JOB_OUTCOME_APPLIED


async def test_a_key_for_some_accounts_gets_their_jobs_alone(scene: Scene) -> None:
    ours = await scene.caller()
    theirs = [await scene.caller() for _ in range(2)]
    foreign = {(await caller.committed()).task_id for caller in theirs}
    own = await ours.committed()
    restricted = await scene.worker(accounts=[ours.account, "nobody"])
    everywhere = await scene.worker()
    async with Worker(restricted, "restricted") as worker, Worker(everywhere, "everywhere") as other:
        # It waits longest, and asks for more than there is.
        await worker.ready(5)
        job = await worker.assignment()
        assert job.task_id == own.task_id
        await other.ready(2)
        assert {(await other.assignment()).task_id for _ in range(2)} == foreign
        following = await ours.committed()
        await worker.deliver(job.lease)
        assert (await worker.assignment()).task_id == following.task_id
        assert not worker.seen("assignment")


async def test_accounts_are_for_worker_keys(scene: Scene) -> None:
    key = (await scene.operator.make(admin_service_pb2.SCOPE_WORKER, accounts=["acme", "else"])).key
    assert list(key.accounts) == ["acme", "else"]
    rotated = (await scene.operator.rotate(key.key_id)).key
    assert list(rotated.accounts) == ["acme", "else"]
    refused = await failure(scene.operator.make(admin_service_pb2.SCOPE_ADMIN, accounts=["acme"]))
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT and "accounts" in refused.message
    for accounts in (["../acme"], ["acme", "acme"], [""]):
        refused = await failure(scene.operator.make(admin_service_pb2.SCOPE_WORKER, accounts=accounts))
        assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    async with sending(scene.server.address, WORKER_KEY) as channel, Worker(channel) as worker:
        assert worker.welcome.server_id
