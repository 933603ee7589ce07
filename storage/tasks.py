"""Tasks and their numbered events: what a caller watches."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from schemas.token_usage import added
from storage.database import Row, Space, Topic, Tx
from storage.errors import NotFound
from storage.records import Task, TaskEvent
from storage.usage import count

_COLUMNS = (
    "task_id, kind, session_id, archive_index, turn_id, state, attempt, lost_leases, progress, result, error, usage,"
    " last_event, created_at, started_at, ended_at"
)

_KEYS = 64
_NEWEST_EVENTS = (
    "WITH k (account, user_id, task_id) AS (VALUES "
    + ", ".join(f"(${key}, ${key + 1}, ${key + 2})" for key in range(1, 3 * _KEYS, 3))
    + ") SELECT t.account, t.user_id, t.task_id, t.last_event"
    " FROM k JOIN tasks t ON t.account = k.account AND t.user_id = k.user_id AND t.task_id = k.task_id"
)
"""Last events of _KEYS tasks, each by its whole key."""


def _task(row: Row) -> Task:
    return Task(**dict(row))


async def create(
    tx: Tx, space: Space, task_id: str, kind: str, session_id: str, *, archive_index: int = 0, turn_id: str = ""
) -> None:
    await tx.execute(
        "INSERT INTO tasks (account, user_id, task_id, kind, session_id, archive_index, turn_id, state, last_event,"
        " created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', 1, $8)",
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
    """Raises NotFound."""
    row = await tx.fetchrow(
        f"SELECT {_COLUMNS} FROM tasks WHERE account = $1 AND user_id = $2 AND task_id = $3",
        space.account,
        space.user,
        task_id,
    )
    if row is None:
        raise NotFound("task", task_id)
    return _task(row)


async def page(
    tx: Tx, space: Space, session_id: str, states: Sequence[str], after: tuple[int, str] | None, limit: int
) -> list[Task]:
    """Newest first, after (created_at, task_id) of the page before; empty filters let everything pass."""
    created_at, task_id = after or (2**62, "")
    rows = await tx.fetch(
        f"SELECT {_COLUMNS} FROM tasks WHERE account = $1 AND user_id = $2"
        " AND ($3 = '' OR session_id = $3) AND ($4 = '' OR $4 LIKE '%,' || state || ',%')"
        " AND (created_at < $5 OR (created_at = $5 AND task_id > $6)) ORDER BY created_at DESC, task_id LIMIT $7",
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
    """The task and its events above sequence `after`, in order, on one snapshot. Raises NotFound."""
    task = await get(tx, space, task_id)
    rows = await tx.fetch(
        "SELECT sequence, attempt, kind, body, created_at FROM task_events"
        " WHERE account = $1 AND user_id = $2 AND task_id = $3 AND sequence > $4 ORDER BY sequence LIMIT $5",
        space.account,
        space.user,
        task_id,
        after,
        limit,
    )
    return task, [TaskEvent(**dict(row)) for row in rows]


async def newest_events(tx: Tx, keys: Collection[tuple[Space, str]]) -> dict[tuple[Space, str], int]:
    """Number of the newest event of each of the tasks (space, task_id) that are there, in few statements."""
    ordered = list(keys)
    found: dict[tuple[Space, str], int] = {}
    for start in range(0, len(ordered), _KEYS):
        # Filled up with the last one, so that the statement is the same for any number of tasks.
        chunk = (ordered[start : start + _KEYS] + ordered[-1:] * _KEYS)[:_KEYS]
        rows = await tx.fetch(
            _NEWEST_EVENTS, *(part for space, task_id in chunk for part in (space.account, space.user, task_id))
        )
        found |= {(Space(row["account"], row["user_id"]), row["task_id"]): row["last_event"] for row in rows}
    return found


async def add_event(tx: Tx, space: Space, task_id: str, kind: str, body: dict[str, Any]) -> None:
    """Gives the event the next number of its task."""
    await _change(tx, space, task_id, kind, body)


async def _change(
    tx: Tx, space: Space, task_id: str, kind: str, body: dict[str, Any], sets: str = "", *values: Any
) -> int:
    """Adds the event to the task, of which `sets`, from $4 on, changes columns with it; its attempt. Raises
    NotFound."""
    row = await tx.fetchrow(
        f"UPDATE tasks SET last_event = last_event + 1{sets} WHERE account = $1 AND user_id = $2 AND task_id = $3"
        " RETURNING last_event, attempt",
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
        "INSERT INTO task_events (account, user_id, task_id, sequence, attempt, kind, body, created_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
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
    """Moves the task to `state`, sets `columns` with it and tells those who watch."""
    sets = "".join(f", {name} = ${number}" for number, name in enumerate(columns, 5))
    await _change(tx, space, task_id, "state", {"state": state}, f", state = $4{sets}", state, *columns.values())


async def start(tx: Tx, space: Space, task_id: str) -> int:
    """Begins an attempt at the task, tells those who watch, and gives its number. Raises NotFound."""
    sets = (
        ", state = 'running', attempt = attempt + 1, progress = '',"
        " started_at = CASE WHEN started_at = 0 THEN $4 ELSE started_at END"
    )
    return await _change(tx, space, task_id, "state", {"state": "running"}, sets, tx.now())


async def spent(tx: Tx, space: Space, task_id: str, token: int, usage: Sequence[dict[str, Any]]) -> None:
    """Keeps what the attempt of that fencing token has spent so far, as entries that `token_usage.added` takes.

    Told again it takes the place of what was told before: a worker tells the whole of its attempt each time.
    """
    if not usage:
        return
    task = await get(tx, space, task_id)
    known = json.loads(task.usage) or {"earlier": [], "token": token, "attempt": []}
    await count(tx, space, task, known["attempt"] if token == known["token"] else [], usage)
    if token < known["token"]:
        # A later attempt has told of its own already.
        known["earlier"] = added([*known["earlier"], *usage])
    else:
        if token > known["token"]:
            known["earlier"] = added([*known["earlier"], *known["attempt"]])
        known |= {"token": token, "attempt": list(usage)}
    await tx.execute(
        "UPDATE tasks SET usage = $4 WHERE account = $1 AND user_id = $2 AND task_id = $3",
        space.account,
        space.user,
        task_id,
        json.dumps(known, ensure_ascii=False),
    )


async def set_progress(tx: Tx, space: Space, task_id: str, progress: dict[str, Any]) -> None:
    await _change(tx, space, task_id, "progress", progress, ", progress = $4", json.dumps(progress))
