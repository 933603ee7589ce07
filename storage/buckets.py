"""Buckets of a session: the whole of one is a blob, and its row holds as much of it as agents are shown, its card.

A change is prepared outside of transactions, which wait for no blob: `load` the whole, change it, `keep` it as a new
blob, then `write` the row that names it, on the condition that the row still names the blob of which the change was
made.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from schemas.turns.buckets import Bucket, card
from schemas.turns.stored import BUCKET, bucket_tags
from storage import blob_sweeps, turn_artifacts
from storage.blobs import Blobs
from storage.database import Database, Space, Tx
from storage.errors import NotFound, StoreUnavailable, VersionConflict
from storage.leftovers import without
from storage.records import Artifact

_LOOKS = 3
"""A blob may be replaced and swept between the reading of its row and its own; hardly twice."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """A bucket with its whole timeline, and where that lies. `blob` is what `write` takes as `base`."""

    bucket: Bucket
    blob: str
    hosted_uri: str


async def rows(tx: Tx, space: Space, session_id: str) -> list[Artifact]:
    """Rows of the session's buckets, latest change first, without their tags; the text of each is its card."""
    found = await tx.fetch(
        f"SELECT {turn_artifacts.columns('turn_artifacts')} FROM turn_artifacts"
        f" WHERE account = $1 AND user_id = $2 AND session_id = $3 AND kind = $4{without('turn_artifacts')}"
        " ORDER BY said_at DESC, name",
        space.account,
        space.user,
        session_id,
        BUCKET,
    )
    return [turn_artifacts.artifact(row) for row in found]


async def load(
    database: Database, blobs: Blobs, space: Space, session_id: str, only: Collection[str] | None = None
) -> list[Stored]:
    """The session's buckets as a whole, latest change first; with `only`, those ids. Raises StoreUnavailable.

    Each is whole as of a moment; two of them may be of two moments. Of one whose blob is lost, as after a restore, it
    is the card.
    """
    missing: set[str] = set()
    for _ in range(_LOOKS):
        found = await database.read(rows, space, session_id)
        wanted = [row for row in found if only is None or row.name in only]
        # In threads, as many at a time as there are.
        wholes = await asyncio.gather(*(asyncio.to_thread(whole_of, blobs, space, row.blob) for row in wanted))
        looked = list(zip(wanted, wholes, strict=True))
        not_there = {row.blob for row, whole in looked if whole is None}
        if not_there <= missing:
            # Named still, after it was missed: no other change has come between.
            for name in not_there:
                log.error("bucket_content_lost", account=space.account, user=space.user, blob=name)
            return [Stored(whole or Bucket.from_text(row.text), row.blob, row.hosted_uri) for row, whole in looked]
        missing |= not_there
    raise StoreUnavailable(f"buckets of session {session_id} change faster than they are read")


def whole_of(blobs: Blobs, space: Space, name: str) -> Bucket | None:
    """The bucket in a blob; None for a blob that is not there. Raises StoreUnavailable."""
    try:
        return Bucket.from_text(blobs.get(space, name).decode())
    except NotFound:
        return None


async def keep(database: Database, blobs: Blobs, space: Space, bucket: Bucket) -> Stored:
    """Writes the blob that `write` is to name. Raises StoreUnavailable.

    A sweep follows when its grace is over: for this blob, should no row come to name it, else for the one before it.
    """
    await database.write(blob_sweeps.expect, space)
    name = await asyncio.to_thread(blobs.put, space, bucket.to_text().encode())
    return Stored(bucket, name, blobs.uri(space, name))


async def write(tx: Tx, space: Space, session_id: str, bucket: Bucket, blob: str, uri: str, *, base: str) -> None:
    """Stores the row of a bucket, the whole of which is that blob.

    `base`: the blob of which the change was made, "" for a bucket that is new. Raises VersionConflict when the row
    names another one by now, or is not there, and NotFound for a session that is gone.
    """
    session = await tx.fetchrow(
        "SELECT 1 FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    if session is None:
        raise NotFound("session", session_id)
    there = await turn_artifacts.get(tx, space, session_id, BUCKET, bucket.bucket_id)
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
    await turn_artifacts.put(tx, space, row)
