"""Deletes tasks that ended long ago, with their events and jobs. Their results stay, and so do the commits."""

from runekeep_storage.database import Space, Tx
from runekeep_storage.jobs import statements
from runekeep_storage.jobs.extraction_records import KEPT
from runekeep_storage.tables import RECORDS, TABLES

BATCH = RECORDS // KEPT
"""Tasks that one transaction deletes. Few, because each may have KEPT records of attempts, which are large, and other
writers wait meanwhile."""


async def forget_ended(tx: Tx, keep: int) -> int:
    """Deletes tasks that ended more than `keep` microseconds ago, the oldest first and at most BATCH; returns how many.

    Runs over all accounts. A deleted job responds neither to a repeated output nor to a retry, so `keep` must be longer
    than callers may send either.
    """
    rows = await tx.fetch(statements.ENDED_TASKS, tx.now() - keep, BATCH)
    for row in rows:
        await forget_task(tx, Space(row["account"], row["user_id"]), row["task_id"])
    return len(rows)


async def forget_task(tx: Tx, space: Space, task_id: str) -> None:
    """Deletes a task with everything about it."""
    for table in TABLES:
        if table.task:
            await tx.execute(statements.delete_with_task(table), space.account, space.user, task_id)
