"""Sends a job's progress to the server: only the newest report, after a short delay."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from runekeep.v1 import extractor_service_pb2, task_service_pb2
from runekeep_extractor.worker.stream import StreamBroken, Streams

# Each report costs the server a write, and a job that ends within this time needs none.
_DELAY_SECONDS: Final = 0.25

_log = structlog.get_logger(__name__)


class ProgressReporter:
    """Reports the progress of one attempt."""

    def __init__(self, lease: extractor_service_pb2.Lease, streams: Streams) -> None:
        self._lease = lease
        self._streams = streams
        self._newest: task_service_pb2.TaskProgress | None = None
        self._sender: asyncio.Task[None] | None = None

    def report(self, progress: task_service_pb2.TaskProgress) -> None:
        """Sends the report soon, unless a newer one replaces it or the job ends first."""
        self._newest = progress
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_reports())

    async def stop(self) -> None:
        """Drops the waiting report, even one that waits for room on a stream. If it followed an applied output, the
        server would answer that the lease is lost."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()
            await asyncio.wait({sender})

    async def _send_reports(self) -> None:
        """Sends reports until there is no newer one. Drops a report if no stream is open: the next one replaces it."""
        while self._newest is not None:
            await asyncio.sleep(_DELAY_SECONDS)
            progress, self._newest = self._newest, None
            stream = self._streams.find_open()
            if stream is None:
                continue
            report = extractor_service_pb2.JobProgress(lease=self._lease, progress=progress)
            try:
                await stream.send(extractor_service_pb2.WorkRequest(progress=report))
            except StreamBroken:
                _log.debug("progress_not_sent")
        self._sender = None
