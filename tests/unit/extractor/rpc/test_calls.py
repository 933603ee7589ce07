"""Reads of a job while its server, or something of it, is away."""

from collections.abc import Iterator

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from runekeep.v1 import extractor_service_pb2
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.rpc import calls
from runekeep_extractor.rpc.backoff import Backoff
from runekeep_extractor.rpc.calls import (
    MAX_WAIT_SECONDS,
    EmbedderDown,
    LeaseLost,
    SearchAway,
    TooMuch,
    with_retries,
)
from tests.unit.extractor.server_double import missing


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "Backoff", lambda **options: Backoff(first=0.0, most=0.0))


def failed(code: grpc.StatusCode, dependency: str = "", wait: int = 1) -> grpc.aio.AioRpcError:
    details = [("grpc-status-details-bin", missing(dependency, wait))] if dependency else []
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*details))


class Call:
    """Fails as scripted, then answers."""

    def __init__(self, *errors: grpc.aio.AioRpcError) -> None:
        self.times = 0
        self._errors: Iterator[grpc.aio.AioRpcError] = iter(errors)

    async def __call__(self) -> str:
        self.times += 1
        error = next(self._errors, None)
        if error is not None:
            raise error
        return "answer"


AWAY = failed(grpc.StatusCode.UNAVAILABLE)
STOPPING = failed(grpc.StatusCode.CANCELLED)


@pytest.mark.parametrize("name", ["ReadForJob", "EmbedForJob"])
@pytest.mark.parametrize("error", [AWAY, STOPPING, failed(grpc.StatusCode.UNAVAILABLE, "store")])
async def test_a_server_that_is_away_is_waited_for(name: str, error: grpc.aio.AioRpcError) -> None:
    call = Call(*[error] * 50)
    assert await with_retries(name, call) == "answer"
    assert call.times == 51


@pytest.mark.parametrize(
    ("name", "error", "kind", "times", "part"),
    [
        ("EmbedForJob", failed(grpc.StatusCode.UNAVAILABLE, "embedder"), EmbedderDown, 5, "embedder"),
        ("FindForJob", failed(grpc.StatusCode.UNAVAILABLE, "index"), SearchAway, 5, "index"),
        ("FindForJob", failed(grpc.StatusCode.DEADLINE_EXCEEDED), SearchAway, 2, "index"),
        ("GetJobInput", failed(grpc.StatusCode.UNAVAILABLE, "blobs"), JobFailed, 5, "blobs"),
        ("ReadForJob", failed(grpc.StatusCode.DEADLINE_EXCEEDED), JobFailed, 5, "server"),
    ],
)
async def test_a_server_that_misses_something_is_asked_a_few_times(
    name: str, error: grpc.aio.AioRpcError, kind: type[JobFailed], times: int, part: str
) -> None:
    call = Call(*[AWAY] * 9, *[error] * 50)
    told: list[str] = []

    async def waits(part: str) -> None:
        told.append(part)

    with pytest.raises(kind) as raised:
        await with_retries(name, call, waits)
    assert call.times == 9 + times
    assert raised.value.failure_class == extractor_service_pb2.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE
    assert raised.value.waiting_for == part
    # The failure itself reports the last outage.
    assert told == ["server"] * 9 + [part] * (times - 1) + [""]


@pytest.mark.parametrize(("part", "times"), [("embedder", 1), ("index", 1), ("store", 51)])
async def test_a_server_that_is_run_without_something_is_asked_once(part: str, times: int) -> None:
    """But without its store no server is run: it comes back."""
    call = Call(*[failed(grpc.StatusCode.UNAVAILABLE, part, wait=60)] * 50)
    try:
        assert await with_retries("EmbedForJob", call) == "answer"
    except EmbedderDown:
        assert part != "store"
    assert call.times == times


SENT = "SERVER: Sent message larger than max (100019 vs. 65536)"
TAKEN = "Stream removed (CLIENT: Received message larger than max (5242903 vs. 4194304))"


@pytest.mark.parametrize(
    ("text", "reason", "kind"),
    [
        (SENT, "", TooMuch),
        (TAKEN, "", TooMuch),
        ("Too many calls, some of them larger than max.", "RATE_LIMITED", JobFailed),
        ("", "", JobFailed),
    ],
)
async def test_what_is_too_large_is_told_from_what_is_too_often(text: str, reason: str, kind: type[JobFailed]) -> None:
    details = [("grpc-status-details-bin", limited(reason))] if reason else []
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.aio.Metadata(), grpc.aio.Metadata(*details), details=text
    )
    with pytest.raises(JobFailed) as raised:
        await with_retries("FindForJob", Call(error))
    assert type(raised.value) is kind and raised.value.retryable


def limited(reason: str) -> bytes:
    status = status_pb2.Status()
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason))
    return status.SerializeToString()


async def test_a_lease_that_is_lost_is_not_asked_for_again() -> None:
    call = Call(AWAY, failed(grpc.StatusCode.ABORTED))
    with pytest.raises(LeaseLost):
        await with_retries("ReadForJob", call)
    assert call.times == 2


async def test_what_is_back_is_asked_again_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the longest pause that may be chosen, however long the outage has lasted."""
    waits: list[Backoff] = []

    def keep(first: float, most: float) -> Backoff:
        waits.append(Backoff(first=first, most=most))
        return Backoff(first=0.0, most=0.0)

    monkeypatch.setattr(calls, "Backoff", keep)
    assert await with_retries("ReadForJob", Call(*[AWAY] * 500)) == "answer"
    assert [backoff.most for backoff in waits] == [MAX_WAIT_SECONDS] and MAX_WAIT_SECONDS <= 1.0
