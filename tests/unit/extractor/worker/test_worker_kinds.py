"""Which part of its engine a worker asks, by the kind of the job, and what it sends of the answer."""

import pytest

from runekeep.v1 import common_pb2, extractor_service_pb2, task_service_pb2
from runekeep.v1.turn_memory_service_pb2 import CandidateTurn, LoadTurnContextResponse, MemoryBucket, Turn
from runekeep_extractor.engine.interface import EngineOutput
from tests.unit.extractor.conftest import operation
from tests.unit.extractor.server_double import assignment, verdict

pb = extractor_service_pb2


async def test_a_turn_is_fingerprinted_with_the_turns_before_it(server, engine, run_worker):
    double, _ = server
    double.messages = [common_pb2.Message(id="m7", sequence=7)]
    double.turns = [CandidateTurn(turn=Turn(turn_id="one")), CandidateTurn(turn=Turn(turn_id="two"))]
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment(kind=task_service_pb2.TASK_KIND_TURN_FINGERPRINT, turn_id="two"))
    chunks, complete = await talk.output()
    [item] = [item for chunk in chunks for item in chunk.items]
    assert (item.turn_memory.turn_id, item.turn_memory.fingerprint.objective) == ("two", "Find a hotel.")
    assert complete.chunk_count == 1
    assert engine.asked == [("fingerprint", ["one", "two"], [])]
    assert engine.seen == [], "no commit"
    talk.say(verdict=verdict(pb.JOB_OUTCOME_APPLIED))
    await talk.expect("ready")


@pytest.mark.parametrize("has_context", [True, False])
async def test_a_selection_is_made_only_where_the_server_offers_something(server, engine, run_worker, has_context):
    """While servers are upgraded, one that knows no context may give the input of a job of one that does."""
    double, _ = server
    double.context = LoadTurnContextResponse(offer="offer") if has_context else None
    seen = []

    async def work(job):
        seen.append((job.assignment.extract_selection, job.assignment.extract_feedback, job.context.offer))
        return EngineOutput()

    engine.fingerprint = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    of_turn = {"kind": task_service_pb2.TASK_KIND_TURN_FINGERPRINT, "turn_id": "two"}
    talk.say(assignment=assignment(**of_turn, extract_selection=True, extract_feedback=True))
    await talk.output()
    assert seen == [(has_context, True, "offer" if has_context else "")]


async def test_buckets_are_reconciled_and_nothing_of_it_is_repaired(server, engine, run_worker):
    double, _ = server
    double.turns = [CandidateTurn(turn=Turn(turn_id="one"))]
    double.buckets = [MemoryBucket(bucket_id="obj-old"), MemoryBucket(bucket_id="obj-new")]
    await run_worker(concurrency=1)
    talk = await double.conversation()
    await talk.welcome()
    await talk.expect("ready")
    talk.say(assignment=assignment(kind=task_service_pb2.TASK_KIND_BUCKET_RECONCILE))
    chunks, _ = await talk.output()
    [item] = [item for chunk in chunks for item in chunk.items]
    assert item.bucket_changes.disabled == ["obj-old"]
    assert engine.asked == [("reconcile", ["one"], ["obj-old", "obj-new"])]
    talk.say(verdict=verdict(pb.JOB_OUTCOME_NEEDS_REPAIR))
    await talk.expect("ready", skip=("heartbeat",))
    assert engine.refused == []


async def test_the_turn_memories_of_a_commit_go_with_its_operations(server, engine, run_worker):
    double, _ = server
    double.turns = [CandidateTurn(turn=Turn(turn_id="one"))]

    async def work(job):
        memories = [pb.TurnMemory(turn_id=one.turn.turn_id) for one in job.turns]
        return EngineOutput(operations=[operation("one")], turn_memories=memories)

    engine.work = work
    await run_worker()
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    chunks, _ = await talk.output()
    assert [item.WhichOneof("item") for chunk in chunks for item in chunk.items] == ["operation", "turn_memory"]
