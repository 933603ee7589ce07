"""Documents: the text behind a URI, at a revision of the space.

A transaction only finds the source of a document. Text that is made of many rows or of a blob is built in a thread.
"""

import json
from asyncio import to_thread
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runekeep_schemas.documents.render import file_view
from runekeep_schemas.documents.uris import (
    ABSTRACT_FILE,
    OVERVIEW_FILE,
    Place,
    UriError,
    parse,
    parse_archive,
)
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.turns import stored
from runekeep_schemas.turns.buckets import Bucket
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories.tree.directories import view
from runekeep_server.memories.tree.excerpts import Excerpt, Range
from runekeep_server.memories.tree.names import (
    BUCKET,
    BUCKETS,
    DIFF,
    DONE,
    HISTORY,
    MESSAGES,
    OUTPUT,
    TOOL,
    TOOLS,
    VIEWS,
)
from runekeep_server.wire import messages as wire_messages
from runekeep_server.wire.as_of import settled
from runekeep_server.wire.sessions import diff_document
from runekeep_storage.blobs.blobs import Blobs
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import NotFound
from runekeep_storage.memories import memories
from runekeep_storage.records import STORED_OUTPUT, Archive, Json, Message
from runekeep_storage.sessions import archives, image_descriptions, sessions, tool_calls
from runekeep_storage.store import Store
from runekeep_storage.turns import artifacts, buckets

_LOG_LINES = 500
_LOG_BYTES = 4 * 1024 * 1024
"""Maximum bytes of messages that one transaction reads. A larger message is read by itself."""
# Line separators that JSON does not escape.
_SEPARATORS = {ord(character): f"\\u{ord(character):04x}" for character in "\u0085\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Text:
    """A document whose text is known."""

    text: str


@dataclass(frozen=True, slots=True)
class File:
    """A memory. If its type is no longer known, its content stays readable."""

    memory_type: str
    fields: str
    content: str


@dataclass(frozen=True, slots=True)
class Log:
    """Messages `first` to `last` of a session, inclusive, one line each. Erased messages have no line."""

    session_id: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Output:
    """A tool output in a blob. `frame`: the other fields of the document, if any."""

    blob: str
    frame: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Diff:
    """The changes of an archive's commit."""

    archive: Archive


@dataclass(frozen=True, slots=True)
class Timeline:
    """A memory bucket: the blob with its whole content, and its card."""

    blob: str
    card: str


Source = Text | File | Log | Output | Diff | Timeline


async def read_document(store: Store, space: Space, uri: str, revision: int, part: Range) -> Excerpt:
    """Returns a part of the document at a canonical URI. Raises NotFound."""
    found, messages, more = await store.database.read(_find_and_begin, space, uri, revision)
    if not isinstance(found, Log):
        return await to_thread(_part_of, found, space, store.registry, store.blobs, part)
    # A log may have hundreds of megabytes, so only one page and the part are in memory.
    while messages:
        await to_thread(_take_lines, messages, part)
        if not more:
            break
        behind = messages[-1].sequence + 1
        messages, more = await store.database.read(_log_page, space, found, behind)
    return part.excerpt()


async def _find_and_begin(tx: Tx, space: Space, uri: str, revision: int) -> tuple[Source, list[Message], bool]:
    """Returns the source of a document. For a log also its first messages, and whether others follow."""
    _, at = await settled(tx, space, revision)
    found = await find(tx, space, uri, at)
    if isinstance(found, Log):
        return found, *await _log_page(tx, space, found, found.first)
    return found, [], False


async def _log_page(tx: Tx, space: Space, log: Log, first: int) -> tuple[list[Message], bool]:
    """Returns messages of a log, and whether others follow. Raises NotFound for a session that was deleted
    meanwhile."""
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
    """Returns the text of a document. Call it in a thread, because it may read a blob. Raises NotFound,
    StoreUnavailable."""
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
    """Returns JSON lines. Unicode line separators are escaped, because some readers would split a line at them."""
    texts = (json.dumps(wire_messages.line(message), ensure_ascii=False) for message in found)
    return [text.translate(_SEPARATORS) for text in texts]


async def find(tx: Tx, space: Space, uri: str, revision: int = memories.LATEST) -> Source:
    """Returns the source of the document at a canonical URI. Raises NotFound."""
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
            row = await artifacts.get(tx, space, session.session_id, stored.BUCKET, bucket_id)
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
