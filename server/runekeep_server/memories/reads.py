"""Reads the tree of a space at a revision, for users and, by lease, for workers."""

from asyncio import to_thread
from collections.abc import Sequence
from typing import Final

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.documents.uris import parse, space_root
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories.tree.documents import read_document
from runekeep_server.memories.tree.excerpts import CharacterRange, LineRange, Range
from runekeep_server.memories.tree.globs import Glob, GlobError
from runekeep_server.memories.tree.listing import Listed, Listing, Position, glob, list_directory
from runekeep_server.protocol.answer_sizes import DEFAULT_SIZES, AnswerSizes
from runekeep_server.protocol.errors import invalid
from runekeep_server.protocol.pagination import KeyPart, cut_page, open_key, refused_token
from runekeep_server.protocol.truncation import shorten
from runekeep_server.wire import as_of
from runekeep_server.wire import memories as wire
from runekeep_server.wire.basics import canonical
from runekeep_storage.database import Space, Tx
from runekeep_storage.memories import memories
from runekeep_storage.store import Store

_ABSTRACT_CHARACTERS: Final = 256
_AsOf = (
    pb.GetMemoryRequest
    | pb.ReadDocumentRequest
    | pb.ListDirectoryRequest
    | pb.GlobDocumentsRequest
    | pb.GrepDocumentsRequest
)


async def get(
    store: Store, space: Space, request: pb.GetMemoryRequest, sizes: AnswerSizes = DEFAULT_SIZES
) -> pb.GetMemoryResponse:
    """Returns a memory. Raises NotFound, ApiError."""
    uri = canonical("uri", request.uri, space.user)
    if request.version and request.HasField("as_of"):
        raise invalid("as_of", "does not go with a version", "Leave one of them out")
    revision = await revision_of(store, space, request)
    found = await store.database.read(memories.get, space, uri, version=request.version, revision=revision)
    view = request.view or pb.MEMORY_VIEW_FULL
    memory = wire.memory(space.user, found, store.registry, view)
    if memory.ByteSize() > sizes.record:
        await to_thread(shorten, memory, sizes.record)
    return pb.GetMemoryResponse(memory=memory)


async def read(
    store: Store, space: Space, request: pb.ReadDocumentRequest, revision: int | None = None
) -> pb.ReadDocumentResponse:
    """Returns a part of a document, at the revision that the request names, or at `revision`. Raises NotFound,
    ApiError."""
    uri = canonical("uri", request.uri, space.user)
    by_characters = request.HasField("characters")
    if by_characters and (request.offset or request.limit):
        raise invalid("characters", "does not go with lines", "Leave out offset and limit, or this range")
    revision = await revision_of(store, space, request, revision)
    wanted: Range
    if by_characters:
        wanted = CharacterRange(request.characters.start, request.characters.length)
    else:
        wanted = LineRange(request.offset, request.limit)
    part = await read_document(store, space, uri, revision, wanted)
    return pb.ReadDocumentResponse(
        uri=uri,
        text=part.text,
        total_lines=part.total_lines,
        next_offset=part.following,
        total_characters=part.total_characters,
        next_character=part.cut_at,
    )


async def list_(
    store: Store, space: Space, request: pb.ListDirectoryRequest, sizes: AnswerSizes = DEFAULT_SIZES
) -> pb.ListDirectoryResponse:
    """Lists a directory. Raises NotFound, ApiError."""
    revision = await revision_of(store, space, request)
    token = open_key(request, _POSITION)
    if token is not None:
        revision = _revision_in(token)
    return await store.database.read(listing, space, store.registry, request, revision, sizes.page)


async def listing(
    tx: Tx, space: Space, registry: Registry, request: pb.ListDirectoryRequest, revision: int, most_bytes: int
) -> pb.ListDirectoryResponse:
    """Lists a directory at `revision`, in rows of at most `most_bytes`. Raises NotFound, ApiError."""
    uri = _directory(request.uri, space)
    start = _position_in(open_key(request, _POSITION), uri)
    wanted = Listing(uri, request.depth or 1, request.show_hidden, request.node_limit or 1000, revision, start)
    listed = await list_directory(tx, space, registry, wanted)
    entries, token = _page(request, listed, request.abstract_limit or _ABSTRACT_CHARACTERS, most_bytes)
    return pb.ListDirectoryResponse(uri=uri, entries=entries, truncated=bool(token), next_page_token=token)


async def glob_(
    store: Store, space: Space, request: pb.GlobDocumentsRequest, sizes: AnswerSizes = DEFAULT_SIZES
) -> pb.GlobDocumentsResponse:
    """Lists the documents that match a pattern. Raises NotFound, ApiError."""
    uri = _directory(request.uri, space)
    pattern = glob_of("pattern", request.pattern)
    token = open_key(request, _POSITION)
    revision = await revision_of(store, space, request) if token is None else _revision_in(token)
    wanted = Listing(uri, 0, request.show_hidden, request.node_limit or 1000, revision, _position_in(token, uri))
    listed = await glob(store.database, space, store.registry, pattern, wanted)
    entries, following = _page(request, listed, _ABSTRACT_CHARACTERS, sizes.page)
    return pb.GlobDocumentsResponse(uri=uri, entries=entries, truncated=bool(following), next_page_token=following)


_POSITION: Final = (int, str, int, str)
"""The types in a page token: the revision, and the fields of a Position."""


def _page(
    request: pb.ListDirectoryRequest | pb.GlobDocumentsRequest, listed: Listed, abstract_limit: int, most_bytes: int
) -> tuple[Sequence[pb.DirectoryEntry], str]:
    """Returns the entries that fit, and the token of the following page."""
    entries = [wire.entry(entry, abstract_limit) for entry, _ in listed.entries]
    keys = [(listed.revision, at.uri, int(at.passed), at.last) for _, at in listed.entries]
    return cut_page(request, entries, keys, len(entries), most_bytes, more=listed.truncated)


def _revision_in(token: tuple[KeyPart, ...]) -> int:
    """Returns the revision in a token. Raises ApiError for an invalid number."""
    revision = int(token[0])
    if revision < 0:
        raise refused_token()
    return revision


def _position_in(token: tuple[KeyPart, ...] | None, root: str) -> Position:
    """Returns the position in a token, which may be forged. Raises ApiError."""
    if token is None:
        return Position()
    _, uri, passed, last = map(str, token)
    if uri:
        try:
            parse(uri)
        except ValueError as error:
            raise refused_token() from error
        if not uri.startswith(f"{root}/"):
            raise refused_token()
    return Position(uri, passed != "0", last)


async def revision_of(store: Store, space: Space, request: _AsOf, lease: int | None = None) -> int:
    """Returns the revision at which a request is answered. `lease`: the base revision of a job. Raises ApiError."""
    if lease is not None:
        check_of_lease(request)
        return lease
    if not request.HasField("as_of"):
        return memories.LATEST
    return await store.database.read(as_of.resolve, space, request.as_of)


def check_of_lease(request: _AsOf) -> None:
    """Raises ApiError if a worker's request names its own point in time."""
    if request.HasField("as_of"):
        raise invalid("as_of", "does not go with a lease", "Leave it out: a job reads at its base revision")


def glob_of(field: str, pattern: str) -> Glob:
    """Returns the pattern in a field of a request. Raises ApiError."""
    try:
        return Glob(pattern)
    except GlobError as error:
        raise invalid(field, f"is no pattern: {error}", "For example **/*.md") from error


def _directory(uri: str, space: Space) -> str:
    return canonical("uri", uri, space.user) if uri else space_root(space.user)
