"""Jobs about turns: the fingerprint of one, and a session's new fingerprints folded into its buckets.

A job that waits is given again in place of a second one: what it works on is read when it is claimed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from schemas.turns.fingerprint import Query
from storage import jobs, tasks
from storage.database import Row, Space, Tx
from storage.errors import BacklogFull, NotFound
from storage.records import Turn

AHEAD = 1000
"""Priority of fingerprint jobs: the next turn wants what they find out, and nobody waits for a commit."""


SELECTION, FEEDBACK, QUERIES = "extract_selection", "extract_feedback", "ctx_retrieval_queries"
"""Keys of a fingerprint job's plan. Each is present only if it is requested."""

TAKEN = "taken"
"""Key of a fingerprint job's plan: what its worker was offered, and under which lease."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Further work of a fingerprint job: select from what a reconciler is offered, to which `queries` add turns, and
    find the user's reactions to earlier turns."""

    selection: bool = False
    feedback: bool = False
    queries: Sequence[Query] = ()

    @property
    def is_wanted(self) -> bool:
        return self.selection or self.feedback

    def plan(self) -> dict[str, Any]:
        """Returns its keys of a job's plan. Unset ones are left out, so that plans without them do not change."""
        queries = [[one.where, one.query, one.reason] for one in self.queries]
        parts: dict[str, Any] = {SELECTION: self.selection, FEEDBACK: self.feedback, QUERIES: queries}
        return {name: part for name, part in parts.items() if part}


NO_RECONCILIATION = Reconciliation()


def reconciliation_of(plan: str) -> Reconciliation:
    """Reads the `Reconciliation` from the plan of a fingerprint job."""
    body = json.loads(plan)
    queries = tuple(Query(*one) for one in body.get(QUERIES, ()))
    return Reconciliation(body.get(SELECTION, False), body.get(FEEDBACK, False), queries)


def lane_of(turn: Turn) -> str:
    return lane(turn.session_id, turn.turn_id)


def lane(session_id: str, turn_id: str) -> str:
    """Turns go side by side. No id holds a colon, so that no two turns share a lane."""
    return f"turn:{session_id}:{turn_id}"


async def queue_fingerprint(
    tx: Tx,
    space: Space,
    turn: Turn,
    spec: str,
    traceparent: str,
    max_open: int,
    reconciliation: Reconciliation = NO_RECONCILIATION,
) -> str:
    """Has an extractor find out what the turn said, ahead of the account's commits; gives the id of the task.

    `spec`: what counts as an assistant signal, in words. If a job of the turn is already
    waiting, its task is returned, and the new work is added to it; a spec and queries that are not empty replace its
    own. Raises BacklogFull if the user has `max_open` such jobs open.
    """
    wanted = reconciliation.plan()
    waiting = await tx.fetchrow(
        "SELECT job_id, plan FROM jobs WHERE account = $1 AND user_id = $2 AND lane = $3 AND state = 'pending'"
        " ORDER BY lane_sequence LIMIT 1",
        space.account,
        space.user,
        lane_of(turn),
    )
    if waiting is None:
        return await _queue(
            tx,
            space,
            jobs.TURN_FINGERPRINT,
            lane=lane_of(turn),
            session_id=turn.session_id,
            turn_id=turn.turn_id,
            plan={"turn_id": turn.turn_id, "assistant_signal_spec": spec, **wanted},
            traceparent=traceparent,
            max_open=max_open,
            priority=AHEAD,
        )
    if spec:
        wanted["assistant_signal_spec"] = spec
    if wanted:
        await tx.execute(
            "UPDATE jobs SET plan = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3",
            space.account,
            space.user,
            waiting["job_id"],
            json.dumps({**json.loads(waiting["plan"]), **wanted}, ensure_ascii=False),
        )
    return str(waiting["job_id"])


async def forget_queries(tx: Tx, space: Space, job_id: str, plan: str) -> None:
    """Removes the queries from a fingerprint job's plan, because they quote messages."""
    body = json.loads(plan)
    if body.pop(QUERIES, None):
        await tx.execute(
            "UPDATE jobs SET plan = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3",
            space.account,
            space.user,
            job_id,
            json.dumps(body, ensure_ascii=False),
        )


async def forget_queries_of_session(tx: Tx, space: Space, session_id: str) -> None:
    """As `forget_queries`, for all jobs of the session, also those that ended."""
    for row in await planned(tx, space, session_id, QUERIES):
        await forget_queries(tx, space, row["job_id"], row["plan"])


async def planned(tx: Tx, space: Space, session_id: str, key: str) -> list[Row]:
    """`job_id` and `plan` of the session's fingerprint jobs whose plan has that key."""
    first = lane(session_id, "")
    return await tx.fetch(
        "SELECT job_id, plan FROM jobs WHERE account = $1 AND user_id = $2 AND lane >= $3 AND lane < $4"
        " AND plan LIKE $5",
        space.account,
        space.user,
        first,
        # The sign behind the colon: between the two are all turns of the session, in an index.
        f"{first[:-1]};",
        # Quotes within a text of the plan are escaped, so that none passes for a key.
        f'%"{key}": %',
    )


async def queue_reconcile(tx: Tx, space: Space, session_id: str, traceparent: str, max_open: int) -> str:
    """Has an extractor fold the session's new fingerprints into its buckets, in the lane of the user's commits; gives
    the id of the task, of one of the session that waits already if there is one, or "" when no fingerprint changed
    since the last time. Raises NotFound for the session, and BacklogFull when the user has `max_open` of them open.
    """
    session = await tx.fetchrow(
        "SELECT turn_version, covered_version FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    if session is None:
        raise NotFound("session", session_id)
    if session["turn_version"] <= session["covered_version"]:
        return ""
    # By the index of open jobs, which SQLite takes for its own condition alone.
    waiting = await tx.fetchrow(
        "SELECT job_id FROM jobs WHERE account = $1 AND user_id = $2 AND kind = $3 AND session_id = $4"
        " AND state IN ('pending', 'leased') AND state = 'pending' ORDER BY lane_sequence LIMIT 1",
        space.account,
        space.user,
        jobs.BUCKET_RECONCILE,
        session_id,
    )
    if waiting is not None:
        return str(waiting["job_id"])
    return await _queue(
        tx,
        space,
        jobs.BUCKET_RECONCILE,
        lane=jobs.COMMITS,
        session_id=session_id,
        plan={},
        traceparent=traceparent,
        max_open=max_open,
    )


async def _queue(
    tx: Tx,
    space: Space,
    kind: str,
    *,
    lane: str,
    session_id: str,
    plan: dict[str, Any],
    traceparent: str,
    max_open: int,
    turn_id: str = "",
    priority: int = 0,
) -> str:
    already = await jobs.open_jobs(tx, space, kind)
    if already >= max_open:
        raise BacklogFull(already)
    task_id = str(uuid4())
    await tasks.create(tx, space, task_id, kind, session_id, turn_id=turn_id)
    await jobs.enqueue(
        tx,
        space,
        task_id,
        kind=kind,
        lane=lane,
        session_id=session_id,
        archive_index=0,
        plan=json.dumps(plan, ensure_ascii=False),
        traceparent=traceparent,
        priority=priority,
    )
    return task_id
