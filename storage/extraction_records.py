"""What attempts at extractions were made of: models, prompts by digest, raw answers.

Raw answers quote what was said, and go with it. Whoever reads a record comes to it by the archive or the session
that it is of: the deletion of a session or of a user takes those away, and from then on nobody reads the record, though
its rows, which are long, may follow in slices (`storage.leftovers`).
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.policy import Plan
from schemas.session_skills import SESSION_SKILLS
from storage import tasks
from storage.database import Row, Space, Tx
from storage.errors import NotFound
from storage.jobs import COMMIT, Failure, space_of
from storage.records import Job, LeaseId
from storage.task_sessions import has_session

KEPT = 5
"""Newest attempts of a task whose records are kept: an outage of the model may take hundreds."""

Calls = list[dict[str, Any]]
"""Objects with the fields of ModelCall."""


@dataclass(frozen=True, slots=True)
class Made:
    """What an attempt was made of. `extractor` is JSON; `calls` are packed, see `pack`; `type_digests`: of all types
    that there are, by name.
    """

    extractor: str
    calls: bytes
    type_digests: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Record:
    """One attempt that ended; `number` from 1. JSON texts; `failure` is empty for an attempt that was applied."""

    number: int
    ended_at: int
    extractor: str
    base_revision: int
    type_digests: str
    failure: str
    calls: bytes


def pack(calls: Iterable[Mapping[str, Any]]) -> bytes:
    """Takes some tens of milliseconds for answers of the longest kind: not for the event loop."""
    return zlib.compress(json.dumps(list(calls), ensure_ascii=False).encode())


def unpack(calls: bytes) -> Calls:
    unpacked: Calls = json.loads(zlib.decompress(calls))
    return unpacked


async def keep(tx: Tx, job: Job, made: Made, failure: Failure | None) -> None:
    """Keeps the record of the attempt that the job, as it is leased, is at; told again, in place of what was told."""
    space = space_of(job)
    await tx.execute(
        "INSERT INTO extraction_records (account, user_id, task_id, number, session_id, sequence, token, extractor,"
        " base_revision, type_digests, failure, calls, ended_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
        " ON CONFLICT (account, user_id, task_id, number) DO UPDATE SET"
        " extractor = excluded.extractor, failure = excluded.failure, calls = excluded.calls,"
        " ended_at = excluded.ended_at",
        space.account,
        space.user,
        job.job_id,
        job.started,
        job.session_id,
        # By it leftovers go in slices; jobs about turns have no archive, and a session has very many of them.
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
    await tx.execute(
        "DELETE FROM extraction_records WHERE account = $1 AND user_id = $2 AND task_id = $3 AND number <= $4",
        space.account,
        space.user,
        job.job_id,
        job.started - KEPT,
    )


def _writable(job: Job, digests: Mapping[str, str]) -> dict[str, str]:
    """Of the types that the job may write, as far as this server has them; jobs about turns write none."""
    if job.kind != COMMIT:
        return {}
    plan = Plan.from_json(json.loads(job.plan))
    names = [*plan.long_term_types, *plan.execution_types, *([SESSION_SKILLS.name] if plan.session_skills else [])]
    return {name: digests[name] for name in sorted(names) if name in digests}


async def complete(tx: Tx, space: Space, lease: LeaseId, made: Made) -> None:
    """Adds its calls to the record of an attempt that ended before its worker told of them; nothing without one."""
    await tx.execute(
        "UPDATE extraction_records SET extractor = $5, calls = $6"
        " WHERE account = $1 AND user_id = $2 AND task_id = $3 AND token = $4",
        space.account,
        space.user,
        lease.job_id,
        lease.token,
        made.extractor,
        made.calls,
    )


async def of_task(tx: Tx, space: Space, task_id: str) -> list[Record]:
    """The newest attempts of which something was recorded, oldest first. Raises NotFound, also once the session is
    deleted."""
    task = await tasks.get(tx, space, task_id)
    if not await has_session(tx, space, task):
        raise NotFound("extraction record", task_id)
    rows = await tx.fetch(
        "SELECT number, ended_at, extractor, base_revision, type_digests, failure, calls FROM extraction_records"
        " WHERE account = $1 AND user_id = $2 AND task_id = $3 ORDER BY number",
        space.account,
        space.user,
        task_id,
    )
    return [_record(row) for row in rows]


def _record(row: Row) -> Record:
    return Record(**{**dict(row), "calls": bytes(row["calls"])})
