"""Turns of a session: fingerprints, what was promoted, feedback, buckets."""

import asyncio

from starlette.responses import Response

from runekeep.client.connection.connection import new_request_id
from runekeep.studio.http.visit import Visit
from runekeep.v1 import session_service_pb2, turn_memory_service_pb2

TURNS = 20
SESSIONS = 50


async def turn_sessions(visit: Visit) -> Response:
    """The sessions whose turns can be seen, and what was promoted in all of them."""
    stubs = visit.stubs
    sessions, signals = await asyncio.gather(
        visit.call(
            stubs.sessions.ListSessions,
            session_service_pb2.ListSessionsRequest(page_size=SESSIONS, page_token=visit.query("page")),
        ),
        visit.call(
            stubs.turns.ListAssistantSignals, turn_memory_service_pb2.ListAssistantSignalsRequest(page_size=TURNS)
        ),
    )
    context = {"sessions": sessions.sessions, "next": sessions.next_page_token, "signals": signals.turns}
    return visit.render("turn_sessions.html", context)


async def turns(visit: Visit) -> Response:
    name = visit.request.path_params["session"]
    stubs = visit.stubs
    found, listed, feedback, buckets = await asyncio.gather(
        visit.call(stubs.sessions.GetSession, session_service_pb2.GetSessionRequest(session=name)),
        visit.call(
            stubs.turns.ListTurns,
            turn_memory_service_pb2.ListTurnsRequest(session=name, page_size=TURNS, page_token=visit.query("page")),
        ),
        visit.call(stubs.turns.ListFeedback, turn_memory_service_pb2.ListFeedbackRequest(session=name, page_size=200)),
        visit.call(
            stubs.turns.ListMemoryBuckets,
            turn_memory_service_pb2.ListMemoryBucketsRequest(session=name, show_disabled=True),
        ),
    )
    by_turn: dict[str, list[turn_memory_service_pb2.Feedback]] = {}
    for reaction in feedback.feedback:
        by_turn.setdefault(reaction.turn_id, []).append(reaction)
    context = {
        "session": found.session,
        "turns": listed.turns,
        "next": listed.next_page_token,
        "feedback": by_turn,
        "counts": feedback.counts,
        "buckets": buckets.buckets,
        "request_id": new_request_id(),
    }
    return visit.render("turns.html", context)


async def give_feedback(visit: Visit) -> Response:
    """Stores the user's own reaction to a turn, or takes it back."""
    name, turn_id = visit.request.path_params["session"], visit.field("turn_id")
    reaction = {"ok": turn_memory_service_pb2.REACTION_OK, "not_ok": turn_memory_service_pb2.REACTION_NOT_OK}.get(
        visit.field("reaction")
    )
    if reaction is None:
        await visit.call(
            visit.stubs.turns.ClearFeedback,
            turn_memory_service_pb2.ClearFeedbackRequest(
                session=name, turn_id=turn_id, request_id=visit.field("request_id")
            ),
        )
    else:
        given = turn_memory_service_pb2.Feedback(
            turn_id=turn_id,
            reaction=reaction,
            text=visit.field("text"),
            origin=turn_memory_service_pb2.FEEDBACK_ORIGIN_USER,
        )
        await visit.call(
            visit.stubs.turns.SubmitFeedback,
            turn_memory_service_pb2.SubmitFeedbackRequest(
                session=name, feedback=given, request_id=visit.field("request_id")
            ),
        )
    return visit.redirect(f"/sessions/{name}/turns")


async def set_bucket_state(visit: Visit) -> Response:
    """Enables or disables a bucket."""
    name = visit.request.path_params["session"]
    enabled = visit.field("state") == "enabled"
    bucket = turn_memory_service_pb2.MemoryBucket(
        session=name,
        bucket_id=visit.field("bucket_id"),
        state=turn_memory_service_pb2.BUCKET_STATE_ENABLED
        if enabled
        else turn_memory_service_pb2.BUCKET_STATE_DISABLED,
    )
    request = turn_memory_service_pb2.UpdateMemoryBucketRequest(bucket=bucket, request_id=visit.field("request_id"))
    request.update_mask.paths.append("state")
    await visit.call(visit.stubs.turns.UpdateMemoryBucket, request)
    return visit.redirect(f"/sessions/{name}/turns")


async def reconcile(visit: Visit) -> Response:
    """Queues a task that folds new turns into the buckets."""
    name = visit.request.path_params["session"]
    request = turn_memory_service_pb2.ReconcileMemoryBucketsRequest(session=name, request_id=visit.field("request_id"))
    answer = await visit.call(visit.stubs.turns.ReconcileMemoryBuckets, request)
    return visit.redirect(f"/tasks/{answer.task_id}" if answer.task_id else f"/sessions/{name}/turns")
