"""Turn memory and commits: what a commit's worker is told of the turns, and what it may fill in."""

from typing import Any

import grpc

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from tests.support.callers import Caller, said
from tests.support.turn_calls import signal, submit, talk, turn_of
from tests.support.worker import Worker, bucket_changes, turn_memory, write

TEA = pb.OutputItem(operation=write("preferences", topic="Tea", content="Drinks green tea."))
NOBODY = pb.OutputItem(operation=write("nothing_like_it", name="x"))


def found(objective: str = "Found later", **fields: Any) -> turn_pb.TurnFingerprint:
    return turn_pb.TurnFingerprint(**{"objective": objective, "facts": [signal("city", "Oslo")], **fields})


async def test_the_turns_of_the_batch_are_evidence(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "an old question")
    await caller.committed(session=session)
    await caller.add(session, said("of no turn"))
    await talk(caller, session, "t2", "a question", "an answer")
    await talk(caller, session, "t3")
    await talk(caller, session, "t1", "the old question again")
    # More than the server reads at once, and a turn that goes on behind them.
    for start in range(0, 210, 70):
        await caller.add(session, *(said(f"filler {start + number}") for number in range(70)))
    await talk(caller, session, "t3", "and more of it")
    await submit(caller, session, "t2", fingerprint=found("Of the second"), summary=turn_pb.TurnSummary(notes="n"))
    async with Worker(channel) as worker:
        await worker.deliver((await worker.take()).lease)
        await caller.commit(session)
        lease = (await worker.take()).lease
        given = await worker.input(lease)
        assert list(dict.fromkeys(given.kinds)) == ["memory_types", "messages", "turns", "usage"]
        assert [one.turn.turn_id for one in given.turns] == ["t1", "t2", "t3"]
        assert [one.turn.fingerprint.objective for one in given.turns] == ["", "Of the second", ""]
        assert [one.turn.HasField("fingerprint") for one in given.turns] == [False, True, False]
        assert given.turns[1].turn.summary.notes == "n"
        await worker.deliver(lease)


