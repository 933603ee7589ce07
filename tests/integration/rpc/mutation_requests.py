"""What the mutations of the contract ask for: each brings a caller's space so far that its request, which has no id
yet, can be answered."""

from google.protobuf.message import Message

from runekeep.v1 import (
    common_pb2,
    history_service_pb2,
    memory_service_pb2,
    proposal_service_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from tests.support.callers import Caller, policy, said
from tests.support.turn_calls import talk
from tests.support.turns import bucketed, fingerprint, fingerprinted, react
from tests.support.worker import Worker, value, write

TASK, TURN = task_service_pb2, turn_memory_service_pb2


async def create_session(caller: Caller) -> Message:
    return session_service_pb2.CreateSessionRequest(title="one")


async def create_taken_session(caller: Caller) -> Message:
    return session_service_pb2.CreateSessionRequest(session_id=await caller.session())


async def in_session(caller: Caller) -> str:
    session = await caller.session(session_id="s")
    await caller.add(session, said("before"))
    return session


async def update_session(caller: Caller) -> Message:
    return updated(await in_session(caller))


def updated(session: str) -> session_service_pb2.UpdateSessionRequest:
    rules = session_service_pb2.AutoCommit(message_count=40)
    return session_service_pb2.UpdateSessionRequest(
        session=session, title="one", auto_commit=rules, update_mask={"paths": ["title", "auto_commit"]}  # type: ignore[arg-type]  # as a dict
    )  # fmt: skip


async def delete_session(caller: Caller) -> Message:
    await caller.session(session_id="kept")
    return session_service_pb2.DeleteSessionRequest(session=await in_session(caller))


async def add_messages(caller: Caller) -> Message:
    return session_service_pb2.AddMessagesRequest(session=await in_session(caller), messages=[said("one")])


async def record_usage(caller: Caller) -> Message:
    used = [caller.uri("memories/preferences/Tea.md")]
    return session_service_pb2.RecordUsageRequest(session=await in_session(caller), context_uris=used)


async def commit_session(caller: Caller) -> Message:
    session = await in_session(caller)
    await caller.add(session, said("again"))
    return session_service_pb2.CommitSessionRequest(session=session)


async def cancel_task(caller: Caller) -> Message:
    return TASK.CancelTaskRequest(task_id=(await caller.committed(session=await in_session(caller))).task_id)


async def cancelled(caller: Caller) -> str:
    request = await cancel_task(caller)
    await caller.tasks.CancelTask(request)
    return str(request.task_id)  # type: ignore[attr-defined]  # any of the messages


async def retry_task(caller: Caller) -> Message:
    return TASK.RetryTaskRequest(task_id=await cancelled(caller))


def put(content: str, base_version: int = 0) -> memory_service_pb2.MemoryMutation:
    fields = {"topic": value("Tea"), "content": value(content)}
    made = memory_service_pb2.PutMemory(memory_type="preferences", fields=fields)
    return memory_service_pb2.MemoryMutation(put=made, base_version=base_version)


async def write_memories(caller: Caller) -> Message:
    return memory_service_pb2.WriteMemoriesRequest(changes=[put("Likes tea.")])


def second_version() -> memory_service_pb2.WriteMemoriesRequest:
    return memory_service_pb2.WriteMemoriesRequest(changes=[put("Likes coffee.", base_version=1)])


async def taken_back(caller: Caller) -> history_service_pb2.RollbackRevisionRequest:
    """What the second revision changed, of which there is only the first."""
    await caller.memories.WriteMemories(await write_memories(caller))
    return history_service_pb2.RollbackRevisionRequest(revision=2)


async def rollback_revision(caller: Caller) -> Message:
    request = await taken_back(caller)
    await caller.memories.WriteMemories(second_version())
    return request


async def rollback_session(caller: Caller) -> Message:
    session = await in_session(caller)
    await extracted(caller, (await caller.committed(session=session)).task_id)
    return history_service_pb2.RollbackSessionRequest(session=session)


async def under_review(caller: Caller) -> str:
    """The task of a commit whose operations will wait for review."""
    return str((await caller.committed(policy=policy(review=common_pb2.REVIEW_MODE_ALL))).task_id)


async def proposed(caller: Caller) -> str:
    task_id = await under_review(caller)
    await extracted(caller, task_id)
    return task_id


async def extracted(caller: Caller, task_id: str) -> None:
    operations = [write("preferences", topic=topic, content="Likes it.") for topic in ("Rye", "Jam")]
    async with Worker(caller.channel) as worker:
        others = []
        while (lease := (await worker.take()).lease).job_id != task_id:
            others.append(lease)
        await worker.deliver(lease, *operations)
        for other in others:
            await worker.release(other)


async def accept_proposal(caller: Caller) -> Message:
    return proposal_service_pb2.AcceptProposalRequest(task_id=await proposed(caller))


async def edit_proposal(caller: Caller) -> Message:
    return edited(await proposed(caller))


def edited(task_id: str) -> proposal_service_pb2.EditProposalRequest:
    fields = {"content": value("Likes it toasted.")}
    return proposal_service_pb2.EditProposalRequest(task_id=task_id, number=1, fields=fields)


async def refuse_proposal(caller: Caller) -> Message:
    return proposal_service_pb2.RefuseProposalRequest(task_id=await proposed(caller))


async def recall(caller: Caller) -> Message:
    await caller.memories.WriteMemories(await write_memories(caller))
    await caller.searchable()
    return memory_service_pb2.RecallRequest(query="tea", session=await in_session(caller))


async def delete_user(caller: Caller) -> Message:
    await in_session(caller)
    return memory_service_pb2.DeleteUserRequest(user=caller.user)


async def erase_data(caller: Caller) -> Message:
    await in_session(caller)
    await caller.session(session_id="kept")
    await caller.add("kept", said("one", id="m1"))
    return space_service_pb2.EraseDataRequest(user=caller.user)


async def in_turns(caller: Caller) -> str:
    """A session of two turns, of which the first has a fingerprint."""
    session = await in_session(caller)
    await fingerprinted(caller, session, "t1", "Book a trip")
    await talk(caller, session, "t2")
    return session


async def submit_turn(caller: Caller) -> Message:
    said_so, summary = fingerprint("Book a trip", topics=["travel"]), TURN.TurnSummary(notes="one")
    return TURN.SubmitTurnRequest(
        session=await in_turns(caller), turn_id="t2", fingerprint=said_so, summary=summary, extract=True
    )


async def set_turn_selection(caller: Caller) -> Message:
    selection = TURN.TurnSelection(turn_ids=["t1"], local_memories_turn_ids=["t1"])
    return TURN.SetTurnSelectionRequest(session=await in_turns(caller), selection=selection)


async def submit_feedback(caller: Caller) -> Message:
    feedback = TURN.Feedback(
        origin=TURN.FEEDBACK_ORIGIN_MACHINE, text="too dear", confidence=0.9, reaction=TURN.REACTION_NOT_OK
    )
    return TURN.SubmitFeedbackRequest(session=await in_turns(caller), feedback=feedback)


async def clear_feedback(caller: Caller) -> Message:
    session = await in_turns(caller)
    await react(caller, session, "t1", text="too dear")
    return TURN.ClearFeedbackRequest(session=session, turn_id="t1")


async def update_memory_bucket(caller: Caller) -> Message:
    session = await in_session(caller)
    (bucket,) = await bucketed(caller, session, "Trips")
    changed = TURN.MemoryBucket(session=session, bucket_id=bucket.bucket_id, name="Travel")
    return TURN.UpdateMemoryBucketRequest(bucket=changed, update_mask={"paths": ["name"]})  # type: ignore[arg-type]  # as a dict


async def reconcile_memory_buckets(caller: Caller) -> Message:
    await caller.session(session_id="kept")
    return TURN.ReconcileMemoryBucketsRequest(session=await in_turns(caller))
