"""Records of extraction attempts: models, digests of the prompts, raw answers.

Raw answers quote messages, so they must disappear with the messages. Readers reach a record only through its archive or
session: the deletion of a session or user removes those, so nobody can read the record any more. Its rows, which are
large, may be deleted later in slices (`runekeep_storage.spaces.pending_deletions`).
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runekeep_schemas.policy import Plan
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.errors import NotFound
from runekeep_storage.jobs import statements, tasks
from runekeep_storage.jobs.jobs import ASK, COMMIT, Failure, space_of
from runekeep_storage.jobs.task_sessions import has_session
from runekeep_storage.records import Job, LeaseId

KEPT = 5
"""Number of newest attempts of a task whose records are stored: an outage of the model may cause hundreds."""

Calls = list[dict[str, Any]]
"""Objects with the fields of ModelCall."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """The record of an attempt. `extractor` is JSON; `calls` are packed, see `pack`; `type_digests`: digests of all
    existing types, by name."""

    extractor: str
    calls: bytes
    type_digests: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Record:
    """One attempt that ended; `number` counts from 1. Texts are JSON; `failure` is empty for an attempt that was
    applied."""

    number: int
    ended_at: int
    extractor: str
    base_revision: int
    type_digests: str
    failure: str
    calls: bytes


def pack(calls: Iterable[Mapping[str, Any]]) -> bytes:
    """Returns the compressed calls. Takes some tens of milliseconds for the largest answers, so do not call it on the
    event loop."""
    return zlib.compress(json.dumps(list(calls), ensure_ascii=False).encode())


def unpack(calls: bytes) -> Calls:
    unpacked: Calls = json.loads(zlib.decompress(calls))
    return unpacked


async def keep(tx: Tx, job: Job, made: AttemptRecord, failure: Failure | None) -> None:
    """Stores the record of the leased job's current attempt; replaces an earlier record of the attempt. An attempt at a
    question has none, because its answer is not kept."""
    if job.kind == ASK:
        return
    space = space_of(job)
    await tx.execute(
        statements.STORE_RECORD,
        space.account,
        space.user,
        job.job_id,
        job.started,
        job.session_id,
        # Leftovers are deleted in slices of this number; jobs about turns have no archive, and a session has very many
        # of them.
        job.archive_index or job.created_at,
        job.token,
        made.extractor,
        job.revision,
        json.dumps(_writable(job, made.type_digests)),
        json.dumps(failure.as_json(), ensure_ascii=False) if failure is not None else "",
        made.calls,
        tx.now(),
    )
    if job.started <= KEPT:
        return
    await tx.execute(statements.DELETE_OLD_RECORDS, space.account, space.user, job.job_id, job.started - KEPT)


def _writable(job: Job, digests: Mapping[str, str]) -> dict[str, str]:
    """Returns the digests of the types that the job may write, if this server has them; jobs about turns write none."""
    if job.kind != COMMIT:
        return {}
    plan = Plan.from_json(json.loads(job.plan))
    names = [*plan.long_term_types, *plan.execution_types, *([SESSION_SKILLS.name] if plan.session_skills else [])]
    return {name: digests[name] for name in sorted(names) if name in digests}


async def complete(tx: Tx, space: Space, lease: LeaseId, made: AttemptRecord) -> None:
    """Adds the calls to the record of an attempt that ended before its worker reported them; does nothing without a
    record."""
    await tx.execute(
        statements.COMPLETE_RECORD,
        space.account,
        space.user,
        lease.job_id,
        lease.token,
        made.extractor,
        made.calls,
    )


async def of_task(tx: Tx, space: Space, task_id: str) -> list[Record]:
    """Returns the newest recorded attempts, oldest first. Raises NotFound, also if the session was deleted."""
    task = await tasks.get(tx, space, task_id)
    if not await has_session(tx, space, task):
        raise NotFound("extraction record", task_id)
    rows = await tx.fetch(statements.RECORDS, space.account, space.user, task_id)
    return [_record(row) for row in rows]


def _record(row: Row) -> Record:
    return Record(**{**dict(row), "calls": bytes(row["calls"])})
