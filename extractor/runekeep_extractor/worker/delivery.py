"""Delivers the end of an attempt: sends messages until the server gives its verdict, over as many streams as needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from runekeep.v1 import extractor_service_pb2
from runekeep_extractor.rpc.backoff import Backoff
from runekeep_extractor.rpc.calls import MAX_WAIT_SECONDS
from runekeep_extractor.worker.stream import StreamBroken, Streams

_log = structlog.get_logger(__name__)

BuildRequests = Callable[[extractor_service_pb2.Welcome], list[extractor_service_pb2.WorkRequest]]
"""Returns the messages for a stream that was opened with this Welcome."""


class Delivery:
    """Delivers for one attempt. `receive` takes its verdicts, from any stream."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._verdicts: asyncio.Queue[extractor_service_pb2.JobVerdict] = asyncio.Queue()

    def receive(self, verdict: extractor_service_pb2.JobVerdict) -> None:
        self._verdicts.put_nowait(verdict)

    async def deliver(self, build_requests: BuildRequests) -> extractor_service_pb2.JobVerdict:
        """Returns the verdict. Sends all messages again on a new stream, or if the server could not decide."""
        backoff = Backoff(first=0.5, most=MAX_WAIT_SECONDS)
        while True:
            verdict = await self._send_once(build_requests)
            if verdict is None:
                continue
            if verdict.outcome != extractor_service_pb2.JOB_OUTCOME_TRY_AGAIN:
                return verdict
            _log.info("delivery_repeated")
            await asyncio.sleep(backoff.next_wait())

    async def _send_once(self, build_requests: BuildRequests) -> extractor_service_pb2.JobVerdict | None:
        """Returns the verdict, or None if the stream ends before it."""
        stream = await self._streams.wait_for_open()
        try:
            for request in build_requests(stream.welcome):
                await stream.send(request)
        except StreamBroken:
            return None
        verdict = asyncio.ensure_future(self._verdicts.get())
        ended = asyncio.ensure_future(stream.ended.wait())
        try:
            await asyncio.wait({verdict, ended}, return_when=asyncio.FIRST_COMPLETED)
            return verdict.result() if verdict.done() else None
        finally:
            verdict.cancel()
            ended.cancel()
