"""Keeps one record of each lease that a worker of this server holds or is about to get."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.identity import Worker
from runekeep_server.leases.outbox import Outbox
from runekeep_server.leases.output_buffers import OutputBuffer
from runekeep_storage.database import Space, SpaceDatabase
from runekeep_storage.jobs import jobs
from runekeep_storage.jobs.lease_holders import digest_of
from runekeep_storage.records import LeaseId


def lease_of(lease: pb.Lease, worker: Worker) -> LeaseId:
    """Returns the lease as `worker` presents it. `runekeep_storage.jobs.lease_holders` decides whether the worker may
    use it."""
    return LeaseId(lease.job_id, lease.fencing_token, worker.actor, digest_of(lease.secret), lease.secret)


def wire_lease(lease: LeaseId) -> pb.Lease:
    return pb.Lease(job_id=lease.job_id, fencing_token=lease.token, secret=lease.secret)


def lease_state(lease: LeaseId, status: pb.LeaseStatus.ValueType) -> pb.LeaseState:
    return pb.LeaseState(lease=wire_lease(lease), status=status)


async def held_space(database: SpaceDatabase, lease: LeaseId, known: Space | None) -> Space:
    """Returns the space of a lease that any worker holds: `known`, or that of its job. Raises LeaseLost."""
    return known or jobs.space_of(await database.read_global(jobs.held, lease))


def lost_message(lease: LeaseId) -> pb.WorkResponse:
    """Returns the message that a lease is gone."""
    return pb.WorkResponse(lease_update=pb.LeaseUpdate(leases=[lease_state(lease, pb.LEASE_STATUS_LOST)]))


def cancel_message(lease: LeaseId, reason: str) -> pb.WorkResponse:
    return pb.WorkResponse(cancel=pb.CancelJob(lease=wire_lease(lease), reason=reason))


@dataclass(eq=False, slots=True)
class LeaseRecord:
    """`lease`: with the secret that its worker knows. `outbox`: the stream of its worker; None if the stream ended
    before the worker saw the assignment. `output`: the received part of its output. `rejection`: the task of the
    latest answer about an attempt that broke the contract. Later messages about the lease are answered after it. It
    returns whether the worker has yet to report the usage."""

    lease: LeaseId
    space: Space
    outbox: Outbox | None
    is_sent: bool = True
    output: OutputBuffer | None = None
    rejection: asyncio.Task[bool] | None = None


class LeaseTable:
    """One per server. Only the store knows whether a lease is still held."""

    def __init__(self) -> None:
        self._records: dict[LeaseId, LeaseRecord] = {}

    def add(self, record: LeaseRecord) -> None:
        self._records[record.lease] = record

    def hold(self, lease: LeaseId, space: Space, outbox: Outbox, *, resumes: bool) -> None:
        """Records a lease that the store renewed for this stream. A worker moves its leases to a new stream by resuming
        them: a heartbeat that is still read from its old stream does not take them back."""
        known = self._records.get(lease)
        if resumes or known is None or known.outbox is None or known.outbox.is_closed:
            self.add(LeaseRecord(lease, space, outbox))

    def find(self, lease: LeaseId, outbox: Outbox) -> LeaseRecord | None:
        """Returns the record of the lease, or None if it does not belong to this stream."""
        record = self._records.get(lease)
        return record if record is not None and record.outbox is outbox else None

    def space_of(self, lease: LeaseId) -> Space | None:
        """Returns the space of the lease, or None if it is unknown."""
        record = self._records.get(lease)
        return record.space if record is not None else None

    def remove(self, lease: LeaseId) -> None:
        self._records.pop(lease, None)

    def end(self, lease: LeaseId, message: Callable[[LeaseId], pb.WorkResponse]) -> None:
        """Forgets the lease and sends its worker the message, if a worker of this server has it."""
        if (record := self._records.get(lease)) is not None and record.outbox is not None:
            self.remove(lease)
            record.outbox.send(message(record.lease))

    def of_job(self, job_id: str) -> list[LeaseId]:
        """Returns the leases of a job."""
        return [lease for lease in self._records if lease.job_id == job_id]

    def count(self, outboxes: Collection[Outbox]) -> int:
        """Returns the number of leases on these streams."""
        return sum(record.outbox in outboxes for record in self._records.values())

    def end_stream(self, outbox: Outbox) -> int:
        """Forgets the leases of a stream that ended. Those whose assignment was not sent are kept for `undelivered`.
        Returns the number of these."""
        kept = 0
        for record in [one for one in self._records.values() if one.outbox is outbox]:
            if record.is_sent:
                self.remove(record.lease)
            else:
                record.outbox = None
                kept += 1
        return kept

    def undelivered(self) -> list[LeaseId]:
        """Returns the leases of assignments that no worker has seen."""
        return [record.lease for record in self._records.values() if record.outbox is None]
