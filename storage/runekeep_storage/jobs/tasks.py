"""Tasks and their numbered events, which callers watch."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from runekeep_storage.database import Row, Space, Topic, Tx
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.errors import NotFound
from runekeep_storage.jobs import statements
from runekeep_storage.jobs.spending import added
from runekeep_storage.jobs.token_usage import count
from runekeep_storage.records import Task, TaskEvent


def _task(row: Row) -> Task:
    return Task(**dict(row))


async def create(
    tx: Tx, space: Space, task_id: str, kind: str, session_id: str, *, archive_index: int = 0, turn_id: str = ""
) -> None:
    await tx.execute(
        statements.ADD_TASK,
        space.account,
        space.user,
        task_id,
        kind,
        session_id,
        archive_index,
        turn_id,
        tx.now(),
    )
    await _keep_event(tx, space, task_id, 1, 0, "state", {"state": "pending"})


async def get(tx: Tx, space: Space, task_id: str) -> Task:
    """Returns a task. Raises NotFound."""
    row = await tx.fetchrow(statements.TASK, space.account, space.user, task_id)
    if row is None:
        raise NotFound("task", task_id)
    return _task(row)


async def page(
    tx: Tx, space: Space, session_id: str, states: Sequence[str], after: tuple[int, str] | None, limit: int
) -> list[Task]:
    """Returns tasks, newest first, after (created_at, task_id) of the previous page; empty filters match all."""
    created_at, task_id = after or (2**62, "")
    rows = await tx.fetch(
        statements.TASKS,
        space.account,
        space.user,
        session_id,
        f",{','.join(states)}," if states else "",
        created_at,
        task_id,
        limit,
    )
    return [_task(row) for row in rows]


async def events_after(
    tx: Tx, space: Space, task_id: str, after: int, limit: int = 1000
) -> tuple[Task, list[TaskEvent]]:
    """Returns the task and its events above sequence `after`, in order, on one snapshot. Raises NotFound."""
    task = await get(tx, space, task_id)
    rows = await tx.fetch(statements.EVENTS_AFTER, space.account, space.user, task_id, after, limit)
    return task, [TaskEvent(**dict(row)) for row in rows]


async def newest_events(tx: Tx, keys: Collection[tuple[Space, str]]) -> dict[tuple[Space, str], int]:
    """Returns the number of the newest event of each existing task (space, task_id), in few statements."""
    found: dict[tuple[Space, str], int] = {}
    for chunk in filled(keys, statements.NEWEST_EVENTS_TASKS):
        rows = await tx.fetch(
            statements.NEWEST_EVENTS,
            *(part for space, task_id in chunk for part in (space.account, space.user, task_id)),
        )
        found |= {(Space(row["account"], row["user_id"]), row["task_id"]): row["last_event"] for row in rows}
    return found


async def add_event(tx: Tx, space: Space, task_id: str, kind: str, body: dict[str, Any]) -> None:
    """Adds an event with the next number of the task."""
    await _change(tx, space, task_id, kind, body, statements.ADD_TASK_EVENT)


async def _change(
    tx: Tx, space: Space, task_id: str, kind: str, body: dict[str, Any], statement: str, *values: Any
) -> int:
    """Changes the task by a statement of `statements.change_task`, whose own parameters are `values`, and adds the
    event; returns the task's attempt. Raises NotFound."""
    row = await tx.fetchrow(
        statement,
        space.account,
        space.user,
        task_id,
        *values,
    )
    if row is None:
        raise NotFound("task", task_id)
    await _keep_event(tx, space, task_id, row["last_event"], row["attempt"], kind, body)
    return int(row["attempt"])


async def _keep_event(
    tx: Tx, space: Space, task_id: str, number: int, attempt: int, kind: str, body: dict[str, Any]
) -> None:
    await tx.execute(
        statements.STORE_EVENT,
        space.account,
        space.user,
        task_id,
        number,
        attempt,
        kind,
        json.dumps(body, ensure_ascii=False),
        tx.now(),
    )
    tx.notify(Topic.TASK, f"{task_id} {number}")


async def set_state(tx: Tx, space: Space, task_id: str, state: str, **columns: Any) -> None:
    """Moves the task to `state`, sets `columns` with it and notifies watchers."""
    statement = statements.set_task_state(columns)
    await _change(tx, space, task_id, "state", {"state": state}, statement, state, *columns.values())


async def start(tx: Tx, space: Space, task_id: str) -> int:
    """Starts an attempt of the task, notifies watchers, and returns the attempt's number. Raises NotFound."""
    return await _change(tx, space, task_id, "state", {"state": "running"}, statements.START_TASK, tx.now())


async def spent(tx: Tx, space: Space, task_id: str, token: int, usage: Sequence[dict[str, Any]]) -> None:
    """Stores what the attempt of that fencing token has spent so far, as entries that
    `runekeep_storage.jobs.spending.added` takes.

    A new report replaces the earlier one: each time a worker reports the total of its attempt.
    """
    if not usage:
        return
    task = await get(tx, space, task_id)
    known = json.loads(task.usage) or {"earlier": [], "token": token, "attempt": []}
    await count(tx, space, task, known["attempt"] if token == known["token"] else [], usage)
    if token < known["token"]:
        # A later attempt has already reported.
        known["earlier"] = added([*known["earlier"], *usage])
    else:
        if token > known["token"]:
            known["earlier"] = added([*known["earlier"], *known["attempt"]])
        known |= {"token": token, "attempt": list(usage)}
    await tx.execute(statements.SET_USAGE, space.account, space.user, task_id, json.dumps(known, ensure_ascii=False))


async def set_progress(tx: Tx, space: Space, task_id: str, progress: dict[str, Any]) -> None:
    await _change(tx, space, task_id, "progress", progress, statements.SET_PROGRESS, json.dumps(progress))
