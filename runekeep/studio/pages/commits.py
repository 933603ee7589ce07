"""What a commit changed: before and after side by side, and the messages that each change came from."""

import asyncio

from starlette.responses import Response

from runekeep.studio.http.visit import Visit
from runekeep.studio.pages.sessions import archive_uri, archived_messages
from runekeep.v1 import session_service_pb2

CHANGES = 20
NAMED_MESSAGES = 1000
"""Of the archive: so many are looked through for the texts beside the changes."""


async def commit(visit: Visit) -> Response:
    name, index = visit.request.path_params["session"], visit.request.path_params["index"]
    found = await visit.call(visit.stubs.sessions.GetSession, session_service_pb2.GetSessionRequest(session=name))
    uri = archive_uri(found.session.uri, index)
    request = session_service_pb2.GetMemoryDiffRequest(
        archive_uri=uri, page_size=CHANGES, page_token=visit.query("page")
    )
    answer, messages = await asyncio.gather(
        visit.call(visit.stubs.sessions.GetMemoryDiff, request), archived_messages(visit, uri, NAMED_MESSAGES)
    )
    context = {
        "session": found.session,
        "index": index,
        "diff": answer.diff,
        "next": answer.next_page_token,
        "messages": {message.id: message for message in messages},
    }
    return visit.render("commit.html", context)
