"""Tasks that ended long ago are taken away with their events and jobs; what they made stays, and so do the commits."""

from storage.database import Tx
from storage.extraction_records import KEPT
from storage.leftovers import RECORDS

BATCH = RECORDS // KEPT
"""Tasks that one transaction takes away. Few: each may have KEPT records of attempts, which are long, and a writer
waits behind them."""

_ROWS = (("extraction_records", "task_id"), ("task_events", "task_id"), ("jobs", "job_id"), ("tasks", "task_id"))


async def forget_ended(tx: Tx, keep: int) -> int:
    """Drops tasks that ended more than `keep` microseconds ago, the oldest first and at most BATCH; returns how many.

    Chooses over all accounts, as the sweep that it is. A job that is gone answers neither a repeated output nor a
    retry: `keep` is to be longer than anybody still asks for either.
    """
    rows = await tx.fetch(
        "SELECT account, user_id, task_id FROM tasks WHERE ended_at > 0 AND ended_at < $1 ORDER BY ended_at LIMIT $2",
        tx.now() - keep,
        BATCH,
    )
    for row in rows:
        for table, key in _ROWS:
            await tx.execute(
                f"DELETE FROM {table} WHERE account = $1 AND user_id = $2 AND {key} = $3",
                row["account"],
                row["user_id"],
                row["task_id"],
            )
    return len(rows)
