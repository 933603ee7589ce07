"""Lists plans that are still open."""

import json
from dataclasses import dataclass
from typing import Final

from runekeep_schemas.memory_types.plans import PLANS, is_open
from runekeep_storage.database import Space, Tx
from runekeep_storage.memories import statements

MAX_READ: Final = 512
"""Maximum of plans that are read, open or not: the newest changed ones."""
MAX_BYTES: Final = 16 * 1024
"""Maximum size of a plan's fields and abstract. Longer plans are left out, so that a list takes at most 8 MiB."""


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """A plan, with the columns of a memory. `happened_at`: the beginning of the time when it is due;
    `runekeep_schemas.memory_types.plans.due` returns it with its precision."""

    uri: str
    fields: str
    abstract: str
    happened_at: int | None


async def open_plans(tx: Tx, space: Space, directory: str, limit: int) -> list[OpenPlan]:
    """Returns at most `limit` open plans of a directory, which ends in a slash: the first due first, then those without
    a date."""
    rows = await tx.fetch(statements.NEWEST_OF_TYPE, space.account, space.user, directory, PLANS, MAX_BYTES, MAX_READ)
    plans = [plan for row in rows if is_open(json.loads((plan := OpenPlan(**dict(row))).fields))]
    plans.sort(key=lambda plan: (plan.happened_at is None, plan.happened_at or 0, plan.uri))
    return plans[:limit]
