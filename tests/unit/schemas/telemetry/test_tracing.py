"""Spans: nothing where nobody asked for them, and what they say where somebody did."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler
from opentelemetry.trace import StatusCode

from runekeep_common.telemetry import export, tracing
from runekeep_common.telemetry.tracing import Kind
from runekeep_server.identity.traces import trace_of
from runekeep_server.telemetry import calls
from tests.support.server_process import ROOT

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"


class Recorded:
    """What was recorded, last ended last."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, id_generator=export._ids(), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        tracing.trace_with(provider.get_tracer("tests"))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def only(self) -> ReadableSpan:
        (span,) = self.spans
        return span


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    yield Recorded()
    tracing.trace_with(None)


@pytest.fixture
def unsampled() -> Iterator[Recorded]:
    yield Recorded(ParentBased(ALWAYS_OFF))
    tracing.trace_with(None)


@pytest.mark.parametrize(
    "process",
    [
        "import runekeep_server.services, runekeep_server.app;"
        "from runekeep_common.telemetry import export; export.switch_on('a', 'b')",
        "import runekeep_extractor.running, runekeep_extractor.offline;"
        "from runekeep_common.telemetry import export; export.switch_on('a', 'b')",
        "import runekeep; runekeep.Client; import runekeep.client.async_client, runekeep.client.connection.connection",
    ],
    ids=["server", "extractor", "client"],
)
def test_without_a_collector_nothing_of_opentelemetry_is_loaded(process: str) -> None:
    code = f"{process}\nimport sys\nprint([name for name in sys.modules if name.startswith('opentelemetry')])"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "[]"), ended.stderr


def test_a_process_that_does_not_trace_goes_on_with_the_callers_trace() -> None:
    with calls.observe("SessionService/GetSession", stream=False) as call:
        trace = trace_of([("traceparent", PARENT)])
        assert call.continues(trace) is trace
        call.ended("OK")
    with tracing.span("a", parent=PARENT) as span:
        span.set("b", 1)
        span.fail("c")
        assert span.traceparent == tracing.traceparent() == ""


def test_a_call_is_a_child_of_its_callers_span(recorded: Recorded) -> None:
    with calls.observe("SessionService/GetSession", stream=False) as call:
        here = call.continues(trace_of([("traceparent", PARENT)]))
        call.made_for("acme")
        call.ended("NOT_FOUND", "RESOURCE_NOT_FOUND")
    span = recorded.only
    assert span.parent is not None and span.context is not None
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
    assert here.traceparent.startswith(PARENT[:36]) and here.span_id == f"{span.context.span_id:016x}"
    assert dict(span.attributes or {}) == {
        "rpc.system.name": "grpc",
        "rpc.method": "runekeep.v1.SessionService/GetSession",
        "rpc.response.status_code": "NOT_FOUND",
        "runekeep.account": "acme",
        "runekeep.error.reason": "RESOURCE_NOT_FOUND",
    }
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    "code", ["UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"]
)
def test_faults_of_the_server_are_failures(recorded: Recorded, code: str) -> None:
    with pytest.raises(RuntimeError), calls.observe("SessionService/GetSession", stream=False) as call:
        call.continues(trace_of([]))
        call.ended(code)
        raise RuntimeError("as an abort leaves it")
    assert recorded.only.status.status_code is StatusCode.ERROR
    assert (recorded.only.attributes or {})["error.type"] == code


def test_what_the_caller_did_wrong_is_none_however_the_call_is_left(recorded: Recorded) -> None:
    with pytest.raises(RuntimeError), calls.observe("SessionService/GetSession", stream=False) as call:
        call.continues(trace_of([]))
        call.ended("INVALID_ARGUMENT", "FIELD_INVALID")
        raise RuntimeError("as an abort leaves it")
    assert recorded.only.status.status_code is StatusCode.UNSET


def test_a_trace_that_was_only_named_begins_here_under_its_name(recorded: Recorded) -> None:
    """As a Python client without OpenTelemetry sends it: nobody has decided, so that this process may."""
    named = PARENT[:-2] + "00"
    with calls.observe("SessionService/GetSession", stream=False) as call:
        here = call.continues(trace_of([("traceparent", named), ("tracestate", "runekeep=own")]))
        call.ended("OK")
    assert recorded.only.parent is None
    assert here.trace_id == PARENT.split("-")[1]
    assert here.flags in ("01", "03"), "recorded"


def test_who_decided_against_a_recording_is_heeded(recorded: Recorded) -> None:
    with calls.observe("SessionService/GetSession", stream=False) as call:
        here = call.continues(trace_of([("traceparent", PARENT[:-2] + "00")]))
        call.ended("OK")
    assert not recorded.spans
    assert here.trace_id == PARENT.split("-")[1] and here.flags == "00"


def test_a_call_that_is_not_sampled_has_ids_for_the_log_and_the_job(unsampled: Recorded) -> None:
    with calls.observe("SessionService/CommitSession", stream=False) as call:
        here = call.continues(trace_of([]))
        call.ended("OK")
    assert not unsampled.spans
    assert int(here.trace_id, 16) and int(here.span_id, 16) and here.flags in ("00", "02")
    with tracing.span("attempt commit", parent=here.traceparent):
        pass
    assert not unsampled.spans, "the extractor goes by what the server decided"


def test_the_stream_of_a_worker_has_no_span(recorded: Recorded) -> None:
    with calls.observe("ExtractorService/Work", stream=True) as call:
        trace = trace_of([("traceparent", PARENT)])
        assert call.continues(trace) is trace
        call.ended("OK")
    assert not recorded.spans


def test_work_for_one_is_part_of_its_trace_and_work_for_several_is_linked_to_theirs(recorded: Recorded) -> None:
    with tracing.batch("one", [PARENT, "", PARENT]):
        pass
    with tracing.batch("several", [PARENT, OTHER, "no traceparent"]):
        pass
    one, several = recorded.spans
    assert one.parent is not None and not one.links
    assert several.parent is None
    assert [f"{link.context.trace_id:032x}" for link in several.links] == [one.split("-")[1] for one in (PARENT, OTHER)]


def test_the_text_of_an_exception_is_told_nowhere(recorded: Recorded) -> None:
    with pytest.raises(ValueError, match="said"), tracing.span("a", Kind.CLIENT):
        raise ValueError("what a user said")
    span = recorded.only
    assert span.status.status_code is StatusCode.ERROR and (span.attributes or {})["error.type"] == "ValueError"
    assert "said" not in span.to_json()


async def test_a_cancellation_is_no_failure(recorded: Recorded) -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        with tracing.span("a"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert (recorded.only.attributes or {})["error.type"] == "cancelled"
    assert recorded.only.status.status_code is StatusCode.UNSET


def test_a_span_can_have_an_id_that_was_known_before(recorded: Recorded) -> None:
    with tracing.span("lost", parent=PARENT, span_id="00000000000000ab", started_at=1_000_000):
        pass
    span = recorded.only
    assert span.context is not None and span.context.span_id == 0xAB
    assert span.start_time == 1_000_000_000
    with tracing.span("next"):
        pass
    assert recorded.spans[1].context is not None and recorded.spans[1].context.span_id != 0xAB