async def test_fingerprints_that_are_missing_come_with_the_commit(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    await talk(caller, session, "t2")
    committed = await caller.commit(session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        summary = turn_pb.TurnSummary(done=["listened"])
        items = [TEA, turn_memory("t1", found(), summary), turn_memory("t2", summary=summary)]
        assert (await worker.deliver_items(lease, *items)).outcome == pb.JOB_OUTCOME_APPLIED
    turns = [await turn_of(caller, session, turn_id) for turn_id in ("t1", "t2")]
    assert turns[0].fingerprint.objective == "Found later"
    assert turns[0].fingerprint.made_time == turns[0].end_time
    assert not turns[1].HasField("fingerprint")
    assert [turn.summary for turn in turns] == [summary, summary]
    task = await caller.task(committed.task_id)
    assert (task.result.outcome, task.result.fingerprints) == (task_service_pb2.COMMIT_OUTCOME_APPLIED, 1)
    assert (task.turn_id, task.HasField("turn_result")) == ("", False)


async def test_what_a_caller_says_while_the_commit_runs_stays(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    await talk(caller, session, "t2")
    committed = await caller.commit(session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert not (await worker.input(lease)).turns[0].turn.HasField("fingerprint")
        mine = turn_pb.TurnFingerprint(
            objective="My own words", facts=[signal("city", "Rome")], topics=["a", "b", "c", "d", "e", "f", "g", "h"]
        )
        await submit(caller, session, "t1", fingerprint=mine, summary=turn_pb.TurnSummary(notes="mine"))
        before = await turn_of(caller, session, "t1")
        theirs = turn_pb.TurnSummary(notes="theirs")
        late = [signal("late", True)]
        memories = [turn_memory(turn_id, found(topics=["other"], exceptions=late), theirs) for turn_id in ("t1", "t2")]
        assert (await worker.deliver_items(lease, TEA, *memories)).outcome == pb.JOB_OUTCOME_APPLIED
    after = await turn_of(caller, session, "t1")
    assert [one.key for one in after.fingerprint.exceptions] == ["late"], "what was missing is filled in"
    after.fingerprint.ClearField("exceptions")
    assert after == before
    assert (await turn_of(caller, session, "t2")).fingerprint.objective == "Found later"
    assert (await caller.task(committed.task_id)).result.fingerprints == 1, "one turn lacked one"


async def test_turns_that_are_not_of_the_batch_are_named_and_left_out(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session, other = await caller.session(), await caller.session()
    await talk(caller, other, "elsewhere")
    await talk(caller, session, "t1")
    first = await caller.commit(session)
    await talk(caller, session, "t2")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        names = ["t2", "elsewhere", "never", "t1", "t1"]
        memories = [turn_memory(name, found(f"Of {number}")) for number, name in enumerate(names)]
        wrong = found(facts=[signal("k", {"odd": 1})])
        verdict = await worker.deliver_items(lease, TEA, *memories, turn_memory("t1", wrong))
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED, "nothing of it can be mended"
    result = (await caller.task(first.task_id)).result
    assert result.outcome == task_service_pb2.COMMIT_OUTCOME_PARTLY_REJECTED
    assert [(one.reason, one.operation_index, one.message.partition(":")[0]) for one in result.rejected] == [
        ("no_such_turn", -1, f"turn memory {number}") for number in (0, 1, 2, 4, 5)
    ]
    assert (result.fingerprints, result.total_adds > 0) == (1, True)
    assert (await turn_of(caller, session, "t1")).fingerprint.objective == "Of 3"
    assert not (await turn_of(caller, session, "t2")).HasField("fingerprint")
    assert not (await turn_of(caller, other, "elsewhere")).HasField("fingerprint")


async def test_what_is_wrong_inside_is_left_out_and_counted(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    committed = await caller.commit(session)
    told = found(exceptions=[signal("k", {"odd": 1}), signal("password", "Tr0ub4dor&3xyz")])
    async with Worker(channel) as worker:
        await worker.deliver_items((await worker.take()).lease, TEA, turn_memory("t1", told), dropped_items=2)
    result = (await caller.task(committed.task_id)).result
    assert (result.dropped_items, result.secrets_withheld, result.fingerprints) == (3, 1, 1)
    fingerprint = (await turn_of(caller, session, "t1")).fingerprint
    assert [one.key for one in fingerprint.exceptions] == ["password"]
    assert "Tr0ub4dor" not in str(fingerprint)


async def test_a_repair_brings_the_turn_memories_again(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    committed = await caller.commit(session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        first = await worker.deliver_items(lease, TEA, NOBODY, turn_memory("t1", found("First")))
        assert first.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
        assert not (await turn_of(caller, session, "t1")).HasField("fingerprint"), "nothing before the whole"
        second = await worker.deliver_items(lease, TEA, turn_memory("t1", found("Second")))
        assert second.outcome == pb.JOB_OUTCOME_APPLIED
    assert (await turn_of(caller, session, "t1")).fingerprint.objective == "Second"
    assert (await caller.task(committed.task_id)).result.fingerprints == 1


async def test_a_turn_memory_that_is_taken_is_something_right(caller: Caller, channel: grpc.aio.Channel) -> None:
    """Small talk: nothing to remember, and a note of which a part could not be read."""
    session = await caller.session()
    await talk(caller, session, "t1")
    committed = await caller.commit(session)
    summary = pb.OutputItem(summary=common_pb2.Summary(abstract="Hello.", overview="# Hello"))
    async with Worker(channel) as worker:
        for nothing in (turn_memory("t1"), turn_memory("elsewhere", found())):
            lease = (await worker.take()).lease
            verdict = await worker.deliver_items(lease, nothing, dropped_items=1)
            assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED, "one that is not taken says nothing"
        lease = (await worker.take()).lease
        verdict = await worker.deliver_items(lease, summary, turn_memory("t1", found()), dropped_items=1)
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    task = await caller.task(committed.task_id)
    assert task.state == task_service_pb2.TASK_STATE_COMPLETED
    assert task.result.outcome == task_service_pb2.COMMIT_OUTCOME_PARTLY_REJECTED
    assert (task.result.dropped_items, task.result.fingerprints) == (1, 1)
    assert (await turn_of(caller, session, "t1")).fingerprint.objective == "Found later"


async def test_turn_memory_is_kept_where_no_operation_is_right(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    await caller.commit(session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        memory = turn_memory("t1", found())
        assert (await worker.deliver_items(lease, NOBODY, memory)).outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
        verdict = await worker.deliver_items(lease, NOBODY, memory)
        assert verdict.commit_outcome == task_service_pb2.COMMIT_OUTCOME_PARTLY_REJECTED
        assert (await turn_of(caller, session, "t1")).HasField("fingerprint")

        await talk(caller, session, "t2")
        await caller.commit(session)
        lease = (await worker.take()).lease
        verdict = await worker.deliver_items(lease, TEA, bucket_changes())
        assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED and "bucket changes" in verdict.status.message
        await worker.deliver_items((await worker.take()).lease, TEA)
