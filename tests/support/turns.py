"""Fingerprints, contexts and reactions, as tests of turn memory say them."""

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep.v1.extractor_service_pb2 import JOB_OUTCOME_APPLIED
from tests.support import turn_calls
from tests.support.callers import Caller, unique
from tests.support.turn_calls import buckets_of, reconcile, submit, talk
from tests.support.worker import Worker, bucket_changes


def signal(key: str, value: Any, severity: str = "", scope: str = "", applies_to: str = "") -> pb.TurnSignal:
    """`severity` and `scope` without their prefixes, such as `must`."""
    strength = pb.SignalSeverity.Value(f"SIGNAL_SEVERITY_{severity.upper()}") if severity else 0
    reach = pb.SignalScope.Value(f"SIGNAL_SCOPE_{scope.upper()}") if scope else 0
    return turn_calls.signal(key, value, strength, scope=reach, applies_to=applies_to)


def fingerprint(objective: str = "", **fields: Any) -> pb.TurnFingerprint:
    return pb.TurnFingerprint(objective=objective, **fields)


def at(seconds: int) -> Timestamp:
    return Timestamp(seconds=seconds)


async def fingerprinted(caller: Caller, session: str, turn_id: str, objective: str, **fields: Any) -> Any:
    """A turn of one message with a fingerprint."""
    await talk(caller, session, turn_id, objective)
    return await submit(caller, session, turn_id, fingerprint=fingerprint(objective, **fields))


async def load(caller: Caller, session: str, current: str, audience: str = "gate", **fields: Any) -> Any:
    kind = pb.ContextAudience.Value(f"CONTEXT_AUDIENCE_{audience.upper()}")
    request = pb.LoadTurnContextRequest(session=session, current_turn_id=current, audience=kind, **fields)
    return await caller.turns.LoadTurnContext(request)


async def select(caller: Caller, session: str, offer: str = "", **selection: Any) -> Any:
    request = pb.SetTurnSelectionRequest(session=session, selection=pb.TurnSelection(**selection), offer=offer)
    return await caller.turns.SetTurnSelection(request)


async def react(caller: Caller, session: str, turn_id: str = "", *, machine: bool = False, **fields: Any) -> Any:
    """A reaction of the user, or of a machine that is certain of it."""
    queries = fields.pop("match_queries", ())
    if machine:
        fields = {"confidence": 0.9, "text": "said so"} | fields
    origin = pb.FEEDBACK_ORIGIN_MACHINE if machine else pb.FEEDBACK_ORIGIN_USER
    feedback = pb.Feedback(turn_id=turn_id, origin=origin, **fields)
    request = pb.SubmitFeedbackRequest(session=session, feedback=feedback, match_queries=queries)
    return (await caller.turns.SubmitFeedback(request)).feedback


async def bucketed(caller: Caller, session: str, *names: str, turn_id: str = "") -> list[Any]:
    """Buckets of these names, made by a worker of what one new turn said; all of the session, latest change first."""
    turn_id = turn_id or unique("t")
    await fingerprinted(caller, session, turn_id, "Book a trip")
    task_id = await reconcile(caller, session)
    budget = pb.BucketSignal(signal=signal("budget", 500, "must"), support_turn_ids=[turn_id])
    added = [
        pb.MemoryBucket(name=name, short_desc=f"About {name}", timeline=[pb.TimelineSlice(assertions=[budget])])
        for name in names
    ]
    async with Worker(caller.channel) as worker:
        others = []
        while (job := await worker.take()).task_id != task_id:
            others.append(job.lease)
        await worker.input(job.lease)
        verdict = await worker.deliver_items(job.lease, bucket_changes(added=added))
        for lease in others:
            await worker.release(lease)
    assert verdict.outcome == JOB_OUTCOME_APPLIED, verdict
    return await buckets_of(caller, session)


async def paged(call: Any, request: Any, of: str) -> list[Any]:
    """Everything that a list gives over its pages."""
    found: list[Any] = []
    while True:
        page = await call(request)
        size = getattr(request, "page_size", 0)
        assert not size or len(getattr(page, of)) <= size
        found += getattr(page, of)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token
