"""Lists and edits memory buckets."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_schemas.secrets import withhold
from runekeep_schemas.turns.buckets import Bucket, card
from runekeep_schemas.turns.folding import DESCRIPTION_LENGTH, NAME_LENGTH
from runekeep_schemas.turns.text import cut, line
from runekeep_server.protocol.answer_sizes import AnswerSizes
from runekeep_server.protocol.errors import invalid
from runekeep_server.protocol.idempotency import prepare_and_mutate
from runekeep_server.protocol.pagination import KeyPart, next_token, open_key
from runekeep_server.protocol.secret_scan import scan_for_secrets
from runekeep_server.wire import turns as wire
from runekeep_server.wire.basics import session_id, timestamp
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import NotFound
from runekeep_storage.sessions import sessions
from runekeep_storage.store import Store
from runekeep_storage.turns import buckets, fingerprints
from runekeep_storage.turns.buckets import Stored

_LATEST = 2**61
"""Later than any slice."""
MASK = ("state", "name", "short_desc")


class _Prepared(NamedTuple):
    """A changed bucket as it is stored, and the blob that the change is based on."""

    changed: Bucket
    after: Stored
    base: str


async def list_(
    store: Store, space: Space, request: pb.ListMemoryBucketsRequest, sizes: AnswerSizes
) -> pb.ListMemoryBucketsResponse:
    """Lists buckets. Slices that do not fit follow on the next pages. Raises NotFound, StoreUnavailable, ApiError."""
    name = session_id("session", request.session, space.user)
    after = open_key(request, (int, str, int))
    covered_at = await store.database.read(_covered_at, space, name)
    stored = await buckets.load(store.database, store.blobs, space, name)
    shown = [one for one in stored if one.bucket.enabled or request.show_disabled]
    return await asyncio.to_thread(_listed, space.user, name, covered_at, shown, request, after, sizes)


def _listed(
    user: str,
    session: str,
    covered_at: int,
    stored: Sequence[Stored],
    request: pb.ListMemoryBucketsRequest,
    after: tuple[KeyPart, ...] | None,
    sizes: AnswerSizes,
) -> pb.ListMemoryBucketsResponse:
    """Returns a page: on the first page all buckets, and on each page the newest slices after `after`."""
    answer = pb.ListMemoryBucketsResponse(last_covered_time=timestamp(covered_at))
    heads = {
        one.bucket.bucket_id: wire.bucket_to_wire(user, session, replace(one.bucket, timeline=())) for one in stored
    }
    slices = [
        ((part.to_at, one.bucket.bucket_id, place), part)
        for one in stored
        for place, part in enumerate(one.bucket.timeline)
    ]
    slices.sort(key=lambda one: one[0], reverse=True)
    behind = [one for one in slices if after is None or one[0] < after]
    listed = dict(heads) if after is None else {}
    # Buckets without their timelines are small: 64 of them always fit.
    room = sizes.page - sum(head.ByteSize() for head in listed.values())
    shown: list[tuple[tuple[int, str, int], pb.TimelineSlice]] = []
    for key, part in behind:
        slice_ = wire.slice_to_wire(part)
        # Plus tag and length, and the growth of its bucket's length prefix.
        room -= slice_.ByteSize() + 8
        if key[1] not in listed:
            listed[key[1]] = heads[key[1]]
            room -= heads[key[1]].ByteSize()
        # Every page has at least one slice, except a first page.
        if room < 0 and (shown or after is None):
            break
        shown.append((key, slice_))
    for (_, bucket_id, _), slice_ in sorted(shown, key=lambda one: one[0][2]):
        heads[bucket_id].timeline.append(slice_)
    of_page = {key[1] for key, _ in shown}
    answer.buckets.extend(heads[name] for name in heads if after is None or name in of_page)
    if len(shown) < len(behind):
        # The first page is full of buckets, and no slice is shown yet.
        last = shown[-1][0] if shown else (_LATEST, "", 0)
        answer.next_page_token = next_token(request, last)
    return answer


async def _covered_at(tx: Tx, space: Space, session_id: str) -> int:
    await sessions.get(tx, space, session_id)
    return await fingerprints.covered_at(tx, space, session_id)


async def update(
    store: Store, space: Space, request: pb.UpdateMemoryBucketRequest, *, withhold_secrets: bool
) -> pb.UpdateMemoryBucketResponse:
    """Edits a bucket. Raises ApiError, NotFound, RequestReused, VersionConflict (the bucket kept changing),
    StoreUnavailable."""
    name = session_id("bucket.session", request.bucket.session, space.user)
    _check_mask(request)
    wanted = request.bucket
    if withhold_secrets:
        wanted = await scan_for_secrets(_withheld, wanted)

    async def prepare() -> _Prepared:
        return await _prepare(store, space, name, wanted, set(request.update_mask.paths))

    async def work(prepared: _Prepared, tx: Tx) -> pb.UpdateMemoryBucketResponse:
        changed, after, base = prepared
        await buckets.write(tx, space, name, changed, after.blob, after.hosted_uri, base=base)
        # Answers with the card: an answer of any size might fail to be sent or stored, although the change is made.
        shown = wire.bucket_to_wire(space.user, name, card(changed))
        return pb.UpdateMemoryBucketResponse(bucket=shown)

    return await prepare_and_mutate(
        store.database, space, request, pb.UpdateMemoryBucketResponse, prepare, work, session_id=name
    )


def _check_mask(request: pb.UpdateMemoryBucketRequest) -> None:
    """Raises ApiError for an invalid update mask."""
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


async def _prepare(store: Store, space: Space, session: str, wanted: pb.MemoryBucket, mask: set[str]) -> _Prepared:
    now = await store.database.read(_now, space, session)
    there = await buckets.load(store.database, store.blobs, space, session, {wanted.bucket_id})
    if not there:
        raise NotFound("bucket", wanted.bucket_id)
    (before,) = there
    changed = _changed(before.bucket, wanted, mask, now)
    return _Prepared(changed, await buckets.keep(store.database, store.blobs, space, changed), before.blob)


async def _now(tx: Tx, space: Space, session: str) -> int:
    """Returns the store's clock. Raises NotFound for an unknown session."""
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
