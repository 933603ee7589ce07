"""Sessions: the list, the conversation with its live and archived parts, and what came from a message."""

import asyncio
from collections.abc import Sequence
from urllib.parse import quote

from starlette.responses import Response

from runekeep import NotFoundError
from runekeep.client.connection.connection import new_request_id
from runekeep.studio.http.visit import Visit
from runekeep.v1 import common_pb2, history_service_pb2, session_service_pb2, task_service_pb2

MESSAGES = 50
ARCHIVES = 50
SESSIONS = 50
LOOKED_THROUGH = 200
"""Messages of a page while one of them is looked for."""


async def session_list(visit: Visit) -> Response:
    request = session_service_pb2.ListSessionsRequest(page_size=SESSIONS, page_token=visit.query("page"))
    answer = await visit.call(visit.stubs.sessions.ListSessions, request)
    return visit.render("sessions.html", {"sessions": answer.sessions, "next": answer.next_page_token})


async def session(visit: Visit) -> Response:
    """The live messages, and the archives with their tasks."""
    name = visit.request.path_params["session"]
    stubs = visit.stubs
    found, messages, archives, tasks = await asyncio.gather(
        visit.call(stubs.sessions.GetSession, session_service_pb2.GetSessionRequest(session=name)),
        _messages(visit, name),
        visit.call(
            stubs.sessions.ListArchives,
            session_service_pb2.ListArchivesRequest(
                session=name, page_size=ARCHIVES, page_token=visit.query("archives")
            ),
        ),
        visit.call(stubs.tasks.ListTasks, task_service_pb2.ListTasksRequest(session=name, page_size=20)),
    )
    context = {
        "session": found.session,
        "messages": messages[0],
        "next": messages[1],
        "archives": archives.archives,
        "more_archives": archives.next_page_token,
        "tasks": tasks.tasks,
        "archive": None,
    }
    return visit.render("session.html", context)


async def archive(visit: Visit) -> Response:
    """The messages of one archive, without their session's other parts."""
    name = visit.request.path_params["session"]
    found = await visit.call(visit.stubs.sessions.GetSession, session_service_pb2.GetSessionRequest(session=name))
    index = visit.request.path_params["index"]
    messages, archives = await asyncio.gather(
        _messages(visit, archive_uri(found.session.uri, index)), _archives(visit, name)
    )
    one = next((one for one in archives if one.index == index), None)
    if one is None:
        raise NotFoundError(f"Archive {index} of session {name} not found.", code="NOT_FOUND")
    context = {
        "session": found.session,
        "messages": messages[0],
        "next": messages[1],
        "archive": one,
        "archives": [],
        "tasks": [],
    }
    return visit.render("session.html", context)


async def message(visit: Visit) -> Response:
    """Leads to the page on which a message stands, so that a link to it never breaks when it is archived."""
    name = visit.request.path_params["session"]
    message_id = visit.query("id")
    sequence = visit.number("sequence") or await _sequence(visit, name, message_id)
    path, first = f"/sessions/{name}", 1
    for one in await _archives(visit, name):
        if one.messages.start_sequence <= sequence <= one.messages.end_sequence:
            path, first = f"{path}/archives/{one.index}", one.messages.start_sequence
    # Pages begin at the same positions, whatever message is looked for.
    begin = sequence - (sequence - first) % MESSAGES
    response = visit.redirect(path, **({"from": begin} if begin > first else {}))
    response.headers["location"] += f"#m-{quote(message_id, safe='')}"
    return response


async def message_memories(visit: Visit) -> Response:
    """A piece of a page: the memories that came from a message."""
    request = history_service_pb2.ListMessageMemoriesRequest(
        session=visit.request.path_params["session"], message_id=visit.query("id"), page_size=50
    )
    answer = await visit.call(visit.stubs.history.ListMessageMemories, request)
    context = {"memories": answer.memories, "more": bool(answer.next_page_token)}
    return visit.render("message_memories.html", context)


async def commit(visit: Visit) -> Response:
    """Archives the live messages, and leads to the task that extracts them."""
    request = session_service_pb2.CommitSessionRequest(
        session=visit.request.path_params["session"], request_id=visit.field("request_id") or new_request_id()
    )
    answer = await visit.call(visit.stubs.sessions.CommitSession, request)
    if not answer.task_id:
        return visit.redirect(f"/sessions/{visit.request.path_params['session']}")
    return visit.redirect(f"/tasks/{answer.task_id}")


def archive_uri(session_uri: str, index: int) -> str:
    return f"{session_uri}/history/archive_{index:03d}"


async def archived_messages(visit: Visit, uri: str, most: int) -> list[common_pb2.Message]:
    """Returns the first messages of an archive."""
    found: list[common_pb2.Message] = []
    token = ""
    while len(found) < most:
        request = session_service_pb2.ListMessagesRequest(session=uri, page_size=LOOKED_THROUGH, page_token=token)
        page = await visit.call(visit.stubs.sessions.ListMessages, request)
        found += page.messages
        token = page.next_page_token
        if not token:
            break
    return found


async def _messages(visit: Visit, uri: str) -> tuple[Sequence[common_pb2.Message], int]:
    """Returns a page of messages of a session or an archive, and the position of the next page; 0: it is the last."""
    request = session_service_pb2.ListMessagesRequest(
        session=uri, page_size=MESSAGES, start_sequence=visit.number("from")
    )
    answer = await visit.call(visit.stubs.sessions.ListMessages, request)
    return answer.messages, answer.messages[-1].sequence + 1 if answer.next_page_token else 0


async def _sequence(visit: Visit, name: str, message_id: str) -> int:
    """Returns the position of a message. Raises NotFoundError."""
    request = session_service_pb2.ListMessagesRequest(
        session=name, scope=session_service_pb2.MESSAGE_SCOPE_ALL, page_size=LOOKED_THROUGH
    )
    async for page in visit.connection.pages(visit.stubs.sessions.ListMessages, request):
        for one in page.messages:
            if one.id == message_id:
                return int(one.sequence)
    raise NotFoundError(f"Message {message_id} of session {name} not found.", code="NOT_FOUND")


async def _archives(visit: Visit, name: str) -> list[session_service_pb2.Archive]:
    """Returns all archives of a session, newest first."""
    found: list[session_service_pb2.Archive] = []
    token = ""
    while True:
        request = session_service_pb2.ListArchivesRequest(session=name, page_size=200, page_token=token)
        page = await visit.call(visit.stubs.sessions.ListArchives, request)
        found += page.archives
        token = page.next_page_token
        if not token:
            return found
