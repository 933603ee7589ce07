"""Token usage of models, summed by day (UTC), phase and model: per session, per user and per account.

Each sum has its own rows, so that reading one costs the same for any number of sessions and users. The cost of a
deleted session or user stays in the higher sums, which name neither. The sums change in the transaction that changes
the spending of a task (`runekeep_storage.jobs.tasks.spent`), by the same amount, so each attempt counts once.
"""

from collections.abc import Sequence
from typing import Any

from runekeep_common.times import DAY_US
from runekeep_storage.database import Space, Tx
from runekeep_storage.jobs import statements
from runekeep_storage.jobs.spending import COUNTERS, TOKENS
from runekeep_storage.jobs.task_sessions import has_session
from runekeep_storage.records import Task

MOST = 2**40
"""Maximum value of one counter in the report of an attempt: some million times the cost of an attempt. Millions of such
values fit into 64 bits, so no worker can make a sum overflow."""

Entries = Sequence[dict[str, Any]]
"""Entries for `runekeep_storage.jobs.spending.added`."""


def day_of(time: int) -> int:
    """Returns the days since 1970 (UTC) at a time in microseconds."""
    return time // DAY_US


async def count(tx: Tx, space: Space, task: Task, before: Entries, now: Entries) -> None:
    """Adds the reported spending of an attempt of the task: `now`, which replaces the earlier report `before`."""
    change = _change(before, now)
    if not change:
        return
    day = day_of(tx.now())
    # The cost of a refused output is reported after its attempt has ended, and the session may have been deleted.
    named = await has_session(tx, space, task)
    for (phase, model), counters in change.items():
        row = (space.account, space.user, day, phase, model, *counters)
        if named:
            await tx.execute(statements.ADD_USAGE_OF_SESSION, *row, task.session_id)
        else:
            await tx.execute(statements.ADD_USAGE, *row)
    await tx.execute(
        statements.ADD_SPENT_TOKENS,
        space.account,
        space.user,
        task.task_id,
        sum(sum(counters[-len(TOKENS) :]) for counters in change.values()),
    )


def _change(before: Entries, now: Entries) -> dict[tuple[str, str], list[int]]:
    """Returns by phase and model what to add to each of COUNTERS; omits those that do not change."""
    sums: dict[tuple[str, str], list[int]] = {}
    for sign, entries in ((1, now), (-1, before)):
        for entry in entries:
            counters = sums.setdefault((entry["phase"], entry["model"]), [0] * len(COUNTERS))
            for place, name in enumerate(COUNTERS):
                counters[place] += sign * min(max(entry[name], 0), MOST)
    return {key: counters for key, counters in sums.items() if any(counters)}


async def totals(tx: Tx, account: str, user: str, session_id: str, since: int) -> list[dict[str, Any]]:
    """Returns entries by phase and model from day `since` on, the costliest first. `session_id` empty: the total of the
    user, including deleted sessions; `user` empty: the total of the account."""
    rows = await tx.fetch(statements.USAGE, account, user, session_id, since)
    entries = [
        {"phase": row["phase"], "model": row["model"], **{name: int(row[name]) for name in COUNTERS}} for row in rows
    ]
    return sorted(entries, key=lambda one: (-tokens(one), -one["calls"], one["phase"], one["model"]))


async def spent_today(tx: Tx, account: str) -> int:
    """Returns the tokens that the account has spent in the current UTC day."""
    row = await tx.fetchrow(statements.TOKENS_OF_DAY, account, day_of(tx.now()))
    # A worker that corrects the previous day's report downwards makes today's sum negative.
    return max(int(row["spent"]), 0) if row else 0


def tokens(entry: dict[str, Any]) -> int:
    """Returns all tokens of an entry, input and output together."""
    return sum(entry[name] for name in TOKENS)
