"""Walks the tree of a space, depth first and by name. A walk can resume after any document.

Order: the views of a directory come first. Memories follow in the order of their URIs as text, so a directory sorts as
its name with a slash. Sessions are sorted by id, archives by number. Rows are read in batches as the walk proceeds, and
skipped directories are not read.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runekeep_schemas.documents.uris import (
    ABSTRACT_FILE,
    OVERVIEW_FILE,
    Place,
    UriError,
    parse,
    parse_archive,
    space_root,
)
from runekeep_server.memories.tree.names import (
    ARCHIVED,
    BUCKET,
    BUCKETS,
    CALL,
    HISTORY,
    KEPT,
    MESSAGES,
    PLACES,
    TOOLS,
    VIEWS,
    archive_name,
)
from runekeep_server.wire.memories import Entry
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import NotFound
from runekeep_storage.memories import memories, tree_rows
from runekeep_storage.memories.tree_rows import ListedArchive, ListedSession
from runekeep_storage.records import Listed
from runekeep_storage.sessions import sessions, tool_calls

BATCH: Final = 500
"""Memories of one statement."""
_SESSIONS: Final = 100
_ARCHIVES: Final = 200

Path = tuple[str, ...]
"""Names below a directory."""


def everywhere(path: Path) -> bool:
    """Enters every directory."""
    return True


def nowhere(path: Path) -> bool:
    """Enters no directory."""
    return False


@dataclass(frozen=True, slots=True)
class Walk:
    """The request of a walk. `root`: canonical URI of a directory. `revision`: of the memories. `enter`: whether to
    enter the directory at a path below the root. `after`: canonical URI of a document below the root, or, with
    `passed`, of a directory that is not entered; the walk begins after it."""

    root: str
    revision: int = memories.LATEST
    hidden: bool = False
    enter: Callable[[Path], bool] = everywhere
    after: str = ""
    passed: bool = False

    def can_stop_at(self, step: "Step") -> bool:
        """Returns whether another walk can resume after this step."""
        return not step.entry.directory or not self.enter(step.path)


@dataclass(frozen=True, slots=True)
class Step:
    """An entry, and its path below the root. `below`: all memories below a memory directory, if they have been read."""

    entry: Entry
    path: Path
    below: Sequence[Listed] | None = None


async def walk(tx: Tx, space: Space, wanted: Walk) -> AsyncIterator[Step]:
    """Yields everything below the root, or nothing if no memory is there. Raises NotFound for a document, and for a
    part of a session that does not exist."""
    place = parse(wanted.root)
    if place.path and place.path[-1] in VIEWS:
        raise NotFound("directory", wanted.root)
    if place.kind is Place.SESSIONS:
        async for step in _Sessions(tx, space, wanted, place.path).steps():
            yield step
    elif place.kind is not Place.ROOT:
        async for step in _memories(tx, space, wanted, ()):
            yield step
    else:
        reached = _below(wanted.root, wanted.after)[:1]
        if wanted.hidden and await memories.listing(tx, space, wanted.root, wanted.revision, limit=1):
            for name in VIEWS:
                if not reached or (reached[0] in VIEWS and reached[0] < name):
                    yield Step(_file(wanted.root, (name,)), (name,))
        for name in PLACES:
            if reached and reached[0] not in VIEWS and name < reached[0]:
                continue
            if reached[:1] != (name,):
                yield Step(_directory(wanted.root, (name,)), (name,))
            if not wanted.enter((name,)):
                continue
            below = (
                _Sessions(tx, space, wanted, (), (name,)).steps()
                if name == Place.SESSIONS
                else _memories(tx, space, wanted, (name,))
            )
            async for step in below:
                yield step


def _below(root: str, uri: str) -> Path:
    """Returns the names of a URI below the root; none if it is not below it."""
    return tuple(uri.removeprefix(f"{root}/").split("/")) if uri.startswith(f"{root}/") else ()


def _file(root: str, path: Path) -> Entry:
    return Entry("/".join((root, *path)), path[-1], False, len(path))


def _directory(root: str, path: Path, abstract: str = "", updated_at: int = 0) -> Entry:
    return Entry("/".join((root, *path)), path[-1], True, len(path), abstract=abstract, updated_at=updated_at)


async def _memories(tx: Tx, space: Space, wanted: Walk, inside: Path) -> AsyncIterator[Step]:
    """Yields everything below a directory of memories. `inside`: its path below the root."""
    base = "/".join((wanted.root, *inside))
    after = _below(base, wanted.after)
    # The open directories: their names below the base.
    opened = list(after[:-1])
    cursor = wanted.after if after else ""
    if after and wanted.passed:
        cursor = f"{wanted.after}0"
    elif after and after[-1] in VIEWS:
        directory = "/".join((base, *opened))
        if wanted.hidden and after[-1] == ABSTRACT_FILE:
            yield _view(wanted, (*inside, *opened), OVERVIEW_FILE)
        cursor = f"{directory}/"
    began = bool(after)
    while True:
        rows = await memories.listing(tx, space, base, wanted.revision, after=cursor, limit=BATCH)
        whole = len(rows) < BATCH
        position = 0
        while position < len(rows):
            row = rows[position]
            *folders, name = _below(base, row.uri)
            if not began and wanted.hidden:
                for view in VIEWS:
                    yield _view(wanted, inside, view)
            began = True
            shared = 0
            while shared < min(len(opened), len(folders)) and opened[shared] == folders[shared]:
                shared += 1
            del opened[shared:]
            passed_over = False
            while len(opened) < len(folders) and not passed_over:
                opened.append(folders[len(opened)])
                path = (*inside, *opened)
                directory = "/".join((base, *opened))
                behind = bisect_left(rows, f"{directory}0", lo=position, key=lambda one: one.uri)
                at_hand = whole or behind < len(rows)
                yield Step(_directory(wanted.root, path), path, rows[position:behind] if at_hand else None)
                if not wanted.enter(path):
                    passed_over = True
                    opened.pop()
                    position = behind
                    # No memory has this URI, because memory names have an extension.
                    cursor = f"{directory}0"
                elif wanted.hidden:
                    for view in VIEWS:
                        yield _view(wanted, path, view)
            if not passed_over:
                yield Step(_memory(row, name, (*inside, *folders)), (*inside, *folders, name))
                position += 1
                cursor = row.uri
        if whole:
            return


def _view(wanted: Walk, directory: Path, name: str) -> Step:
    return Step(_file(wanted.root, (*directory, name)), (*directory, name))


def _memory(row: Listed, name: str, directory: Path) -> Entry:
    return Entry(
        uri=row.uri,
        name=name,
        directory=False,
        depth=len(directory) + 1,
        memory_type=row.memory_type,
        abstract=row.abstract,
        version=row.version,
        updated_at=row.updated_at,
    )


class _Sessions:
    """Walks everything below `sessions`, below one session, or below a directory of a session. `within`: the path
    there. `inside`: path of `sessions` below the root of the walk, if the root is above it."""

    def __init__(self, tx: Tx, space: Space, wanted: Walk, within: Path, inside: Path = ()) -> None:
        self._tx, self._space, self._wanted = tx, space, wanted
        self._within, self._inside = within, inside
        self._base = f"{space_root(space.user)}/sessions"
        after = _below(self._base, wanted.after)
        # Documents exist only at these depths.
        self._after = after if wanted.passed or len(after) in (2, 4) else ()

    async def steps(self) -> AsyncIterator[Step]:
        """Yields the steps. Raises NotFound for a directory that does not exist."""
        if not self._within:
            async for step in self._all():
                yield step
            return
        name, *rest = self._within
        found = await tree_rows.sessions_after(self._tx, self._space, "", 1, only=name)
        below = self._part(found[0], tuple(rest)) if found else None
        if below is None:
            raise NotFound("directory", self._wanted.root)
        async for step in below:
            yield step

    def _part(self, session: ListedSession, rest: Path) -> AsyncIterator[Step] | None:
        match rest:
            case ():
                return self._session(session)
            case ("history",) if session.archives:
                return self._history(session)
            case ("history", _) if session.archives:
                return self._one_archive(session)
            case (folder,) if folder in (TOOLS, BUCKETS):
                return self._all_of(session, folder)
            case (folder, name) if folder in (TOOLS, BUCKETS):
                return self._one_folder(session, folder, name)
        return None

    async def _all(self) -> AsyncIterator[Step]:
        if self._after:
            # The session in which the walk resumes, if it still exists.
            for session in await tree_rows.sessions_after(self._tx, self._space, "", 1, only=self._after[0]):
                if not self._enters((session.session_id,)):
                    break
                async for step in self._session(session):
                    yield step
        last = self._after[0] if self._after else ""
        while found := await tree_rows.sessions_after(self._tx, self._space, last, _SESSIONS):
            for session in found:
                where = (session.session_id,)
                for step in self._step(where, session.abstract, session.updated_at):
                    yield step
                if self._enters(where):
                    async for step in self._session(session):
                        yield step
            last = found[-1].session_id

    async def _session(self, session: ListedSession) -> AsyncIterator[Step]:
        where = (session.session_id,)
        if session.abstract:
            for step in self._documents(where, VIEWS):
                yield step
        if session.archives:
            history = (*where, HISTORY)
            if not self._is_past(history):
                for step in self._step(history, updated_at=session.archived_at):
                    yield step
                if self._enters(history):
                    async for step in self._history(session):
                        yield step
        for step in self._documents(where, (MESSAGES,)):
            yield step
        for name in (TOOLS, BUCKETS):
            folder = (*where, name)
            if self._is_past(folder):
                continue
            if name == TOOLS:
                there = await tool_calls.has_calls(self._tx, self._space, session.session_id)
            else:
                there = session.buckets
            if there:
                for step in self._step(folder):
                    yield step
                if self._enters(folder):
                    async for step in self._folders(session, name, await self._held(session, name)):
                        yield step

    async def _history(self, session: ListedSession) -> AsyncIterator[Step]:
        inside = self._after[:2] == (session.session_id, HISTORY) and len(self._after) > 2
        first = _number(self._after[2]) if inside else 1
        while found := await tree_rows.archives_from(self._tx, self._space, session.session_id, first, _ARCHIVES):
            for archive in found:
                where = (session.session_id, HISTORY, archive_name(archive.index))
                for step in self._step(where, archive.abstract, archive.updated_at):
                    yield step
                if self._enters(where):
                    for step in self._archive(where, archive):
                        yield step
            first = found[-1].index + 1

    async def _one_archive(self, session: ListedSession) -> AsyncIterator[Step]:
        try:
            index = parse_archive(self._wanted.root).index
        except UriError:
            raise NotFound("directory", self._wanted.root) from None
        found = await tree_rows.archives_from(self._tx, self._space, session.session_id, index, 1)
        if not found or found[0].index != index:
            raise NotFound("directory", self._wanted.root)
        for step in self._archive((session.session_id, HISTORY, archive_name(index)), found[0]):
            yield step

    def _archive(self, where: Path, archive: ListedArchive) -> list[Step]:
        return self._documents(where, ARCHIVED if archive.done else (MESSAGES,))

    async def _held(self, session: ListedSession, folder: str) -> dict[str, Sequence[str]]:
        """Returns the directories in a folder of the session, sorted, each with the names of its documents."""
        at = (self._tx, self._space, session.session_id)
        if folder == TOOLS:
            kept = set(await sessions.tool_ids(*at))
            return {name: KEPT if name in kept else CALL for name in await tool_calls.names(*at)}
        found: list[str] = []
        while session.buckets:
            # The next possible name: no name contains this character.
            first = f"{found[-1]} " if found else ""
            some = await tree_rows.buckets_from(*at, first, _ARCHIVES)
            found += some
            if len(some) < _ARCHIVES:
                break
        return dict.fromkeys(found, (BUCKET,))

    async def _all_of(self, session: ListedSession, folder: str) -> AsyncIterator[Step]:
        held = await self._held(session, folder)
        if not held:
            raise NotFound("directory", self._wanted.root)
        async for step in self._folders(session, folder, held):
            yield step

    async def _folders(
        self, session: ListedSession, folder: str, held: Mapping[str, Sequence[str]]
    ) -> AsyncIterator[Step]:
        inside = self._after[:2] == (session.session_id, folder) and len(self._after) > 2
        for name, documents in held.items():
            if inside and name < self._after[2]:
                continue
            where = (session.session_id, folder, name)
            for step in self._step(where):
                yield step
            if self._enters(where):
                for step in self._documents(where, documents):
                    yield step

    async def _one_folder(self, session: ListedSession, folder: str, name: str) -> AsyncIterator[Step]:
        at = (self._tx, self._space, session.session_id)
        documents: Sequence[str] = ()
        if folder == BUCKETS:
            documents = (BUCKET,) if await tree_rows.buckets_from(*at, name, 1) == [name] else ()
        elif await tool_calls.newest(*at, name) is not None:
            documents = KEPT if await sessions.tool_output(*at, name) is not None else CALL
        if not documents:
            raise NotFound("directory", self._wanted.root)
        for step in self._documents((session.session_id, folder, name), documents):
            yield step

    def _path(self, where: Path) -> Path:
        return (*self._inside, *where[len(self._within) :])

    def _enters(self, where: Path) -> bool:
        if self._wanted.passed and where == self._after:
            return False
        return self._wanted.enter(self._path(where))

    def _is_past(self, where: Path) -> bool:
        """Returns whether a resumed walk has already passed this place of a session."""
        return self._after[:1] == where[:1] and _rank(where[1:])[0] < _rank(self._after[1:])[0]

    def _documents(self, where: Path, names: Sequence[str]) -> list[Step]:
        """Returns the documents of a directory that are not hidden, and that the walk has not passed."""
        steps = []
        for name in names:
            document = (*where, name)
            hidden = name.startswith(".") and not self._wanted.hidden
            past = self._after[:1] == where[:1] and _rank(document[1:]) <= _rank(self._after[1:])
            if not hidden and not past:
                path = self._path(document)
                steps.append(Step(_file(self._wanted.root, path), path))
        return steps

    def _step(self, where: Path, abstract: str = "", updated_at: int = 0) -> list[Step]:
        """Returns the step of a directory; none if the walk resumes inside of it."""
        if self._after[: len(where)] == where:
            return []
        path = self._path(where)
        return [Step(_directory(self._wanted.root, path, abstract, updated_at), path)]


_RANKS: Final = {
    name: rank for rank, name in enumerate((ABSTRACT_FILE, OVERVIEW_FILE, HISTORY, MESSAGES, TOOLS, BUCKETS))
}


def _rank(path: Path) -> tuple[int, int, Path]:
    """Returns a key that sorts documents of a session in the order of the walk."""
    match path:
        case ("history", archive, *rest):
            return _RANKS[HISTORY], _number(archive), tuple(rest)
    return _RANKS.get(path[0], len(_RANKS)), 0, path[1:]


def _number(archive: str) -> int:
    """Returns the index of an archive from its name; 0 for another name."""
    digits = archive.removeprefix("archive_")
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0
