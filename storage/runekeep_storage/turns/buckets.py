"""Buckets of a session: a blob holds the whole bucket, and its row holds the card, the part that agents see.

Transactions must not wait for blobs, so a change is prepared outside: `load` the bucket, change it, `keep` it as a new
blob, then `write` the row that names it, provided that the row still names the blob that the change is based on.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from runekeep_schemas.turns.buckets import Bucket, card
from runekeep_schemas.turns.stored import BUCKET, bucket_tags
from runekeep_storage.blobs import sweeps
from runekeep_storage.blobs.blobs import Blobs
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.errors import NotFound, StoreUnavailable, VersionConflict
from runekeep_storage.records import Artifact
from runekeep_storage.turns import artifacts, statements

_LOOKS = 3
"""Number of attempts to read: a blob may be replaced and swept after its row was read, but hardly twice."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """A complete bucket and the location of its blob. `blob` is the `base` for `write`."""

    bucket: Bucket
    blob: str
    hosted_uri: str


async def rows(tx: Tx, space: Space, session_id: str) -> list[Artifact]:
    """Returns the rows of the session's buckets, latest change first, without their tags; the text of each is its
    card."""
    found = await tx.fetch(statements.NEWEST_ARTIFACTS, space.account, space.user, session_id, BUCKET)
    return [artifacts.artifact(row) for row in found]


async def load(
    database: SpaceDatabase, blobs: Blobs, space: Space, session_id: str, only: Collection[str] | None = None
) -> list[Stored]:
    """Returns the session's complete buckets, latest change first; with `only`, those with these ids. Raises
    StoreUnavailable.

    Each bucket is consistent, but two of them may be from different moments. If a blob is lost, as after a restore, the
    bucket is its card.
    """
    missing: set[str] = set()
    for _ in range(_LOOKS):
        found = await database.read(rows, space, session_id)
        wanted = [row for row in found if only is None or row.name in only]
        # In threads, as many at a time as the pool has.
        wholes = await asyncio.gather(*(asyncio.to_thread(whole_of, blobs, space, row.blob) for row in wanted))
        looked = list(zip(wanted, wholes, strict=True))
        not_there = {row.blob for row, whole in looked if whole is None}
        if not_there <= missing:
            # The row still names the blob that was missing before, so no change has replaced it.
            for name in not_there:
                log.error("bucket_content_lost", account=space.account, user=space.user, blob=name)
            return [Stored(whole or Bucket.from_text(row.text), row.blob, row.hosted_uri) for row, whole in looked]
        missing |= not_there
    raise StoreUnavailable(f"buckets of session {session_id} change faster than they are read")


def whole_of(blobs: Blobs, space: Space, name: str) -> Bucket | None:
    """Returns the bucket in a blob; None if the blob does not exist. Raises StoreUnavailable."""
    try:
        return Bucket.from_text(blobs.get(space, name).decode())
    except NotFound:
        return None


async def keep(database: SpaceDatabase, blobs: Blobs, space: Space, bucket: Bucket) -> Stored:
    """Writes the blob that `write` will name. Raises StoreUnavailable.

    Schedules a sweep for the end of the grace period: it removes this blob if no row names it, otherwise its
    predecessor.
    """
    await database.write(sweeps.expect, space)
    name = await asyncio.to_thread(blobs.put, space, bucket.to_text().encode())
    return Stored(bucket, name, blobs.uri(space, name))


async def write(tx: Tx, space: Space, session_id: str, bucket: Bucket, blob: str, uri: str, *, base: str) -> None:
    """Stores the row of a bucket whose content is in `blob`.

    `base`: the blob that the change is based on, "" for a new bucket. Raises VersionConflict if the row names another
    blob by now or does not exist, and NotFound if the session does not exist.
    """
    session = await tx.fetchrow(statements.HAS_SESSION, space.account, space.user, session_id)
    if session is None:
        raise NotFound("session", session_id)
    there = await artifacts.get(tx, space, session_id, BUCKET, bucket.bucket_id)
    if (there.blob if there is not None else "") != base:
        raise VersionConflict(bucket.bucket_id)
    row = Artifact(
        session_id,
        BUCKET,
        bucket.bucket_id,
        turn_id="",
        sequence=0,
        text=card(bucket).to_text(),
        tags=bucket_tags(bucket.bucket_id),
        blob=blob,
        hosted_uri=uri,
        said_at=bucket.updated_at,
    )
    await artifacts.put(tx, space, row)
