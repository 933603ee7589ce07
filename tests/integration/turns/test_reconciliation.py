"""Fingerprint jobs that also reconcile: what their workers are offered, what is stored of their selections and of the
reactions that they find, and what is left out."""

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import task_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from runekeep_schemas.turns.selection import Offer
from tests.integration.conftest import Callers
from tests.support.callers import Caller, failure
from tests.support.exports import exported, imported
from tests.support.turn_calls import extract, submit, talk, turn_of
from tests.support.turns import bucketed, fingerprint, fingerprinted, load, react, select
from tests.support.worker import Worker, reaction, selection, turn_memory

SERVER_SETTINGS = {"RUNEKEEP_MAX_ATTEMPTS": "2"}
BOTH = {"extract_selection": True, "extract_feedback": True}


async def conversation(caller: Caller, last: int = 5) -> str:
    """Turns t1 to the one before the last with answers and fingerprints, and the last one under way."""
    session = await caller.session()
    for number in range(1, last):
        name = f"t{number}"
        await talk(caller, session, name, f"question {number}", f"answer {number}")
        await submit(caller, session, name, fingerprint=fingerprint(f"wants {name}"))
    await talk(caller, session, f"t{last}", f"question {last}")
    return session


async def feedback_of(caller: Caller, session: str) -> list[tuple[str, str, str, str]]:
    found = await caller.turns.ListFeedback(turn_pb.ListFeedbackRequest(session=session))
    names = {turn_pb.FEEDBACK_ORIGIN_MACHINE: "machine", turn_pb.FEEDBACK_ORIGIN_USER: "user"}
    return [(one.turn_id, names[one.origin], one.from_turn_id, one.text) for one in found.feedback]


async def test_a_worker_gets_what_a_reconciler_is_shown_and_reconciles_the_turn(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await conversation(caller)
    (bucket,) = await bucketed(caller, session, "Trips", turn_id="t0")
    task_id = await extract(caller, session, "t5", **BOTH)
    async with Worker(channel) as worker:
        job = await worker.take()
        assert (job.task_id, job.turn_id, job.extract_selection, job.extract_feedback) == (task_id, "t5", True, True)
        given = await worker.input(job.lease)
        assert given.kinds == ["messages", "turns", "context"] and given.context is not None
        shown = await load(caller, session, "t5", "reconciler", last_turns=20, render=True)
        assert Offer.decode(given.context.offer).turn_ids == ("t4", "t3", "t2", "t1"), "t0 came later"
        assert [one.header for one in given.context.sections] == [one.header for one in shown.sections]
        assert [one.bucket_id for one in given.context.buckets] == [bucket.bucket_id]
        verdict = await worker.deliver_items(
            job.lease,
            turn_memory("t5", fingerprint("Find a dessert")),
            selection(local_memories_turn_ids=["t3", "t1"], turn_ids=["t2"], memory_bucket_ids=[bucket.bucket_id[:9]]),
            reaction("t3", "Too heavy"),
            reaction("", "Not what was asked", reaction=turn_pb.REACTION_NEUTRAL),
        )
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(task_id)).turn_result
    assert (result.fingerprints, result.selection_stored, result.feedback, result.dropped_items) == (1, True, 2, 0)

    stored = (await load(caller, session, "t5")).selection
    assert list(stored.local_memories_turn_ids) == ["t3", "t1"] and list(stored.turn_ids) == ["t2"]
    assert list(stored.memory_bucket_ids) == [bucket.bucket_id] and stored.current_turn_id == "t5"
    downstream = await load(caller, session, "t5", "downstream")
    assert [one.turn_id for one in downstream.turn_memories] == ["t5", "t3", "t1"]
    assert downstream.turn_memories[0].objective == "Find a dessert"
    assert [one.turn.turn_id for one in downstream.candidates if one.selected] == ["t2"]
    # Without a turn it is about the newest one before t5: t0 came later.
    assert sorted(await feedback_of(caller, session)) == [
        ("t3", "machine", "t5", "Too heavy"),
        ("t4", "machine", "t5", "Not what was asked"),
    ]
    # What it was made from is the next delta window's beginning.
    assert (await load(caller, session, "t5")).delta_count == 1, "that of t5 itself"


