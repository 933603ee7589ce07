"""Memory buckets as their owner lists and edits them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import structlog

from runekeep.v1 import turn_memory_service_pb2 as pb
from schemas.secrets import withhold
from schemas.turns.buckets import Bucket, card
from schemas.turns.folding import DESCRIPTION_LENGTH, NAME_LENGTH
from schemas.turns.text import cut, line
from server.errors import invalid, too_large
from server.mutations import answered, mutate
from server.wire import turns as wire
from server.wire.basics import session_id, timestamp
from storage import buckets, fingerprints, sessions
from storage.buckets import Stored
from storage.database import Space, Tx
from storage.errors import NotFound, VersionConflict
from storage.store import Store

PREPARATIONS = 3
"""How often a change is prepared while its bucket moves."""
MASK = ("state", "name", "short_desc")

log = structlog.get_logger(__name__)


async def list_(
    store: Store, space: Space, request: pb.ListMemoryBucketsRequest, most_bytes: int
) -> pb.ListMemoryBucketsResponse:
    """Buckets that take more than `most_bytes` together lose their oldest slices. Raises NotFound, StoreUnavailable,
    ApiError."""
    name = session_id("session", request.session, space.user)
    covered_at = await store.database.read(_covered_at, space, name)
    stored = await buckets.load(store.database, store.blobs, space, name)
    shown = [one for one in stored if one.bucket.enabled or request.show_disabled]
    return await asyncio.to_thread(_listed, space.user, name, covered_at, shown, most_bytes)


def _listed(
    user: str, session: str, covered_at: int, stored: Sequence[Stored], most_bytes: int
) -> pb.ListMemoryBucketsResponse:
    answer = pb.ListMemoryBucketsResponse(last_covered_time=timestamp(covered_at))
    slices = []
    for one in stored:
        made = answer.buckets.add()
        made.CopyFrom(wire.bucket_to_wire(user, session, replace(one.bucket, timeline=()), one.hosted_uri))
        slices += [(part.to_at, place, made, part) for place, part in enumerate(one.bucket.timeline)]
    room = most_bytes - answer.ByteSize()
    if room < 0:
        what = f"The buckets take {answer.ByteSize()} bytes without their timelines, and an answer holds {most_bytes}"
        raise too_large(what, "Read the content of each at its hosted_uri, see ListTurnArtifacts")
    shown = []
    for _, place, made, part in sorted(slices, key=lambda one: one[:2], reverse=True):
        slice_ = wire.slice_to_wire(part)
        # With its tag and length, and what they add to those of its bucket.
        room -= slice_.ByteSize() + 8
        if room < 0:
            break
        shown.append((place, made, slice_))
    for _, made, slice_ in sorted(shown, key=lambda one: one[0]):
        made.timeline.append(slice_)
    return answer


async def _covered_at(tx: Tx, space: Space, session_id: str) -> int:
    await sessions.get(tx, space, session_id)
    return await fingerprints.covered_at(tx, space, session_id)


async def update(
    store: Store, space: Space, request: pb.UpdateMemoryBucketRequest, *, withhold_secrets: bool
) -> pb.UpdateMemoryBucketResponse:
    """Raises ApiError, NotFound, RequestReused, VersionConflict (the bucket kept moving), StoreUnavailable."""
    name = session_id("bucket.session", request.bucket.session, space.user)
    _check_mask(request)
    wanted = request.bucket
    if withhold_secrets:
        wanted = await asyncio.to_thread(_withheld, wanted)
    for attempt in range(1, PREPARATIONS + 1):
        try:
            return await _update(store, space, name, request, wanted)
        except NotFound:
            # A repeat of what was done, and is gone by now.
            before = await answered(store.database, space, request, pb.UpdateMemoryBucketResponse)
            if before is None:
                raise
            return before
        except VersionConflict:
            log.info("bucket_conflict", attempt=attempt)
            if attempt == PREPARATIONS:
                raise
    raise AssertionError("unreachable")


def _check_mask(request: pb.UpdateMemoryBucketRequest) -> None:
    """Raises ApiError."""
    bucket, paths = request.bucket, list(request.update_mask.paths)
    if not bucket.bucket_id:
        raise invalid("bucket.bucket_id", "is empty", "Take it from ListMemoryBuckets")
    if not paths:
        raise invalid("update_mask", "names no field", f"Name any of {', '.join(MASK)}")
    for number, path in enumerate(paths):
        if path not in MASK:
            raise invalid(f"update_mask.paths[{number}]", "cannot be changed", f"Name any of {', '.join(MASK)}")
    if "state" in paths and not bucket.state:
        raise invalid("bucket.state", "is not given, and update_mask names it", "Give ENABLED or DISABLED")
    if "name" in paths and not bucket.name.strip():
        raise invalid("bucket.name", "is empty, and update_mask names it", "Give a name")


async def _update(
    store: Store, space: Space, session: str, request: pb.UpdateMemoryBucketRequest, wanted: pb.MemoryBucket
) -> pb.UpdateMemoryBucketResponse:
    now = await store.database.read(_now, space, session)
    there = await buckets.load(store.database, store.blobs, space, session, {wanted.bucket_id})
    if not there:
        raise NotFound("bucket", wanted.bucket_id)
    (before,) = there
    changed = _changed(before.bucket, wanted, set(request.update_mask.paths), now)
    after = await buckets.keep(store.database, store.blobs, space, changed)

    async def work(tx: Tx) -> pb.UpdateMemoryBucketResponse:
        await buckets.write(tx, space, session, changed, after.blob, after.hosted_uri, base=before.blob)
        # Its card: an answer that may be of any size could fail to be sent, or kept, for a change that is made.
        shown = wire.bucket_to_wire(space.user, session, card(changed), after.hosted_uri)
        return pb.UpdateMemoryBucketResponse(bucket=shown)

    return await mutate(store.database, space, request, pb.UpdateMemoryBucketResponse, work, session_id=session)


async def _now(tx: Tx, space: Space, session: str) -> int:
    """By the store's clock. Raises NotFound for an unknown session."""
    await sessions.get(tx, space, session)
    return tx.now()


def _changed(bucket: Bucket, wanted: pb.MemoryBucket, mask: set[str], now: int) -> Bucket:
    fields: dict[str, Any] = {"updated_at": now}
    if "state" in mask:
        fields["enabled"] = wanted.state == pb.BUCKET_STATE_ENABLED
    if "name" in mask:
        fields["name"] = line(wanted.name)
    if "short_desc" in mask:
        fields["short_desc"] = line(wanted.short_desc)
    return replace(bucket, **fields)


def _withheld(wanted: pb.MemoryBucket) -> pb.MemoryBucket:
    made = pb.MemoryBucket()
    made.CopyFrom(wanted)
    made.name = cut(withhold(wanted.name)[0], NAME_LENGTH)
    made.short_desc = cut(withhold(wanted.short_desc)[0], DESCRIPTION_LENGTH)
    return made
