"""Keeps the open streams of this server's workers."""

import asyncio
import contextlib
from collections.abc import Iterator

import structlog

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.apply import telemetry
from runekeep_server.extraction.connection import Connection
from runekeep_server.protocol.errors import unavailable
from runekeep_server.wire.basics import duration
from runekeep_storage.jobs.worker_records import WorkerId

log = structlog.get_logger(__name__)


class Connections:
    def __init__(self) -> None:
        self.is_draining = False
        self._open: set[Connection] = set()
        self._departed: set[WorkerId] = set()

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def open(self, connection: Connection) -> Iterator[None]:
        """Keeps the connection within the block. Raises ApiError if the server drains."""
        if self.is_draining:
            raise unavailable("server", "This server is shutting down")
        self._open.add(connection)
        telemetry.WORKERS.inc()
        log.info("worker_connected", worker=connection.worker_id.name)
        try:
            yield
        finally:
            self._open.discard(connection)
            self._departed.add(connection.worker_id)
            telemetry.WORKERS.dec()
            log.info("worker_disconnected", worker=connection.worker_id.name)

    async def drain(self, grace_seconds: float) -> None:
        """Refuses new streams, asks workers to move, waits for the received outputs, then ends the streams."""
        self.is_draining = True
        for connection in self._open:
            connection.outbox.send(pb.WorkResponse(drain=pb.Drain(grace=duration(grace_seconds))))
        await asyncio.gather(*(connection.wait_for_answers() for connection in self._open))
        for connection in self._open:
            connection.outbox.close()

    def accounts_by_worker(self) -> dict[WorkerId, tuple[str, ...]]:
        """Returns the connected workers, each with the accounts whose jobs it may get; an empty tuple means all."""
        return {connection.worker_id: connection.worker.accounts for connection in self._open}

    def answer_questions(self, account: str) -> bool:
        """Returns whether a connected worker takes questions of the account."""
        return any(
            one.answers_questions and (not one.worker.accounts or account in one.worker.accounts) for one in self._open
        )

    def take_departed(self) -> set[WorkerId]:
        """Returns the workers that disconnected since the last call and did not come back."""
        departed, self._departed = self._departed - self.accounts_by_worker().keys(), set()
        return departed
