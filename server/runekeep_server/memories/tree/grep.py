"""Searches the text of the documents below a URI.

A call reads a bounded amount, in slices. Each slice is a short transaction that finds the next documents in the order
of the tree; a thread searches their text. A page token continues where a call stopped. All pages read memories at the
revision that was the newest when the first page began; documents of sessions are read in their current state. If a page
stopped within live messages, the next one continues by sequence, even if they were archived meanwhile.
"""

from asyncio import get_running_loop
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TypeVar

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.documents.uris import Place, parse, space_root
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories.reads import glob_of, revision_of
from runekeep_server.memories.tree.documents import File, Log, Source, find, lines_of, text_of
from runekeep_server.memories.tree.globs import Glob
from runekeep_server.memories.tree.lines import Found, Pattern, PatternError, pattern_of, search
from runekeep_server.memories.tree.listing import require_place
from runekeep_server.memories.tree.names import BUCKETS, HISTORY, MESSAGES, TOOL, TOOLS, VIEWS, archive_name
from runekeep_server.memories.tree.walk import Step, Walk, everywhere, walk
from runekeep_server.protocol.answer_sizes import MAX_PAGE_BYTES
from runekeep_server.protocol.errors import invalid
from runekeep_server.protocol.pagination import next_token, open_key, refused_token
from runekeep_server.wire.as_of import settled
from runekeep_server.wire.basics import canonical
from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common.fair_turns import FairThreads
from runekeep_storage.drivers.common.statement_lists import SIZE
from runekeep_storage.errors import NotFound
from runekeep_storage.memories import memories, tree_rows
from runekeep_storage.memories.tree_rows import LogPage
from runekeep_storage.store import Store

MAX_DOCUMENTS = 2000
MAX_CHARACTERS = 8 * 1024 * 1024
"""Limits of one call. A document that was begun may exceed them somewhat."""
SLICE_DOCUMENTS = 64
SLICE_CHARACTERS = 1024 * 1024
MAX_STEPS = 40_000
"""Documents, and skipped directories, that one call visits."""
MAX_SECONDS = 2.0
"""Maximum search time of one call. A piece that was begun is searched to its end."""
SLICE_STEPS = 2000
"""Maximum of these steps in one transaction."""
SLICE_LINES = 100
SLICE_BYTES = 512 * 1024
"""Bytes of messages that one transaction reads, since decoding a megabyte takes milliseconds of the event loop. A
larger message is read by itself."""

_THREADS = FairThreads(2, "grep", nice=10)
"""Separate threads for regular expressions, so that slow ones do not delay other reads. One account may use one of
them."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The pattern, where to search, and in which documents. `glob` None means in all."""

    pattern: Pattern
    uri: str
    glob: Glob | None
    hidden: bool
    context: int


@dataclass(frozen=True, slots=True)
class _Document:
    uri: str
    source: Source


@dataclass(slots=True)
class _Slice:
    """The next documents in the order of the tree. `last`: where to continue; `end`: there are no more; `steps`: steps
    of the walk."""

    revision: int
    last: "_Position"
    found: list[_Document] = field(default_factory=list)
    end: bool = False
    steps: int = 0


class _CalledOff(Exception):
    """Nobody waits for the answer any more."""


@dataclass(slots=True)
class _Answer:
    """Collects matching lines, up to `limit` or the bytes of an answer.

    `since`: when the current search began. `called_off`: set by the event loop when it no longer waits.
    """

    limit: int
    matches: list[pb.GrepMatch] = field(default_factory=list)
    size: int = 0
    documents: int = 0
    characters: int = 0
    steps: int = 0
    seconds: float = 0
    since: float | None = None
    called_off: bool = False

    def take(self, uri: str, found: Found) -> bool:
        match = pb.GrepMatch(uri=uri, line=found.number, text=found.text, before=found.before, after=found.after)
        self.size += match.ByteSize() + 6
        if len(self.matches) == self.limit or (self.size > MAX_PAGE_BYTES and self.matches):
            return False
        self.matches.append(match)
        return True

    def is_worn(self) -> bool:
        """Returns whether the limits of one call are reached."""
        running = 0 if self.since is None else monotonic() - self.since
        return (
            self.documents >= MAX_DOCUMENTS
            or self.characters >= MAX_CHARACTERS
            or self.steps >= MAX_STEPS
            or self.seconds + running >= MAX_SECONDS
        )

    def check(self) -> None:
        """Raises _CalledOff if nobody waits for the answer."""
        if self.called_off:
            raise _CalledOff


