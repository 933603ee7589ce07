"""What a directory says of itself: made of what is in it, at a revision of the space."""

from collections.abc import Iterable
from dataclasses import replace

from schemas.render import directory_abstract, directory_overview
from schemas.uris import ABSTRACT_FILE, Place, parse
from server.tree.names import PLACES
from server.tree.walk import Step, Walk, nowhere, walk
from server.wire.memories import Entry
from storage import memories, tree_rows
from storage.database import Space, Tx
from storage.errors import NotFound

CHILDREN = 1000
"""Of a directory with more, the first so many are told, and that there are more."""


async def view(tx: Tx, space: Space, uri: str, revision: int) -> str:
    """`.abstract.md` or `.overview.md` of a directory that holds memories. Raises NotFound."""
    directory, _, name = uri.rpartition("/")
    children = await _children(tx, space, directory, revision)
    if not children:
        raise NotFound("document", uri)
    if name == ABSTRACT_FILE:
        return _abstract(child.entry.name for child in children)
    told = [(child.entry.name, await _said_of(tx, space, child, revision)) for child in children[:CHILDREN]]
    return directory_overview(told, more=len(children) > CHILDREN)


async def with_summary(tx: Tx, space: Space, step: Step, revision: int) -> Entry:
    """The entry of a step; of a directory with its abstract, and the time of the newest change of what is in it.

    That time has an index only for what is there now: of a directory of the past it is left out, when its memories are
    not at hand.
    """
    entry = step.entry
    if not entry.directory:
        return entry
    place = parse(entry.uri)
    if place.kind is Place.SESSIONS:
        if place.path:
            return entry
        names = await tree_rows.session_names(tx, space, CHILDREN + 1)
        return replace(entry, abstract=_abstract(names), updated_at=await tree_rows.last_activity(tx, space))
    if step.below is not None:
        changed = max((one.updated_at for one in step.below), default=0)
    elif revision == memories.LATEST:
        changed = await memories.last_change(tx, space, entry.uri)
    else:
        changed = 0
    return replace(entry, abstract=await _said_of(tx, space, step, revision), updated_at=changed)


async def _said_of(tx: Tx, space: Space, step: Step, revision: int) -> str:
    """The abstract of a memory, or of a directory of them."""
    entry = step.entry
    if not entry.directory:
        return entry.abstract
    if step.below is not None:
        names = [one.uri[len(entry.uri) + 1 :].partition("/")[0] for one in step.below]
        return _abstract(dict.fromkeys(names))
    return _abstract(child.entry.name for child in await _children(tx, space, entry.uri, revision))


async def _children(tx: Tx, space: Space, uri: str, revision: int) -> list[Step]:
    """What lies directly in a directory and is a memory or holds one; one more than is told, when there is more."""
    if parse(uri).kind is Place.ROOT:
        places = [Entry(f"{uri}/{name}", name, True, 1) for name in PLACES if name != Place.SESSIONS]
        return [
            Step(entry, (entry.name,))
            for entry in places
            if await memories.listing(tx, space, entry.uri, revision, limit=1)
        ]
    found = []
    async for step in walk(tx, space, Walk(uri, revision, enter=nowhere)):
        found.append(step)
        if len(found) > CHILDREN:
            break
    return found


def _abstract(names: Iterable[str]) -> str:
    told = list(names)
    return directory_abstract([(name, "") for name in told[:CHILDREN]], more=len(told) > CHILDREN)
