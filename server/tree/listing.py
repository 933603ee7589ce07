"""Directories as they are listed, and paths that fit a pattern, at a revision of the space."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from schemas.filenames import type_directory
from schemas.globs import Glob
from schemas.registry import Registry
from schemas.uris import Place, parse, peer_root, space_root
from server.as_of import settled
from server.tree.directories import with_summary
from server.tree.names import PLACES
from server.tree.walk import Path, Step, Walk, walk
from server.wire.memories import Entry
from storage import memories
from storage.database import Database, Space, Tx
from storage.errors import NotFound

SLICE = 2000
"""Documents, and directories that are passed by, that one transaction looks at for a pattern."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a listing goes on: behind the document at `uri`, or with `passed` behind the directory that it did not go
    into; but without the directories from there up to `last`, which it went into. Empty: the beginning."""

    uri: str = ""
    passed: bool = False
    last: str = ""

    def behind(self, step: Step, way: Walk) -> "Position":
        """The place behind a step of the walk that this is a place of."""
        if way.can_stop_at(step):
            return Position(step.entry.uri, step.entry.directory)
        return replace(self, last=step.entry.uri)


async def _untold(tx: Tx, space: Space, way: Walk, start: Position) -> AsyncIterator[Step]:
    """The steps of a walk that are behind the position."""
    telling = not start.last
    async for step in walk(tx, space, way):
        # A walk is taken up at none of these directories, so it comes to them once more.
        if telling or way.can_stop_at(step):
            telling = True
            yield step
        telling = telling or step.entry.uri == start.last


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing asks for. `depth` levels, hidden documents or not, from a place on."""

    uri: str
    depth: int
    show_hidden: bool
    limit: int
    revision: int = memories.LATEST
    start: Position = Position()


@dataclass(slots=True)
class Listed:
    """Entries, each with the place behind it; whether the limit cut them, and the revision by its number."""

    entries: list[tuple[Entry, Position]]
    truncated: bool
    revision: int


async def list_directory(tx: Tx, space: Space, registry: Registry, wanted: Listing) -> Listed:
    """Entries below a canonical directory URI, depth first, by name.

    Reads as many rows as it lists, and a batch for each directory that it does not go into. Raises NotFound for a URI
    under which nothing can be.
    """
    number, at = await settled(tx, space, wanted.revision)
    listed = Listed([], False, number)
    place = wanted.start

    def enter(path: Path) -> bool:
        return len(path) < wanted.depth

    way = Walk(wanted.uri, at, wanted.show_hidden, enter, place.uri, place.passed)
    async for step in _untold(tx, space, way, place):
        if len(listed.entries) == wanted.limit:
            listed.truncated = True
            return listed
        place = place.behind(step, way)
        listed.entries.append((await with_summary(tx, space, step, at), place))
    if not listed.entries and wanted.start == Position():
        require_place(space, registry, wanted.uri)
    return listed


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


async def glob(database: Database, space: Space, registry: Registry, pattern: Glob, wanted: Listing) -> Listed:
    """Entries below a canonical directory URI whose path fits, in the tree's order.

    Only directories that can hold such a path are gone into. Their memories are read in slices, each a transaction of
    its own, at one revision. Raises NotFound as `list_directory` does.
    """
    listed = Listed([], False, wanted.revision)
    start: Position | None = wanted.start
    while start is not None and len(listed.entries) <= wanted.limit:
        limit = wanted.limit + 1 - len(listed.entries)
        some = replace(wanted, limit=limit, revision=listed.revision, start=start)
        found, start, listed.revision = await database.read(_glob_slice, space, registry, pattern, some)
        listed.entries += found
    listed.truncated = len(listed.entries) > wanted.limit
    del listed.entries[wanted.limit :]
    return listed


async def _glob_slice(
    tx: Tx, space: Space, registry: Registry, pattern: Glob, wanted: Listing
) -> tuple[list[tuple[Entry, Position]], Position | None, int]:
    """What fits of the next steps, the place behind them (None: that was all), and the revision."""
    revision, at = await settled(tx, space, wanted.revision)
    found: list[tuple[Entry, Position]] = []
    looked, place = 0, wanted.start
    way = Walk(wanted.uri, at, wanted.show_hidden, pattern.may_hold, place.uri, place.passed)
    async for step in _untold(tx, space, way, place):
        looked += 1
        place = place.behind(step, way)
        if pattern.matches(step.path):
            found.append((await with_summary(tx, space, step, at), place))
        if len(found) >= wanted.limit or (looked >= SLICE and not place.last):
            return found, place, revision
    if not looked and wanted.start == Position():
        require_place(space, registry, wanted.uri)
    return found, None, revision
