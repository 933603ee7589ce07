"""Verdicts where several ends of one lease meet, and the lanes in which they are written."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from google.rpc import code_pb2

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.apply.applier import Applier
from runekeep_server.apply.output import Output, Unusable
from runekeep_server.extraction.extraction import Extraction
from runekeep_server.identity import Worker, new_trace
from runekeep_server.leases.attempt_records import AttemptRecorder
from runekeep_server.leases.failure_policy import AttemptFailure, FailurePolicy
from runekeep_server.leases.lease_table import wire_lease
from runekeep_server.leases.output_buffers import OutputBuffer
from runekeep_server.leases.verdicts import Verdicts
from runekeep_server.settings import Settings
from runekeep_server.tasks.watchers import Watchers
from runekeep_storage.database import Database, Space
from runekeep_storage.errors import LeaseLost, StoreUnavailable, VersionConflict
from runekeep_storage.jobs import jobs, tasks, token_usage
from runekeep_storage.jobs.extraction_records import unpack
from runekeep_storage.memories import apply
from runekeep_storage.memories.apply import Applied
from runekeep_storage.records import LeaseId
from runekeep_storage.store import Store
from tests.support.storage.databases import ANN, CAT, claim, prepared, queue

pytestmark = pytest.mark.postgres_long

SETTINGS = Settings()
REGISTRY = Registry.load()
MADE_BY = common_pb2.ExtractorInfo(engine="test")
Apply = Callable[[Output], Awaitable[Applied]]


class Scripted:
    """In the place of an applier."""

    def __init__(self, script: Apply) -> None:
        self.apply = script


def verdicts(database: Database, script: Apply, space: Space | None = None) -> Verdicts:
    applier = cast(Applier, Scripted(script))
    recorder = AttemptRecorder(REGISTRY, answers=False)
    return Verdicts(database, applier, FailurePolicy(SETTINGS), recorder, lambda lease: space, lambda job: None)


def complete(output_id: str = "o") -> pb.JobComplete:
    return pb.JobComplete(output_id=output_id)


@pytest.mark.parametrize("error", [VersionConflict("viking://x"), RuntimeError("boom"), LeaseLost("t1")])
@pytest.mark.parametrize("space", [ANN, None])
async def test_an_output_whose_repeat_was_quicker_is_applied_already(
    database: Database, error: Exception, space: Space | None
) -> None:
    """At another server, while this one prepared it on memories that then were other ones."""
    await queue(database, ANN, "t1")
    job = await claim(database)

    async def overtaken(output: Output) -> Applied:
        await database.write(apply.apply, ANN, prepared(output.lease, output_id="o"))
        raise error

    verdict = await verdicts(database, overtaken, space).complete(job.lease, complete(), OutputBuffer("o"))
    assert (verdict.outcome, verdict.revision) == (pb.JOB_OUTCOME_ALREADY_APPLIED, 1)


@pytest.mark.parametrize("ending", ["release", "fail", "reject", "complete"])
async def test_what_is_said_of_a_lease_waits_for_the_output_that_is_being_applied(
    database: Database, ending: str
) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(output: Output) -> Applied:
        begun.set()
        await go_on.wait()
        return await database.write(apply.apply, ANN, prepared(output.lease, output_id=output.output_id))

    ours = verdicts(database, slowly, ANN)
    applying = asyncio.create_task(ours.complete(job.lease, complete(), OutputBuffer("o")))
    await begun.wait()
    failure = pb.JobFail(failure=pb.JobFailure(failure_class=pb.FAILURE_CLASS_INTERNAL, retryable=True))
    calls: dict[str, Callable[[], Awaitable[pb.JobVerdict]]] = {
        "release": lambda: ours.release(job.lease),
        "fail": lambda: ours.fail(job.lease, failure, MADE_BY),
        "reject": lambda: ours.reject(job.lease, "wrong", MADE_BY),
        "complete": lambda: ours.complete(job.lease, complete(), OutputBuffer("o")),
    }
    other = asyncio.ensure_future(calls[ending]())
    # Had it not to wait, it would be through with the store by the time that another transaction is.
    for _ in range(3):
        await database.write(tasks.get, ANN, "t1")
    assert (await database.read_global(jobs.held, job.lease)).token == job.token and not other.done()
    go_on.set()
    assert (await applying).outcome == pb.JOB_OUTCOME_APPLIED
    again = pb.JOB_OUTCOME_ALREADY_APPLIED if ending == "complete" else pb.JOB_OUTCOME_LEASE_LOST
    assert (await other).outcome == again
    assert (await database.read(tasks.get, ANN, "t1")).state == "completed"


class Lanes:
    """A database that notes of which account each write said that it is."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.written: list[str | None] = []

    async def write(self, work: Any, space: Space, *args: Any) -> Any:
        self.written.append(space.account)
        return await self._database.write(work, space, *args)

    async def write_in_account(self, work: Any, account: str, *args: Any) -> Any:
        self.written.append(account)
        return await self._database.write_in_account(work, account, *args)

    async def write_global(self, work: Any, *args: Any) -> Any:
        self.written.append(None)
        return await self._database.write_global(work, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


class _Store:
    def __init__(self, database: Lanes) -> None:
        self.database = self.all_spaces = database
        self.registry = Registry.load()


async def test_what_a_worker_says_of_its_leases_is_written_in_the_lane_of_each_account(database: Database) -> None:
    """A message about a lease that nobody has writes nothing, so nobody waits for it."""
    lanes = Lanes(database)
    extraction = Extraction(cast(Store, _Store(lanes)), SETTINGS, Watchers(database, SETTINGS.poll_seconds), "server-1")
    hello = pb.Hello(worker_id="w", protocol_version=1)
    connection = extraction.new_connection(Worker(new_trace(), "key:w"), hello)
    given: dict[str, LeaseId] = {}
    with extraction.dispatcher.serve(connection):
        connection.credits = 10
        for space, name in ((ANN, "t1"), (CAT, "t2")):
            await queue(database, space, name)
            job = await claim(database)
            given[job.account] = job.lease
            assert connection.assign(pb.JobAssignment(lease=wire_lease(job.lease)), jobs.space_of(job))
        unknown = LeaseId("nobody's", 3)
        told = await extraction.renewer.renew_all([given["acme"], unknown, given["other"]])
        held, lost = pb.LEASE_STATUS_HELD, pb.LEASE_STATUS_LOST
        assert [(state.status, space) for state, space in told] == [(held, ANN), (lost, None), (held, CAT)]
        assert sorted(map(str, lanes.written)) == ["acme", "other"]

        lanes.written.clear()
        await extraction.renewer.report_progress(given["acme"], pb.JobProgress().progress)
        await extraction.renewer.renew(given["other"])
        failure = pb.JobFail(failure=pb.JobFailure(failure_class=pb.FAILURE_CLASS_RATE_LIMITED, retryable=True))
        verdict = await extraction.verdicts.fail(given["acme"], failure, hello.extractor)
        assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED
        assert (await extraction.verdicts.release(given["other"])).outcome == pb.JOB_OUTCOME_REQUEUED
        assert lanes.written == ["acme", "other", "acme", "other"]


async def test_a_lease_of_another_space_is_not_held(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    assert (await database.read_global(jobs.held, job.lease, ANN)).job_id == "t1"
    with pytest.raises(LeaseLost):
        await database.read_global(jobs.held, job.lease, CAT)
    wrong = verdicts(database, lambda output: asyncio.sleep(0), CAT)  # type: ignore[arg-type,return-value]
    await wrong.release(job.lease)
    assert (await database.read_global(jobs.held, job.lease)).token == job.token


async def wrong(output: Output) -> Applied:
    raise RuntimeError("boom")


def spent(tokens: int, model: str = "m", phase: str = "operations") -> common_pb2.TokenUsage:
    return common_pb2.TokenUsage(model=model, phase=phase, calls=1, input_tokens=tokens)


def failing(*usage: common_pb2.TokenUsage) -> pb.JobFail:
    failure = pb.JobFailure(failure_class=pb.FAILURE_CLASS_INVALID_OUTPUT, retryable=True)
    return pb.JobFail(failure=failure, usage=usage)


class Picky(FailurePolicy):
    """Cannot write failures that are not the server's own; with `all`, none of which anything is told."""

    def __init__(self, *, all: bool) -> None:
        super().__init__(SETTINGS)
        self._all = all

    async def fail(self, tx: Any, space: Space, lease: LeaseId, failure: AttemptFailure, **told: Any) -> Any:
        if any(told.values()) if self._all else failure.failure_class != pb.FAILURE_CLASS_INTERNAL:
            raise RuntimeError("this cannot be written")
        return await super().fail(tx, space, lease, failure, **told)


def picky(database: Database, *, all: bool) -> Verdicts:
    recorder = AttemptRecorder(REGISTRY, answers=False)
    applier = cast(Applier, Scripted(wrong))
    return Verdicts(database, applier, Picky(all=all), recorder, lambda lease: None, lambda job: None)


async def test_an_end_that_cannot_be_written_keeps_what_was_spent(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    verdict = await picky(database, all=False).fail(job.lease, failing(spent(7)), MADE_BY)
    assert (verdict.outcome, verdict.status.code) == (pb.JOB_OUTCOME_REQUEUED, code_pb2.INTERNAL)
    (entry,) = await database.read_global(token_usage.totals, "acme", "ann", "", 0)
    assert entry["input_tokens"] == 7


@pytest.mark.parametrize("ending", ["complete", "fail", "reject"])
async def test_an_attempt_of_which_nothing_told_can_be_written_ends_all_the_same(
    database: Database, ending: str
) -> None:
    """Else its worker would be asked to try again for as long as the attempt lasts."""
    await queue(database, ANN, "t1")
    job = await claim(database)
    ours = picky(database, all=True)
    calls: dict[str, Callable[[], Awaitable[pb.JobVerdict]]] = {
        "complete": lambda: ours.complete(job.lease, complete(), OutputBuffer("o")),
        "fail": lambda: ours.fail(job.lease, failing(spent(7)), MADE_BY),
        "reject": lambda: ours.reject(job.lease, "wrong", MADE_BY),
    }
    verdict = await calls[ending]()
    assert (verdict.outcome, verdict.status.code) == (pb.JOB_OUTCOME_REQUEUED, code_pb2.INTERNAL)
    assert (await database.read_global(jobs.get, "t1")).attempts == 1


async def test_what_is_spent_counts_under_a_name_that_a_store_can_take(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    told = spent(7, model="\0" + "m" * 5000, phase="p" * 5000)
    verdict = await verdicts(database, wrong).reject(job.lease, "wrong", MADE_BY, [told])
    assert (verdict.outcome, verdict.status.code) == (pb.JOB_OUTCOME_REQUEUED, code_pb2.INVALID_ARGUMENT)
    (entry,) = await database.read_global(token_usage.totals, "acme", "ann", "", 0)
    assert (entry["model"], entry["phase"]) == ("\N{REPLACEMENT CHARACTER}" + "m" * 255, "p" * 64)
    assert entry["input_tokens"] == 7


async def test_answers_beyond_what_the_contract_takes_are_cut_the_oldest_first() -> None:
    longest = 128 * 1024
    calls = [common_pb2.ModelCall(phase=str(number), answer="x" * longest) for number in range(64)]
    calls[-1].answer = "ü"
    made = await AttemptRecorder(REGISTRY, answers=True).build_record(MADE_BY, calls)
    kept = unpack(made.calls)
    assert [call["phase"] for call in kept] == [str(number) for number in range(64)]
    whole = 2 * 1024 * 1024 // longest - 1
    assert [len(call["answer"]) for call in kept] == [0] * 47 + [longest - 2] + [longest] * whole + [1]
    calls[-1].answer = "x"
    calls[-17].answer = "ü" * (longest // 2)
    kept = unpack((await AttemptRecorder(REGISTRY, answers=True).build_record(MADE_BY, calls)).calls)
    assert kept[-17]["answer"] == "ü" * (longest // 2 - 1), "no character is cut in two"


class Away:
    """A store that cannot be reached."""

    async def write(self, *args: Any) -> Any:
        raise StoreUnavailable("away")

    read_global = write


async def test_a_verdict_says_why_nothing_was_applied(database: Database) -> None:
    async def conflict(output: Output) -> Applied:
        raise VersionConflict("viking://user/u/memories/events/secret.md")

    async def unusable(output: Output) -> Any:
        return Unusable("all 2 operations were refused", {})

    def completed(ours: Verdicts, lease: LeaseId) -> Awaitable[pb.JobVerdict]:
        return ours.complete(lease, complete(), OutputBuffer("o"))

    def failed(ours: Verdicts, lease: LeaseId) -> Awaitable[pb.JobVerdict]:
        return ours.fail(lease, failing(), MADE_BY)

    for number, (script, ask, code, word) in enumerate(
        [
            (conflict, completed, code_pb2.ABORTED, "changed while the output"),
            (unusable, completed, code_pb2.INVALID_ARGUMENT, "all 2 operations were refused"),
            (wrong, completed, code_pb2.INTERNAL, "the server failed"),
            (wrong, failed, code_pb2.ABORTED, "invalid_output"),
            (wrong, lambda ours, lease: ours.release(lease), code_pb2.CANCELLED, "released its lease"),
            (
                wrong,
                lambda ours, lease: ours.reject(lease, "x: too long", MADE_BY),
                code_pb2.INVALID_ARGUMENT,
                "x: too long",
            ),
        ]
    ):
        await queue(database, Space("acme", f"user-{number}"), f"t{number}")
        lease = (await claim(database)).lease
        verdict = await ask(verdicts(database, cast(Apply, script)), lease)
        assert (verdict.outcome, verdict.status.code) == (pb.JOB_OUTCOME_REQUEUED, code)
        assert word in verdict.status.message and "secret" not in verdict.status.message

    lost = await failed(verdicts(database, wrong), lease)
    assert (lost.outcome, lost.status.code) == (pb.JOB_OUTCOME_LEASE_LOST, code_pb2.ABORTED)
    assert "not held" in lost.status.message
    await queue(database, ANN, "cancelled")
    lease = (await claim(database)).lease
    away = await failed(verdicts(cast(Database, Away()), wrong), lease)
    assert (away.outcome, away.status.code) == (pb.JOB_OUTCOME_TRY_AGAIN, code_pb2.UNAVAILABLE)
    assert away.status.message
    await database.write(jobs.cancel, ANN, "cancelled", "")
    over = await failed(verdicts(database, wrong), lease)
    assert (over.outcome, over.status.code) == (pb.JOB_OUTCOME_CANCELLED, code_pb2.CANCELLED)
    assert over.status.message