_BEHIND, _PASSED = -1, -2


@dataclass(frozen=True, slots=True)
class _Position:
    """Where to continue. `at`: a line of a document; in a log of messages a sequence, which commits and erasures do not
    change; after the document; or after a skipped directory. An empty URI means the beginning."""

    uri: str = ""
    at: int = _BEHIND


async def grep(store: Store, space: Space, request: pb.GrepDocumentsRequest) -> pb.GrepDocumentsResponse:
    """Answers GrepDocuments. Raises NotFound, ApiError."""
    wanted = await get_running_loop().run_in_executor(_THREADS, _wanted, request, space)
    token = open_key(request, (int, str, int))
    if token is None:
        revision, position = await revision_of(store, space, request), _Position()
    else:
        revision, position = _taken_up(token, wanted.uri)
    answer = _Answer(request.limit or 100)
    pages = _Pages(store, space, wanted, revision, answer)
    rest = await pages.read(position)
    following = "" if rest is None else next_token(request, (pages.revision, rest.uri, rest.at))
    return pb.GrepDocumentsResponse(matches=answer.matches, next_page_token=following, documents=answer.documents)


def _wanted(request: pb.GrepDocumentsRequest, space: Space) -> Wanted:
    uri = canonical("uri", request.uri, space.user) if request.uri else space_root(space.user)
    try:
        pattern = pattern_of(request.pattern, regex=request.regex, ignore_case=request.ignore_case)
    except PatternError as error:
        raise invalid("pattern", f"cannot be looked for: {error}", "See RE2's syntax") from error
    glob = glob_of("glob", request.glob) if request.glob else None
    return Wanted(pattern, uri, glob, request.show_hidden, request.context_lines)


def _taken_up(token: Sequence[int | str], root: str) -> tuple[int, _Position]:
    """Returns the revision and the position in a token, which may be forged. Raises ApiError."""
    revision, uri, at = token
    assert isinstance(revision, int) and isinstance(uri, str) and isinstance(at, int)
    if revision < 0 or at < _PASSED or not (uri == root or uri.startswith(f"{root}/")):
        raise refused_token()
    try:
        parse(uri)
    except ValueError as error:
        raise refused_token() from error
    return revision, _Position(uri, at)


