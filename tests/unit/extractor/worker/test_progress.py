"""Progress on a stream that is slow: the newest is told, and none behind an output."""

import asyncio
from typing import Any

import pytest

from runekeep.v1 import extractor_service_pb2, task_service_pb2
from runekeep_extractor.engine.interface import EngineOutput, Job
from runekeep_extractor.worker import progress
from runekeep_extractor.worker.attempt import Attempt
from runekeep_extractor.worker.stream import OUTBOUND_LIMIT, Streams, WorkStream
from tests.unit.extractor.conftest import StepEngine
from tests.unit.extractor.server_double import assignment, verdict

pb = extractor_service_pb2


class SlowCall:
    """Takes as many messages as it is let; `written`: their kinds, or the percent of progress."""

    def __init__(self) -> None:
        self.written: list[str | int] = []
        self.room = asyncio.Semaphore(0)
        self.last = asyncio.Event()

    async def write(self, request: pb.WorkRequest) -> None:
        await self.room.acquire()
        kind = request.WhichOneof("message")
        self.written.append(request.progress.progress.percent if kind == "progress" else kind)
        if kind == "complete":
            self.last.set()

    async def done_writing(self) -> None:
        pass

    def cancel(self) -> None:
        pass

    def take_all(self) -> None:
        for _ in range(2 * OUTBOUND_LIMIT):
            self.room.release()


class HeardStream(WorkStream):
    """Says what is about to be sent: first progress, newer progress, the end of the output."""

    def __init__(self, *of_stream: Any) -> None:
        super().__init__(*of_stream)
        self.first, self.newer, self.complete = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def send(self, request: pb.WorkRequest) -> None:
        if request.HasField("progress"):
            (self.newer if self.first.is_set() else self.first).set()
        elif request.HasField("complete"):
            self.complete.set()
        await super().send(request)


class NoInput:
    async def GetJobInput(self, request: Any, **options: Any):
        for nothing in ():
            yield nothing


@pytest.fixture
async def call(monkeypatch: pytest.MonkeyPatch) -> SlowCall:
    monkeypatch.setattr(progress, "_DELAY_SECONDS", 0)
    return SlowCall()


@pytest.fixture
async def stream(call: SlowCall) -> HeardStream:
    """It is full: one message is being written, and all places behind that are taken."""
    made = HeardStream(call, pb.Welcome(max_chunk_bytes=1000), 0.0)
    for _ in range(OUTBOUND_LIMIT):
        await made.send(pb.WorkRequest(heartbeat=pb.Heartbeat()))
    await asyncio.sleep(0)
    await made.send(pb.WorkRequest(heartbeat=pb.Heartbeat()))
    return made


def attempt_on(stream: HeardStream, engine: StepEngine) -> Attempt:
    streams = Streams()
    streams.newest = stream
    return Attempt(assignment(), engine, streams, NoInput(), (), 300.0)


async def test_no_progress_follows_the_output(call: SlowCall, stream: HeardStream):
    async def work(job: Job) -> EngineOutput:
        await job.progress(task_service_pb2.TASK_PHASE_LONG_TERM, 60, "sorting")
        await stream.first.wait()
        await asyncio.sleep(0)
        # The writer takes two messages next, and the output is there before what waits for a place sees them.
        call.room.release()
        call.room.release()
        await asyncio.sleep(0)
        return EngineOutput()

    running = attempt_on(stream, StepEngine(work=work))
    await stream.complete.wait()
    call.take_all()
    await call.last.wait()
    running.receive_verdict(verdict(pb.JOB_OUTCOME_APPLIED))
    await running.task
    await stream.finish()
    await asyncio.wait({stream._writer})
    assert call.written[-1] == "complete"
    assert call.written.count(60) <= 1


async def test_newer_progress_is_told_after_one_that_waited(call: SlowCall, stream: HeardStream):
    async def work(job: Job) -> EngineOutput:
        await job.progress(task_service_pb2.TASK_PHASE_LONG_TERM, 10, "sorting")
        await stream.first.wait()
        for percent in (30, 50):
            await job.progress(task_service_pb2.TASK_PHASE_LONG_TERM, percent, "sorting")
        call.take_all()
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    running = attempt_on(stream, StepEngine(work=work))
    await stream.newer.wait()
    running.stop("over")
    await asyncio.wait({running.task})
    await stream.finish()
    await asyncio.wait({stream._writer})
    assert [one for one in call.written if one != "heartbeat"] == [10, 50]
