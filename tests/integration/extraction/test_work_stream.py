"""The Work stream: its order, assignments, outputs and verdicts."""

from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import extractor_service_pb2_grpc, session_service_pb2, task_service_pb2
from tests.support.callers import Caller, policy, said
from tests.support.server_process import ServerProcess
from tests.support.worker import KINDS, StreamEnded, Worker, edit, write

VIOLATION = ("FAILED_PRECONDITION", "PROTOCOL_VIOLATION")
NOTE = write("preferences", topic="Tea", content="Likes green tea.")


def seconds(value: int) -> Duration:
    return Duration(seconds=value)


async def ended_with(worker: Worker) -> tuple[str, str]:
    failed = await worker.end()
    assert failed is not None
    return failed.seen


# Order


@pytest.mark.parametrize(
    "first",
    [
        {"ready": pb.Ready(credits=1)},
        {"heartbeat": pb.Heartbeat(sequence=1)},
        {"goodbye": pb.Goodbye()},
        {"complete": pb.JobComplete(lease=pb.Lease(job_id="j", fencing_token=1), output_id="o")},
    ],
    ids=lambda message: next(iter(message)),
)
async def test_the_first_message_is_hello(channel: grpc.aio.Channel, first: dict[str, Any]) -> None:
    worker = Worker(channel)
    await worker.send(**first)
    assert await ended_with(worker) == VIOLATION


@pytest.mark.parametrize("fields", [{"protocol_version": 2}, {"kinds": [77]}, {"kinds": KINDS[:2]}])
async def test_a_worker_that_speaks_otherwise_is_refused(channel: grpc.aio.Channel, fields: dict[str, Any]) -> None:
    worker = Worker(channel)
    with pytest.raises(StreamEnded):
        await worker.hello(**fields)
    assert await ended_with(worker) == VIOLATION


async def test_hello_comes_once(channel: grpc.aio.Channel) -> None:
    async with Worker(channel) as worker:
        with pytest.raises(StreamEnded):
            await worker.hello()
        assert await ended_with(worker) == VIOLATION


@pytest.mark.parametrize(
    "message",
    [
        {"ready": pb.Ready(credits=0)},
        {"output": pb.OutputChunk(output_id="o")},
        {"fail": pb.JobFail(lease=pb.Lease(job_id="j", fencing_token=1), failure=pb.JobFailure())},
        {},
    ],
    ids=lambda message: next(iter(message), "nothing"),
)
async def test_a_message_that_breaks_the_contract_ends_the_stream(
    channel: grpc.aio.Channel, message: dict[str, Any]
) -> None:
    async with Worker(channel) as worker:
        await worker.send(**message)
        assert await ended_with(worker) == ("INVALID_ARGUMENT", "FIELD_INVALID")


async def test_an_item_that_breaks_the_contract_ends_its_job_alone(caller: Caller, channel: grpc.aio.Channel) -> None:
    """The attempt is counted and the next one is told why; the stream and the other jobs of the worker go on."""
    await caller.committed()
    nothing = pb.EditOp(uri="viking://user/memories/profile.md")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        item = pb.OutputItem(operation=pb.MemoryOperation(edit=nothing))
        await worker.send(output=pb.OutputChunk(lease=lease, output_id="o", index=0, items=[item]))
        assert (await worker.verdict(lease)).outcome == pb.JOB_OUTCOME_REQUEUED
        again = await worker.take()
        assert again.lease.job_id == lease.job_id
        (failure,) = again.previous_failures
        assert failure.failure_class == pb.FAILURE_CLASS_REJECTED_OUTPUT
        assert "patches" in failure.status.message
        assert (await worker.complete(again.lease, "o2", 0)).outcome == pb.JOB_OUTCOME_APPLIED


@pytest.mark.parametrize(("index", "size"), [pytest.param(1, 10, id="a gap"), pytest.param(0, 300_000, id="too large")])
async def test_chunks_come_in_order_and_bounded(
    caller: Caller, channel: grpc.aio.Channel, index: int, size: int
) -> None:
    await caller.committed()
    item = pb.OutputItem(operation=write("preferences", topic="Tea", content="x" * size))
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.send(output=pb.OutputChunk(lease=lease, output_id="o", index=index, items=[item]))
        assert await ended_with(worker) == VIOLATION


