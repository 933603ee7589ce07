"""What a directory says of itself: made of what is in it, at a revision of the space, when it is read. So it is never
stale, and nothing has to be kept up to date.

Of a small directory all memories are weighed. Of a large one the newest and the most used memories of each directory in
it are read by index, so that the cost does not grow with the directory.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from schemas.directory_text import Member, counted, directory_abstract, directory_overview
from schemas.render import ABSTRACT_CHARACTERS, bounded
from schemas.uris import ABSTRACT_FILE, Place, parse
from server.tree.walk import Step
from server.wire.memories import Entry
from storage import directories, memories, tree_rows
from storage.database import Space, Tx
from storage.errors import NotFound
from storage.records import Listed

WEIGHED: Final = 256
"""Memories below a directory that are all weighed."""
WEIGHED_IN_THE_PAST: Final = 1000
"""At a revision of the past, for which no index has an order; of more, the first ones by name are weighed."""
COUNTED: Final = 1000
"""Of more memories, and of more sessions, it is said that there are more."""
CHILDREN: Final = 32
"""Directories in a large directory that its overview tells of, by name."""
HOLDERS: Final = 32
"""Directories below a large one that memories are taken from for its abstract, by name; the built-in types are ten."""
OF_EACH: Final = 8
"""Newest memories of each of them, and most used ones."""
IN_OVERVIEW: Final = 64
"""Newest memories of a large directory itself that its overview chooses from, and most used ones."""


async def view(tx: Tx, space: Space, uri: str, revision: int) -> str:
    """`.abstract.md` or `.overview.md` of a directory that holds memories. Raises NotFound."""
    directory, _, name = uri.rpartition("/")
    said = await (_abstract if name == ABSTRACT_FILE else _overview)(tx, space, directory, revision)
    if not said:
        raise NotFound("document", uri)
    return said


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
        names = await tree_rows.session_names(tx, space, COUNTED + 1)
        return replace(entry, abstract=_sessions(names), updated_at=await tree_rows.last_activity(tx, space))
    if step.below is not None:
        changed = max((one.updated_at for one in step.below), default=0)
        return replace(entry, abstract=_abstract_of(step.below), updated_at=changed)
    changed = await memories.last_change(tx, space, entry.uri) if revision == memories.LATEST else 0
    return replace(entry, abstract=await _abstract(tx, space, entry.uri, revision), updated_at=changed)


async def _abstract(tx: Tx, space: Space, directory: str, revision: int) -> str:
    """L0 of a directory; empty where no memory is below it."""
    some, is_whole = await _first(tx, space, directory, revision)
    if is_whole or revision != memories.LATEST:
        return _abstract_of(some, more=not is_whole)
    return (await _large(tx, space, directory)).abstract


async def _overview(tx: Tx, space: Space, directory: str, revision: int) -> str:
    """L1 of a directory; empty where no memory is below it."""
    some, is_whole = await _first(tx, space, directory, revision)
    if is_whole or revision != memories.LATEST:
        members = _children(directory, some, is_whole)
        return directory_overview(members, len(members), more=not is_whole)
    own = f"{directory}/"
    members = _members(await directories.leading(tx, space, [own], IN_OVERVIEW))
    count = await directories.count_within(tx, space, directory, COUNTED + 1)
    # No name begins with a character below the space: this is behind the directory itself.
    after, found = f"{own} ", 0
    while found <= CHILDREN and (holding := await directories.holding(tx, space, after, f"{directory}0", 1)):
        name = holding[0].removeprefix(own).partition("/")[0]
        found += 1
        if found <= CHILDREN:
            members.append(await _large(tx, space, f"{own}{name}"))
        # Behind all that is below it.
        after = f"{own}{name}0"
    more = count > COUNTED or found > CHILDREN
    return directory_overview(members, min(count, COUNTED) + min(found, CHILDREN), more=more)


async def _first(tx: Tx, space: Space, directory: str, revision: int) -> tuple[Sequence[Listed], bool]:
    """The first memories below a directory by URI, and whether these are all."""
    most = WEIGHED if revision == memories.LATEST else WEIGHED_IN_THE_PAST
    found = await memories.listing(tx, space, directory, revision, limit=most + 1)
    return found[:most], len(found) <= most


async def _large(tx: Tx, space: Space, directory: str) -> Member:
    """A directory as it is now, by what leads in the directories below it."""
    holding = await directories.holding(tx, space, f"{directory}/", f"{directory}0", HOLDERS)
    leading = await directories.leading(tx, space, holding, OF_EACH)
    count = await directories.count(tx, space, directory, COUNTED + 1)
    abstract = directory_abstract(_members(leading), min(count, COUNTED), more=count > COUNTED)
    return _directory(directory, leading, abstract)


def _abstract_of(below: Sequence[Listed], *, more: bool = False) -> str:
    """L0 of a directory from the memories below it. `more`: there are others."""
    count = len(below)
    return directory_abstract(_members(below), min(count, COUNTED), more=more or count > COUNTED)


def _members(below: Sequence[Listed]) -> list[Member]:
    return [Member(one.uri.rpartition("/")[2], one.abstract, one.updated_at, one.uses) for one in below]


def _children(directory: str, below: Sequence[Listed], is_whole: bool) -> list[Member]:
    """What lies directly in a directory, from the memories below it, by URI, or from the first of them."""
    by_name: dict[str, list[Listed]] = {}
    for one in below:
        by_name.setdefault(one.uri[len(directory) + 1 :].partition("/")[0], []).append(one)
    found = []
    for name, some in by_name.items():
        uri = f"{directory}/{name}"
        if some[0].uri == uri:
            found += _members(some)
        else:
            # Of the last one there may be others.
            is_cut = not is_whole and some[-1] is below[-1]
            found.append(_directory(uri, some, _abstract_of(some, more=is_cut)))
    return found


def _directory(uri: str, below: Sequence[Listed], abstract: str) -> Member:
    name = uri.rpartition("/")[2]
    updated_at = max((one.updated_at for one in below), default=0)
    return Member(name, abstract, updated_at, max((one.uses for one in below), default=0), is_directory=True)


def _sessions(names: Sequence[str]) -> str:
    more = len(names) > COUNTED
    head = counted(min(len(names), COUNTED), "entry", "entries", more=more)
    return bounded(f"{head}: {'; '.join(names[:COUNTED])}", ABSTRACT_CHARACTERS) if names else ""
