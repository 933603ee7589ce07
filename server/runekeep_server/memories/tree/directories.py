"""Builds the abstract and the overview of a directory when they are read, from its content at a revision of the space.
So they are never stale, and nothing has to maintain them.

For a small directory all memories are considered. For a large one the newest and the most used memories of each
directory in it are read by index, so that the cost does not grow with the directory.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from runekeep_schemas.documents.render import ABSTRACT_CHARACTERS, bounded
from runekeep_schemas.documents.uris import ABSTRACT_FILE, Place, parse
from runekeep_server.memories.tree.directory_text import (
    Member,
    counted,
    directory_abstract,
    directory_overview,
)
from runekeep_server.memories.tree.walk import Step
from runekeep_server.wire.memories import Entry
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import NotFound
from runekeep_storage.memories import directories, memories, tree_rows
from runekeep_storage.records import Listed

WEIGHED: Final = 256
"""Maximum of memories below a directory for which all are considered."""
WEIGHED_IN_THE_PAST: Final = 1000
"""The same at a past revision, which no index orders. Above it, the first ones by name are considered."""
COUNTED: Final = 1000
"""Maximum of counted memories or sessions. Above it, the text says "more than"."""
CHILDREN: Final = 32
"""Maximum of directories, by name, in the overview of a large directory."""
HOLDERS: Final = 32
"""Maximum of directories, by name, below a large one whose memories its abstract considers. There are eleven built-in
types."""
OF_EACH: Final = 8
"""Newest memories, and most used ones, of each of these directories."""
IN_OVERVIEW: Final = 64
"""Newest memories, and most used ones, of a large directory itself that its overview considers."""


async def view(tx: Tx, space: Space, uri: str, revision: int) -> str:
    """Returns `.abstract.md` or `.overview.md` of a directory that contains memories. Raises NotFound."""
    directory, _, name = uri.rpartition("/")
    said = await (_abstract if name == ABSTRACT_FILE else _overview)(tx, space, directory, revision)
    if not said:
        raise NotFound("document", uri)
    return said


async def with_summary(tx: Tx, space: Space, step: Step, revision: int) -> Entry:
    """Returns the entry of a step. A directory gets its abstract, and the time of the newest change in it.

    That time is indexed only for current memories. For a past directory it is left out, unless its memories have been
    read.
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
    """Returns the abstract (L0) of a directory; empty if no memory is below it."""
    some, is_whole = await _first(tx, space, directory, revision)
    if is_whole or revision != memories.LATEST:
        return _abstract_of(some, more=not is_whole)
    return (await _large(tx, space, directory)).abstract


async def _overview(tx: Tx, space: Space, directory: str, revision: int) -> str:
    """Returns the overview (L1) of a directory; empty if no memory is below it."""
    some, is_whole = await _first(tx, space, directory, revision)
    if is_whole or revision != memories.LATEST:
        members = _children(directory, some, is_whole)
        return directory_overview(members, len(members), more=not is_whole)
    own = f"{directory}/"
    members = _members(await directories.leading(tx, space, [own], IN_OVERVIEW))
    count = await directories.count_within(tx, space, directory, COUNTED + 1)
    # No name below the space begins with this character, so this sorts after the directory itself.
    after, found = f"{own} ", 0
    while found <= CHILDREN and (holding := await directories.holding(tx, space, after, f"{directory}0", 1)):
        name = holding[0].removeprefix(own).partition("/")[0]
        found += 1
        if found <= CHILDREN:
            members.append(await _large(tx, space, f"{own}{name}"))
        # Sorts after everything below it.
        after = f"{own}{name}0"
    more = count > COUNTED or found > CHILDREN
    return directory_overview(members, min(count, COUNTED) + min(found, CHILDREN), more=more)


async def _first(tx: Tx, space: Space, directory: str, revision: int) -> tuple[Sequence[Listed], bool]:
    """Returns the first memories below a directory by URI, and whether these are all."""
    most = WEIGHED if revision == memories.LATEST else WEIGHED_IN_THE_PAST
    found = await memories.listing(tx, space, directory, revision, limit=most + 1)
    return found[:most], len(found) <= most


async def _large(tx: Tx, space: Space, directory: str) -> Member:
    """Returns a directory in its current state, from the leading memories of the directories below it."""
    holding = await directories.holding(tx, space, f"{directory}/", f"{directory}0", HOLDERS)
    leading = await directories.leading(tx, space, holding, OF_EACH)
    count = await directories.count(tx, space, directory, COUNTED + 1)
    abstract = directory_abstract(_members(leading), min(count, COUNTED), more=count > COUNTED)
    return _directory(directory, leading, abstract)


def _abstract_of(below: Sequence[Listed], *, more: bool = False) -> str:
    """Returns the abstract (L0) of a directory from the memories below it. `more`: there are others."""
    count = len(below)
    return directory_abstract(_members(below), min(count, COUNTED), more=more or count > COUNTED)


def _members(below: Sequence[Listed]) -> list[Member]:
    return [Member(one.uri.rpartition("/")[2], one.abstract, one.updated_at, one.uses) for one in below]


def _children(directory: str, below: Sequence[Listed], is_whole: bool) -> list[Member]:
    """Returns the direct members of a directory, from the memories below it, sorted by URI, or from the first of
    them."""
    by_name: dict[str, list[Listed]] = {}
    for one in below:
        by_name.setdefault(one.uri[len(directory) + 1 :].partition("/")[0], []).append(one)
    found = []
    for name, some in by_name.items():
        uri = f"{directory}/{name}"
        if some[0].uri == uri:
            found += _members(some)
        else:
            # The last one may have more members.
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
