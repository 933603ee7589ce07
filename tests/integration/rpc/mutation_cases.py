"""The mutations of the contract, and for each what is asked, what happens in between, and what cannot be done."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from runekeep.contract import methods_for
from runekeep.v1 import (
    history_service_pb2,
    memory_service_pb2,
    method_options_pb2,
    proposal_service_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from tests.integration.rpc.mutation_requests import (
    accept_proposal,
    add_messages,
    cancel_task,
    cancelled,
    clear_feedback,
    commit_session,
    create_session,
    create_taken_session,
    delete_session,
    delete_user,
    edit_proposal,
    edited,
    erase_data,
    extracted,
    in_session,
    put,
    recall,
    reconcile_memory_buckets,
    record_usage,
    refuse_proposal,
    retry_task,
    rollback_revision,
    rollback_session,
    second_version,
    set_turn_selection,
    submit_feedback,
    submit_turn,
    taken_back,
    under_review,
    update_memory_bucket,
    update_session,
    updated,
    write_memories,
)
from tests.support.callers import STUBS, Caller, said
from tests.support.turn_calls import submit, talk
from tests.support.turns import bucketed, fingerprint, react, select

METHODS: dict[str, MethodDescriptor] = {
    method.name: method
    for method in methods_for(method_options_pb2.AUDIENCE_USERS, method_options_pb2.AUDIENCE_WORKERS)
}
OF_WORKERS = {method.name for method in methods_for(method_options_pb2.AUDIENCE_WORKERS)}
TASK, TURN = task_service_pb2, turn_memory_service_pb2


def has_request_id(method: MethodDescriptor) -> bool:
    return "request_id" in method.input_type.fields_by_name


# A copy changes the space of another user than the caller, and keeps its answer there: see test_copy_user.
OF_OTHERS = {"CopyUser"}
MUTATIONS = sorted(name for name, method in METHODS.items() if has_request_id(method) and name not in OF_OTHERS)

Prepare = Callable[[Caller], Awaitable[Message]]
Act = Callable[[Caller, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Case:
    """`prepare` brings the caller's space so far that the request it gives, which has no id yet, can be answered.

    `other`: the request with another body that would be answered too; None where the contract allows no other body.
    `move_on` changes the state so that the same request, taken for a new one, would do something else. `impossible`
    gives a request that fails now, and `mend` makes it one that does not.
    """

    prepare: Prepare
    move_on: Act
    other: Callable[[Any], Message] | None = None
    impossible: Prepare | None = None
    mend: Act | None = None


def service_of(caller: Caller, method: str) -> Any:
    service = METHODS[method].containing_service.name
    return getattr(caller, STUBS[service])


async def send(caller: Caller, method: str, request: Message, request_id: str) -> Any:
    sent = type(request)()
    sent.CopyFrom(request)
    sent.request_id = request_id  # type: ignore[attr-defined]  # any of the messages
    return await getattr(service_of(caller, method), method)(sent)


def changed(request: Any, **fields: Any) -> Any:
    made = type(request)()
    made.CopyFrom(request)
    for name, of in fields.items():
        made.ClearField(name)
        made.MergeFrom(type(request)(**{name: of}))
    return made


def without_its_session(request: Callable[[str], Message]) -> Prepare:
    async def made(caller: Caller) -> Message:
        return request("s")

    return made


# What happens in between


async def something_is_said_in_it(caller: Caller, answer: Any) -> None:
    await caller.add(answer.session.session_id, said("one"))


async def session_made_anew(caller: Caller, _: Any) -> None:
    await in_session(caller)


async def session_renamed(caller: Caller, _: Any) -> None:
    await caller.sessions.UpdateSession(changed(updated("s"), title="another"))


async def session_committed(caller: Caller, _: Any) -> None:
    await caller.commit("s")


async def more_is_said(caller: Caller, _: Any) -> None:
    await caller.add("s", said("more"))


async def task_retried(caller: Caller, answer: Any) -> None:
    await caller.tasks.RetryTask(TASK.RetryTaskRequest(task_id=answer.task.task_id))


async def task_cancelled(caller: Caller, answer: Any) -> None:
    await caller.tasks.CancelTask(TASK.CancelTaskRequest(task_id=answer.task.task_id))


async def memory_changed(caller: Caller, _: Any) -> None:
    await caller.memories.WriteMemories(second_version())


async def memory_changed_again(caller: Caller, _: Any) -> None:
    request = memory_service_pb2.WriteMemoriesRequest(changes=[put("Likes cake.", base_version=3)])
    await caller.memories.WriteMemories(request)


async def on_a_version_that_is_to_come(caller: Caller) -> Message:
    return second_version()


async def memory_written(caller: Caller, _: Any) -> None:
    await caller.memories.WriteMemories(await write_memories(caller))


async def memory_changed_first(caller: Caller, _: Any) -> None:
    request = memory_service_pb2.WriteMemoriesRequest(changes=[put("Likes cake.")])
    await caller.memories.WriteMemories(request)


async def cancel_ended_task(caller: Caller) -> Message:
    return TASK.CancelTaskRequest(task_id=await cancelled(caller))


async def request_task_retried(caller: Caller, request: Any) -> None:
    await caller.tasks.RetryTask(TASK.RetryTaskRequest(task_id=request.task_id))


async def retry_open_task(caller: Caller) -> Message:
    return TASK.RetryTaskRequest(task_id=(await cancel_task(caller)).task_id)  # type: ignore[attr-defined]  # any of the messages


async def request_task_cancelled(caller: Caller, request: Any) -> None:
    await caller.tasks.CancelTask(TASK.CancelTaskRequest(task_id=request.task_id))


async def turn_made_anew(caller: Caller, _: Any) -> None:
    await in_session(caller)
    await talk(caller, "s", "t2")


async def turn_changed(caller: Caller, _: Any) -> None:
    await submit(caller, "s", "t2", fingerprint=fingerprint(topics=["more"]), summary=TURN.TurnSummary(notes="two"))


async def nothing_selected(caller: Caller, _: Any) -> None:
    await select(caller, "s")


async def another_turn_follows(caller: Caller, _: Any) -> None:
    await talk(caller, "s", "t3")


async def reaction_again(caller: Caller, _: Any) -> None:
    await react(caller, "s", "t1", text="still too dear")


async def bucket_renamed(caller: Caller, answer: Any) -> None:
    changed = TURN.MemoryBucket(session="s", bucket_id=answer.bucket.bucket_id, name="Tours")
    request = TURN.UpdateMemoryBucketRequest(bucket=changed, update_mask={"paths": ["name"]})  # type: ignore[arg-type]  # as a dict
    await caller.turns.UpdateMemoryBucket(request)


async def waiting_task_cancelled(caller: Caller, answer: Any) -> None:
    await caller.tasks.CancelTask(TASK.CancelTaskRequest(task_id=answer.task_id))


async def in_a_session_without_buckets(caller: Caller) -> Message:
    """A bucket of the same name will have the same id."""
    request: Any = await update_memory_bucket(caller)
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session="s"))
    await in_session(caller)
    return request  # type: ignore[no-any-return]  # a message


async def bucket_made_anew(caller: Caller, _: Any) -> None:
    await bucketed(caller, "s", "Trips")


async def taken_session_deleted(caller: Caller, request: Any) -> None:
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=request.session_id))


async def accept_what_is_not_extracted(caller: Caller) -> Message:
    return proposal_service_pb2.AcceptProposalRequest(task_id=await under_review(caller))


async def edit_what_is_not_extracted(caller: Caller) -> Message:
    return edited(await under_review(caller))


async def refuse_what_is_not_extracted(caller: Caller) -> Message:
    return proposal_service_pb2.RefuseProposalRequest(task_id=await under_review(caller))


async def proposal_extracted(caller: Caller, request: Any) -> None:
    await extracted(caller, request.task_id)


async def rest_is_accepted(caller: Caller, answer: Any) -> None:
    request = proposal_service_pb2.AcceptProposalRequest(task_id=answer.proposal.task_id)
    await caller.proposals.AcceptProposal(request)


CASES = {
    "CreateSession": Case(
        create_session,
        something_is_said_in_it,
        lambda request: changed(request, title="two"),
        create_taken_session,
        taken_session_deleted,
    ),
    "UpdateSession": Case(
        update_session,
        session_renamed,
        lambda request: changed(request, title="two"),
        without_its_session(updated),
        session_made_anew,
    ),
    "DeleteSession": Case(
        delete_session,
        session_made_anew,
        lambda request: changed(request, session="kept"),
        without_its_session(lambda name: session_service_pb2.DeleteSessionRequest(session=name)),
        session_made_anew,
    ),
    "AddMessages": Case(
        add_messages,
        session_committed,
        lambda request: changed(request, messages=[said("two")]),
        without_its_session(lambda name: session_service_pb2.AddMessagesRequest(session=name, messages=[said("one")])),
        session_made_anew,
    ),
    "RecordUsage": Case(
        record_usage,
        session_committed,
        lambda request: changed(request, context_uris=["viking://user/memories/preferences/Cake.md"]),
        without_its_session(lambda name: session_service_pb2.RecordUsageRequest(session=name)),
        session_made_anew,
    ),
    "CommitSession": Case(
        commit_session,
        more_is_said,
        lambda request: changed(request, keep_recent_count=1),
        without_its_session(lambda name: session_service_pb2.CommitSessionRequest(session=name)),
        session_made_anew,
    ),
    "CancelTask": Case(
        cancel_task,
        task_retried,
        lambda request: changed(request, reason="another"),
        cancel_ended_task,
        request_task_retried,
    ),
    "RetryTask": Case(
        retry_task,
        task_cancelled,
        lambda request: changed(request, task_id="another"),
        retry_open_task,
        request_task_cancelled,
    ),
    "WriteMemories": Case(
        write_memories,
        memory_changed,
        lambda request: changed(request, changes=[put("Likes coffee.")]),
        on_a_version_that_is_to_come,
        memory_written,
    ),
    "RollbackRevision": Case(
        rollback_revision,
        memory_changed_again,
        lambda request: changed(request, force=True),
        taken_back,
        memory_changed,
    ),
    "RollbackSession": Case(
        rollback_session,
        memory_changed_first,
        lambda request: changed(request, force=True),
        without_its_session(lambda name: history_service_pb2.RollbackSessionRequest(session=name)),
        session_made_anew,
    ),
    "AcceptProposal": Case(
        accept_proposal,
        memory_changed_first,
        lambda request: changed(request, numbers=[1]),
        accept_what_is_not_extracted,
        proposal_extracted,
    ),
    "EditProposal": Case(
        edit_proposal,
        rest_is_accepted,
        lambda request: changed(request, number=2),
        edit_what_is_not_extracted,
        proposal_extracted,
    ),
    "RefuseProposal": Case(
        refuse_proposal,
        rest_is_accepted,
        lambda request: changed(request, numbers=[1]),
        refuse_what_is_not_extracted,
        proposal_extracted,
    ),
    "Recall": Case(
        recall,
        memory_changed,
        lambda request: changed(request, token_budget=100),
    ),
    "SubmitTurn": Case(
        submit_turn,
        turn_changed,
        lambda request: changed(request, summary=TURN.TurnSummary(notes="two")),
        without_its_session(lambda name: TURN.SubmitTurnRequest(session=name, turn_id="t2", extract=True)),
        turn_made_anew,
    ),
    "SetTurnSelection": Case(
        set_turn_selection,
        nothing_selected,
        lambda request: changed(request, selection=TURN.TurnSelection(turn_ids=["t2"])),
        without_its_session(lambda name: TURN.SetTurnSelectionRequest(session=name, selection=TURN.TurnSelection())),
        session_made_anew,
    ),
    "SubmitFeedback": Case(
        submit_feedback,
        another_turn_follows,
        lambda request: changed(request, feedback=TURN.Feedback(turn_id="t1", text="late", confidence=0.8, origin=2)),
        without_its_session(
            lambda name: TURN.SubmitFeedbackRequest(
                session=name, feedback=TURN.Feedback(turn_id="t2", text="late", origin=TURN.FEEDBACK_ORIGIN_USER)
            )
        ),
        turn_made_anew,
    ),
    "ClearFeedback": Case(
        clear_feedback,
        reaction_again,
        lambda request: changed(request, turn_id="t2"),
        without_its_session(lambda name: TURN.ClearFeedbackRequest(session=name, turn_id="t1")),
        session_made_anew,
    ),
    "UpdateMemoryBucket": Case(
        update_memory_bucket,
        bucket_renamed,
        lambda request: changed(
            request, bucket=TURN.MemoryBucket(session="s", bucket_id=request.bucket.bucket_id, name="Tours")
        ),
        in_a_session_without_buckets,
        bucket_made_anew,
    ),
    "ReconcileMemoryBuckets": Case(
        reconcile_memory_buckets,
        waiting_task_cancelled,
        lambda request: changed(request, session="kept"),
        without_its_session(lambda name: TURN.ReconcileMemoryBucketsRequest(session=name)),
        session_made_anew,
    ),
    # Nobody may name another user, so there is no other body; and a user without anything is deleted without an error.
    "DeleteUser": Case(delete_user, session_made_anew),
    "EraseData": Case(
        erase_data,
        session_made_anew,
        lambda request: space_service_pb2.EraseDataRequest(
            messages=space_service_pb2.MessageSet(session="kept", message_ids=["m1"])
        ),
        without_its_session(lambda name: space_service_pb2.EraseDataRequest(session=name)),
        session_made_anew,
    ),
}