async def test_what_is_wrong_is_left_out_and_the_rest_is_kept(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await conversation(caller)
    await talk(caller, session, "t6", "the next one")
    task_id = await extract(caller, session, "t5", **BOTH)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        token = "ghp_" + "a1B2" * 10
        verdict = await worker.deliver_items(
            lease,
            selection(local_memories_turn_ids=["t2", "made-up", "t"], turn_ids=["t6"]),
            reaction("t2", f"Wrong key {token}"),
            reaction("t2", "Once more"),
            reaction("t1", "unsure", 0.5),
            reaction("t3", " "),
            reaction("t4", "as a user", origin=turn_pb.FEEDBACK_ORIGIN_USER),
            reaction("t6", "of a later turn"),
            reaction("made-up", "of none"),
        )
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(task_id)).turn_result
    # Two ids and a later turn's of the selection; six reactions.
    assert (result.selection_stored, result.feedback, result.dropped_items) == (True, 1, 3 + 6)
    stored = (await load(caller, session, "t5")).selection
    assert list(stored.local_memories_turn_ids) == ["t2"] and not stored.turn_ids
    assert await feedback_of(caller, session) == [("t2", "machine", "t5", "Wrong key [withheld: token]")]


async def test_a_selection_of_nothing_that_was_offered_is_not_stored(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await conversation(caller)
    task_id = await extract(caller, session, "t5", extract_selection=True)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        wrong = selection(turn_ids=["made-up"])
        verdict = await worker.deliver_items(lease, turn_memory("t5", fingerprint("Find a dessert")), wrong)
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(task_id)).turn_result
    assert (result.fingerprints, result.selection_stored, result.dropped_items) == (1, False, 1)
    answer = await load(caller, session, "t5", "downstream")
    assert not answer.HasField("selection") and len(answer.turn_memories) == 5


