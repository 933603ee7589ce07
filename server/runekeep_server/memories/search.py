"""Searches a space, for users and, by lease, for workers."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from runekeep.v1 import common_pb2
from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_server.protocol.answer_sizes import DEFAULT_SIZES, AnswerSizes
from runekeep_server.protocol.errors import index_behind, invalid
from runekeep_server.wire import memories as wire
from runekeep_server.wire.as_of import resolve
from runekeep_server.wire.basics import canonical, microseconds, plain_values, session_id
from runekeep_storage.database import Space, Tx
from runekeep_storage.index.base import PointKind
from runekeep_storage.memories import revisions
from runekeep_storage.search.found_texts import ROOM_FOR_ALL, Depth, Room
from runekeep_storage.search.requests import FindAnswer, FindRequest
from runekeep_storage.search.result_selector import Known
from runekeep_storage.spaces import watermarks
from runekeep_storage.store import Store

_KINDS = {pb.FOUND_KIND_MEMORY: PointKind.MEMORY, pb.FOUND_KIND_PASSAGE: PointKind.PASSAGE}


async def find(
    store: Store, space: Space, request: pb.FindMemoriesRequest, sizes: AnswerSizes = DEFAULT_SIZES
) -> pb.FindMemoriesResponse:
    """Answers FindMemories. Memories that do not fit into the answer come with a smaller view than requested. Raises
    IndexUnavailable, ApiError."""
    room = Room(_depth(request), sizes.page, sizes.record)
    answer = await search(store, space, request, room=room, rerank=True)
    calibration = store.finder.calibration_of(answer)
    relevance = None if calibration is None else calibration.relevance
    return wire.found(space.user, answer, store.registry, explain=request.explain, relevance=relevance)


async def find_for_job(
    store: Store, space: Space, request: pb.FindMemoriesRequest, revision: int, sizes: AnswerSizes
) -> pb.FindMemoriesResponse:
    """Like `find`, at a revision, but memories that do not fit into the answer are left out: an engine would take a
    partial memory for the whole."""
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
    rerank: bool = False,
) -> FindAnswer:
    """Returns the search results in the store's form. `known`, `quotas`, `room` and `rerank` as in `FindRequest`.
    Raises IndexUnavailable, ApiError."""
    wanted = await prepare(store, space, request, at_revision)
    wanted = replace(wanted, known=known, quotas=quotas or {}, room=room, rerank=rerank)
    return relevant(store, await store.finder.find(space, wanted), request.min_relevance)


async def prepare(
    store: Store, space: Space, request: pb.FindMemoriesRequest, at_revision: int | None = None
) -> FindRequest:
    """Returns the search that a request describes, once the index has its `min_revision`. Raises IndexUnavailable,
    ApiError."""
    for number, name in enumerate(request.memory_types):
        if name not in store.registry and name != SESSION_SKILLS.name:
            raise invalid(f"memory_types[{number}]", "is no memory type", "See ListMemoryTypes")
    if request.min_relevance and await store.finder.calibration(space) is None:
        why = "needs a calibrated embedder and the default weights of the ranking"
        raise invalid("min_relevance", why, "Use score_threshold, or calibrate the embedder")
    archived_by: int | None = None
    if request.HasField("as_of"):
        if request.min_revision:
            raise invalid("as_of", "is given beside min_revision", "Give one of them")
        at_revision, archived_by = await store.database.read(_then, space, request.as_of)
    elif at_revision is None and request.min_revision:
        await wait_for_revision(store, space, request.min_revision)
    return FindRequest(
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
    )


def relevant(store: Store, answer: FindAnswer, min_relevance: float) -> FindAnswer:
    """Returns the answer without less relevant results. While the embedder is down, scores are lower and say nothing
    about relevance, so all results stay."""
    calibration = store.finder.calibration_of(answer)
    if not min_relevance or calibration is None:
        return answer
    least = calibration.score(min_relevance)
    return replace(answer, results=[one for one in answer.results if one.score >= least])


async def _then(tx: Tx, space: Space, as_of: common_pb2.AsOf) -> tuple[int, int]:
    """Returns the requested revision, and the time up to which archived passages count: the time of the revision. A
    revision without a stored time, such as a deletion, takes the time of the newest one before it, or 0 if there is
    none, so that no passage counts."""
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
    """Returns once the index has the revision, whichever server's relay writes it.

    Raises ApiError INDEX_BEHIND after `seconds`, and IndexUnavailable.
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
