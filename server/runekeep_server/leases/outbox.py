"""The bounded queue of responses to one worker."""

import asyncio

import structlog

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.errors import unavailable

MAX_QUEUED = 64

log = structlog.get_logger(__name__)


class Outbox:
    """Takes responses until it is closed. Closes itself if the worker does not read its stream."""

    def __init__(self, worker_id: str) -> None:
        self.is_closed = False
        self._worker_id = worker_id
        self._error: ApiError | None = None
        # `send` enforces the bound, so that the end of the stream always fits.
        self._queue: asyncio.Queue[pb.WorkResponse | None] = asyncio.Queue()

    def send(self, response: pb.WorkResponse) -> bool:
        """Queues a response. Returns False if the stream is closed."""
        if self.is_closed:
            return False
        if self._queue.qsize() >= MAX_QUEUED:
            log.warning("worker_not_reading", worker=self._worker_id)
            self.close(unavailable("stream", "The worker did not read its stream"))
            return False
        self._queue.put_nowait(response)
        return True

    def close(self, error: ApiError | None = None) -> None:
        """Ends the stream after the queued responses. With an error, drops them and ends it at once."""
        if self.is_closed:
            return
        self.is_closed, self._error = True, error
        while error is not None and not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def next(self) -> pb.WorkResponse | None:
        """Returns the next response, or None at the end. Raises the ApiError with which the stream was closed."""
        response = await self._queue.get()
        if response is None and self._error is not None:
            raise self._error
        return response
