"""Revisions of a space: the versions that one change made, as one step, whoever made it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from schemas import failpoints
from storage import memory_origins, outbox
from storage.database import Row, Space, Tx
from storage.errors import NotFound, VersionConflict
from storage.points import memory_point
from storage.records import MemoryWrite
from storage.statement_lists import in_rows, rows


@dataclass(frozen=True, slots=True)
class Origin:
    """Who makes a revision: `kind` is commit, caller, rollback or erasure. A commit is named by its job and archive; a
    rollback names the revision that it takes back."""

    kind: str
    job_id: str = ""
    session_id: str = ""
    archive_index: int = 0
    rolled_back: int = 0


BY_HAND = Origin("caller")


async def make(tx: Tx, space: Space, writes: Sequence[MemoryWrite], extractor: str, origin: Origin) -> int:
    """Writes the versions as the next revision of the space and gives its number. `extractor`: JSON, who made them.

    Raises VersionConflict when a memory is not at the base that its write was prepared on, NotFound for a space that
    is not there; nothing is written then.
    """
    for some in in_rows(writes):
        await _check_all(tx, space, some)
    entries = sum(bool(write.base_version) + (not write.deleted) for write in writes)
    revision, number = await _next(tx, space, origin, entries)
    await _write_versions(tx, space, revision, writes, extractor, number)
    return revision


async def made_at(tx: Tx, space: Space, revision: int) -> int | None:
    """When the newest one up to a revision was made, in microseconds since 1970; None where there is none."""
    row = await tx.fetchrow(
        "SELECT created_at FROM commits WHERE account = $1 AND user_id = $2 AND revision <= $3"
        " ORDER BY revision DESC LIMIT 1",
        space.account,
        space.user,
        revision,
    )
    return row["created_at"] if row else None


async def check_base(tx: Tx, space: Space, uri: str, base_version: int) -> None:
    """Raises VersionConflict unless the current version of the memory is `base_version`, 0 for none."""
    row = await tx.fetchrow(
        "SELECT version FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3 AND rev_to = 0",
        space.account,
        space.user,
        uri,
    )
    if (row["version"] if row else 0) != base_version:
        raise VersionConflict(uri)


@cache
def _standings(count: int) -> str:
    # Two looks at an index each: a memory may have any number of versions.
    return (
        "SELECT column1 AS uri, (SELECT m.version FROM memories m"
        " WHERE m.account = $1 AND m.user_id = $2 AND m.uri = column1 AND m.rev_to = 0) AS version,"
        " (SELECT MAX(m.version) FROM memories m"
        " WHERE m.account = $1 AND m.user_id = $2 AND m.uri = column1) AS newest"
        f" FROM (VALUES {rows('(CAST(? AS TEXT))', count, 3)}) AS k"
    )


async def _check_all(tx: Tx, space: Space, writes: Sequence[MemoryWrite]) -> None:
    """Raises VersionConflict for the first that does not go on from what is there."""
    found = await tx.fetch(_standings(len(writes)), space.account, space.user, *(write.uri for write in writes))
    there = {row["uri"]: (row["version"] or 0, row["newest"] or 0) for row in found}
    for write in writes:
        if there[write.uri] != (write.base_version, write.version - 1):
            raise VersionConflict(write.uri)


async def _next(tx: Tx, space: Space, origin: Origin, entries: int) -> tuple[int, int]:
    """Number of the new revision, and the one before the first of so many outbox entries."""
    row = await tx.fetchrow(
        "UPDATE spaces SET revision = revision + 1, outbox_number = outbox_number + $3"
        " WHERE account = $1 AND user_id = $2 RETURNING revision, outbox_number",
        space.account,
        space.user,
        entries,
    )
    if row is None:
        raise NotFound("user", space.user)
    await tx.execute(
        "INSERT INTO commits (account, user_id, revision, origin, job_id, session_id, archive_index, rolled_back,"
        " created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        space.account,
        space.user,
        row["revision"],
        origin.kind,
        origin.job_id,
        origin.session_id,
        origin.archive_index,
        origin.rolled_back,
        tx.now(),
    )
    return int(row["revision"]), int(row["outbox_number"]) - entries


_OWN = (
    "uri, version, memory_type, peer_id, fields, content, abstract, overview, sources, deleted, rev_to, dense,"
    " dense_model, sparse, happened_at, tags, created_at"
)
"""Columns that each version of a revision has for itself."""


@cache
def _insert(count: int) -> str:
    row = f"($1, $2, $3, $4, $5{', ?' * (_OWN.count(',') + 1)})"
    return (
        f"INSERT INTO memories (account, user_id, rev_from, extractor, updated_at, {_OWN}) VALUES {rows(row, count, 6)}"
    )


async def _write_versions(
    tx: Tx, space: Space, revision: int, writes: Sequence[MemoryWrite], extractor: str, number: int
) -> None:
    """`number`: of the outbox entry before the first of these."""
    now = tx.now()
    ended = await _end_bases(tx, space, revision, [write for write in writes if write.base_version])
    entries = []
    for write in writes:
        if write.base_version:
            old = memory_point(space, write.uri, ended[write.uri]["rev_from"])
            entries.append(outbox.Entry("delete", point_id=old))
        if not write.deleted:
            entries.append(outbox.Entry("upsert", uri=write.uri, version=write.version))
    # The first by itself, so that there is a place between the versions of a revision to stop the process at.
    for some in (writes[:1], *in_rows(writes[1:])) if writes else ():
        values: list[Any] = []
        for write in some:
            created_at = ended[write.uri]["created_at"] if write.base_version else now
            values += _own(write, revision, created_at)
        await tx.execute(_insert(len(some)), space.account, space.user, revision, extractor, now, *values)
        failpoints.reached(failpoints.APPLY_MID_OPERATIONS)
    origins = [(write.uri, write.version, run) for write in writes for run in write.origins]
    await memory_origins.write(tx, space, origins)
    await outbox.put(tx, space, revision, entries, number)


async def _end_bases(tx: Tx, space: Space, revision: int, writes: Sequence[MemoryWrite]) -> dict[str, Row]:
    """Ends the versions that are current; `created_at` and `rev_from` of each by URI."""
    ended: dict[str, Row] = {}
    for some in in_rows(writes):
        keys = [value for write in some for value in (write.uri, write.base_version)]
        found = await tx.fetch(_end(len(some)), space.account, space.user, revision, *keys)
        ended |= {row["uri"]: row for row in found}
    return ended


@cache
def _end(count: int) -> str:
    # All of them are there. For an UPDATE of a list PostgreSQL may read every memory of the user.
    return (
        f"INSERT INTO memories (account, user_id, rev_to, uri, version) VALUES {rows('($1, $2, $3, ?, ?)', count, 4)}"
        " ON CONFLICT (account, user_id, uri, version) DO UPDATE SET rev_to = excluded.rev_to"
        " RETURNING uri, created_at, rev_from"
    )


def _own(write: MemoryWrite, revision: int, created_at: int) -> tuple[Any, ...]:
    """The values of _OWN."""
    return (
        write.uri,
        write.version,
        write.memory_type,
        write.peer_id,
        write.fields,
        write.content,
        write.abstract,
        write.overview,
        write.sources,
        int(write.deleted),
        # A delete is a version that is alive at no revision.
        revision if write.deleted else 0,
        write.dense,
        write.dense_model,
        write.sparse,
        write.happened_at,
        json.dumps(write.tags, ensure_ascii=False),
        write.created_at or created_at,
    )