async def test_a_worker_that_half_closes_still_gets_its_verdicts(caller: Caller, channel: grpc.aio.Channel) -> None:
    await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
        await worker.send(complete=pb.JobComplete(lease=lease, output_id="o-1", chunk_count=1))
        await worker.done_writing()
        assert (await worker.verdict(lease)).outcome == pb.JOB_OUTCOME_APPLIED
        assert await worker.end() is None


async def test_the_terms_of_a_stream(channel: grpc.aio.Channel) -> None:
    async with Worker(channel) as worker:
        welcome = worker.welcome
        assert welcome.lease_duration == seconds(60) and welcome.heartbeat_interval == seconds(15)
        assert welcome.max_chunk_bytes == 262144 and welcome.max_operations > 0 and not welcome.resumed


# Assignments


async def test_an_assignment_says_what_the_job_is(callers: Any, channel: grpc.aio.Channel) -> None:
    caller: Caller = callers()
    wanted = policy(peer=True, types=["events", "trajectories"])
    committed = await caller.committed(said("hi"), said("ho", peer="anna"), said("hm", peer="a/b"), policy=wanted)
    async with Worker(channel) as worker:
        job = await worker.take()
        assert (job.kind, job.task_id, job.attempt) == (task_service_pb2.TASK_KIND_COMMIT, committed.task_id, 1)
        assert (job.archive_uri, job.user_space) == (committed.archive_uri, f"viking://user/{caller.user}")
        assert job.session == committed.archive_uri.rpartition("/history")[0]
        assert job.base_revision == 0 and job.traceparent.startswith("00-")
        assert job.time_budget == seconds(570), "of the ten minutes of an attempt, half of one is for the delivery"
        assert job.plan == pb.ExtractionPlan(
            allow_self=True, allowed_peer_ids=["anna"], long_term_types=["events"], execution_types=["trajectories"],
            summarize=True,
        )  # fmt: skip
        pieces = [piece async for piece in worker.calls.GetJobInput(pb.GetJobInputRequest(lease=job.lease))]
        assert [piece.WhichOneof("chunk") for piece in pieces] == ["memory_types", "messages", "usage"]
        assert [type.name for type in pieces[0].memory_types.memory_types] == ["events", "trajectories"]
        assert [message.sequence for message in pieces[1].messages.messages] == [1, 2, 3]


