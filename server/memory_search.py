"""Search of a space: what MemoryService offers to users and, by lease, to workers."""

import asyncio
from collections.abc import Mapping

from runekeep.v1 import common_pb2
from runekeep.v1 import memory_service_pb2 as pb
from schemas.session_skills import SESSION_SKILLS
from server.answer_sizes import DEFAULT_SIZES, AnswerSizes
from server.as_of import resolve
from server.errors import index_behind, invalid
from server.wire import memories as wire
from server.wire.basics import canonical, microseconds, plain_values, session_id
from storage import revisions, watermarks
from storage.choice import Known
from storage.database import Space, Tx
from storage.find import FindAnswer, FindRequest
from storage.found_texts import ROOM_FOR_ALL, Depth, Room
from storage.index.base import PointKind
from storage.store import Store

_KINDS = {pb.FOUND_KIND_MEMORY: PointKind.MEMORY, pb.FOUND_KIND_PASSAGE: PointKind.PASSAGE}


async def find(
    store: Store, space: Space, request: pb.FindMemoriesRequest, sizes: AnswerSizes = DEFAULT_SIZES
) -> pb.FindMemoriesResponse:
    """Memories for which a page has no room come with less than the view that was asked for. Raises IndexUnavailable,
    ApiError."""
    answer = await search(store, space, request, room=Room(_depth(request), sizes.page, sizes.record))
    return wire.found(space.user, answer, store.registry, explain=request.explain)


async def find_for_job(
    store: Store, space: Space, request: pb.FindMemoriesRequest, revision: int, sizes: AnswerSizes
) -> pb.FindMemoriesResponse:
    """As `find`, at a revision; but memories for which an answer has no room are left out: an engine takes what it is
    given of a memory for all of it."""
    room = Room(_depth(request), sizes.record, sizes.record, whole=True)
    answer = await search(store, space, request, revision, room=room)
    return wire.found(space.user, answer, store.registry, explain=request.explain)


def _depth(request: pb.FindMemoriesRequest) -> Depth:
    return Depth(request.view or pb.MEMORY_VIEW_ABSTRACT)


async def search(
    store: Store,
    space: Space,
    request: pb.FindMemoriesRequest,
    at_revision: int | None = None,
    *,
    known: Known | None = None,
    quotas: Mapping[str, int] | None = None,
    room: Room = ROOM_FOR_ALL,
) -> FindAnswer:
    """What `find` answers, as the store has it; `known`, `quotas` and `room` as in `FindRequest`. Raises
    IndexUnavailable, ApiError."""
    for number, name in enumerate(request.memory_types):
        if name not in store.registry and name != SESSION_SKILLS.name:
            raise invalid(f"memory_types[{number}]", "is no memory type", "See ListMemoryTypes")
    archived_by: int | None = None
    if request.HasField("as_of"):
        if request.min_revision:
            raise invalid("as_of", "is given beside min_revision", "Give one of them")
        at_revision, archived_by = await store.database.read(_then, space, request.as_of)
    elif at_revision is None and request.min_revision:
        await wait_for_revision(store, space, request.min_revision)
    wanted = FindRequest(
        text=request.query,
        limit=request.limit or 10,
        uri_prefix=canonical("target_uri", request.target_uri, space.user) if request.target_uri else "",
        kinds=tuple(_KINDS[kind] for kind in request.kinds),
        memory_types=tuple(request.memory_types),
        fields=plain_values(request.filter),
        peers=tuple(peer or None for peer in request.peers),
        tags=tuple(request.tags),
        sessions=tuple(
            session_id(f"sessions[{number}]", name, space.user) for number, name in enumerate(request.sessions)
        ),
        since=_time("start_time", request),
        until=_time("end_time", request),
        score_threshold=request.score_threshold if request.HasField("score_threshold") else None,
        at_revision=at_revision,
        archived_by=archived_by,
        known=known,
        quotas=quotas or {},
        room=room,
    )
    return await store.finder.find(space, wanted)


async def _then(tx: Tx, space: Space, as_of: common_pb2.AsOf) -> tuple[int, int]:
    """The revision that is asked for, and the time up to which what was archived counts: that of the revision, or where
    none was kept of it, as of a deletion, of the newest one before it; 0, so that nothing counts, where there is none.
    """
    revision = await resolve(tx, space, as_of)
    if as_of.HasField("time"):
        return revision, microseconds(as_of.time)
    return revision, await revisions.made_at(tx, space, revision) or 0


def _time(field: str, request: pb.FindMemoriesRequest) -> int | None:
    if not request.HasField(field):  # type: ignore[arg-type]  # one of the two times
        return None
    try:
        return microseconds(getattr(request, field))
    except ValueError as error:
        raise invalid(field, "is no valid time", "Give one of the years 1 to 9999") from error


async def wait_for_revision(store: Store, space: Space, wanted: int, seconds: float = 8.0) -> None:
    """Returns once the index has the revision, whichever server's relay brings it there.

    INDEX_BEHIND when it takes longer than `seconds`. Raises IndexUnavailable.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while True:
        movement = store.relay.movement
        standing = await store.database.read(watermarks.standing, space, await store.attachment.id())
        if standing.indexed >= wanted:
            return
        if wanted > standing.revision:
            above = f"is above {standing.revision}, the newest revision"
            raise invalid("min_revision", above, "Take it from a commit's result")
        if standing.indexed < 0:
            store.relay.hurry(space)
        left = deadline - clock()
        if left <= 0:
            raise index_behind(wanted, max(standing.indexed, 0))
        await store.relay.moved(movement, left)
