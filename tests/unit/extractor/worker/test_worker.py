"""A job from its assignment to its verdict: what a worker tells of the engine's answer, failures and progress."""

import asyncio
from collections import Counter

import grpc
import pytest

from runekeep.v1 import common_pb2, extractor_service_pb2, task_service_pb2
from runekeep_extractor.engine.interface import EngineOutput, JobFailed
from runekeep_extractor.worker.worker import WorkerRefused
from tests.doubles.fixed_job import REGISTRY, wire_type
from tests.unit.extractor.conftest import operation
from tests.unit.extractor.server_double import assignment, lease, verdict

pb = extractor_service_pb2


async def test_a_job_runs_from_assignment_to_verdict(server, engine, run_worker):
    double, _ = server
    double.messages = [common_pb2.Message(id="m1", sequence=1), common_pb2.Message(id="m2", sequence=2)]
    engine.go_on.set()
    await run_worker()
    talk = await double.conversation()
    hello = await talk.welcome()
    assert (hello.protocol_version, hello.worker_id) == (1, "w1")
    assert list(hello.kinds) == [
        task_service_pb2.TASK_KIND_COMMIT,
        task_service_pb2.TASK_KIND_TURN_FINGERPRINT,
        task_service_pb2.TASK_KIND_BUCKET_RECONCILE,
    ]
    assert talk.metadata["x-runekeep-worker"] == "w1"
    assert (await talk.expect("ready")).credits == 2

    talk.say(assignment=assignment())
    chunks, complete = await talk.output()
    names = [item.operation.write.fields["entity_name"].string_value for chunk in chunks for item in chunk.items]
    assert names == ["one", "two"]
    assert {chunk.output_id for chunk in chunks} == {complete.output_id}
    assert complete.chunk_count == len(chunks) == 1
    assert (complete.extractor.engine, complete.extractor.model) == ("steps", "none")
    assert engine.seen == [2]
    assert double.calls[0][1]["traceparent"] == assignment().traceparent

    talk.say(verdict=verdict(pb.JOB_OUTCOME_APPLIED, revision=7))
    assert (await talk.expect("ready")).credits == 1


async def test_large_outputs_are_cut_into_chunks(server, engine, run_worker):
    double, _ = server

    async def work(job):
        operations = [operation(str(n), 600) for n in range(5)]
        return EngineOutput(operations=operations, summary=common_pb2.Summary(), model="other")

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome(max_chunk_bytes=1500)
    talk.say(assignment=assignment())
    chunks, complete = await talk.output()
    assert [chunk.index for chunk in chunks] == list(range(complete.chunk_count))
    assert all(chunk.ByteSize() <= 1500 for chunk in chunks)
    assert [len(chunk.items) for chunk in chunks] == [2, 2, 2]
    # What the output names goes before what the engine is known as.
    assert (complete.extractor.engine, complete.extractor.model) == ("steps", "other")


async def test_an_item_that_fits_no_chunk_fails_the_attempt(server, engine, run_worker):
    double, _ = server

    async def work(job):
        return EngineOutput(operations=[operation("huge", 3000)])

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome(max_chunk_bytes=1500)
    talk.say(assignment=assignment())
    fail = await talk.expect("fail")
    assert fail.failure.failure_class == pb.FAILURE_CLASS_INVALID_OUTPUT


async def test_repair_gives_a_second_output_under_another_id(server, engine, run_worker):
    double, _ = server
    engine.go_on.set()
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    _, first = await talk.output()
    refused = [task_service_pb2.LeftOut(reason="field_invalid", operation_index=1)]
    talk.say(verdict=verdict(pb.JOB_OUTCOME_NEEDS_REPAIR, refused=refused))
    chunks, second = await talk.output()
    assert second.output_id != first.output_id
    assert [len(chunk.items) for chunk in chunks] == [1]
    assert engine.refused == ["field_invalid"]
    assert [used.phase for used in first.usage] == []
    assert [used.phase for used in second.usage] == ["repair"], "what the attempt cost, up to here"
    talk.say(verdict=verdict(pb.JOB_OUTCOME_APPLIED))
    await talk.expect("ready")


def records_of(double, count):
    """Gives the job a message that records calls of as many tools; an assignment that lets them be counted."""
    double.memory_types = [wire_type(REGISTRY["tools"])]
    calls = [
        common_pb2.Part(tool=common_pb2.ToolPart(tool_name=f"t{n}", status=common_pb2.TOOL_STATUS_COMPLETED))
        for n in range(count)
    ]
    double.messages = [common_pb2.Message(sequence=1, role=common_pb2.ROLE_ASSISTANT, parts=calls)]
    return assignment(plan=pb.ExtractionPlan(allow_self=True, long_term_types=["tools"]))


def types_of(chunks):
    return Counter(item.operation.write.memory_type for chunk in chunks for item in chunk.items)


