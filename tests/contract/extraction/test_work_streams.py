"""One worker's stream on a store of every driver: what breaks the contract ends one attempt, and holds nobody up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import pytest
from google.rpc import code_pb2

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.apply.applier import Applier
from runekeep_server.apply.output import Output
from runekeep_server.extraction.extraction import Extraction
from runekeep_server.identity import Worker, new_trace
from runekeep_server.leases.attempt_records import AttemptRecorder
from runekeep_server.leases.failure_policy import FailurePolicy
from runekeep_server.leases.lease_table import LeaseRecord, wire_lease
from runekeep_server.leases.verdicts import Verdicts
from runekeep_server.settings import Settings
from runekeep_server.tasks.watchers import Watchers
from runekeep_storage.database import Database, Space
from runekeep_storage.jobs import jobs, tasks, token_usage
from runekeep_storage.memories import apply
from runekeep_storage.memories.apply import Applied
from runekeep_storage.records import LeaseId
from runekeep_storage.store import Store
from tests.support.storage.databases import ANN, CAT, claim, prepared, queue
from tests.support.worker import KINDS

pytestmark = pytest.mark.postgres_long

SETTINGS = Settings()
REGISTRY = Registry.load()
Apply = Callable[[Output], Awaitable[Applied]]
NAMELESS = pb.OutputItem(operation=pb.MemoryOperation(write=pb.WriteOp()))
"""Breaks the contract: a write names its type."""


class _Scripted:
    def __init__(self, script: Apply) -> None:
        self.apply = script


class _Store:
    def __init__(self, database: Database) -> None:
        self.database = self.all_spaces = database
        self.registry = REGISTRY


def extraction_on(database: Database) -> Extraction:
    return Extraction(cast(Store, _Store(database)), SETTINGS, Watchers(database, SETTINGS.poll_seconds), "server-1")


class Stream:
    """Both ends of a stream, with an applier that a test scripts."""

    def __init__(self, database: Database, script: Apply) -> None:
        extraction = extraction_on(database)
        extraction.verdicts = Verdicts(
            database,
            cast(Applier, _Scripted(script)),
            FailurePolicy(SETTINGS),
            AttemptRecorder(REGISTRY, answers=True),
            lambda lease: None,
            lambda job: None,
        )
        hello = pb.Hello(worker_id="w", protocol_version=1, kinds=KINDS)
        self.connection = extraction.new_connection(Worker(new_trace(), "key:w"), hello)
        self._sent: asyncio.Queue[pb.WorkRequest | None] = asyncio.Queue()
        self._answers = self.connection.serve(self._requests())

    async def _requests(self) -> AsyncIterator[pb.WorkRequest]:
        while (request := await self._sent.get()) is not None:
            yield request

    def give(self, lease: LeaseId, space: Space) -> pb.Lease:
        self.connection.credits += 1
        wire = wire_lease(lease)
        assert self.connection.assign(pb.JobAssignment(lease=wire), space)
        return wire

    def send(self, request: pb.WorkRequest) -> None:
        self._sent.put_nowait(request)

    async def next(self, kind: str) -> pb.WorkResponse:
        """The next answer of that kind; those before it are passed over."""
        async with asyncio.timeout(20):
            async for response in self._answers:
                if response.HasField(kind):  # type: ignore[arg-type]  # a name of the contract
                    return response
        raise AssertionError(f"the stream ended without {kind}")

    async def end(self) -> list[pb.WorkResponse]:
        """Half-closes; what was still to come."""
        self._sent.put_nowait(None)
        async with asyncio.timeout(20):
            return [response async for response in self._answers]


async def test_a_refused_chunk_waits_for_its_lease_and_no_heartbeat_waits_for_it(database: Database) -> None:
    await queue(database, ANN, "t1")
    await queue(database, CAT, "t2")
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(output: Output) -> Applied:
        begun.set()
        await go_on.wait()
        return await database.write(apply.apply, ANN, prepared(output.lease, output_id=output.output_id))

    stream = Stream(database, slowly)
    given = [(job.lease, jobs.space_of(job)) for job in (await claim(database), await claim(database))]
    first, second = (stream.give(lease, space) for lease, space in given)
    stream.send(pb.WorkRequest(complete=pb.JobComplete(lease=first, output_id="o")))
    await stream.next("assignment")
    await stream.next("assignment")
    await begun.wait()
    stream.send(pb.WorkRequest(output=pb.OutputChunk(lease=first, output_id="p", items=[NAMELESS])))
    stream.send(pb.WorkRequest(output=pb.OutputChunk(lease=first, output_id="p", index=1)))
    stream.send(pb.WorkRequest(release=pb.JobRelease(lease=first)))
    stream.send(pb.WorkRequest(heartbeat=pb.Heartbeat(sequence=7, leases=[second])))
    update = (await stream.next("lease_update")).lease_update
    assert (update.heartbeat_sequence, update.leases[0].status) == (7, pb.LEASE_STATUS_HELD)

    go_on.set()
    verdicts = [response.verdict for response in await stream.end() if response.HasField("verdict")]
    assert [verdict.outcome for verdict in verdicts] == [
        pb.JOB_OUTCOME_APPLIED,
        pb.JOB_OUTCOME_LEASE_LOST,
        pb.JOB_OUTCOME_LEASE_LOST,
    ]


async def test_what_follows_a_refused_chunk_is_answered_after_it(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)

    async def never(output: Output) -> Applied:
        raise AssertionError("an output that was refused is not applied")

    stream = Stream(database, never)
    lease = stream.give(job.lease, ANN)
    spent = common_pb2.TokenUsage(model="m", phase="operations", input_tokens=5)
    stream.send(pb.WorkRequest(output=pb.OutputChunk(lease=lease, output_id="o", items=[NAMELESS])))
    stream.send(pb.WorkRequest(output=pb.OutputChunk(lease=lease, output_id="o", index=1)))
    stream.send(pb.WorkRequest(complete=pb.JobComplete(lease=lease, output_id="o", chunk_count=2, usage=[spent])))
    refused, late = [response.verdict for response in await stream.end() if response.HasField("verdict")]
    assert (refused.outcome, refused.status.code) == (pb.JOB_OUTCOME_REQUEUED, code_pb2.INVALID_ARGUMENT)
    assert "memory_type" in refused.status.message
    assert late.outcome == pb.JOB_OUTCOME_LEASE_LOST
    (entry,) = await database.read_global(token_usage.totals, "acme", "ann", "", 0)
    assert entry["input_tokens"] == 5


@pytest.mark.parametrize("kind", ["complete", "fail"])
@pytest.mark.parametrize("chunk_too", [False, True])
async def test_an_end_that_breaks_the_contract_ends_its_attempt_alone_and_is_counted(
    database: Database, kind: str, chunk_too: bool
) -> None:
    await queue(database, ANN, "t1")
    await queue(database, CAT, "t2")

    async def never(output: Output) -> Applied:
        raise AssertionError("an output that was refused is not applied")

    stream = Stream(database, never)
    given = [(job.lease, jobs.space_of(job)) for job in (await claim(database), await claim(database))]
    (lease, other) = (stream.give(lease, space) for lease, space in given)
    spent = [common_pb2.TokenUsage(model="m", phase="operations", input_tokens=1)] * 65
    failure = pb.JobFailure(failure_class=pb.FAILURE_CLASS_INTERNAL, retryable=True)
    if chunk_too:
        stream.send(pb.WorkRequest(output=pb.OutputChunk(lease=lease, output_id="o", items=[NAMELESS])))
    if kind == "fail":
        stream.send(pb.WorkRequest(fail=pb.JobFail(lease=lease, failure=failure, usage=spent)))
    else:
        stream.send(pb.WorkRequest(complete=pb.JobComplete(lease=lease, output_id="o", usage=spent)))
    stream.send(pb.WorkRequest(heartbeat=pb.Heartbeat(sequence=1, leases=[other])))
    answers = await stream.end()
    verdict, *late = [response.verdict for response in answers if response.HasField("verdict")]
    assert (verdict.outcome, verdict.status.code) == (pb.JOB_OUTCOME_REQUEUED, code_pb2.INVALID_ARGUMENT)
    assert [one.outcome for one in late] == [pb.JOB_OUTCOME_LEASE_LOST] * chunk_too
    assert any(one.lease_update.heartbeat_sequence == 1 for one in answers)
    space = given[0][1]
    (entry,) = await database.read_global(token_usage.totals, space.account, space.user, "", 0)
    assert entry["input_tokens"] == 64, "as many entries as an attempt may tell"


@pytest.mark.parametrize("end", ["complete", "fail", "broken complete"])
async def test_the_usage_of_a_rejected_attempt_is_counted_once(database: Database, end: str) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)

    async def never(output: Output) -> Applied:
        raise AssertionError("an output that was refused is not applied")

    stream = Stream(database, never)
    lease = stream.give(job.lease, ANN)
    spent = [common_pb2.TokenUsage(model="m", phase="operations", input_tokens=5)]
    failure = pb.JobFailure(failure_class=pb.FAILURE_CLASS_INTERNAL, retryable=True)
    request = {
        "complete": pb.WorkRequest(complete=pb.JobComplete(lease=lease, output_id="o", chunk_count=1, usage=spent)),
        "fail": pb.WorkRequest(fail=pb.JobFail(lease=lease, failure=failure, usage=spent)),
        # It is the first message about the lease, and names no output.
        "broken complete": pb.WorkRequest(complete=pb.JobComplete(lease=lease, usage=spent)),
    }[end]
    if end != "broken complete":
        broken = pb.WorkRequest(output=pb.OutputChunk(lease=lease, output_id="o", items=[NAMELESS]))
        stream.send(broken)
        stream.send(broken)
    stream.send(request)
    stream.send(request)
    refused, *late = [response.verdict for response in await stream.end() if response.HasField("verdict")]
    assert refused.outcome == pb.JOB_OUTCOME_REQUEUED
    assert {verdict.outcome for verdict in late} == {pb.JOB_OUTCOME_LEASE_LOST}
    (entry,) = await database.read_global(token_usage.totals, "acme", "ann", "", 0)
    assert entry["input_tokens"] == 5


async def test_one_lease_that_cannot_be_given_back_keeps_no_other(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {}
    for space, name in ((ANN, "t1"), (CAT, "t2")):
        await queue(database, space, name)
        given[(await claim(database)).lease] = space
    broken, whole = given
    extraction = extraction_on(database)
    release, asked = extraction.verdicts.release, []

    async def breaks(lease: LeaseId) -> pb.JobVerdict:
        asked.append(lease)
        if lease == broken:
            raise RuntimeError("boom")
        return await release(lease)

    monkeypatch.setattr(extraction.verdicts, "release", breaks)
    for lease, space in given.items():
        extraction._leases.add(LeaseRecord(lease, space, outbox=None))
    await extraction.close()
    assert asked == [broken, whole]
    assert (await database.read_global(jobs.get, whole.job_id)).state == "pending"
    # It ends by itself, and is not asked for again.
    await extraction.close()
    assert asked == [broken, whole]
    assert (await database.read(tasks.get, given[broken], broken.job_id)).state == "running"
