"""What models cost, summed by day (UTC), phase and model: of each session, of each user, of each account.

Each sum is rows of its own, so that reading one costs the same however many sessions and users there are, and so that
what a deleted session or user cost stays in the sums above, which name neither. They change in the transaction that
changes what a task says it spent (`storage.tasks.spent`), by the same amount, and so count each attempt once.
"""

from collections.abc import Sequence
from typing import Any

from schemas.token_usage import COUNTERS, TOKENS
from storage.database import Space, Tx
from storage.records import Task
from storage.task_sessions import has_session

DAY = 86_400 * 1_000_000
"""Microseconds."""
MOST = 2**40
"""Of one counter in what one attempt tells: some million times what an attempt costs. Millions of such sums fit 64
bits, so that no worker can tell a number that brings a sum to overflow."""

Entries = Sequence[dict[str, Any]]
"""As `schemas.token_usage.added` takes them."""

_KEY = ("account", "user_id", "session_id", "day", "phase", "model")
_VALUES = ", ".join(f"${number}" for number in range(3, 6 + len(COUNTERS)))
_SESSION = f"${6 + len(COUNTERS)}"
_COUNT = (
    f"INSERT INTO usage_totals ({', '.join((*_KEY, *COUNTERS))})"
    f" VALUES ($1, '', '', {_VALUES}), ($1, $2, '', {_VALUES}){{session}} ON CONFLICT ({', '.join(_KEY)})"
    f" DO UPDATE SET {', '.join(f'{name} = usage_totals.{name} + excluded.{name}' for name in COUNTERS)}"
)
_COUNT_OF_SESSION = _COUNT.format(session=f", ($1, $2, {_SESSION}, {_VALUES})")
_COUNT_OF_NONE = _COUNT.format(session="")


def day_of(time: int) -> int:
    """Days since 1970 (UTC) at a time in microseconds."""
    return time // DAY


async def count(tx: Tx, space: Space, task: Task, before: Entries, now: Entries) -> None:
    """Adds what an attempt at the task has told that it spent: `now`, in place of what it told `before`."""
    change = _change(before, now)
    if not change:
        return
    day = day_of(tx.now())
    # What a refused output cost is told after its attempt has ended, and its session may be gone.
    named = await has_session(tx, space, task)
    for (phase, model), counters in change.items():
        row = (space.account, space.user, day, phase, model, *counters)
        if named:
            await tx.execute(_COUNT_OF_SESSION, *row, task.session_id)
        else:
            await tx.execute(_COUNT_OF_NONE, *row)
    await tx.execute(
        "UPDATE jobs SET tokens_spent = tokens_spent + $4 WHERE account = $1 AND user_id = $2 AND job_id = $3",
        space.account,
        space.user,
        task.task_id,
        sum(sum(counters[-len(TOKENS) :]) for counters in change.values()),
    )


def _change(before: Entries, now: Entries) -> dict[tuple[str, str], list[int]]:
    """By phase and model, what is to be added to each of COUNTERS; nothing for those that stay as they are."""
    sums: dict[tuple[str, str], list[int]] = {}
    for sign, entries in ((1, now), (-1, before)):
        for entry in entries:
            counters = sums.setdefault((entry["phase"], entry["model"]), [0] * len(COUNTERS))
            for place, name in enumerate(COUNTERS):
                counters[place] += sign * min(max(entry[name], 0), MOST)
    return {key: counters for key, counters in sums.items() if any(counters)}


async def totals(tx: Tx, account: str, user: str, session_id: str, since: int) -> list[dict[str, Any]]:
    """Entries by phase and model from a day on, the costliest first. `session_id` empty: all that the user cost, those
    that are deleted among them; `user` empty: all that the account cost."""
    rows = await tx.fetch(
        f"SELECT phase, model, {', '.join(f'SUM({name}) AS {name}' for name in COUNTERS)} FROM usage_totals"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND day >= $4 GROUP BY phase, model",
        account,
        user,
        session_id,
        since,
    )
    entries = [
        {"phase": row["phase"], "model": row["model"], **{name: int(row[name]) for name in COUNTERS}} for row in rows
    ]
    return sorted(entries, key=lambda one: (-tokens(one), -one["calls"], one["phase"], one["model"]))


async def spent_today(tx: Tx, account: str) -> int:
    """Tokens that the account spent in the present UTC day."""
    row = await tx.fetchrow(
        f"SELECT COALESCE(SUM({' + '.join(TOKENS)}), 0) AS spent FROM usage_totals"
        " WHERE account = $1 AND user_id = '' AND session_id = '' AND day = $2",
        account,
        day_of(tx.now()),
    )
    # A worker that takes back on one day what it told the day before leaves less than nothing.
    return max(int(row["spent"]), 0) if row else 0


def tokens(entry: dict[str, Any]) -> int:
    """All tokens of an entry, input and output together."""
    return sum(entry[name] for name in TOKENS)