async def test_what_was_used_goes_into_the_input_and_is_counted_when_applied(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await caller.session()
    skill = session_service_pb2.SkillUsage(uri="viking://user/memories/skills/dig.md", output="ok", success=True)
    skill.input.struct_value.update({"depth": 3})
    await caller.sessions.RecordUsage(
        session_service_pb2.RecordUsageRequest(
            session=session, context_uris=["viking://user/memories/profile.md"], skills=[skill]
        )
    )
    committed = await caller.committed(session=session)
    async with Worker(channel) as worker:
        job = await worker.take()
        *_, last = [piece async for piece in worker.calls.GetJobInput(pb.GetJobInputRequest(lease=job.lease))]
        assert list(last.usage.context_uris) == [caller.uri("memories/profile.md")]
        skill.uri = caller.uri("memories/skills/dig.md")
        assert list(last.usage.skills) == [skill]
        await worker.deliver(job.lease, write("profile", content="Has a garden."))
    assert (await caller.task(committed.task_id)).result.active_count_updated == 2
    assert (await caller.memory(caller.uri("memories/profile.md"))).active_count == 1


async def test_an_input_larger_than_one_piece_comes_whole(caller: Caller, channel: grpc.aio.Channel) -> None:
    """More messages than the server reads at once, and more uses of skills than a piece carries."""
    session = await caller.session()
    for first in range(0, 300, 100):
        await caller.sessions.AddMessages(
            session_service_pb2.AddMessagesRequest(
                session=session, messages=[said(f"word {number}") for number in range(first, first + 100)]
            )
        )
    skill = session_service_pb2.SkillUsage(uri="viking://user/skills/dig.md", output="x" * 250_000, success=True)
    for _ in range(5):
        await caller.sessions.RecordUsage(session_service_pb2.RecordUsageRequest(session=session, skills=[skill]))
    await caller.committed(session=session)
    async with Worker(channel) as worker:
        job = await worker.take()
        pieces = [piece async for piece in worker.calls.GetJobInput(pb.GetJobInputRequest(lease=job.lease))]
        sequences = [message.sequence for piece in pieces for message in piece.messages.messages]
        # The 301st is the word that `committed` adds.
        assert sequences == list(range(1, 302))
        uses = [piece.usage for piece in pieces if piece.WhichOneof("chunk") == "usage"]
        assert [len(use.skills) for use in uses] == [3, 2]
        await worker.deliver(job.lease)


async def test_credits_bound_what_a_worker_gets_and_goodbye_ends_them(callers: Any, channel: grpc.aio.Channel) -> None:
    people = [callers() for _ in range(3)]
    tasks = {(await person.committed()).task_id for person in people}
    async with Worker(channel) as worker:
        await worker.ready(2)
        first, second = await worker.assignment(), await worker.assignment()
        await worker.heartbeat(first.lease, second.lease)
        assert not worker.seen("assignment")
        await worker.ready()
        third = await worker.assignment()
        assert {first.task_id, second.task_id, third.task_id} == tasks
        await worker.ready()
        await worker.send(goodbye=pb.Goodbye(reason="enough"))
        late = await callers().committed()
        assert (await worker.release(first.lease)).outcome == pb.JOB_OUTCOME_REQUEUED
        assert not worker.seen("assignment")
    async with Worker(channel) as worker:
        await worker.ready(2)
        assert late.task_id in {(await worker.assignment()).task_id, (await worker.assignment()).task_id}


async def test_a_space_is_serial_and_two_spaces_run_beside_each_other(callers: Any, channel: grpc.aio.Channel) -> None:
    anna, bert = callers(), callers()
    first, second = await anna.committed(), await anna.committed()
    other = await bert.committed()
    async with Worker(channel) as worker:
        await worker.ready(3)
        running = {(job := await worker.assignment()).task_id: job for _ in range(2)}
        assert set(running) == {first.task_id, other.task_id}
        verdict = await worker.deliver(running[first.task_id].lease, NOTE)
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED and verdict.revision == 1
        following = await worker.assignment()
        assert following.task_id == second.task_id and following.base_revision == 1


async def test_accounts_take_turns(callers: Any, channel: grpc.aio.Channel) -> None:
    """Whoever has many users with commits does not push others back."""
    busy = [callers(account="busy-account") for _ in range(4)]
    tasks = [(await person.committed()).task_id for person in busy]
    late = await callers(account="late-account").committed()
    async with Worker(channel) as worker:
        order = []
        for _ in range(3):
            job = await worker.take()
            order.append(job.task_id)
            await worker.deliver(job.lease)
        assert late.task_id in order[:2]
        assert [task for task in order if task != late.task_id] == tasks[:2]


# Outputs


async def test_an_output_in_many_chunks_is_one_revision(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        for index in range(5):
            item = pb.OutputItem(operation=write("preferences", topic=f"Topic {index}", content="Yes."))
            ack = await worker.chunk(lease, "o-1", index, [item])
            assert ack is not None and ack.next_chunk_index == index + 1
        repeated = await worker.chunk(lease, "o-1", 3, [item])
        assert repeated is not None and repeated.next_chunk_index == 5
        verdict = await worker.complete(lease, "o-1", 5)
        assert (verdict.outcome, verdict.revision) == (pb.JOB_OUTCOME_APPLIED, 1)
    task = await caller.task(committed.task_id)
    assert dict(task.result.memories_extracted) == {"preferences": 5}
    assert task.result.total_adds == 5
    assert (task.state, task.result.revision) == (task_service_pb2.TASK_STATE_COMPLETED, 1)


async def test_an_empty_output_is_nothing_to_extract(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert (await worker.complete(lease, "o-1", 0)).outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(committed.task_id)).result
    assert result.outcome == task_service_pb2.COMMIT_OUTCOME_NOTHING_TO_EXTRACT
    assert result.extractor.engine == "scripted"


async def test_the_same_output_twice_is_applied_once(caller: Caller, channel: grpc.aio.Channel) -> None:
    await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        first = await worker.deliver(lease, NOTE, output_id="o-1")
        again = await worker.complete(lease, "o-1", 1)
        resent = await worker.deliver(lease, NOTE, output_id="o-1")
        other = await worker.deliver(lease, NOTE, output_id="o-2")
        assert [one.outcome for one in (first, again, resent, other)] == [
            pb.JOB_OUTCOME_APPLIED, pb.JOB_OUTCOME_ALREADY_APPLIED, pb.JOB_OUTCOME_ALREADY_APPLIED,
            pb.JOB_OUTCOME_LEASE_LOST,
        ]  # fmt: skip
        assert first.revision == again.revision == resent.revision == 1
    assert (await caller.memory(caller.uri("memories/preferences/Tea.md"))).version == 1


async def test_outputs_that_overtake_each_other_are_applied_once(caller: Caller, channel: grpc.aio.Channel) -> None:
    await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        chunk = pb.OutputChunk(lease=lease, output_id="o-1", items=[pb.OutputItem(operation=NOTE)])
        for _ in range(5):
            await worker.send(output=chunk)
            await worker.send(complete=pb.JobComplete(lease=lease, output_id="o-1", chunk_count=1))
        outcomes = [(await worker.verdict(lease)).outcome for _ in range(5)]
        again = pb.JOB_OUTCOME_ALREADY_APPLIED, pb.JOB_OUTCOME_TRY_AGAIN
        assert outcomes.count(pb.JOB_OUTCOME_APPLIED) == 1 and set(outcomes) <= {pb.JOB_OUTCOME_APPLIED, *again}
    assert (await caller.memory(caller.uri("memories/preferences/Tea.md"))).version == 1


async def test_a_lease_given_back_after_its_output_has_the_output_applied(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """As a worker does that is told to stop while it waits for the verdict."""
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
        await worker.send(complete=pb.JobComplete(lease=lease, output_id="o-1", chunk_count=1))
        await worker.send(release=pb.JobRelease(lease=lease))
        outcomes = [(await worker.verdict(lease)).outcome for _ in range(2)]
        assert outcomes == [pb.JOB_OUTCOME_APPLIED, pb.JOB_OUTCOME_LEASE_LOST]
    task = await caller.task(committed.task_id)
    assert (task.state, task.attempt) == (task_service_pb2.TASK_STATE_COMPLETED, 1)


async def test_an_assignment_that_never_left_goes_to_another_worker_at_once(
    caller: Caller, channel: grpc.aio.Channel, server: ServerProcess
) -> None:
    """The worker does not read, so that it waits in the server; then the stream ends. Nobody is to blame for it."""
    # With a window of its own that does not grow.
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    deaf_channel = grpc.aio.insecure_channel(server.address, options=narrow)
    deaf: Any = extractor_service_pb2_grpc.ExtractorServiceStub(deaf_channel).Work()
    await deaf.write(
        pb.WorkRequest(hello=pb.Hello(protocol_version=1, worker_id="deaf", incarnation_id="1", kinds=KINDS))
    )
    assert (await deaf.read()).HasField("welcome")
    # Answers of 150 KiB each, more than a connection holds of what nobody reads.
    leases = [pb.Lease(job_id=f"{number:0>128}", fencing_token=1) for number in range(1000)]
    for sequence in range(1, 9):
        await deaf.write(pb.WorkRequest(heartbeat=pb.Heartbeat(sequence=sequence, leases=leases)))
    await deaf.write(pb.WorkRequest(ready=pb.Ready(credits=1)))
    committed = await caller.committed()
    assert (await caller.reaches(committed.task_id, task_service_pb2.TASK_STATE_RUNNING)).attempt == 1

    await deaf_channel.close()
    async with Worker(channel) as worker:
        job = await worker.take()
        assert (job.task_id, job.attempt, list(job.previous_failures)) == (committed.task_id, 2, [])
        await worker.deliver(job.lease, NOTE)
    assert (await caller.task(committed.task_id)).lost_leases == 0


async def test_missing_chunks_are_asked_for_again(caller: Caller, channel: grpc.aio.Channel) -> None:
    await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
        assert (await worker.complete(lease, "o-1", 2)).outcome == pb.JOB_OUTCOME_TRY_AGAIN
        assert (await worker.complete(lease, "o-2", 1)).outcome == pb.JOB_OUTCOME_TRY_AGAIN
        assert (await worker.deliver(lease, NOTE, output_id="o-1")).outcome == pb.JOB_OUTCOME_APPLIED


async def test_a_stream_that_breaks_before_complete_goes_on_on_another(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
    gone = pb.Lease(job_id=str(uuid4()), fencing_token=3)
    async with Worker(channel, resume=[lease, gone]) as worker:
        held = pb.LeaseState(lease=lease, status=pb.LEASE_STATUS_HELD)
        assert list(worker.welcome.resumed) == [held, pb.LeaseState(lease=gone, status=pb.LEASE_STATUS_LOST)]
        assert (await worker.complete(lease, "o-1", 1)).outcome == pb.JOB_OUTCOME_TRY_AGAIN
        verdict = await worker.deliver(lease, NOTE, output_id="o-1")
        assert (verdict.outcome, verdict.revision) == (pb.JOB_OUTCOME_APPLIED, 1)
    async with Worker(channel, resume=[lease]) as worker:
        assert [state.status for state in worker.welcome.resumed] == [pb.LEASE_STATUS_APPLIED]
        assert (await worker.complete(lease, "o-1", 1)).outcome == pb.JOB_OUTCOME_ALREADY_APPLIED


async def test_what_is_wrong_goes_back_once_and_is_then_left_out(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    wrong = edit(caller.uri("memories/preferences/None.md"), content="x")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.deliver(lease, NOTE, wrong)
        assert verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
        (refused,) = verdict.refused
        assert (refused.reason, refused.operation_index, refused.uri) == (
            "not_found", 1, caller.uri("memories/preferences/None.md"),
        )  # fmt: skip
        assert (await caller.listing("viking://user/memories")).entries == []
        assert (await worker.deliver(lease, NOTE, wrong)).outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(committed.task_id)).result
    assert result.outcome == task_service_pb2.COMMIT_OUTCOME_PARTLY_REJECTED
    assert [(one.reason, one.operation_index) for one in result.rejected] == [("not_found", 1)]
    assert dict(result.memories_extracted) == {"preferences": 1}


async def test_a_repair_that_mends_everything_is_wholly_applied(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert (await worker.deliver(lease, write("preferences", content="x"))).outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
        assert (await worker.deliver(lease, NOTE)).outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.task(committed.task_id)).result.outcome == task_service_pb2.COMMIT_OUTCOME_APPLIED


# Order of jobs


async def test_commits_of_an_account_go_by_priority_and_then_by_age(channel: grpc.aio.Channel) -> None:
    """Among users of one account; those of one user keep their order whatever they say."""
    account = uuid4().hex
    users = [Caller(channel, name, account) for name in ("ann", "bea", "cid", "dan")]
    ann, bea, cid, dan = users
    expected = {}
    for name, caller, priority in (
        ("old", ann, 0), ("low", bea, -5), ("high", cid, 7), ("behind old", ann, 100), ("young", dan, 0),
    ):  # fmt: skip
        session = await caller.session()
        await caller.add(session, said("hello"))
        expected[(await caller.commit(session, priority=priority)).task_id] = name
    order = []
    async with Worker(channel) as worker:
        for _ in expected:
            job = await worker.take()
            order.append(expected[job.task_id])
            await worker.deliver(job.lease)
    assert order == ["high", "old", "behind old", "young", "low"]
