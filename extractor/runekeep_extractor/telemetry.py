"""Metrics and spans of an extractor: its attempts and its model calls. They contain no prompts and no answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from runekeep.v1 import common_pb2, extractor_service_pb2, task_service_pb2
from runekeep_common.attempts import attempt_span_id
from runekeep_common.telemetry import metrics, tracing
from runekeep_common.telemetry.tracing import Kind, Span
from runekeep_extractor.engine.interface import JobFailed

_TOKENS: Final = (16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144)

CONNECTED = metrics.gauge("runekeep_extractor_connected", "Whether it has a stream to a server: 0 or 1.")
IN_PROGRESS = metrics.gauge(
    "runekeep_extractor_attempts_in_progress", "Attempts under way, by `kind` of job.", ["kind"]
)
ATTEMPTS = metrics.histogram(
    "runekeep_extractor_attempt_seconds",
    "Attempts from assignment to verdict, by `kind` and `outcome`: that of the verdict, or why it was stopped.",
    ["kind", "outcome"],
    buckets=metrics.JOB_SECONDS,
)
MODEL_AWAY = metrics.gauge("runekeep_model_away", "Whether the model server is thought to be away: 0 or 1.")
MODEL_CALLS = metrics.histogram(
    "runekeep_model_seconds",
    "Calls of the model that were answered, by the `model` asked and the `phase` of the work.",
    ["model", "phase"],
    buckets=metrics.JOB_SECONDS,
)
MODEL_FAILURES = metrics.counter(
    "runekeep_model_failures_total",
    "Calls of the model without a usable answer, by `model` and `class` of failure.",
    ["model", "class"],
)
MODEL_TOKENS = metrics.counter(
    "runekeep_model_tokens_total",
    "Tokens as the model server counts them, by `model`, `phase` and `kind`: `input`, `output`, `cache_read` or"
    " `cache_write`. Of a call that got no answer in time, as many as it may have cost.",
    ["model", "phase", "kind"],
)
ANSWER_TOKENS = metrics.histogram(
    "runekeep_model_answer_tokens", "Tokens of one answer, by `model` and `phase`.", ["model", "phase"], buckets=_TOKENS
)
SKIPPED_RULES = metrics.counter(
    "runekeep_rules_skipped_total", "Rules of the offline engine that raised and were skipped, by `rule`.", ["rule"]
)


def place_of(error: BaseException) -> str:
    """Returns the file and line of the innermost frame, without any value."""
    traceback = error.__traceback__
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"


def kind_of(assignment: extractor_service_pb2.JobAssignment) -> str:
    """Returns the kind of a job, in the words of the server's metrics."""
    return task_service_pb2.TaskKind.Name(assignment.kind).removeprefix("TASK_KIND_").lower()


class AttemptRecord:
    """Metrics and span of a running attempt."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.outcome = "crashed"

    @property
    def traceparent(self) -> str:
        """Traceparent of the attempt's span; empty without tracing."""
        return self._span.traceparent

    def set_verdict(self, verdict: extractor_service_pb2.JobVerdict) -> None:
        """Records the server's verdict."""
        self.outcome = extractor_service_pb2.JobOutcome.Name(verdict.outcome).removeprefix("JOB_OUTCOME_").lower()
        if verdict.revision:
            self._span.set("runekeep.revision", verdict.revision)

    def set_stopped(self, reason: str) -> None:
        """Records that the attempt was stopped from outside, or lost its lease."""
        self.outcome = reason.replace(" ", "_")
        self._span.fail(self.outcome)

    def set_failure(self, failure: JobFailed) -> None:
        """Records that the attempt has no output."""
        self._span.fail(class_name(failure))


@contextmanager
def attempt(assignment: extractor_service_pb2.JobAssignment) -> Iterator[AttemptRecord]:
    """Wraps one attempt, in the trace of its job. For a killed worker the server records the span."""
    kind = kind_of(assignment)
    about: dict[str, tracing.Value] = {
        "runekeep.job.id": assignment.lease.job_id,
        "runekeep.job.kind": kind,
        "runekeep.job.attempt": assignment.attempt,
    }
    began = perf_counter()
    IN_PROGRESS.labels(kind).inc()
    span_id = attempt_span_id(assignment.lease.job_id, assignment.lease.fencing_token)
    parent = assignment.traceparent
    with tracing.span(f"attempt {kind}", Kind.CONSUMER, about, parent=parent, span_id=span_id) as span:
        record = AttemptRecord(span)
        try:
            yield record
        finally:
            IN_PROGRESS.labels(kind).dec()
            ATTEMPTS.labels(kind, record.outcome).observe(perf_counter() - began)
            span.set("runekeep.job.outcome", record.outcome)


class ModelCall:
    """A running model call."""

    def __init__(self, span: Span, phase: str, model: str) -> None:
        self._span = span
        self._phase = phase
        self._model = model
        self._began = perf_counter()

    def answered(self, phase: str, *, model: str, stop_reason: str, usage: common_pb2.TokenUsage) -> None:
        """Counts the call. `phase` may be known only from the answer."""
        MODEL_CALLS.labels(self._model, phase).observe(perf_counter() - self._began)
        ANSWER_TOKENS.labels(self._model, phase).observe(usage.output_tokens)
        self.spent(phase, usage)
        self._span.set("runekeep.phase", phase)
        self._span.set("gen_ai.response.model", model[:256])
        self._span.set("gen_ai.response.finish_reasons", [stop_reason[:64]])

    def spent(self, phase: str, usage: common_pb2.TokenUsage) -> None:
        """Records the cost of the call."""
        written, read = usage.cache_write_tokens, usage.cache_read_tokens
        counts = {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": read,
            "cache_write": written,
        }
        for kind, count in counts.items():
            MODEL_TOKENS.labels(self._model, phase, kind).inc(count)
        # By convention the prompt's tokens include those read from and written to the cache.
        self._span.set("gen_ai.usage.input_tokens", usage.input_tokens + read + written)
        self._span.set("gen_ai.usage.output_tokens", usage.output_tokens)
        self._span.set("gen_ai.usage.cache_read.input_tokens", read)
        self._span.set("gen_ai.usage.cache_creation.input_tokens", written)


@contextmanager
def model_call(provider: str, phase: str, model: str, max_tokens: int) -> Iterator[ModelCall]:
    """Wraps one model call, including the SDK's retries."""
    about: dict[str, tracing.Value] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": max_tokens,
        "runekeep.phase": phase,
    }
    with tracing.span(f"chat {model}", Kind.CLIENT, about) as span:
        try:
            yield ModelCall(span, phase, model)
        except JobFailed as failed:
            MODEL_FAILURES.labels(model, class_name(failed)).inc()
            span.fail(class_name(failed))
            raise


def class_name(failed: JobFailed) -> str:
    """Returns the class of a failure, in the words of the server's metrics."""
    name = extractor_service_pb2.FailureClass.Name(failed.failure_class)
    return name.removeprefix("FAILURE_CLASS_").lower()
