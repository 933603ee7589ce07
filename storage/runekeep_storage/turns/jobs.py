"""Jobs about turns: extracting the fingerprint of a turn, and merging a session's new fingerprints into its buckets.

A second request returns the job that is still pending, because a job reads its input when it is claimed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from runekeep_schemas.turns.fingerprint import Query
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.errors import BacklogFull, NotFound
from runekeep_storage.jobs import jobs, tasks
from runekeep_storage.records import Turn
from runekeep_storage.turns import statements

AHEAD = 1000
"""Priority of fingerprint jobs: the next turn needs their results, while no caller waits for a commit."""


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
    """Returns the lane of a turn, so that turns run in parallel. No id contains a colon, so two turns never share a
    lane."""
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
    """Queues the extraction of a turn's fingerprint, ahead of the account's commits; returns the task id.

    `spec`: describes in words what counts as an assistant signal. If a job of the turn is still pending, returns its
    task and adds the new work to it; a spec and queries that are not empty replace its own. Raises BacklogFull if the
    user has `max_open` such jobs open.
    """
    wanted = reconciliation.plan()
    waiting = await tx.fetchrow(statements.PENDING_JOB_OF_LANE, space.account, space.user, lane_of(turn))
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
            statements.SET_PLAN,
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
        await tx.execute(statements.SET_PLAN, space.account, space.user, job_id, json.dumps(body, ensure_ascii=False))


async def forget_queries_of_session(tx: Tx, space: Space, session_id: str) -> None:
    """Like `forget_queries`, for all jobs of the session, also those that ended."""
    for row in await planned(tx, space, session_id, QUERIES):
        await forget_queries(tx, space, row["job_id"], row["plan"])


async def planned(tx: Tx, space: Space, session_id: str, key: str) -> list[Row]:
    """Returns `job_id` and `plan` of the session's fingerprint jobs whose plan has that key."""
    first = lane(session_id, "")
    return await tx.fetch(
        statements.PLANS_LIKE,
        space.account,
        space.user,
        first,
        # The semicolon follows the colon: all turns of the session lie between the two, in an index.
        f"{first[:-1]};",
        # Quotes within texts of the plan are escaped, so that no text matches as a key.
        f'%"{key}": %',
    )


async def queue_reconcile(tx: Tx, space: Space, session_id: str, traceparent: str, max_open: int) -> str:
    """Queues the merge of the session's new fingerprints into its buckets, in the lane of the user's commits. Returns
    the task id, that of the session's pending job if there is one, or "" if no fingerprint changed since the last
    merge. Raises NotFound for the session, and BacklogFull if the user has `max_open` such jobs open."""
    session = await tx.fetchrow(statements.VERSIONS_OF_FINGERPRINTS, space.account, space.user, session_id)
    if session is None:
        raise NotFound("session", session_id)
    if session["turn_version"] <= session["covered_version"]:
        return ""
    waiting = await tx.fetchrow(
        statements.PENDING_JOB_OF_SESSION,
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
