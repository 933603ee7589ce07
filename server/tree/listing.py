"""Directories as they are listed, and paths that fit a pattern, at a revision of the space."""

from dataclasses import dataclass, replace

from schemas.filenames import type_directory
from schemas.globs import Glob
from schemas.registry import Registry
from schemas.uris import Place, parse, peer_root, space_root
from server.as_of import settled
from server.tree.directories import with_summary
from server.tree.names import PLACES
from server.tree.walk import Path, Walk, walk
from server.wire.memories import Entry
from storage import memories
from storage.database import Database, Space, Tx
from storage.errors import NotFound

SLICE = 2000
"""Documents, and directories that are passed by, that one transaction looks at for a pattern."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing asks for. `depth` levels, hidden documents or not."""

    uri: str
    depth: int
    show_hidden: bool
    limit: int
    revision: int = memories.LATEST


async def list_directory(tx: Tx, space: Space, registry: Registry, wanted: Listing) -> tuple[list[Entry], bool]:
    """Entries below a canonical directory URI, depth first, by name, and whether the limit cut them.

    Reads as many rows as it lists, and a batch for each directory that it does not go into. Raises NotFound for a URI
    under which nothing can be.
    """
    entries: list[Entry] = []
    _, at = await settled(tx, space, wanted.revision)

    def enter(path: Path) -> bool:
        return len(path) < wanted.depth

    async for step in walk(tx, space, Walk(wanted.uri, at, wanted.show_hidden, enter)):
        if len(entries) == wanted.limit:
            return entries, True
        entries.append(await with_summary(tx, space, step, at))
    if not entries:
        require_place(space, registry, wanted.uri)
    return entries, False


def require_place(space: Space, registry: Registry, uri: str) -> None:
    """Raises NotFound for a directory in which nothing is, unless it is one that exists before anything is in it."""
    place = parse(uri)
    known = {f"{space_root(space.user)}/{name}" for name in PLACES} | {space_root(space.user)}
    if place.peer is not None:
        known |= {peer_root(space.user, place.peer), f"{peer_root(space.user, place.peer)}/memories"}
    known |= {type_directory(type, space.user, place.peer) for type in registry}
    # A part of a session that can be walked is there.
    if uri not in known and place.kind is not Place.SESSIONS:
        raise NotFound("directory", uri)


async def glob(
    database: Database, space: Space, registry: Registry, pattern: Glob, wanted: Listing
) -> tuple[list[Entry], bool]:
    """Entries below a canonical directory URI whose path fits, in the tree's order, and whether the limit cut them.

    Only directories that can hold such a path are gone into. Their memories are read in slices, each a transaction of
    its own, at one revision. Raises NotFound as `list_directory` does.
    """
    entries: list[Entry] = []
    after: _Reached | None = _Reached()
    revision = wanted.revision
    while after is not None and len(entries) <= wanted.limit:
        some = replace(wanted, limit=wanted.limit + 1 - len(entries), revision=revision)
        found, after, revision = await database.read(_glob_slice, space, registry, pattern, some, after)
        entries += found
    return entries[: wanted.limit], len(entries) > wanted.limit


@dataclass(frozen=True, slots=True)
class _Reached:
    """The last step of a walk that stopped; `passed` when it is a directory."""

    uri: str = ""
    passed: bool = False


async def _glob_slice(
    tx: Tx, space: Space, registry: Registry, pattern: Glob, wanted: Listing, after: _Reached
) -> tuple[list[Entry], _Reached | None, int]:
    """What fits of the next steps, the last one of them (None: that was all), and the revision."""
    revision, at = await settled(tx, space, wanted.revision)
    found: list[Entry] = []
    looked = 0
    way = Walk(wanted.uri, at, wanted.show_hidden, pattern.may_hold, after.uri, after.passed)
    async for step in walk(tx, space, way):
        looked += 1
        if pattern.matches(step.path):
            found.append(await with_summary(tx, space, step, at))
        # More than was asked for ends the search: it is not taken up again, so it may end at any step.
        if len(found) >= wanted.limit or (looked >= SLICE and way.can_stop_at(step)):
            return found, _Reached(step.entry.uri, step.entry.directory), revision
    if not looked and not after.uri:
        require_place(space, registry, wanted.uri)
    return found, None, revision