class _Pages:
    """One call, from a position on."""

    def __init__(self, store: Store, space: Space, wanted: Wanted, revision: int, answer: _Answer) -> None:
        self._store, self._space, self._wanted, self._answer = store, space, wanted, answer
        self._slots = store.grep_slots
        self.revision = revision
        """The number of the revision, once something was read."""

    async def read(self, position: _Position) -> _Position | None:
        """Searches from the position on. Returns where to continue, or None at the end."""
        database = self._store.database
        if position.at >= 0:
            self.revision, begun = await database.read(_begun, self._space, position, self.revision)
            if rest := await self._look(begun, position):
                return rest
            position = _Position(position.uri)
        while position.uri != self._wanted.uri:
            if self._answer.is_worn():
                return position
            async with self._slots.take():
                some = await database.read(
                    _next, self._space, self._store.registry, self._wanted, self.revision, position
                )
            self.revision = some.revision
            self._answer.steps += some.steps
            if rest := await self._look(some.found):
                return rest
            if some.end:
                return None
            position = some.last
        return None

    async def _look(self, found: list[_Document], begun: _Position | None = None) -> _Position | None:
        """Searches the documents. Returns where it stopped, or None at the end of the last one. `begun`: where to
        begin. Logs of messages come last."""
        texts = [document for document in found if not isinstance(document.source, Log)]
        if texts:
            async with self._slots.take():
                rest = await self._search(self._look_through, texts, begun.at if begun else 0)
            if rest:
                return rest
        for document in found[len(texts) :]:
            if rest := await self._look_in_messages(document, begun or _Position(document.uri, 0)):
                return rest
        return None

    async def _look_in_messages(self, document: _Document, begun: _Position) -> _Position | None:
        """Searches a log. `begun` names the log in which the search began, and the first sequence."""
        log = document.source
        assert isinstance(log, Log)
        self._answer.documents += 1
        start = max(begun.at, log.first)
        number: int | None = None
        while start <= log.last:
            if self._answer.is_worn():
                return _Position(begun.uri, start)
            # One slot for both, so that no more pages are in memory than are searched.
            async with self._slots.take():
                page = await self._store.database.read(
                    tree_rows.log_page,
                    self._space,
                    log.session_id,
                    (log.first, log.last),
                    start,
                    SLICE_LINES,
                    SLICE_BYTES,
                    self._wanted.context,
                    number,
                )
                reached = await self._search(self._look_through_messages, document.uri, page)
            if reached < len(page.lines):
                return _Position(begun.uri, page.lines[reached].sequence)
            if not page.more:
                return None
            start = page.lines[-1].sequence + 1
            number = page.number + len(page.lines)
        return None

    async def _search(self, look: Callable[..., _T], *arguments: object) -> _T:
        """Runs a search in a thread. It stops soon after nobody waits for it."""
        try:
            return await get_running_loop().run_in_executor(_THREADS, partial(self._timed, look, *arguments))
        except BaseException:
            self._answer.called_off = True
            raise

    def _timed(self, look: Callable[..., _T], *arguments: object) -> _T:
        self._answer.check()
        began = self._answer.since = monotonic()
        try:
            return look(*arguments)
        finally:
            self._answer.since = None
            self._answer.seconds += monotonic() - began

    def _look_through(self, found: Sequence[_Document], first: int) -> _Position | None:
        answer, wanted = self._answer, self._wanted
        for document in found:
            assert not isinstance(document.source, Log)
            answer.check()
            try:
                text = text_of(document.source, self._space, self._store.registry, self._store.blobs)
            except NotFound:
                # The session of the blob was deleted meanwhile.
                continue
            answer.documents += 1
            answer.characters += len(text)
            lines = text.split("\n") if text else []
            reached = search(
                wanted.pattern,
                lines,
                first,
                len(lines),
                context=wanted.context,
                take=partial(answer.take, document.uri),
                worn=answer.is_worn,
                check=answer.check,
            )
            if reached < len(lines):
                return _Position(document.uri, reached)
            first = 0
            if answer.is_worn():
                return _Position(document.uri)
        return None

    def _look_through_messages(self, uri: str, page: LogPage) -> int:
        """Searches a page of messages. Returns the index of the line to continue with."""
        texts = lines_of((*page.before, *page.lines, *page.after))
        begin, stop = len(page.before), len(page.before) + len(page.lines)
        self._answer.characters += sum(map(len, texts[begin:stop]))
        reached = search(
            self._wanted.pattern,
            texts,
            begin,
            stop,
            context=self._wanted.context,
            take=partial(self._answer.take, uri),
            number=page.number - begin,
            worn=self._answer.is_worn,
            check=self._answer.check,
        )
        return reached - begin


