"""The tree of memories, one memory with its versions, and changes by hand."""

import asyncio
from collections.abc import Mapping

from starlette.responses import Response

from runekeep import AbortedError, NotFoundError, RunekeepError
from runekeep.client.connection.connection import new_request_id
from runekeep.studio.http.visit import Visit
from runekeep.studio.pages.proposals import has_open
from runekeep.studio.rendering.environment import field_value
from runekeep.v1 import common_pb2, history_service_pb2, memory_service_pb2

ENTRIES = 200
VERSIONS = 100
CHARACTERS = 60_000
"""Of a document on a page."""
_FORM_FIELD = "field."


async def tree(visit: Visit) -> Response:
    """A directory of the space, now or as of a revision."""
    as_of = visit.number("as_of")
    request = memory_service_pb2.ListDirectoryRequest(
        uri=visit.query("uri"),
        node_limit=ENTRIES,
        abstract_limit=200,
        as_of=at_revision(as_of),
        page_token=visit.query("page"),
    )
    answer, newest, to_review = await asyncio.gather(
        visit.call(visit.stubs.memories.ListDirectory, request), newest_revision(visit), has_open(visit)
    )
    context = {
        "uri": answer.uri,
        "parents": parents(answer.uri),
        "entries": answer.entries,
        "next": answer.next_page_token,
        "as_of": as_of,
        "newest": newest,
        "to_review": to_review,
    }
    return visit.render("tree.html", context)


async def memory(visit: Visit) -> Response:
    """One memory, or another document of the tree as text."""
    uri, version, as_of = visit.query("uri"), visit.number("version"), visit.number("as_of")
    request = memory_service_pb2.GetMemoryRequest(
        uri=uri, version=version, as_of=None if version else at_revision(as_of)
    )
    try:
        answer = await visit.call(visit.stubs.memories.GetMemory, request)
    except RunekeepError as error:
        if version or error.code not in ("NOT_FOUND", "INVALID_ARGUMENT"):
            raise
        last = await _last_version(visit, uri) if not as_of else 0
        if last:
            # It is deleted; its versions stay readable.
            return visit.redirect("/memory", uri=uri, version=last)
        # Documents that are no memories, such as `.overview.md`, have text alone.
        return await _document(visit, uri, as_of, error)
    found = answer.memory
    versions = await visit.call(
        visit.stubs.memories.ListMemoryVersions,
        memory_service_pb2.ListMemoryVersionsRequest(uri=found.uri, page_size=VERSIONS, page_token=visit.query("page")),
    )
    context = {
        "memory": found,
        "versions": versions.memories,
        "next": versions.next_page_token,
        "parents": parents(found.uri),
        "as_of": as_of,
        "current": found.superseded_revision == 0 and not found.deleted,
        "request_id": new_request_id(),
    }
    return visit.render("memory.html", context)


async def new_memory(visit: Visit) -> Response:
    """The form for a memory of a type."""
    types = await memory_types(visit)
    chosen = types.get(visit.query("type"))
    return visit.render("memory_form.html", {"types": types, "type": chosen, **_empty_form()})


async def edit_memory(visit: Visit) -> Response:
    """The form with a memory as it is now."""
    request = memory_service_pb2.GetMemoryRequest(uri=visit.query("uri"))
    answer, types = await asyncio.gather(visit.call(visit.stubs.memories.GetMemory, request), memory_types(visit))
    found = answer.memory
    context = {
        "types": types,
        "type": types.get(found.memory_type),
        **_empty_form(),
        "memory": found,
        "values": {name: field_value(value) for name, value in found.fields.items()} | _content_of(found, types),
        "base_version": found.version,
        "peer_id": found.peer_id,
    }
    return visit.render("memory_form.html", context)


async def save_memory(visit: Visit) -> Response:
    """Writes the whole memory on the version that the form was made of."""
    types = await memory_types(visit)
    kind = types.get(visit.field("type"))
    if kind is None:
        raise NotFoundError(f"Memory type {visit.field('type')!r} not found.", code="NOT_FOUND")
    base = visit.field("base_version", "0")
    given = {field.name: visit.field(_FORM_FIELD + field.name) for field in kind.fields}
    put = memory_service_pb2.PutMemory(
        memory_type=kind.name,
        # The server makes numbers and flags of the texts, as the type of the field has it.
        fields={name: common_pb2.FieldValue(string_value=text) for name, text in given.items() if text},
        peer_id=visit.field("peer_id"),
        abstract=visit.field("abstract"),
    )
    mutation = memory_service_pb2.MemoryMutation(put=put, base_version=int(base) if base.isdecimal() else 0)
    request = memory_service_pb2.WriteMemoriesRequest(changes=[mutation], request_id=visit.field("request_id"))
    try:
        answer = await visit.call(visit.stubs.memories.WriteMemories, request)
    except RunekeepError as error:
        current = await _current(visit, visit.field("uri")) if isinstance(error, AbortedError) else None
        context = {
            **_empty_form(),
            "types": types,
            "type": kind,
            "memory": current,
            "values": given,
            "base_version": current.version if current is not None else mutation.base_version,
            "peer_id": put.peer_id,
            "abstract": put.abstract,
            "problem": error,
        }
        return visit.render("memory_form.html", context, status=409 if isinstance(error, AbortedError) else 400)
    return visit.redirect("/memory", uri=answer.memories[0].uri)