async def test_counts_take_the_room_that_the_engine_leaves(server, engine, run_worker):
    double, _ = server

    async def work(job):
        return EngineOutput(operations=[operation(str(n)) for n in range(997)])

    engine.work = work
    given = records_of(double, 5)
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=given)
    chunks, _ = await talk.output()
    assert types_of(chunks) == {"entities": 997, "tools": 3}


async def test_no_repair_is_asked_of_the_engine_for_counts(server, engine, run_worker):
    double, _ = server
    engine.go_on.set()
    given = records_of(double, 2)
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=given)
    await talk.output()
    refused = [task_service_pb2.LeftOut(reason="too_many_ranges", operation_index=2)]
    talk.say(verdict=verdict(pb.JOB_OUTCOME_NEEDS_REPAIR, refused=refused))
    chunks, second = await talk.output()
    assert types_of(chunks) == {"entities": 2, "tools": 1}
    assert not engine.refused and not second.usage


async def test_an_output_is_delivered_without_counts_that_cannot_be_made(server, engine, run_worker, monkeypatch):
    double, _ = server

    def broken(job):
        raise ValueError("what Ana told her doctor")

    monkeypatch.setattr("runekeep_extractor.worker.attempt.counting_operations", broken)
    engine.go_on.set()
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    chunks, _ = await talk.output()
    assert types_of(chunks) == {"entities": 2}


async def test_try_again_sends_the_same_output(server, engine, run_worker):
    double, _ = server
    engine.go_on.set()
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    first_chunks, first = await talk.output()
    talk.say(verdict=verdict(pb.JOB_OUTCOME_TRY_AGAIN))
    second_chunks, second = await talk.output()
    assert (second, second_chunks) == (first, first_chunks)


async def test_failures_carry_their_class_and_retry(server, engine, run_worker):
    double, _ = server

    async def work(job):
        raise JobFailed(pb.FAILURE_CLASS_RATE_LIMITED, "slow down", retry_after=2.5)

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    fail = await talk.expect("fail")
    assert fail.failure.failure_class == pb.FAILURE_CLASS_RATE_LIMITED
    assert fail.failure.retryable
    assert fail.failure.retry_after.ToMilliseconds() == 2500
    talk.say(verdict=verdict(pb.JOB_OUTCOME_REQUEUED))
    await talk.expect("ready")


async def test_a_fault_in_the_engine_tells_its_type_and_no_content(server, engine, run_worker):
    double, _ = server

    async def work(job):
        raise KeyError("what Ana told her doctor")

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    fail = await talk.expect("fail")
    assert fail.failure.failure_class == pb.FAILURE_CLASS_INTERNAL
    assert fail.failure.status.message == "KeyError"


async def test_a_fault_outside_the_engine_is_told_at_once(server, engine, run_worker):
    double, _ = server

    async def work(job):
        return EngineOutput(operations=["what Ana told her doctor"])

    engine.work = work
    await run_worker(concurrency=1)
    talk = await double.conversation()
    await talk.welcome()
    await talk.expect("ready")
    talk.say(assignment=assignment())
    fail = await talk.expect("fail")
    assert (fail.lease, fail.failure.failure_class) == (lease(), pb.FAILURE_CLASS_INTERNAL)
    assert fail.failure.retryable
    assert fail.failure.status.message == "TypeError"
    talk.say(verdict=verdict(pb.JOB_OUTCOME_REQUEUED))
    await talk.expect("ready", skip=("heartbeat",))


async def test_the_time_budget_ends_an_attempt(server, engine, run_worker):
    double, _ = server

    async def work(job):
        job.spent.append(common_pb2.TokenUsage(model="m", phase="reasoning", calls=1))
        await asyncio.Event().wait()

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    short = assignment()
    short.time_budget.FromMilliseconds(50)
    talk.say(assignment=short)
    fail = await talk.expect("fail")
    assert fail.failure.failure_class == pb.FAILURE_CLASS_TIME_BUDGET
    assert [(used.phase, used.calls) for used in fail.usage] == [("reasoning", 1)], (
        "what was spent is told all the same"
    )


async def test_time_that_runs_out_in_an_outage_is_no_failure_that_counts(server, engine, run_worker):
    double, _ = server
    engine.away = "the model server did not answer in time"
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    short = assignment()
    short.time_budget.FromMilliseconds(50)
    talk.say(assignment=short)
    fail = await talk.expect("fail")
    assert fail.failure.failure_class == pb.FAILURE_CLASS_MODEL_UNAVAILABLE
    assert fail.failure.status.message.endswith(engine.away)


