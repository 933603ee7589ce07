"""Removes from turn memory what came from erased messages. A turn that lost a message loses its fingerprint, reactions
and summary, and what was said in it about other turns. If a fingerprint was removed, the session also loses its buckets
and its selection, which contain fingerprints; the remaining ones are folded again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from runekeep_schemas.turns.fingerprint import Fingerprint
from runekeep_schemas.turns.stored import ACTIVE_SET, BUCKET, FINGERPRINT
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.erasure import statements
from runekeep_storage.erasure.derived_data import out_of_tasks
from runekeep_storage.jobs import jobs
from runekeep_storage.records import Job
from runekeep_storage.turns import feedback
from runekeep_storage.turns import jobs as turn_jobs
from runekeep_storage.turns.jobs import TAKEN, lane


@dataclass(frozen=True, slots=True)
class TakenTurns:
    """The number of turns without any message left, the number of deleted artifacts, the cancelled jobs, and the turns
    whose workers had been shown turns that lost messages."""

    turns: int
    artifacts: int
    cancelled: list[Job]
    later: list[str]


async def take_away(tx: Tx, space: Space, session_id: str, turn_ids: Sequence[str], reason: str) -> TakenTurns:
    """Removes what came from turns that have just lost messages. The rows of these messages no longer name the turn."""
    turns, artifacts, cancelled, texts = 0, list[Row](), list[Job](), list[str]()
    # The queries may quote any message of the session.
    await turn_jobs.forget_queries_of_session(tx, space, session_id)
    later = await _out_of_readers(tx, space, session_id, turn_ids)
    if turn_ids:
        artifacts += await feedback.said_in(tx, space, session_id, turn_ids)
    for turn_id in turn_ids:
        key = (space.account, space.user, session_id, turn_id)
        found = await tx.fetch(statements.ARTIFACTS_OF_TURN, *key, FINGERPRINT)
        artifacts += found
        texts += [row["text"] for row in found if row["kind"] == FINGERPRINT]
        there = await _shorten(tx, key)
        turns += not there
        cancelled += await _out_of_jobs(tx, space, session_id, turn_id, there, reason)
    if texts:
        artifacts += await tx.fetch(
            statements.ARTIFACTS_OF_KINDS, space.account, space.user, session_id, BUCKET, ACTIVE_SET
        )
        await _begin_anew(tx, space, session_id, texts)
    for row in artifacts:
        for table in ("turn_tags", "turn_artifacts"):
            await tx.execute(
                statements.delete_artifact(table),
                space.account,
                space.user,
                session_id,
                row["sequence"],
                row["kind"],
                row["name"],
            )
    taken = {(row["kind"], row["name"]) for row in artifacts}
    return TakenTurns(turns, len(taken), cancelled, later)


async def _out_of_readers(tx: Tx, space: Space, session_id: str, turn_ids: Sequence[str]) -> list[str]:
    """Deletes the records of attempts whose workers were shown one of the turns: attempts at the turns that followed,
    which it returns, and at commits that archived a part of one."""
    later, tasks = dict[str, None](), dict[str, None]()
    for turn_id in turn_ids:
        key = (space.account, space.user, session_id)
        turn = await tx.fetchrow(statements.RANGE_OF_TURN, *key, turn_id)
        if turn is None:
            continue
        rows = await tx.fetch(statements.TURNS_AFTER, *key, turn["sequence"])
        later |= dict.fromkeys(row["turn_id"] for row in rows)
        rows = await tx.fetch(statements.TASKS_BETWEEN, *key, turn["sequence"], turn["last_sequence"])
        tasks |= dict.fromkeys(row["task_id"] for row in rows)
    for some in filled(lane(session_id, turn_id) for turn_id in later):
        rows = await tx.fetch(statements.JOBS_OF_LANES, space.account, space.user, *some)
        tasks |= dict.fromkeys(row["job_id"] for row in rows)
    if turn_ids:
        # Workers that were shown a context saw turns of any age.
        rows = await turn_jobs.planned(tx, space, session_id, TAKEN)
        later |= dict.fromkeys(json.loads(row["plan"])["turn_id"] for row in rows)
        tasks |= dict.fromkeys(row["job_id"] for row in rows)
    await out_of_tasks(tx, space, tasks)
    return list(later)


async def _shorten(tx: Tx, key: tuple[str, str, str, str]) -> bool:
    """Limits the turn to its remaining messages. Returns whether there are any."""
    first = await tx.fetchrow(statements.FIRST_OF_TURN, *key)
    last = await tx.fetchrow(statements.LAST_OF_TURN, *key)
    if first is None or last is None:
        await tx.execute(statements.DELETE_TURN, *key)
        return False
    ends = (first["sequence"], first["created_at"], last["sequence"], last["created_at"])
    await tx.execute(statements.SHORTEN_TURN, *key, *ends)
    return True


async def _out_of_jobs(tx: Tx, space: Space, session_id: str, turn_id: str, there: bool, reason: str) -> list[Job]:
    """Cancels the jobs about a turn that is gone and returns them; jobs about a turn that is shorter now start again by
    themselves."""
    rows = await tx.fetch(statements.JOBS_OF_LANE, space.account, space.user, lane(session_id, turn_id))
    cancelled = [
        await jobs.cancel(tx, space, row["job_id"], reason)
        for row in rows
        if not there and row["state"] in ("pending", "leased")
    ]
    await out_of_tasks(tx, space, [row["job_id"] for row in rows])
    return cancelled


async def _begin_anew(tx: Tx, space: Space, session_id: str, texts: Sequence[str]) -> None:
    """Resets the session so that none of its fingerprints counts as folded; a title that came from one of these is
    removed."""
    key = (space.account, space.user, session_id)
    await tx.execute(statements.RESET_COVERAGE, *key)
    for title in {Fingerprint.from_text(text).conversation_title for text in texts} - {""}:
        await tx.execute(statements.DELETE_TITLE, *key, title)
    rows = await tx.fetch(statements.TASKS_OF_KIND, *key, jobs.BUCKET_RECONCILE)
    await out_of_tasks(tx, space, [row["task_id"] for row in rows])
