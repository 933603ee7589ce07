"""Makes revisions of a space: each contains all versions that one change wrote, whoever made the change."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runekeep_common import failpoints
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.statement_lists import in_rows
from runekeep_storage.errors import NotFound, VersionConflict
from runekeep_storage.indexing import embedder_change, outbox
from runekeep_storage.indexing.embedder_change import Columns
from runekeep_storage.indexing.points import memory_point
from runekeep_storage.memories import origins as memory_origins
from runekeep_storage.memories import statements
from runekeep_storage.records import MemoryWrite


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a revision. `kind` is commit, caller, rollback, erasure or proposal. A commit is
    identified by its job and archive, a proposal by the archive, a rollback by the revision that it takes back."""

    kind: str
    job_id: str = ""
    session_id: str = ""
    archive_index: int = 0
    rolled_back: int = 0


BY_HAND = Origin("caller")


async def make(tx: Tx, space: Space, writes: Sequence[MemoryWrite], extractor: str, origin: Origin) -> int:
    """Writes the versions as the next revision of the space and returns its number. `extractor`: JSON, who made them.

    Raises VersionConflict if a memory is not at the base version of its write, and NotFound if the space does not
    exist; nothing is written then.
    """
    for some in in_rows(writes):
        await _check_all(tx, space, some)
    entries = sum(bool(write.base_version) + (not write.deleted) for write in writes)
    revision, number = await _next(tx, space, origin, entries)
    await _write_versions(tx, space, revision, writes, extractor, number)
    return revision


async def made_at(tx: Tx, space: Space, revision: int) -> int | None:
    """Returns when the newest revision up to `revision` was made, in microseconds since 1970; None if there is none."""
    row = await tx.fetchrow(statements.REVISION_MADE_AT, space.account, space.user, revision)
    return row["created_at"] if row else None


async def check_base(tx: Tx, space: Space, uri: str, base_version: int) -> None:
    """Raises VersionConflict unless the current version of the memory is `base_version` (0: no current version)."""
    row = await tx.fetchrow(statements.CURRENT_VERSION, space.account, space.user, uri)
    if (row["version"] if row else 0) != base_version:
        raise VersionConflict(uri)


async def _check_all(tx: Tx, space: Space, writes: Sequence[MemoryWrite]) -> None:
    """Raises VersionConflict for the first write that does not follow the stored version."""
    found = await tx.fetch(
        statements.versions_of(len(writes)), space.account, space.user, *(write.uri for write in writes)
    )
    there = {row["uri"]: (row["version"] or 0, row["newest"] or 0) for row in found}
    for write in writes:
        if there[write.uri] != (write.base_version, write.version - 1):
            raise VersionConflict(write.uri)


async def _next(tx: Tx, space: Space, origin: Origin, entries: int) -> tuple[int, int]:
    """Returns the number of the new revision, and the outbox number before the first of its `entries` outbox
    entries."""
    row = await tx.fetchrow(statements.NEXT_REVISION, space.account, space.user, entries)
    if row is None:
        raise NotFound("user", space.user)
    await tx.execute(
        statements.ADD_REVISION,
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


async def _write_versions(
    tx: Tx, space: Space, revision: int, writes: Sequence[MemoryWrite], extractor: str, number: int
) -> None:
    """Writes versions and their outbox entries. `number`: the outbox number before the first entry."""
    now = tx.now()
    columns = await embedder_change.columns(tx) if writes else Columns("", "")
    ended = await _end_bases(tx, space, revision, [write for write in writes if write.base_version])
    entries = []
    for write in writes:
        if write.base_version:
            old = memory_point(space, write.uri, ended[write.uri]["rev_from"])
            entries.append(outbox.Entry("delete", point_id=old))
        if not write.deleted:
            entries.append(outbox.Entry("upsert", uri=write.uri, version=write.version))
    # The first version gets a statement of its own, so that the failpoint can stop the process between versions of a
    # revision.
    for some in (writes[:1], *in_rows(writes[1:])) if writes else ():
        values: list[Any] = []
        for write in some:
            created_at = ended[write.uri]["created_at"] if write.base_version else now
            values += _own(write, revision, created_at, columns)
        await tx.execute(
            statements.insert_versions(len(some)), space.account, space.user, revision, extractor, now, *values
        )
        failpoints.reached(failpoints.APPLY_MID_OPERATIONS)
    origins = [(write.uri, write.version, run) for write in writes for run in write.origins]
    await memory_origins.write(tx, space, origins)
    for write in writes:
        if write.renamed_from:
            await memory_origins.copy(tx, space, write.renamed_from, write.uri, write.version)
    await outbox.put(tx, space, revision, entries, number)


async def _end_bases(tx: Tx, space: Space, revision: int, writes: Sequence[MemoryWrite]) -> dict[str, Row]:
    """Ends the current versions. Returns `created_at` and `rev_from` of each, by URI."""
    ended: dict[str, Row] = {}
    for some in in_rows(writes):
        keys = [value for write in some for value in (write.uri, write.base_version)]
        found = await tx.fetch(statements.end_versions(len(some)), space.account, space.user, revision, *keys)
        ended |= {row["uri"]: row for row in found}
    return ended


def _own(write: MemoryWrite, revision: int, created_at: int, columns: Columns) -> tuple[Any, ...]:
    """Returns the values of a version in the order of `statements.insert_versions`."""
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
        *columns.place(write.dense, write.dense_model),
        write.sparse,
        write.happened_at,
        json.dumps(write.tags, ensure_ascii=False),
        write.created_at or created_at,
    )
