"""Lists directories, and paths that match a pattern, at a revision of the space."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from runekeep_schemas.documents.filenames import type_directory
from runekeep_schemas.documents.uris import Place, parse, peer_root, space_root
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories.tree.directories import with_summary
from runekeep_server.memories.tree.globs import Glob
from runekeep_server.memories.tree.names import PLACES
from runekeep_server.memories.tree.walk import Path, Step, Walk, walk
from runekeep_server.wire.as_of import settled
from runekeep_server.wire.memories import Entry
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.errors import NotFound
from runekeep_storage.memories import memories

SLICE = 2000
"""Documents, and skipped directories, that one transaction visits for a pattern."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a listing continues: after the document at `uri`, or, with `passed`, after the directory that was not
    entered. Entered directories from there up to `last` are skipped, because they were listed already. Empty means the
    beginning."""

    uri: str = ""
    passed: bool = False
    last: str = ""

    def behind(self, step: Step, way: Walk) -> "Position":
        """Returns the position after a step of the walk that began at this position."""
        if way.can_stop_at(step):
            return Position(step.entry.uri, step.entry.directory)
        return replace(self, last=step.entry.uri)


async def _untold(tx: Tx, space: Space, way: Walk, start: Position) -> AsyncIterator[Step]:
    """Yields the steps of a walk after the position."""
    telling = not start.last
    async for step in walk(tx, space, way):
        # A walk cannot resume at an entered directory, so it visits these again.
        if telling or way.can_stop_at(step):
            telling = True
            yield step
        telling = telling or step.entry.uri == start.last


@dataclass(frozen=True, slots=True)
class Listing:
    """The request of a listing: `depth` levels, with or without hidden documents, from a position on."""

    uri: str
    depth: int
    show_hidden: bool
    limit: int
    revision: int = memories.LATEST
    start: Position = Position()


@dataclass(slots=True)
class Listed:
    """Entries, each with the position after it; whether the limit truncated them; and the number of the revision."""

    entries: list[tuple[Entry, Position]]
    truncated: bool
    revision: int


async def list_directory(tx: Tx, space: Space, registry: Registry, wanted: Listing) -> Listed:
    """Returns the entries below a canonical directory URI, depth first, by name.

    Reads as many rows as it lists, and a batch for each directory that it does not enter. Raises NotFound for a URI
    below which nothing can exist.
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
    """Raises NotFound for an empty directory, unless it exists even without content."""
    place = parse(uri)
    known = {f"{space_root(space.user)}/{name}" for name in PLACES} | {space_root(space.user)}
    if place.peer is not None:
        known |= {peer_root(space.user, place.peer), f"{peer_root(space.user, place.peer)}/memories"}
    known |= {type_directory(type, space.user, place.peer) for type in registry}
    # A walk through a part of a session has already checked that it exists.
    if uri not in known and place.kind is not Place.SESSIONS:
        raise NotFound("directory", uri)


async def glob(database: SpaceDatabase, space: Space, registry: Registry, pattern: Glob, wanted: Listing) -> Listed:
    """Returns the entries below a canonical directory URI whose path matches, in the tree's order.

    Enters only directories that can contain such a path. Memories are read in slices, each in its own transaction, at
    one revision. Raises NotFound as `list_directory` does.
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
    """Returns the matches among the next steps, the position after them (None at the end), and the revision."""
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