@pytest.mark.parametrize(("failure", "part"), [("store", "store"), (grpc.StatusCode.UNAVAILABLE, "server")])
async def test_time_that_runs_out_while_a_read_waits_is_no_failure_that_counts(
    server, engine, run_worker, failure, part
):
    double, _ = server

    async def work(job):
        await job.progress(task_service_pb2.TASK_PHASE_PREFETCH, 5, "reading")
        double.failures += [failure] * 100_000
        await job.read("viking://user/default/memories/profile.md")

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    short = assignment()
    short.time_budget.FromSeconds(1)
    talk.say(assignment=short)
    reported = await talk.expect("progress", skip=("ready", "heartbeat"))
    if not reported.progress.waiting_for:
        reported = await talk.expect("progress", skip=("ready", "heartbeat"))
    assert reported.progress.waiting_for == part
    assert reported.progress.message == f"waiting for the {part}, which is away"
    assert (reported.progress.phase, reported.progress.percent) == (task_service_pb2.TASK_PHASE_PREFETCH, 5)
    fail = await talk.expect("fail")
    assert fail.failure.failure_class == pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE
    assert fail.failure.waiting_for == part


async def test_what_a_job_waited_for_is_told_as_over(server, engine, run_worker):
    double, _ = server
    read_again = asyncio.Event()

    async def work(job):
        await job.progress(task_service_pb2.TASK_PHASE_PREFETCH, 5, "reading")
        double.failures += ["store"] * 4
        await job.read("viking://user/default/memories/profile.md")
        read_again.set()
        await asyncio.Event().wait()

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    await read_again.wait()
    while (told := (await talk.expect("progress")).progress).waiting_for:
        pass
    assert told.message == "reading"


async def test_reads_are_tried_again_while_the_server_is_away(server, engine, run_worker):
    double, _ = server
    double.failures += [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE]
    engine.go_on.set()
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    await talk.output()
    assert [name for name, _ in double.calls] == ["GetJobInput"] * 3


async def test_texts_are_embedded_in_batches(server, engine, run_worker):
    double, _ = server
    got = {}

    async def work(job):
        got["model"], got["vectors"] = await job.embed([f"text {n}" for n in range(130)])
        return EngineOutput()

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    chunks, complete = await talk.output()
    assert (chunks, complete.chunk_count) == ([], 0)
    assert double.texts == [64, 64, 2]
    assert (got["model"], len(got["vectors"])) == ("double", 130)


async def test_texts_are_embedded_again_if_the_embedder_is_changed_between_two_batches(server, engine, run_worker):
    double, _ = server
    double.models += ["before"]
    got = {}

    async def work(job):
        got["model"], got["vectors"] = await job.embed([f"text {n}" for n in range(70)])
        return EngineOutput()

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    await talk.output()
    assert double.texts == [64, 6, 64, 6]
    assert (got["model"], len(got["vectors"])) == ("double", 70)


async def test_an_embedder_that_stays_down_fails_the_attempt(server, engine, run_worker):
    double, _ = server

    async def work(job):
        double.failures += ["embedder"] * 5
        await job.embed(["text"])

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    fail = await talk.expect("fail")
    assert fail.failure.failure_class == pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE
    assert fail.failure.retryable
    assert "waiting for the embedder" in fail.failure.status.message


async def test_progress_never_goes_back(server, engine, run_worker):
    double, _ = server
    heard = asyncio.Event()

    async def work(job):
        await job.progress(task_service_pb2.TASK_PHASE_LONG_TERM, 60, "sorting")
        await heard.wait()
        await job.progress(task_service_pb2.TASK_PHASE_SUMMARY, 20, "summary")
        await asyncio.Event().wait()

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    told = [await talk.expect("progress")]
    heard.set()
    told.append(await talk.expect("progress"))
    assert [(one.progress.percent, one.progress.message) for one in told] == [(60, "sorting"), (60, "summary")]


async def test_of_progress_that_is_made_at_once_the_newest_is_told(server, engine, run_worker):
    double, _ = server

    async def work(job):
        for percent in range(10, 60, 10):
            await job.progress(task_service_pb2.TASK_PHASE_LONG_TERM, percent, "sorting")
        await asyncio.Event().wait()

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    assert (await talk.expect("progress")).progress.percent == 50


async def test_nothing_is_told_of_a_job_that_is_done_by_then(server, engine, run_worker):
    double, _ = server

    async def work(job):
        await job.progress(task_service_pb2.TASK_PHASE_LONG_TERM, 60, "sorting")
        return EngineOutput()

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    complete = await talk.expect("complete", skip=("heartbeat", "ready"))
    talk.say(verdict=pb.JobVerdict(lease=complete.lease, outcome=pb.JOB_OUTCOME_APPLIED))
    # The worker is free again, and has said nothing else.
    await talk.expect("ready", skip=("heartbeat",))


async def test_a_worker_that_is_refused_says_so(server, run_worker):
    double, _ = server
    running = await run_worker()

    async def refuse() -> None:
        # When the refusal overtakes the Hello, gRPC's client reports an error of its own, and the worker tries again.
        while True:
            (await double.conversation()).fail(grpc.StatusCode.FAILED_PRECONDITION)

    refusing = asyncio.create_task(refuse())
    with pytest.raises(WorkerRefused):
        await running.task
    refusing.cancel()
