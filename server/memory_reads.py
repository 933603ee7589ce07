"""Reads of memories for a space at a revision: what MemoryService offers to users and, by lease, to workers."""

import asyncio

from runekeep.v1 import memory_service_pb2 as pb
from schemas.session_skills import SESSION_SKILLS
from schemas.uris import space_root
from server.errors import index_behind, invalid
from server.tree.documents import read_document
from server.tree.listing import Listing, list_directory
from server.wire import memories as wire
from server.wire.basics import canonical, plain_values
from storage import memories, watermarks
from storage.database import Space
from storage.find import FindRequest
from storage.index.base import PointKind
from storage.store import Store

MAX_DOCUMENT_BYTES = 1024 * 1024
_KINDS = {pb.FOUND_KIND_MEMORY: PointKind.MEMORY, pb.FOUND_KIND_PASSAGE: PointKind.PASSAGE}


async def read(
    store: Store, space: Space, request: pb.ReadDocumentRequest, revision: int = memories.LATEST
) -> pb.ReadDocumentResponse:
    """Raises NotFound, ApiError."""
    uri = canonical("uri", request.uri, space.user)
    # "\n" alone ends a line: the other separators of Unicode may stand inside one.
    text = await read_document(store, space, uri, revision)
    lines = text.split("\n") if text else []
    stop = len(lines) if request.limit in (0, -1) else min(len(lines), request.offset + request.limit)
    shown: list[str] = []
    size = 0
    for line in lines[request.offset : stop]:
        size += len(line.encode()) + 1
        if size > MAX_DOCUMENT_BYTES and shown:
            break
        shown.append(line)
    reached = request.offset + len(shown)
    return pb.ReadDocumentResponse(
        uri=uri,
        text="\n".join(shown),
        total_lines=len(lines),
        next_offset=reached if reached < len(lines) else 0,
    )


async def list_(
    store: Store, space: Space, request: pb.ListDirectoryRequest, revision: int = memories.LATEST
) -> pb.ListDirectoryResponse:
    """Raises NotFound, ApiError."""
    uri = canonical("uri", request.uri, space.user) if request.uri else space_root(space.user)
    wanted = Listing(uri, request.depth or 1, request.show_hidden, request.node_limit or 1000, revision)
    entries, truncated = await store.database.read(list_directory, space, store.registry, wanted)
    limit = request.abstract_limit or 256
    return pb.ListDirectoryResponse(
        uri=uri, entries=[wire.entry(entry, limit) for entry in entries], truncated=truncated
    )


async def find(
    store: Store, space: Space, request: pb.FindMemoriesRequest, at_revision: int | None = None
) -> pb.FindMemoriesResponse:
    """Raises IndexUnavailable, ApiError."""
    for number, name in enumerate(request.memory_types):
        if name not in store.registry and name != SESSION_SKILLS.name:
            raise invalid(f"memory_types[{number}]", "is no memory type", "See ListMemoryTypes")
    if at_revision is None and request.min_revision:
        await wait_for_revision(store, space, request.min_revision)
    wanted = FindRequest(
        text=request.query,
        limit=request.limit or 10,
        uri_prefix=canonical("target_uri", request.target_uri, space.user) if request.target_uri else "",
        kinds=tuple(_KINDS[kind] for kind in request.kinds),
        memory_types=tuple(request.memory_types),
        fields=plain_values(request.filter),
        score_threshold=request.score_threshold if request.HasField("score_threshold") else None,
        at_revision=at_revision,
    )
    answer = await store.finder.find(space, wanted)
    view = request.view or pb.MEMORY_VIEW_ABSTRACT
    return wire.found(space.user, answer, store.registry, view)


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
