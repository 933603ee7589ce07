"""Builds the assignment that a worker gets for a job, by the job's kind."""

import json

from google.rpc import code_pb2, status_pb2

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_schemas.documents.uris import archive_uri, session_uri, space_root
from runekeep_schemas.policy import Plan
from runekeep_server.leases.failure_policy import SECOND, class_name
from runekeep_server.leases.lease_table import wire_lease
from runekeep_server.wire.basics import duration
from runekeep_server.wire.tasks import KINDS
from runekeep_storage.jobs import asks, jobs
from runekeep_storage.records import Job, LeaseId
from runekeep_storage.turns import jobs as turn_jobs

DELIVERY_SHARE = 0.1
MAX_DELIVERY_SECONDS = 30.0
"""A worker's time budget is shorter than the attempt by this, or by DELIVERY_SHARE for short attempts: an
output that is ready at the last moment must still be sent, prepared and applied under its lease."""

_FAILURES = {class_name(number): number for number in pb.FailureClass.values()}


def build_assignment(job: Job, lease: LeaseId, attempt: int, attempt_seconds: float) -> pb.JobAssignment:
    """Returns the assignment. `lease`: with its secret; `attempt`: its number; `attempt_seconds`: duration of an
    attempt."""
    assignment = pb.JobAssignment(
        lease=wire_lease(lease),
        kind=KINDS[job.kind],
        task_id=job.job_id,
        attempt=attempt,
        time_budget=duration(_time_budget(_attempt_seconds(job, attempt_seconds))),
        session=session_uri(job.user, job.session_id) if job.session_id else "",
        user_space=space_root(job.user),
        base_revision=job.revision,
        previous_failures=[_failure(entry) for entry in json.loads(job.failures)],
        traceparent=job.traceparent,
        token_budget=job.token_budget,
    )
    if job.kind == jobs.COMMIT:
        assignment.archive_uri = archive_uri(job.user, job.session_id, job.archive_index)
        assignment.plan.CopyFrom(_plan(Plan.from_json(json.loads(job.plan))))
    elif job.kind == jobs.TURN_FINGERPRINT:
        plan = json.loads(job.plan)
        assignment.turn_id = plan["turn_id"]
        assignment.assistant_signal_spec = plan["assistant_signal_spec"]
        wanted = turn_jobs.reconciliation_of(job.plan)
        assignment.extract_selection, assignment.extract_feedback = wanted.selection, wanted.feedback
    return assignment


def _plan(plan: Plan) -> pb.ExtractionPlan:
    return pb.ExtractionPlan(
        allow_self=plan.allow_self,
        allowed_peer_ids=plan.allowed_peer_ids,
        long_term_types=plan.long_term_types,
        execution_types=plan.execution_types,
        session_skills=plan.session_skills,
        summarize=plan.summarize,
    )


def _attempt_seconds(job: Job, attempt: float) -> float:
    """Returns the seconds of an attempt that has just begun: those of a question end when nobody waits for it."""
    if job.kind != jobs.ASK:
        return attempt
    began = job.attempt_ends - round(attempt * SECOND)
    return min(attempt, (asks.answer_deadline(job) - began) / SECOND)


def _time_budget(attempt: float) -> float:
    """Returns the time budget in seconds of a worker for an attempt of `attempt` seconds."""
    return attempt - min(MAX_DELIVERY_SECONDS, DELIVERY_SHARE * attempt)


def _failure(entry: dict[str, str]) -> pb.JobFailure:
    status = status_pb2.Status(code=code_pb2.ABORTED, message=entry["message"])
    number = _FAILURES.get(entry["class"], int(pb.FAILURE_CLASS_INTERNAL))
    return pb.JobFailure(
        failure_class=number,  # type: ignore[arg-type]  # a number of the enum
        retryable=True,
        status=status,
        waiting_for=entry.get(jobs.WAITING_FOR, ""),
    )
