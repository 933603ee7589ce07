"""Whether what a task is about is still there: what it told of itself goes with its session."""

from storage.database import Space, Tx
from storage.records import Task


async def has_session(tx: Tx, space: Space, task: Task) -> bool:
    """Whether the task's session is there. A session made anew under its name has other archives, whose commits have
    tasks of their own, and is younger than a task about turns."""
    if task.archive_index:
        row = await tx.fetchrow(
            "SELECT 1 FROM archives WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4"
            " AND task_id = $5",
            space.account,
            space.user,
            task.session_id,
            task.archive_index,
            task.task_id,
        )
    else:
        row = await tx.fetchrow(
            "SELECT 1 FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3 AND created_at <= $4",
            space.account,
            space.user,
            task.session_id,
            task.created_at,
        )
    return row is not None