async def _begun(tx: Tx, space: Space, position: _Position, revision: int) -> tuple[int, list[_Document]]:
    """Returns a document in which a page stopped, if it still exists. If it is a log that was live, its messages that
    were archived since come first."""
    number, at = await settled(tx, space, revision)
    try:
        source = await find(tx, space, position.uri, at)
    except NotFound:
        return number, []
    found: list[_Document] = []
    if isinstance(source, Log) and position.at < source.first and len(parse(position.uri).path) == 2:
        name = source.session_id
        for index, first, last in await tree_rows.archived_between(tx, space, name, position.at, source.first - 1):
            uri = f"{position.uri.removesuffix(MESSAGES)}{HISTORY}/{archive_name(index)}/{MESSAGES}"
            found.append(_Document(uri, Log(name, first, last)))
    return number, [*found, _Document(position.uri, source)]


async def _next(tx: Tx, space: Space, registry: Registry, wanted: Wanted, revision: int, after: _Position) -> _Slice:
    """Returns the next documents after a position, up to the first log of messages. Raises NotFound, ApiError."""
    number, at = await settled(tx, space, revision)
    if not after.uri and (named := await _named(tx, space, wanted, at)):
        return _Slice(number, after, [named], end=True)
    some = _Slice(number, after, end=True)
    uris: list[str] = []
    enter = everywhere if wanted.glob is None else wanted.glob.may_hold
    way = Walk(wanted.uri, at, wanted.hidden, enter, after.uri, after.at == _PASSED)
    async for step in walk(tx, space, way):
        some.steps += 1
        taken = not step.entry.directory and _is_wanted(step, wanted)
        if taken:
            uris.append(step.entry.uri)
        full = len(uris) == SLICE_DOCUMENTS or (taken and step.entry.name == MESSAGES)
        if full or (some.steps >= SLICE_STEPS and way.can_stop_at(step)):
            some.last = _Position(step.entry.uri, _PASSED if step.entry.directory else _BEHIND)
            some.end = False
            break
    if not some.steps and not after.uri:
        require_place(space, registry, wanted.uri)
    await _load(tx, space, uris, at, some)
    return some


async def _load(tx: Tx, space: Space, uris: Sequence[str], at: int, some: _Slice) -> None:
    """Loads the documents. The slice ends early if they are large."""
    room = SLICE_CHARACTERS
    for start in range(0, len(uris), SIZE):
        group = uris[start : start + SIZE]
        files = await memories.files(tx, space, [uri for uri in group if _is_memory(uri)], at)
        for uri in group:
            source = File(*files[uri]) if uri in files else await find(tx, space, uri, at)
            some.found.append(_Document(uri, source))
            room -= len(source.fields) + len(source.content) if isinstance(source, File) else 0
            if room < 0 and uri != uris[-1]:
                some.last, some.end = _Position(uri), False
                return


def _is_memory(uri: str) -> bool:
    return parse(uri).kind is not Place.SESSIONS and uri.rpartition("/")[2] not in VIEWS


def _is_wanted(step: Step, wanted: Wanted) -> bool:
    """Returns whether the document must be searched. `tool.json` would repeat the text of `output.txt`."""
    if step.entry.name == TOOL:
        place = parse(step.entry.uri)
        if place.kind is Place.SESSIONS and place.path[1] == TOOLS:
            return False
    return wanted.glob is None or wanted.glob.matches(step.path)


async def _named(tx: Tx, space: Space, wanted: Wanted, at: int) -> _Document | None:
    """Returns the document at the URI itself, or None for a directory. Raises NotFound, ApiError."""
    place = parse(wanted.uri)
    in_session = place.kind is Place.SESSIONS and len(place.path) in (2, 4) and place.path[1:] not in _FOLDERS
    if not in_session and not (place.path and place.kind is not Place.SESSIONS):
        return None
    try:
        source = await find(tx, space, wanted.uri, at)
    except NotFound:
        if in_session or place.path[-1] in VIEWS:
            raise
        return None
    if wanted.glob is not None:
        raise invalid("glob", "goes with a directory, and the URI is that of a document", "Leave it out")
    return _Document(wanted.uri, source)


_FOLDERS = ((HISTORY,), (TOOLS,), (BUCKETS,))
