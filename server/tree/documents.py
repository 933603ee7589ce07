"""Documents: the text behind a URI, at a revision of the space."""

import json
from asyncio import to_thread

from schemas.registry import Registry
from schemas.render import directory_abstract, directory_overview, file_view
from schemas.session_skills import SESSION_SKILLS
from schemas.uris import ABSTRACT_FILE, OVERVIEW_FILE, Place, UriError, parse, parse_archive
from server.tree.listing import children_of
from server.wire import messages as wire_messages
from server.wire.sessions import diff_document
from storage import archives, memories, sessions
from storage.database import Space, Tx
from storage.errors import NotFound
from storage.records import Archive, Memory, Message
from storage.store import Store

MESSAGES = "messages.jsonl"
DIFF = "memory_diff.json"
DONE = ".done"

# Those that JSON leaves as they are.
_SEPARATORS = {ord(character): f"\\u{ord(character):04x}" for character in "\u0085\u2028\u2029"}


def memory_text(record: Memory, registry: Registry) -> str:
    """The file of a memory. A type that is not known any more leaves its content readable."""
    type = SESSION_SKILLS if record.memory_type == SESSION_SKILLS.name else registry.get(record.memory_type)
    return file_view(type, json.loads(record.fields)) if type else record.content


async def read_document(store: Store, space: Space, uri: str, revision: int = memories.LATEST) -> str:
    """The text of the document at a canonical URI. Raises NotFound."""
    text = await store.database.read(_read, store.registry, space, uri, revision)
    if isinstance(text, str):
        return text
    blob, tool = text
    output = (await to_thread(store.blobs.get, space, blob)).decode()
    return json.dumps({**tool, "output": output}, ensure_ascii=False, indent=2)


async def _read(
    tx: Tx, registry: Registry, space: Space, uri: str, revision: int
) -> str | tuple[str, dict[str, object]]:
    """Text, or the blob and the frame of a tool's output, which is read outside the transaction."""
    place = parse(uri)
    if place.kind is Place.SESSIONS and place.path:
        return await _session_document(tx, space, place.path, uri)
    directory, _, name = uri.rpartition("/")
    if name in (ABSTRACT_FILE, OVERVIEW_FILE):
        children = await children_of(tx, space, directory, revision)
        return directory_abstract(children) if name == ABSTRACT_FILE else directory_overview(children)
    return memory_text(await memories.get(tx, space, uri, revision=revision), registry)


async def _session_document(
    tx: Tx, space: Space, path: tuple[str, ...], uri: str
) -> str | tuple[str, dict[str, object]]:
    session = await sessions.get(tx, space, path[0])
    match path[1:]:
        case ("messages.jsonl",):
            first = session.archived_sequence + 1
            return _lines(await sessions.messages_between(tx, space, session.session_id, first, session.last_sequence))
        case (".abstract.md",):
            return session.abstract
        case (".overview.md",):
            return session.overview
        case ("history", _, name):
            return await _archive_document(tx, space, uri, name)
        case ("tools", tool_id, "tool.json"):
            kept = await sessions.tool_output(tx, space, session.session_id, tool_id)
            if kept is not None:
                return kept[0], {"tool_id": tool_id, "length": kept[1]}
    raise NotFound("document", uri)


async def _archive_document(tx: Tx, space: Space, uri: str, name: str) -> str:
    try:
        place = parse_archive(uri)
    except UriError:
        raise NotFound("document", uri) from None
    archive = await archives.get(tx, space, place.session, place.index)
    if name == MESSAGES:
        return _lines(
            await sessions.messages_between(tx, space, place.session, archive.first_sequence, archive.last_sequence)
        )
    if archive.state == "done":
        text = _done_document(space, archive, name)
        if text is not None:
            return text
    raise NotFound("document", uri)


def _done_document(space: Space, archive: Archive, name: str) -> str | None:
    if name == ABSTRACT_FILE:
        return archive.abstract
    if name == OVERVIEW_FILE:
        return archive.overview
    if name == DIFF:
        return json.dumps(diff_document(space.user, archive), ensure_ascii=False, indent=2)
    return "" if name == DONE else None


def _lines(found: list[Message]) -> str:
    """JSON lines. Line separators of Unicode are escaped: some readers would split a line at them."""
    lines = (json.dumps(wire_messages.line(message), ensure_ascii=False) for message in found)
    return "\n".join(line.translate(_SEPARATORS) for line in lines)
