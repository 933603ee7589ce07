"""The first page: what waits, what runs, what failed, and how much is remembered."""

import asyncio
from datetime import UTC

from starlette.responses import Response

from runekeep.studio.http.visit import Visit
from runekeep.studio.rendering.charts import bars
from runekeep.v1 import history_service_pb2, session_service_pb2, task_service_pb2

LISTED = 8
DAYS = 30
"""Days of the charts."""
_OPEN = (task_service_pb2.TASK_STATE_PENDING, task_service_pb2.TASK_STATE_RUNNING)
_STATES = (*_OPEN, task_service_pb2.TASK_STATE_FAILED)


async def overview(visit: Visit) -> Response:
    stubs = visit.stubs
    *tasks, sessions, revisions, usage, activity = await asyncio.gather(
        *(
            visit.call(stubs.tasks.ListTasks, task_service_pb2.ListTasksRequest(states=[state], page_size=LISTED))
            for state in _STATES
        ),
        visit.call(stubs.sessions.ListSessions, session_service_pb2.ListSessionsRequest(page_size=LISTED)),
        visit.call(stubs.history.ListRevisions, history_service_pb2.ListRevisionsRequest(page_size=LISTED)),
        visit.call(stubs.tasks.GetUsage, task_service_pb2.GetUsageRequest()),
        visit.call(stubs.history.GetActivity, history_service_pb2.GetActivityRequest(days=DAYS)),
    )
    waiting, running, failed = tasks
    days = [one.day.ToDatetime(UTC).date() for one in activity.days]
    context = {
        "queues": [("Waiting", waiting), ("Running", running), ("Failed", failed)],
        "sessions": sessions.sessions,
        "revisions": revisions.revisions,
        "usage": usage,
        "messages": bars(days, [one.messages for one in activity.days]),
        "changes": bars(days, [one.memory_versions for one in activity.days]),
        "incomplete": activity.incomplete,
    }
    return visit.render("overview.html", context)