async def test_an_empty_selection_is_stored(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await conversation(caller)
    task_id = await extract(caller, session, "t5", extract_selection=True)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.deliver_items(lease, selection())
    assert (await caller.task(task_id)).turn_result.selection_stored
    answer = await load(caller, session, "t5", "downstream")
    assert answer.HasField("selection") and not answer.turn_memories


async def test_a_selection_that_is_stored_meanwhile_stays(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await conversation(caller)
    await select(caller, session, local_memories_turn_ids=["t1"])
    task_id = await extract(caller, session, "t5", **BOTH)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        await select(caller, session, local_memories_turn_ids=["t2"], current_turn_id="t5")
        await worker.deliver_items(lease, selection(local_memories_turn_ids=["t4"]), reaction("t4", "Too heavy"))
    result = (await caller.task(task_id)).turn_result
    assert (result.selection_stored, result.feedback) == (False, 1)
    assert list((await load(caller, session, "t5")).selection.local_memories_turn_ids) == ["t2"]

    # One that was there before is replaced.
    task_id = await extract(caller, session, "t5", extract_selection=True)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.deliver_items(lease, selection(local_memories_turn_ids=["t4"]))
    assert (await caller.task(task_id)).turn_result.selection_stored
    assert list((await load(caller, session, "t5")).selection.local_memories_turn_ids) == ["t4"]


async def test_the_order_of_turns_decides_between_selections_of_different_ones(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """A task may run long after its turn, and those of several turns run side by side."""
    session = await conversation(caller)
    late = await extract(caller, session, "t4", extract_selection=True)
    await select(caller, session, current_turn_id="t5", local_memories_turn_ids=["t1"])
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.deliver_items(lease, selection(local_memories_turn_ids=["t3"]))
        assert not (await caller.task(late)).turn_result.selection_stored
        stored = (await load(caller, session, "t5")).selection
        assert (stored.current_turn_id, list(stored.local_memories_turn_ids)) == ("t5", ["t1"])

        await talk(caller, session, "t6", "question 6")
        newer = await extract(caller, session, "t6", extract_selection=True)
        lease = (await worker.take()).lease
        await worker.input(lease)
        await select(caller, session, current_turn_id="t5", local_memories_turn_ids=["t2"])
        await worker.deliver_items(lease, selection(local_memories_turn_ids=["t4"]))
    assert (await caller.task(newer)).turn_result.selection_stored
    stored = (await load(caller, session, "t6")).selection
    assert (stored.current_turn_id, list(stored.local_memories_turn_ids)) == ("t6", ["t4"])


async def test_a_second_attempt_keeps_what_was_stored_since_the_task_was_queued(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await conversation(caller)
    task_id = await extract(caller, session, "t5", extract_selection=True)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        await select(caller, session, local_memories_turn_ids=["t1"])
        await worker.release(lease)
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.deliver_items(lease, selection(local_memories_turn_ids=["t4"]))
        assert not (await caller.task(task_id)).turn_result.selection_stored

        # Whoever asks anew wants a new one.
        task_id = await extract(caller, session, "t5", extract_selection=True)
        await select(caller, session, local_memories_turn_ids=["t2"])
        await caller.tasks.CancelTask(task_service_pb2.CancelTaskRequest(task_id=task_id))
        await caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=task_id))
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.deliver_items(lease, selection(local_memories_turn_ids=["t4"]))
    assert (await caller.task(task_id)).turn_result.selection_stored
    assert list((await load(caller, session, "t5")).selection.local_memories_turn_ids) == ["t4"]


async def test_a_late_task_is_offered_earlier_turns_alone(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await conversation(caller)
    await submit(caller, session, "t5", fingerprint=fingerprint("wants t5"))
    await fingerprinted(caller, session, "t6", "wants t6")
    task_id = await extract(caller, session, "t5", extract_selection=True)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        context = (await worker.input(lease)).context
        assert context is not None
        assert [one.turn_id for one in context.turn_memories] == ["t5", "t4", "t3", "t2", "t1"]
        assert "t6" not in context.text
        await worker.deliver_items(lease, selection(local_memories_turn_ids=["t6", "t5", "t4"]))
    assert (await caller.task(task_id)).turn_result.dropped_items == 2
    assert list((await load(caller, session, "t5")).selection.local_memories_turn_ids) == ["t4"]


async def test_two_reactions_to_one_turn_are_one(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await conversation(caller)
    task_id = await extract(caller, session, "t5", extract_feedback=True)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.deliver_items(lease, reaction("", "Too heavy"), reaction("t4", "Too late"))
    result = (await caller.task(task_id)).turn_result
    assert (result.feedback, result.dropped_items) == (1, 1)
    assert await feedback_of(caller, session) == [("t4", "machine", "t5", "Too heavy")]


async def test_what_another_reading_finds_takes_the_place_of_all_that_the_first_one_found(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await conversation(caller)
    await react(caller, session, "t3", machine=True, from_turn_id="t5", text="by the caller's own gate")
    async with Worker(channel) as worker:
        for found in (
            [reaction("t3", "Too heavy"), reaction("t4", "Too late")],
            [reaction("t2", "Too heavy")],
            # Nothing found clears nothing: a worker of an earlier release looks for none.
            [turn_memory("t5", fingerprint("Find a dessert"))],
        ):
            await extract(caller, session, "t5", extract_feedback=True)
            lease = (await worker.take()).lease
            await worker.input(lease)
            await worker.deliver_items(lease, *found)
    assert sorted(await feedback_of(caller, session)) == [
        ("t2", "machine", "t5", "Too heavy"),
        ("t3", "machine", "t5", "by the caller's own gate"),
    ]


async def test_reading_a_turn_again_replaces_its_reactions(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await conversation(caller)
    await react(caller, session, "t4", machine=True, from_turn_id="t5", text="by the caller's own gate")
    async with Worker(channel) as worker:
        for text in ("Too heavy", "Far too heavy"):
            await extract(caller, session, "t5", extract_feedback=True)
            job = await worker.take()
            assert not job.extract_selection and (await worker.input(job.lease)).context is not None
            await worker.deliver_items(job.lease, reaction("", text))
    assert [text for *_, text in await feedback_of(caller, session)] == ["Far too heavy", "by the caller's own gate"]


@pytest.mark.parametrize(
    "items",
    [
        [selection(local_memories_turn_ids=["t1"])],
        [reaction("t1", "Too heavy")],
    ],
)
async def test_what_nobody_asked_for_is_refused(caller: Caller, channel: grpc.aio.Channel, items: list) -> None:
    session = await conversation(caller, 2)
    task_id = await extract(caller, session, "t2")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert (await worker.input(lease)).context is None
        verdict = await worker.deliver_items(lease, turn_memory("t2", fingerprint("More")), *items)
        assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED
        assert "asked for" in verdict.status.message
    assert not (await load(caller, session, "t2")).HasField("selection") and not await feedback_of(caller, session)
    assert (await caller.task(task_id)).state == task_service_pb2.TASK_STATE_PENDING


async def test_a_selection_before_the_input_and_a_second_one_are_refused(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await conversation(caller, 2)
    one = selection(local_memories_turn_ids=["t1"])
    async with Worker(channel) as worker:
        await extract(caller, session, "t2", extract_selection=True)
        verdict = await worker.deliver_items((await worker.take()).lease, one)
        assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED and "input" in verdict.status.message
        # Its last attempt.
        lease = (await worker.take()).lease
        await worker.input(lease)
        verdict = await worker.deliver_items(lease, one, one)
        assert verdict.outcome == pb.JOB_OUTCOME_FAILED and "more selections" in verdict.status.message
    assert not (await load(caller, session, "t2")).HasField("selection")


async def test_a_worker_of_an_earlier_release_does_its_part(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await conversation(caller, 2)
    task_id = await extract(caller, session, "t2", **BOTH)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.deliver_items(lease, turn_memory("t2", fingerprint("Find a dessert")))
    task = await caller.task(task_id)
    assert task.state == task_service_pb2.TASK_STATE_COMPLETED
    assert (task.turn_result.fingerprints, task.turn_result.selection_stored, task.turn_result.feedback) == (
        1,
        False,
        0,
    )
    assert (await turn_of(caller, session, "t2")).fingerprint.objective == "Find a dessert"


async def test_queries_offer_turns_that_lie_further_back(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "walnut", "the walnut plan in detail")
    for number in range(22):
        await talk(caller, session, f"o{number}", "weather")
    await talk(caller, session, "now", "back to that plan")
    queries = [turn_pb.ContextQuery(query="walnut plan", target=turn_pb.CONTEXT_QUERY_TARGET_USER)]
    for ctx_retrieval_queries, found in (([], False), (queries, True)):
        await extract(caller, session, "now", extract_selection=True, ctx_retrieval_queries=ctx_retrieval_queries)
        async with Worker(channel) as worker:
            lease = (await worker.take()).lease
            given = await worker.input(lease)
            assert given.context is not None
            assert ("walnut" in {one.turn.turn_id for one in given.context.candidates}) == found
            await worker.deliver_items(lease, selection(turn_ids=["walnut"]))
        stored = (await load(caller, session, "now")).selection
        assert list(stored.turn_ids) == (["walnut"] if found else [])


async def test_queries_hold_no_secret(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await conversation(caller)
    token = "ghp_" + "a1B2" * 10
    query = turn_pb.ContextQuery(query=f"question {token}")
    await extract(caller, session, "t5", extract_selection=True, ctx_retrieval_queries=[query])
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        context = (await worker.input(lease)).context
        await worker.deliver_items(lease, selection())
    assert context is not None and token not in str(context)
    assert any("question [withheld: token]" in one.matched_queries for one in context.candidates)


async def test_a_task_that_waits_does_what_is_asked_for_later_too(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await conversation(caller, 2)
    task_id = await extract(caller, session, "t2", assistant_signal_spec="offers")
    assert await extract(caller, session, "t2", extract_selection=True) == task_id
    assert await extract(caller, session, "t2", extract_feedback=True) == task_id
    async with Worker(channel) as worker:
        job = await worker.take()
        assert (job.extract_selection, job.extract_feedback, job.assistant_signal_spec) == (True, True, "offers")
        await worker.input(job.lease)
        await worker.deliver_items(job.lease, selection())


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"extract_selection": True, "summary": turn_pb.TurnSummary(notes="n")}, "extract_selection"),
        ({"extract_feedback": True, "summary": turn_pb.TurnSummary(notes="n")}, "extract_feedback"),
        ({"extract": True, "ctx_retrieval_queries": [turn_pb.ContextQuery(query="a")]}, "ctx_retrieval_queries"),
    ],
)
async def test_what_goes_with_something_else_is_refused_without_it(caller: Caller, fields: dict, field: str) -> None:
    session = await conversation(caller, 2)
    failed = await failure(submit(caller, session, "t2", **fields))
    assert failed.seen[0] == "INVALID_ARGUMENT" and failed.fields == [field]
    assert not (await turn_of(caller, session, "t2")).HasField("summary")


async def test_nobody_elses_turns_are_offered(caller: Caller, channel: grpc.aio.Channel) -> None:
    other = Caller(channel, "somebody-else")
    await fingerprinted(other, await other.session(), "theirs", "Something of their own")
    session = await conversation(caller, 2)
    await extract(caller, session, "t2", extract_selection=True)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        given = await worker.input(lease)
        assert given.context is not None and "theirs" not in str(given.context)
        await worker.deliver_items(lease, selection(local_memories_turn_ids=["theirs"]))
    assert not (await load(caller, session, "t2")).HasField("selection")


async def test_a_waiting_task_and_a_result_come_along_with_an_export(
    caller: Caller, channel: grpc.aio.Channel, callers: Callers
) -> None:
    session = await conversation(caller)
    query = turn_pb.ContextQuery(query="walnut plan", target=turn_pb.CONTEXT_QUERY_TARGET_USER, reason="by its name")
    async with Worker(channel) as worker:
        await extract(caller, session, "t4", **BOTH)
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.deliver_items(lease, selection(turn_ids=["t1"]), reaction("t3", "Too heavy"))
        await extract(caller, session, "t5", **BOTH, ctx_retrieval_queries=[query])
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.fail(lease, pb.FAILURE_CLASS_MODEL_UNAVAILABLE)
    other = callers()
    await imported(other, await exported(caller))
    tasks = (await other.tasks.ListTasks(task_service_pb2.ListTasksRequest())).tasks
    (done,) = [one.turn_result for one in tasks if one.turn_id == "t4"]
    assert (done.selection_stored, done.feedback) == (True, 1)
    (waiting,) = [one.task_id for one in tasks if one.turn_id == "t5"]
    await caller.tasks.CancelTask(
        task_service_pb2.CancelTaskRequest(
            task_id=next(
                one.task_id
                for one in (await caller.tasks.ListTasks(task_service_pb2.ListTasksRequest())).tasks
                if one.turn_id == "t5"
            )
        )
    )
    async with Worker(channel) as worker:
        job = await worker.take()
        assert (job.task_id, job.extract_selection, job.extract_feedback) == (waiting, True, True)
        await worker.input(job.lease)
        await worker.deliver_items(job.lease, selection(local_memories_turn_ids=["t2"]))
    stored = (await load(other, session, "t5")).selection
    assert list(stored.local_memories_turn_ids) == ["t2"]
