"""Revisions of a space: the versions that one change made, as one step, whoever made it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from schemas import failpoints
from storage import memories, outbox
from storage.database import Space, Tx
from storage.errors import NotFound, VersionConflict
from storage.points import memory_point
from storage.records import MemoryWrite


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
    for write in writes:
        await check_base(tx, space, write.uri, write.base_version)
        if await memories.newest_version(tx, space, write.uri) != write.version - 1:
            raise VersionConflict(write.uri)
    revision = await _next(tx, space, origin)
    await _write_versions(tx, space, revision, writes, extractor)
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


async def _next(tx: Tx, space: Space, origin: Origin) -> int:
    row = await tx.fetchrow(
        "UPDATE spaces SET revision = revision + 1 WHERE account = $1 AND user_id = $2 RETURNING revision",
        space.account,
        space.user,
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
    return int(row["revision"])


async def _write_versions(tx: Tx, space: Space, revision: int, writes: Sequence[MemoryWrite], extractor: str) -> None:
    now = tx.now()
    entries = []
    for write in writes:
        created_at = now
        if write.base_version:
            row = await tx.fetchrow(
                "UPDATE memories SET rev_to = $5"
                " WHERE account = $1 AND user_id = $2 AND uri = $3 AND version = $4 RETURNING created_at, rev_from",
                space.account,
                space.user,
                write.uri,
                write.base_version,
                revision,
            )
            if row is None:
                raise VersionConflict(write.uri)
            created_at = row["created_at"]
            old = memory_point(space, write.uri, row["rev_from"])
            entries.append(outbox.Entry("delete", point_id=old))
        await tx.execute(
            "INSERT INTO memories (account, user_id, uri, version, memory_type, peer_id, fields, content, abstract,"
            " overview, sources, extractor, deleted, rev_from, rev_to, dense, dense_model, sparse, happened_at, tags,"
            " created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
            " $17, $18, $19, $20, $21, $22)",
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
            extractor,
            int(write.deleted),
            revision,
            # A delete is a version that is alive at no revision.
            revision if write.deleted else 0,
            write.dense,
            write.dense_model,
            write.sparse,
            write.happened_at,
            json.dumps(write.tags, ensure_ascii=False),
            write.created_at or created_at,
            now,
        )
        await _name_sources(tx, space, write)
        if not write.deleted:
            entries.append(outbox.Entry("upsert", uri=write.uri, version=write.version))
        failpoints.reached(failpoints.APPLY_MID_OPERATIONS)
    await outbox.add(tx, space, revision, entries)


_GROUP = 50
"""Sources that one statement writes; a memory may have hundreds."""


def _insert(rows: int) -> str:
    values = ", ".join(f"($1, $2, ${2 * row + 5}, ${2 * row + 6}, $3, $4)" for row in range(rows))
    return (
        f"INSERT INTO memory_sources (account, user_id, session_id, message_id, uri, version) VALUES {values}"
        " ON CONFLICT (account, user_id, session_id, message_id, uri) DO NOTHING"
    )


_INSERTS = {rows: _insert(rows) for rows in (1, _GROUP)}


async def _name_sources(tx: Tx, space: Space, write: MemoryWrite) -> None:
    """So that of a message it is known what came from it."""
    sources = [(source["session"], source["message_id"]) for source in json.loads(write.sources)]
    named = list(dict.fromkeys([*sources, *write.origins]))
    while named:
        rows = _GROUP if len(named) >= _GROUP else 1
        values = [value for source in named[:rows] for value in source]
        await tx.execute(_INSERTS[rows], space.account, space.user, write.uri, write.version, *values)
        del named[:rows]
