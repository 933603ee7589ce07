"""Checks whether the session of a task still exists: what a task stores about its content is deleted with the
session."""

from runekeep_storage.database import Space, Tx
from runekeep_storage.jobs import statements
from runekeep_storage.records import Task


async def has_session(tx: Tx, space: Space, task: Task) -> bool:
    """Returns whether the task's session exists. A recreated session of the same name does not count: it has other
    archives, whose commits have their own tasks, and it is younger than a task about turns."""
    if task.archive_index:
        row = await tx.fetchrow(
            statements.HAS_ARCHIVE,
            space.account,
            space.user,
            task.session_id,
            task.archive_index,
            task.task_id,
        )
    else:
        row = await tx.fetchrow(statements.HAS_SESSION, space.account, space.user, task.session_id, task.created_at)
    return row is not None
