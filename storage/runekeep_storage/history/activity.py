"""Counts what each of the last days brought."""

from dataclasses import dataclass

from runekeep_common.times import DAY_US
from runekeep_storage.database import Space, Tx
from runekeep_storage.history import statements
from runekeep_storage.history.statements import MAX_COUNTED
from runekeep_storage.spaces import spaces


@dataclass(frozen=True, slots=True)
class Day:
    """`start`: in microseconds since 1970; `messages` that arrived, and `versions` of memories that were written."""

    start: int
    messages: int
    versions: int


async def of_days(tx: Tx, space: Space, count: int) -> tuple[list[Day], bool]:
    """Returns the last `count` days in UTC, oldest first, today included, and whether there may be more messages or
    versions than were counted."""
    today = tx.now() // DAY_US
    first = today - count + 1
    start = first * DAY_US
    before = await spaces.revision_at(tx, space, start - 1)
    messages, versions = (
        {row["day"]: row["number"] for row in rows}
        for rows in (
            await tx.fetch(statements.MESSAGES_BY_DAY, space.account, space.user, start),
            await tx.fetch(statements.VERSIONS_BY_DAY, space.account, space.user, before, start),
        )
    )
    days = [Day(day * DAY_US, messages.get(day, 0), versions.get(day, 0)) for day in range(first, today + 1)]
    return days, MAX_COUNTED in (sum(messages.values()), sum(versions.values()))
