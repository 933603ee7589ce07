"""Fingerprint jobs: what a worker is given, what becomes of its output, and how such tasks end."""

import grpc
import pytest

from runekeep.v1 import common_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from tests.support.callers import Caller, failure, said, used_tool
from tests.support.turn_calls import extract, in_turn, signal, submit, talk, turn_of
from tests.support.worker import Worker, bucket_changes, turn_memory, write

SERVER_SETTINGS = {"RUNEKEEP_MAX_ATTEMPTS": "2"}

TRIP = turn_pb.TurnFingerprint(
    objective="Plan a trip",
    topics=["travel"],
    assertions=[signal("budget.cap", 500, turn_pb.SIGNAL_SEVERITY_MUST)],
    facts=[signal("city", "Oslo")],
)
DONE = turn_pb.TurnSummary(user_inquiry="A trip to Oslo", done=["looked up trains"])
USAGE = common_pb2.TokenUsage(model="m", phase="fingerprint", calls=1, input_tokens=70, output_tokens=9)


async def test_a_turn_is_given_with_the_turns_before_it_and_gets_its_fingerprint(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await caller.session()
    for number in range(1, 6):
        await talk(caller, session, f"t{number}", f"question {number}", f"answer {number}")
    await submit(caller, session, "t3", fingerprint=turn_pb.TurnFingerprint(objective="The third"))
    task_id = await extract(caller, session, "t5", assistant_signal_spec="offers of trains")
    async with Worker(channel) as worker:
        job = await worker.take()
        assert (job.kind, job.task_id) == (task_service_pb2.TASK_KIND_TURN_FINGERPRINT, task_id)
        assert (job.turn_id, job.assistant_signal_spec) == ("t5", "offers of trains")
        assert (job.archive_uri, job.HasField("plan")) == ("", False)
        assert job.session == caller.uri(f"sessions/{session}")

        given = await worker.input(job.lease)
        assert given.kinds == ["messages", "turns"]
        assert [message.parts[0].text.text for message in given.messages] == ["question 5", "answer 5"]
        assert [one.turn.turn_id for one in given.turns] == ["t2", "t3", "t4", "t5"]
        assert [one.compressed_view for one in given.turns] == [
            "user: question 2 | answer: answer 2",
            "user: question 3 | objective: The third | answer: answer 3",
            "user: question 4 | answer: answer 4",
            "",
        ]
        assert given.turns[1].turn.fingerprint.objective == "The third"

        await worker.progress(job.lease, task_service_pb2.TASK_PHASE_FINGERPRINT, 40)
        verdict = await worker.deliver_items(job.lease, turn_memory("t5", TRIP, DONE), usage=[USAGE])
        assert (verdict.outcome, verdict.revision) == (pb.JOB_OUTCOME_APPLIED, 0)
    turn = await turn_of(caller, session, "t5")
    assert (turn.fingerprint.objective, list(turn.fingerprint.topics)) == ("Plan a trip", ["travel"])
    assert turn.fingerprint.assertions == TRIP.assertions
    assert turn.fingerprint.facts[0].severity == turn_pb.SIGNAL_SEVERITY_MEDIUM, "the list's default"
    assert turn.fingerprint.made_time == turn.end_time, "it speaks of the turn, not of the job"
    assert turn.summary == DONE

    task = await caller.task(task_id)
    assert (task.kind, task.state) == (job.kind, task_service_pb2.TASK_STATE_COMPLETED)
    assert (task.turn_id, task.archive_uri, task.HasField("result")) == ("t5", "", False)
    assert task.progress.phase == task_service_pb2.TASK_PHASE_FINGERPRINT
    result = task.turn_result
    assert (result.fingerprints, result.dropped_items, result.extractor.engine) == (1, 0, "scripted")
    assert list(result.usage) == [USAGE]


async def test_whole_tool_outputs_and_the_ends_of_a_long_turn(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await caller.add(session, in_turn("t1", used_tool("tool1", "x" * 30_000)))
    for start in range(0, 220, 55):
        await caller.add(session, *(in_turn("t1", said(f"line {start + number}")) for number in range(55)))
    await extract(caller, session, "t1")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        given = await worker.input(lease)
        assert len(given.messages) == 200
        assert len(given.messages[0].parts[0].tool.output) == 30_000
        texts = [message.parts[0].text.text for message in given.messages[1:]]
        assert texts == [f"line {number}" for number in (*range(99), *range(120, 220))]
        assert [one.turn.turn_id for one in given.turns] == ["t1"]
        await worker.deliver_items(lease)


async def test_what_a_caller_said_stays_also_when_it_is_said_while_the_job_runs(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    task_id = await extract(caller, session, "t1")
    own = [signal("tone", "short", turn_pb.SIGNAL_SEVERITY_ALLOW)]
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        mine = turn_pb.TurnFingerprint(objective="My own words", topics=["mine"], assertions=own)
        said_of_it = turn_pb.TurnSummary(user_inquiry="asked by me")
        await submit(caller, session, "t1", fingerprint=mine, summary=said_of_it)
        assert (await worker.deliver_items(lease, turn_memory("t1", TRIP, DONE))).outcome == pb.JOB_OUTCOME_APPLIED
    turn = await turn_of(caller, session, "t1")
    assert turn.fingerprint.objective == "My own words"
    assert list(turn.fingerprint.assertions) == own
    assert list(turn.fingerprint.topics) == ["mine", "travel"]
    assert [one.key for one in turn.fingerprint.facts] == ["city"], "what was missing is filled in"
    assert (turn.summary.user_inquiry, list(turn.summary.done)) == ("asked by me", ["looked up trains"])
    assert (await caller.task(task_id)).turn_result.fingerprints == 1


async def test_an_empty_output_completes_with_nothing(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    await talk(caller, session, "t2")
    async with Worker(channel) as worker:
        for turn_id, items in (("t1", []), ("t2", [turn_memory("t2")])):
            task_id = await extract(caller, session, turn_id)
            verdict = await worker.deliver_items((await worker.take()).lease, *items)
            assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
            assert not (await turn_of(caller, session, turn_id)).HasField("fingerprint")
            task = await caller.task(task_id)
            assert (task.state, task.turn_result.fingerprints) == (task_service_pb2.TASK_STATE_COMPLETED, 0)


@pytest.mark.parametrize(
    ("items", "fields", "why"),
    [
        pytest.param([turn_memory("t2", TRIP)], {}, "more than the memory of the one turn", id="another-turn"),
        pytest.param(
            [turn_memory("t1", TRIP), turn_memory("t1", TRIP)], {}, "more than the memory of the one turn", id="twice"
        ),
        pytest.param(
            [turn_memory("t1", TRIP), pb.OutputItem(operation=write("preferences", topic="a", content="b"))],
            {},
            "holds memory operations",
            id="an-operation",
        ),
        pytest.param([turn_memory("t1", TRIP), bucket_changes()], {}, "holds bucket changes", id="bucket-changes"),
        pytest.param([], {"dropped_items": 3}, "3 parts were dropped", id="nothing-readable"),
        pytest.param(
            [turn_memory("t1", turn_pb.TurnFingerprint(facts=[signal("k", {"odd": 1})]))],
            {},
            "1 parts were dropped",
            id="nothing-right",
        ),
    ],
)
async def test_an_output_that_is_of_no_use_is_rejected_and_changes_nothing(
    caller: Caller, channel: grpc.aio.Channel, items: list[pb.OutputItem], fields: dict[str, int], why: str
) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    await talk(caller, session, "t2")
    task_id = await extract(caller, session, "t1")
    async with Worker(channel) as worker:
        verdict = await worker.deliver_items((await worker.take()).lease, *items, usage=[USAGE], **fields)
        assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED
        assert why in verdict.status.message
        job = await worker.take()
        (earlier,) = job.previous_failures
        assert earlier.failure_class == pb.FAILURE_CLASS_REJECTED_OUTPUT and why in earlier.status.message
        verdict = await worker.deliver_items(job.lease, *items, usage=[USAGE], **fields)
        assert verdict.outcome == pb.JOB_OUTCOME_FAILED
    for turn_id in ("t1", "t2"):
        assert not (await turn_of(caller, session, turn_id)).HasField("fingerprint")
    task = await caller.task(task_id)
    assert (task.state, task.HasField("result")) == (task_service_pb2.TASK_STATE_FAILED, False)
    assert task.turn_result.usage[0].input_tokens == 2 * USAGE.input_tokens, "what both attempts spent"


async def test_what_does_not_fit_is_left_out_and_counted(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    task_id = await extract(caller, session, "t1")
    told = turn_pb.TurnFingerprint(
        objective="Two\nlines",
        facts=[signal("a", 1, turn_pb.SIGNAL_SEVERITY_MUST), signal("b", {"odd": 1}), signal("c", 3)],
    )
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert (await worker.deliver_items(lease, turn_memory("t1", told))).outcome == pb.JOB_OUTCOME_APPLIED
    fingerprint = (await turn_of(caller, session, "t1")).fingerprint
    assert fingerprint.objective == "Two lines"
    assert [(one.key, one.severity) for one in fingerprint.facts] == [
        ("a", turn_pb.SIGNAL_SEVERITY_MEDIUM),
        ("c", turn_pb.SIGNAL_SEVERITY_MEDIUM),
    ]
    assert (await caller.task(task_id)).turn_result.dropped_items == 1


async def test_secrets_are_withheld(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    await extract(caller, session, "t1")
    secret = "password = Tr0ub4dor&3xyz"
    told = turn_pb.TurnFingerprint(objective=f"Log in with {secret}", facts=[signal("login", secret)])
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.deliver_items(lease, turn_memory("t1", told, turn_pb.TurnSummary(notes=secret)))
    turn = await turn_of(caller, session, "t1")
    assert turn.fingerprint.objective and turn.summary.notes
    assert "Tr0ub4dor" not in str(turn)


async def test_the_same_output_again_is_applied_already(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    await extract(caller, session, "t1")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        outcomes = [
            (await worker.deliver_items(lease, turn_memory("t1", told), output_id="o")).outcome
            for told in (TRIP, turn_pb.TurnFingerprint(exceptions=[signal("late", True)]))
        ]
    assert outcomes == [pb.JOB_OUTCOME_APPLIED, pb.JOB_OUTCOME_ALREADY_APPLIED]
    assert not (await turn_of(caller, session, "t1")).fingerprint.exceptions


async def test_a_failed_task_tells_what_it_spent_and_can_be_retried(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    task_id = await extract(caller, session, "t1")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert (await worker.fail(lease, pb.FAILURE_CLASS_MODEL_REFUSED, usage=[USAGE])).outcome == (
            pb.JOB_OUTCOME_FAILED
        )
        task = await caller.task(task_id)
        assert (task.state, list(task.turn_result.usage)) == (task_service_pb2.TASK_STATE_FAILED, [USAGE])
        assert task.error.message.startswith("model_refused")
        record = task_service_pb2.GetExtractionRecordRequest(task_id=task_id)
        (attempt,) = (await caller.tasks.GetExtractionRecord(record)).attempts
        assert (attempt.number, attempt.type_digests) == (1, {}), "it could write no memory"

        retried = await caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=task_id))
        assert retried.task.state == task_service_pb2.TASK_STATE_PENDING
        assert not retried.task.HasField("turn_result")
        await worker.deliver_items((await worker.take()).lease, turn_memory("t1", TRIP))
    assert (await turn_of(caller, session, "t1")).fingerprint.objective == "Plan a trip"
    usage = task_service_pb2.GetUsageRequest(scope=task_service_pb2.USAGE_SCOPE_SESSION, session_id=session)
    assert list((await caller.tasks.GetUsage(usage)).usage) == [USAGE], "counted with its session"


async def test_a_cancelled_task_applies_nothing(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    task_id = await extract(caller, session, "t1")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        cancelled = await caller.tasks.CancelTask(task_service_pb2.CancelTaskRequest(task_id=task_id))
        assert cancelled.task.state == task_service_pb2.TASK_STATE_CANCELLED
        assert not cancelled.task.HasField("turn_result")
        assert (await worker.next("cancel")).lease == lease
        assert (await worker.complete(lease, "o", 0)).outcome == pb.JOB_OUTCOME_CANCELLED
        await caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=task_id))
        await worker.deliver_items((await worker.take()).lease, turn_memory("t1", TRIP))
    assert (await turn_of(caller, session, "t1")).fingerprint.objective == "Plan a trip"


async def test_the_deletion_of_its_session_ends_a_job_for_good(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    task_id = await extract(caller, session, "t1")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session))
        assert (await failure(worker.calls.GetJobInput(pb.GetJobInputRequest(lease=lease)))).reason == "LEASE_LOST"
        assert (await worker.deliver_items(lease, turn_memory("t1", TRIP))).outcome == pb.JOB_OUTCOME_CANCELLED
    retry = caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=task_id))
    assert (await failure(retry)).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")


async def test_a_turn_goes_ahead_of_commits_and_runs_beside_one(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    await talk(caller, session, "t2")
    committed = [await caller.committed(), await caller.committed()]
    wanted = [await extract(caller, session, "t1"), await extract(caller, session, "t2")]
    async with Worker(channel) as worker:
        taken = [await worker.take() for _ in range(3)]
        assert [job.task_id for job in taken[:2]] == wanted
        assert taken[2].task_id == committed[0].task_id, "while both turns are at work"
        for job in taken[:2]:
            await worker.deliver_items(job.lease)
        await worker.deliver(taken[2].lease)
        await worker.deliver((await worker.take()).lease)
