"""The first page: what waits, what runs, what failed, and how much is remembered."""

import asyncio

from starlette.responses import Response

from runekeep.studio.http.visit import Visit
from runekeep.studio.rendering.charts import bars_by_day
from runekeep.v1 import history_service_pb2, session_service_pb2, task_service_pb2

LISTED = 8
COUNTED = 200
"""The newest revisions and sessions, which the charts count."""
_OPEN = (task_service_pb2.TASK_STATE_PENDING, task_service_pb2.TASK_STATE_RUNNING)
_STATES = (*_OPEN, task_service_pb2.TASK_STATE_FAILED)


async def overview(visit: Visit) -> Response:
    stubs = visit.stubs
    *tasks, sessions, revisions, usage = await asyncio.gather(
        *(
            visit.call(stubs.tasks.ListTasks, task_service_pb2.ListTasksRequest(states=[state], page_size=LISTED))
            for state in _STATES
        ),
        visit.call(stubs.sessions.ListSessions, session_service_pb2.ListSessionsRequest(page_size=COUNTED)),
        visit.call(stubs.history.ListRevisions, history_service_pb2.ListRevisionsRequest(page_size=COUNTED)),
        visit.call(stubs.tasks.GetUsage, task_service_pb2.GetUsageRequest()),
    )
    waiting, running, failed = tasks
    context = {
        "queues": [("Waiting", waiting), ("Running", running), ("Failed", failed)],
        "sessions": sessions.sessions[:LISTED],
        "more_sessions": bool(sessions.next_page_token),
        "revisions": revisions.revisions[:LISTED],
        "usage": usage,
        "messages": bars_by_day((one.update_time, one.message_count) for one in sessions.sessions),
        "changes": bars_by_day((one.create_time, one.adds + one.updates + one.deletes) for one in revisions.revisions),
        "counted": COUNTED,
    }
    return visit.render("overview.html", context)
