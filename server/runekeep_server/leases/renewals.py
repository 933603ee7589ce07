"""Renews leases in the store, because a heartbeat, a call or a progress report shows that their worker is alive."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import task_service_pb2
from runekeep_server.leases.lease_table import LeaseTable, held_space, lease_state
from runekeep_server.tasks.watchers import Watchers
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import LeaseLost
from runekeep_storage.jobs import jobs, tasks
from runekeep_storage.jobs.jobs import LeaseTerms
from runekeep_storage.memories import apply as storage_apply
from runekeep_storage.records import Job, LeaseId


class LeaseRenewer:
    """One per server."""

    def __init__(self, database: Database, terms: LeaseTerms, leases: LeaseTable, watchers: Watchers) -> None:
        self._database = database
        self._terms = terms
        self._leases = leases
        self._watchers = watchers

    async def renew_all(self, leases: Sequence[LeaseId]) -> list[tuple[pb.LeaseState, Space | None]]:
        """Renews the leases. Returns the state of each, and the space of each lease that is held."""
        spaces = {lease: self._leases.space_of(lease) for lease in leases}
        if unknown := [lease for lease, space in spaces.items() if space is None]:
            # Only read: made-up leases must not delay writers.
            spaces |= await self._database.read_global(_spaces_of, unknown)
        by_account: dict[str, list[tuple[LeaseId, Space]]] = {}
        for lease, space in spaces.items():
            if space is not None:
                by_account.setdefault(space.account, []).append((lease, space))
        # One transaction for each account, so that the store does not block all other accounts.
        renewed = await asyncio.gather(
            *(self._database.write_in_account(self._renew_account, *some) for some in by_account.items())
        )
        held = {lease: space for part in renewed for lease, space in part.items()}
        statuses = dict.fromkeys(held, pb.LEASE_STATUS_HELD)
        if ended := [lease for lease in spaces if lease not in held]:
            statuses |= await self._database.read_global(_statuses_of, ended)
        return [(lease_state(lease, statuses[lease]), held.get(lease)) for lease in leases]

    async def _renew_account(
        self, tx: Tx, account: str, leases: Sequence[tuple[LeaseId, Space]]
    ) -> dict[LeaseId, Space]:
        """Renews leases of one account. Returns those that are held."""
        users = [(space.user, lease) for lease, space in leases]
        renewed = await jobs.renew_all(tx, account, users, self._terms)
        return {lease: space for lease, space in leases if lease in renewed}

    async def renew(self, lease: LeaseId) -> Job:
        """Renews one lease. Returns its job. Raises LeaseLost."""
        return await self._database.write(jobs.renew, await self._space_of(lease), lease, self._terms)

    async def report_progress(self, lease: LeaseId, progress: task_service_pb2.TaskProgress) -> None:
        """Stores the progress of a job and renews its lease. Raises LeaseLost."""
        body: dict[str, Any] = {"phase": int(progress.phase), "message": progress.message}
        if progress.waiting_for:
            body[jobs.WAITING_FOR] = progress.waiting_for

        async def write(tx: Tx, space: Space) -> None:
            job = await jobs.renew(tx, space, lease, self._terms)
            before = (await tasks.get(tx, space, job.job_id)).progress
            # A claim clears the progress, so the percentage never decreases within one attempt, as the contract says.
            reached = json.loads(before)["percent"] if before else 0
            percent = max(progress.percent, reached)
            await tasks.set_progress(tx, space, job.job_id, {**body, "percent": percent})

        await self._database.write(write, await self._space_of(lease))
        self._watchers.changed(lease.job_id)

    async def _space_of(self, lease: LeaseId) -> Space:
        return await held_space(self._database, lease, self._leases.space_of(lease))


async def _spaces_of(tx: Tx, leases: Sequence[LeaseId]) -> dict[LeaseId, Space | None]:
    """Returns the spaces of the leases that are held."""
    found: dict[LeaseId, Space | None] = {}
    for lease in leases:
        with contextlib.suppress(LeaseLost):
            found[lease] = jobs.space_of(await jobs.held(tx, lease))
    return found


async def _statuses_of(tx: Tx, leases: Sequence[LeaseId]) -> dict[LeaseId, pb.LeaseStatus.ValueType]:
    """Returns the statuses of the leases that are not held."""
    return {
        lease: pb.LEASE_STATUS_APPLIED if await storage_apply.was_applied(tx, lease) else pb.LEASE_STATUS_LOST
        for lease in leases
    }
