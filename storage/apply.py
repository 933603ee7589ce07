"""Commits, phase 2: everything that a commit changes, in one transaction that makes one revision of the space."""

from dataclasses import dataclass
from typing import Any

from schemas import failpoints
from storage import jobs, memories, outbox, sessions
from storage.database import Space, Tx
from storage.errors import LeaseLost, NotFound, VersionConflict
from storage.points import memory_point
from storage.records import Job, LeaseId, MemoryWrite


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """An output, checked, merged, rendered and embedded on the versions that `writes` name as their bases."""

    lease: LeaseId
    output_id: str
    writes: list[MemoryWrite]
    abstract: str
    overview: str
    diff: str
    extractor: str
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Applied:
    """`again`: this very output had been applied before."""

    revision: int
    job: Job
    again: bool = False


async def apply(tx: Tx, prepared: PreparedCommit) -> Applied:
    """Applies the output once, whatever number of times it is sent.

    `result` gets `revision` and `active_count_updated` from this transaction.
    Raises LeaseLost, and VersionConflict when a memory is not at its base: prepare again then.
    """
    job = await _job_or_repeat(tx, prepared)
    if isinstance(job, Applied):
        return job
    space = jobs.space_of(job)
    for write in prepared.writes:
        await _check_version(tx, space, write)
    revision = await _next_revision(tx, space, job)
    await _write_versions(tx, space, revision, prepared)
    counted = await _count_uses(tx, space, job)
    now = tx.now()
    await tx.execute(
        "UPDATE archives SET state = 'done', abstract = $5, overview = $6, diff = $7, revision = $8, done_at = $9"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4",
        space.account,
        space.user,
        job.session_id,
        job.archive_index,
        prepared.abstract,
        prepared.overview,
        prepared.diff,
        revision,
        now,
    )
    result = {**prepared.result, "revision": revision, "active_count_updated": counted}
    await jobs.succeed(tx, job, prepared.output_id, revision, result)
    failpoints.reached(failpoints.APPLY_BEFORE_COMMIT)
    return Applied(revision, job)


async def _job_or_repeat(tx: Tx, prepared: PreparedCommit) -> Job | Applied:
    try:
        return await jobs.held(tx, prepared.lease)
    except LeaseLost:
        repeat = await applied_before(tx, prepared.lease, prepared.output_id)
        if repeat is None:
            raise
        return repeat


async def applied_before(tx: Tx, lease: LeaseId, output_id: str) -> Applied | None:
    """Whether this output of this lease is applied already; a verdict may have been lost on its way."""
    try:
        job = await jobs.get(tx, lease.job_id)
    except NotFound:
        return None
    # Ending the job moved its token on by one: a later lease has a higher one and is somebody else's.
    if job.state == "succeeded" and job.output_id == output_id and job.token == lease.token + 1:
        return Applied(job.revision, job, again=True)
    return None


async def _check_version(tx: Tx, space: Space, write: MemoryWrite) -> None:
    row = await tx.fetchrow(
        "SELECT version FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3 AND rev_to = 0",
        space.account,
        space.user,
        write.uri,
    )
    newest = await memories.newest_version(tx, space, write.uri)
    if (row["version"] if row else 0) != write.base_version or newest != write.version - 1:
        raise VersionConflict(write.uri)


async def _next_revision(tx: Tx, space: Space, job: Job) -> int:
    row = await tx.fetchrow(
        "UPDATE spaces SET revision = revision + 1 WHERE account = $1 AND user_id = $2 RETURNING revision",
        space.account,
        space.user,
    )
    if row is None:
        raise LeaseLost(job.job_id)
    await tx.execute(
        "INSERT INTO commits (account, user_id, revision, job_id, session_id, archive_index, created_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7)",
        space.account,
        space.user,
        row["revision"],
        job.job_id,
        job.session_id,
        job.archive_index,
        tx.now(),
    )
    return int(row["revision"])


async def _write_versions(tx: Tx, space: Space, revision: int, prepared: PreparedCommit) -> None:
    now = tx.now()
    entries = []
    for write in prepared.writes:
        created_at = now
        if write.base_version:
            row = await tx.fetchrow(
                "UPDATE memories SET rev_to = $5"
                " WHERE account = $1 AND user_id = $2 AND uri = $3 AND version = $4 RETURNING created_at",
                space.account,
                space.user,
                write.uri,
                write.base_version,
                revision,
            )
            created_at = row["created_at"] if row else now
            old = memory_point(space, write.uri, write.base_version)
            entries.append(outbox.Entry("delete", point_id=old))
        await tx.execute(
            "INSERT INTO memories (account, user_id, uri, version, memory_type, peer_id, fields, content, abstract,"
            " overview, sources, extractor, deleted, rev_from, rev_to, dense, dense_model, sparse, created_at,"
            " updated_at) VALUES"
            " ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)",
            space.account,
            space.user,
            write.uri,
            write.version,
            write.memory_type,
            write.peer_id,
            write.fields,
            write.content,
            write.abstract,
            write.overview,
            write.sources,
            prepared.extractor,
            int(write.deleted),
            revision,
            # A delete is a version that is alive at no revision.
            revision if write.deleted else 0,
            write.dense,
            write.dense_model,
            write.sparse,
            created_at,
            now,
        )
        if not write.deleted:
            entries.append(outbox.Entry("upsert", uri=write.uri, version=write.version))
        failpoints.reached(failpoints.APPLY_MID_OPERATIONS)
    await outbox.add(tx, space, revision, entries)


async def _count_uses(tx: Tx, space: Space, job: Job) -> int:
    """Adds the uses that the commit took to the active counts; how many contexts and skills that were."""
    uris = {usage.uri for usage in await sessions.usages_of(tx, space, job.session_id, job.archive_index)}
    for uri in sorted(uris):
        await tx.execute(
            "INSERT INTO active_counts (account, user_id, uri, uses) VALUES ($1, $2, $3, 1)"
            " ON CONFLICT (account, user_id, uri) DO UPDATE SET uses = active_counts.uses + 1",
            space.account,
            space.user,
            uri,
        )
    return len(uris)