async def delete_memory(visit: Visit) -> Response:
    base = visit.field("base_version")
    mutation = memory_service_pb2.MemoryMutation(
        delete=memory_service_pb2.DeleteMemory(uri=visit.field("uri")),
        base_version=int(base) if base.isdecimal() else 0,
    )
    request = memory_service_pb2.WriteMemoriesRequest(changes=[mutation], request_id=visit.field("request_id"))
    answer = await visit.call(visit.stubs.memories.WriteMemories, request)
    return visit.redirect(f"/history/{answer.revision}")


async def memory_types(visit: Visit) -> dict[str, memory_service_pb2.MemoryType]:
    """Returns the types that can be written, by name."""
    answer = await visit.call(visit.stubs.memories.ListMemoryTypes, memory_service_pb2.ListMemoryTypesRequest())
    return {kind.name: kind for kind in answer.memory_types}


async def newest_revision(visit: Visit) -> int:
    """Returns the number of the newest revision; 0 before the first."""
    request = history_service_pb2.ListRevisionsRequest(page_size=1)
    answer = await visit.call(visit.stubs.history.ListRevisions, request)
    return answer.revisions[0].number if answer.revisions else 0


def at_revision(number: int) -> common_pb2.AsOf | None:
    return common_pb2.AsOf(revision=number) if number else None


def parents(uri: str) -> list[tuple[str, str]]:
    """Returns the directories above a URI as (name, URI), the root of the space first."""
    root, _, path = uri.removeprefix("viking://user/").partition("/")
    found = [(root, f"viking://user/{root}")]
    for name in [segment for segment in path.split("/") if segment][:-1]:
        found.append((name, f"{found[-1][1]}/{name}"))
    return found


async def _last_version(visit: Visit, uri: str) -> int:
    """Returns the number of the newest version of a memory, deleted or not; 0 if there never was one."""
    request = memory_service_pb2.ListMemoryVersionsRequest(uri=uri, page_size=1)
    try:
        answer = await visit.call(visit.stubs.memories.ListMemoryVersions, request)
    except RunekeepError as error:
        if error.code not in ("NOT_FOUND", "INVALID_ARGUMENT"):
            raise
        return 0
    return answer.memories[0].version if answer.memories else 0


async def _document(visit: Visit, uri: str, as_of: int, error: RunekeepError) -> Response:
    request = memory_service_pb2.ReadDocumentRequest(
        uri=uri,
        as_of=at_revision(as_of),
        characters=memory_service_pb2.CharacterRange(start=visit.number("start"), length=CHARACTERS),
    )
    try:
        answer = await visit.call(visit.stubs.memories.ReadDocument, request)
    except RunekeepError:
        raise error from None
    context = {
        "document": answer,
        "parents": parents(answer.uri),
        "as_of": as_of,
        "rendered": answer.uri.endswith(".md"),
    }
    return visit.render("document.html", context)


async def _current(visit: Visit, uri: str) -> memory_service_pb2.Memory | None:
    if not uri:
        return None
    answer = await visit.call(visit.stubs.memories.GetMemory, memory_service_pb2.GetMemoryRequest(uri=uri))
    found: memory_service_pb2.Memory = answer.memory
    return found


def _content_of(
    memory: memory_service_pb2.Memory, types: Mapping[str, memory_service_pb2.MemoryType]
) -> dict[str, str]:
    """Returns the content as a field, where the type has one of that name and no template renders it."""
    kind = types.get(memory.memory_type)
    if kind is None or kind.content_template or "content" in memory.fields:
        return {}
    return {"content": memory.content} if any(field.name == "content" for field in kind.fields) else {}


def _empty_form() -> dict[str, object]:
    return {
        "memory": None,
        "values": {},
        "base_version": 0,
        "peer_id": "",
        "abstract": "",
        "problem": None,
        "request_id": new_request_id(),
    }
