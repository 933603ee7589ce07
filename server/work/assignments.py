"""What a worker is told of a job, by its kind."""

import json

from google.rpc import code_pb2, status_pb2

from runekeep.v1 import extractor_service_pb2 as pb
from schemas.policy import Plan
from schemas.uris import archive_uri, session_uri, space_root
from server.wire.tasks import KINDS
from server.work.connection import seconds, wire_lease
from server.work.failures import class_name
from storage import jobs, turn_jobs
from storage.records import Job, LeaseId

DELIVERY_SHARE = 0.1
LONGEST_DELIVERY = 30.0
"""Seconds. A worker's time for an attempt is shorter than the attempt by this, or by DELIVERY_SHARE of a short one: an
output that is ready in its last moment is still to be sent, prepared and applied under its lease."""

_FAILURES = {class_name(number): number for number in pb.FailureClass.values()}


def assignment(job: Job, lease: LeaseId, attempt: int, attempt_seconds: float) -> pb.JobAssignment:
    """`lease`: with its secret; `attempt`: its number; `attempt_seconds`: how long an attempt may take."""
    made = pb.JobAssignment(
        lease=wire_lease(lease),
        kind=KINDS[job.kind],
        task_id=job.job_id,
        attempt=attempt,
        time_budget=seconds(_time_budget(attempt_seconds)),
        session=session_uri(job.user, job.session_id),
        user_space=space_root(job.user),
        base_revision=job.revision,
        previous_failures=[_failure(entry) for entry in json.loads(job.failures)],
        traceparent=job.traceparent,
        token_budget=job.token_budget,
    )
    if job.kind == jobs.COMMIT:
        made.archive_uri = archive_uri(job.user, job.session_id, job.archive_index)
        made.plan.CopyFrom(_plan(Plan.from_json(json.loads(job.plan))))
    elif job.kind == jobs.TURN_FINGERPRINT:
        plan = json.loads(job.plan)
        made.turn_id = plan["turn_id"]
        made.assistant_signal_spec = plan["assistant_signal_spec"]
        wanted = turn_jobs.reconciliation_of(job.plan)
        made.extract_selection, made.extract_feedback = wanted.selection, wanted.feedback
    return made


def _plan(plan: Plan) -> pb.ExtractionPlan:
    return pb.ExtractionPlan(
        allow_self=plan.allow_self,
        allowed_peer_ids=plan.allowed_peer_ids,
        long_term_types=plan.long_term_types,
        execution_types=plan.execution_types,
        session_skills=plan.session_skills,
        summarize=plan.summarize,
    )


def _time_budget(attempt: float) -> float:
    """Seconds that a worker gets for an attempt that ends after `attempt` seconds."""
    return attempt - min(LONGEST_DELIVERY, DELIVERY_SHARE * attempt)


def _failure(entry: dict[str, str]) -> pb.JobFailure:
    status = status_pb2.Status(code=code_pb2.ABORTED, message=entry["message"])
    number = _FAILURES.get(entry["class"], int(pb.FAILURE_CLASS_INTERNAL))
    return pb.JobFailure(
        failure_class=number,  # type: ignore[arg-type]  # a number of the enum
        retryable=True,
        status=status,
        waiting_for=entry.get(jobs.WAITING_FOR, ""),
    )
