"""Documents: the text behind a URI, at a revision of the space.

What is found in a transaction is not yet text: what is made of many rows, or of a blob, is made in a thread.
"""

import json
from asyncio import to_thread
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.registry import Registry
from schemas.render import file_view
from schemas.session_skills import SESSION_SKILLS
from schemas.turns import stored
from schemas.turns.buckets import Bucket
from schemas.uris import ABSTRACT_FILE, OVERVIEW_FILE, Place, UriError, parse, parse_archive
from server.as_of import settled
from server.tree.directories import view
from server.tree.excerpts import Excerpt, Range
from server.tree.names import BUCKET, BUCKETS, DIFF, DONE, HISTORY, MESSAGES, OUTPUT, TOOL, TOOLS, VIEWS
from server.wire import messages as wire_messages
from server.wire.sessions import diff_document
from storage import archives, buckets, image_descriptions, memories, sessions, tool_calls, turn_artifacts
from storage.blobs import Blobs
from storage.database import Space, Tx
from storage.errors import NotFound
from storage.records import STORED_OUTPUT, Archive, Json, Message
from storage.store import Store

_LOG_LINES = 500
_LOG_BYTES = 4 * 1024 * 1024
"""Of messages that one transaction reads; one that is larger is read by itself."""
# Those that JSON leaves as they are.
_SEPARATORS = {ord(character): f"\\u{ord(character):04x}" for character in "\u0085\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Text:
    """A document at hand."""

    text: str


@dataclass(frozen=True, slots=True)
class File:
    """A memory. A type that is not known any more leaves its content readable."""

    memory_type: str
    fields: str
    content: str


@dataclass(frozen=True, slots=True)
class Log:
    """Messages `first` to `last` of a session, both included: a line each, but for those that are erased."""

    session_id: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a tool, in a blob; with a frame, what the document says besides."""

    blob: str
    frame: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Diff:
    """What the commit of an archive changed."""

    archive: Archive


@dataclass(frozen=True, slots=True)
class Timeline:
    """A memory bucket: the blob that holds all of it, and its card."""

    blob: str
    card: str


Source = Text | File | Log | Output | Diff | Timeline


async def read_document(store: Store, space: Space, uri: str, revision: int, part: Range) -> Excerpt:
    """A part of the document at a canonical URI. Raises NotFound."""
    found, messages, more = await store.database.read(_find_and_begin, space, uri, revision)
    if not isinstance(found, Log):
        return await to_thread(_part_of, found, space, store.registry, store.blobs, part)
    # A log may be hundreds of megabytes long: no more of it is held than a page, and the part.
    while messages:
        await to_thread(_take_lines, messages, part)
        if not more:
            break
        behind = messages[-1].sequence + 1
        messages, more = await store.database.read(_log_page, space, found, behind)
    return part.excerpt()


async def _find_and_begin(tx: Tx, space: Space, uri: str, revision: int) -> tuple[Source, list[Message], bool]:
    """What a document is made of; of a log the first messages, and whether others follow."""
    _, at = await settled(tx, space, revision)
    found = await find(tx, space, uri, at)
    if isinstance(found, Log):
        return found, *await _log_page(tx, space, found, found.first)
    return found, [], False


async def _log_page(tx: Tx, space: Space, log: Log, first: int) -> tuple[list[Message], bool]:
    """Raises NotFound for a session that is deleted by now."""
    await sessions.get(tx, space, log.session_id)
    messages, more, _ = await image_descriptions.messages_page(
        tx, space, log.session_id, first, log.last, _LOG_LINES, _LOG_BYTES
    )
    return messages, more


def _part_of(
    source: Text | File | Output | Diff | Timeline, space: Space, registry: Registry, blobs: Blobs, part: Range
) -> Excerpt:
    text = text_of(source, space, registry, blobs)
    for line in text.split("\n") if text else ():
        part.take(line)
    return part.excerpt()


def _take_lines(messages: Sequence[Message], part: Range) -> None:
    for line in lines_of(messages):
        part.take(line)


def text_of(source: Text | File | Output | Diff | Timeline, space: Space, registry: Registry, blobs: Blobs) -> str:
    """May read a blob, so it is for a thread. Raises NotFound, StoreUnavailable."""
    match source:
        case Text():
            return source.text
        case File():
            return file_text(source, registry)
        case Output():
            output = blobs.get(space, source.blob).decode()
            if source.frame is None:
                return output
            return _framed(source.frame, output)
        case Diff():
            return json.dumps(diff_document(space.user, source.archive), ensure_ascii=False, indent=2)
        case Timeline():
            bucket = buckets.whole_of(blobs, space, source.blob) or Bucket.from_text(source.card)
            return json.dumps(json.loads(bucket.to_text()), ensure_ascii=False, indent=2)


def file_text(source: File, registry: Registry) -> str:
    skill = source.memory_type == SESSION_SKILLS.name
    type = SESSION_SKILLS if skill else registry.get(source.memory_type)
    return file_view(type, json.loads(source.fields)) if type else source.content


def lines_of(found: Sequence[Message]) -> list[str]:
    """JSON lines. Line separators of Unicode are escaped: some readers would split a line at them."""
    texts = (json.dumps(wire_messages.line(message), ensure_ascii=False) for message in found)
    return [text.translate(_SEPARATORS) for text in texts]


async def find(tx: Tx, space: Space, uri: str, revision: int = memories.LATEST) -> Source:
    """What the document at a canonical URI is made of. Raises NotFound."""
    place = parse(uri)
    if place.kind is Place.SESSIONS and place.path:
        return await _session_document(tx, space, place.path, uri)
    if uri.rpartition("/")[2] in VIEWS:
        return Text(await view(tx, space, uri, revision))
    found = await memories.files(tx, space, [uri], revision)
    if uri not in found:
        raise NotFound("memory", uri)
    return File(*found[uri])


async def _session_document(tx: Tx, space: Space, path: tuple[str, ...], uri: str) -> Source:
    session = await sessions.get(tx, space, path[0])
    match path[1:]:
        case (name,) if name == MESSAGES:
            return Log(session.session_id, session.archived_sequence + 1, session.last_sequence)
        case (name,) if name == ABSTRACT_FILE:
            return Text(session.abstract)
        case (name,) if name == OVERVIEW_FILE:
            return Text(session.overview)
        case (directory, _, name) if directory == HISTORY:
            return await _archive_document(tx, space, uri, name)
        case (directory, tool_id, name) if directory == TOOLS and name == OUTPUT:
            kept = await sessions.tool_output(tx, space, session.session_id, tool_id)
            if kept is not None:
                return Output(kept[0])
        case (directory, bucket_id, name) if directory == BUCKETS and name == BUCKET:
            row = await turn_artifacts.get(tx, space, session.session_id, stored.BUCKET, bucket_id)
            if row is not None:
                return Timeline(row.blob, row.text)
        case (directory, tool_id, name) if directory == TOOLS and name == TOOL:
            call = await tool_calls.newest(tx, space, session.session_id, tool_id)
            if call is not None:
                return _call_document(tool_id, *call)
    raise NotFound("document", uri)


def _call_document(name: str, message: Message, part: Json) -> Text | Output:
    """Returns the document of a tool call from its newest record. Unknown values are null."""
    frame = {
        "tool_id": part["tool_id"] or name,
        "tool_name": part["tool_name"],
        "skill_name": part["skill_name"],
        "status": part["status"],
        "duration_ms": part["duration_ms"] or None,
        "total_tokens": part["total_tokens"] or None,
        "message_id": message.message_id,
        "sequence": message.sequence,
        "input": part["input"],
        "length": part.get("stored_output_length") or len(part["output"]),
    }
    if STORED_OUTPUT in part:
        return Output(part[STORED_OUTPUT], frame)
    return Text(_framed(frame, part["output"]))


def _framed(frame: Mapping[str, object], output: str) -> str:
    return json.dumps({**frame, "output": output}, ensure_ascii=False, indent=2)


async def _archive_document(tx: Tx, space: Space, uri: str, name: str) -> Source:
    try:
        place = parse_archive(uri)
    except UriError:
        raise NotFound("document", uri) from None
    archive = await archives.get(tx, space, place.session, place.index)
    if name == MESSAGES:
        return Log(place.session, archive.first_sequence, archive.last_sequence)
    if archive.state == "done":
        if name == DIFF:
            return Diff(archive)
        texts = {ABSTRACT_FILE: archive.abstract, OVERVIEW_FILE: archive.overview, DONE: ""}
        if name in texts:
            return Text(texts[name])
    raise NotFound("document", uri)
