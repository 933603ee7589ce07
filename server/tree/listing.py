"""Directories: what lies under a URI, at a revision of the space."""

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.filenames import type_directory
from schemas.registry import Registry
from schemas.render import directory_abstract
from schemas.uris import ABSTRACT_FILE, OVERVIEW_FILE, Place, parse, peer_root, session_uri, space_root
from server.wire.memories import Entry
from storage import archives, memories, sessions
from storage.database import Space, Tx
from storage.errors import NotFound
from storage.records import Session

PLACES = ("memories", "peers", "sessions", "skills")
ARCHIVES_SHOWN = 1000


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing asks for. `depth` levels, hidden documents or not."""

    uri: str
    depth: int
    show_hidden: bool
    limit: int
    revision: int = memories.LATEST


class _Node:
    """A directory while its tree is put together; a file has no children."""

    __slots__ = ("children", "entry")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.children: dict[str, _Node] | None = {} if entry.directory else None

    def add(self, name: str, entry: Entry) -> "_Node":
        assert self.children is not None
        return self.children.setdefault(name, _Node(entry))


async def list_directory(tx: Tx, space: Space, registry: Registry, wanted: Listing) -> tuple[list[Entry], bool]:
    """Entries below a canonical directory URI, depth first, by name, and whether the limit cut them.

    Raises NotFound for a URI under which nothing can be.
    """
    root = _directory(wanted.uri, 0)
    place = parse(wanted.uri)
    if place.kind is Place.SESSIONS:
        await _add_session_part(tx, space, root, place.path, wanted)
    else:
        await _add_memories(tx, space, root, wanted)
        if place.kind is Place.ROOT:
            for name in PLACES:
                root.add(name, _directory(f"{wanted.uri}/{name}", 1).entry)
            if wanted.depth > 1 and root.children is not None:
                await _add_session_part(tx, space, root.children["sessions"], (), wanted)
        if place.path and place.path[-1] in (ABSTRACT_FILE, OVERVIEW_FILE):
            raise NotFound("directory", wanted.uri)
        if not root.children and not _may_be_empty(space, registry, wanted.uri):
            raise NotFound("directory", wanted.uri)
    entries = list(_flatten(root, wanted))
    return entries[: wanted.limit], len(entries) > wanted.limit


async def children_of(tx: Tx, space: Space, uri: str, revision: int) -> list[tuple[str, str]]:
    """Names and abstracts of what lies directly in a directory of memories."""
    root = _directory(uri, 0)
    await _add_memories(tx, space, root, Listing(uri, 1, False, 0, revision))
    if not root.children:
        raise NotFound("directory", uri)
    return _named(root)


def _directory(uri: str, depth: int) -> _Node:
    return _Node(Entry(uri=uri, name=uri.rpartition("/")[2], directory=True, depth=depth))


async def _add_memories(tx: Tx, space: Space, root: _Node, wanted: Listing) -> None:
    for memory in await memories.listing(tx, space, wanted.uri, wanted.revision):
        node = root
        uri = wanted.uri
        *folders, name = memory.uri.removeprefix(f"{wanted.uri}/").split("/")
        for depth, folder in enumerate(folders, 1):
            uri = f"{uri}/{folder}"
            node = node.add(folder, _directory(uri, depth).entry)
        entry = Entry(
            uri=memory.uri,
            name=name,
            directory=False,
            depth=len(folders) + 1,
            memory_type=memory.memory_type,
            abstract=memory.abstract,
            version=memory.version,
            updated_at=memory.updated_at,
        )
        node.add(name, entry)


async def _add_session_part(tx: Tx, space: Space, node: _Node, path: tuple[str, ...], wanted: Listing) -> None:
    """What lies under `sessions`, under one session, or under a directory of it."""
    if not path:
        # One more than asked for, so that a cut list says that it is cut.
        for session in await sessions.page(tx, space, None, wanted.limit + 1):
            depth = node.entry.depth + 1
            child = node.add(session.session_id, _session_entry(space, session, depth))
            if wanted.depth > depth:
                await _add_session(tx, space, child, session)
        return
    session = await sessions.get(tx, space, path[0])
    whole = _directory(session_uri(space.user, session.session_id), node.entry.depth - len(path) + 1)
    await _add_session(tx, space, whole, session)
    found = whole
    for name in path[1:]:
        child_node = (found.children or {}).get(name)
        if child_node is None or child_node.children is None:
            raise NotFound("directory", wanted.uri)
        found = child_node
    node.children = found.children


def _session_entry(space: Space, session: Session, depth: int) -> Entry:
    return Entry(
        uri=session_uri(space.user, session.session_id),
        name=session.session_id,
        directory=True,
        depth=depth,
        abstract=session.abstract,
        updated_at=session.updated_at,
    )


async def _add_session(tx: Tx, space: Space, node: _Node, session: Session) -> None:
    base, depth = node.entry.uri, node.entry.depth

    def file(parent: _Node, name: str) -> None:
        parent.add(name, Entry(f"{parent.entry.uri}/{name}", name, False, parent.entry.depth + 1))

    def folder(parent: _Node, name: str) -> _Node:
        return parent.add(name, Entry(f"{parent.entry.uri}/{name}", name, True, parent.entry.depth + 1))

    file(node, "messages.jsonl")
    if session.abstract:
        file(node, ABSTRACT_FILE)
        file(node, OVERVIEW_FILE)
    found = await archives.page(tx, space, session.session_id, 2**62, ARCHIVES_SHOWN)
    if found:
        history = folder(node, "history")
        for archive in found:
            name = f"archive_{archive.index:03d}"
            entry = Entry(f"{base}/history/{name}", name, True, depth + 2, abstract=archive.abstract)
            child = history.add(name, entry)
            file(child, "messages.jsonl")
            if archive.state == "done":
                for done in (ABSTRACT_FILE, OVERVIEW_FILE, "memory_diff.json", ".done"):
                    file(child, done)
    tools = await sessions.tool_ids(tx, space, session.session_id)
    if tools:
        parent = folder(node, "tools")
        for tool in tools:
            file(folder(parent, tool), "tool.json")


def _may_be_empty(space: Space, registry: Registry, uri: str) -> bool:
    """Directories that exist before anything is in them."""
    place = parse(uri)
    known = {f"{space_root(space.user)}/{name}" for name in PLACES} | {space_root(space.user)}
    if place.peer is not None:
        known |= {peer_root(space.user, place.peer), f"{peer_root(space.user, place.peer)}/memories"}
    known |= {type_directory(type, space.user, place.peer) for type in registry}
    return uri in known


def _named(node: _Node) -> list[tuple[str, str]]:
    return [(name, _with_summary(child).abstract) for name, child in sorted((node.children or {}).items())]


def _flatten(node: _Node, wanted: Listing) -> Iterable[Entry]:
    children = node.children or {}
    if wanted.show_hidden and children and parse(wanted.uri).kind is not Place.SESSIONS and _holds_memories(node):
        for name in (ABSTRACT_FILE, OVERVIEW_FILE):
            yield Entry(f"{node.entry.uri}/{name}", name, False, node.entry.depth + 1)
    for name, child in sorted(children.items()):
        if name.startswith(".") and not wanted.show_hidden:
            continue
        yield _with_summary(child)
        if child.entry.depth < wanted.depth:
            yield from _flatten(child, wanted)


def _holds_memories(node: _Node) -> bool:
    return any(child.entry.memory_type or _holds_memories(child) for child in (node.children or {}).values())


def _with_summary(node: _Node) -> Entry:
    """A directory's own abstract and time are those of what is in it."""
    entry = node.entry
    if not entry.directory or entry.abstract or not node.children:
        return entry
    newest = max(_newest(child) for child in node.children.values())
    return Entry(entry.uri, entry.name, True, entry.depth, abstract=directory_abstract(_named(node)), updated_at=newest)


def _newest(node: _Node) -> int:
    return max([node.entry.updated_at, *(_newest(child) for child in (node.children or {}).values())])
