"""The SQL statements of jobs, tasks, token usage and workers, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from collections.abc import Iterable
from functools import cache
from typing import Final

from runekeep_storage.drivers.common.statement_lists import by_keys, places, rows
from runekeep_storage.jobs.spending import COUNTERS, TOKENS
from runekeep_storage.tables import Table

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # The server's own loops: claims are fair between accounts, and leases, waits and tasks end in all of them.
        "next_account",
        "WAKE_HEADS",
        "EXPIRED_LEASES",
        "END_WAIT",
        "ENDED_TASKS",
        "ASKS",
        # Each by its whole key: a server polls the tasks that its callers watch.
        "NEWEST_EVENTS",
        # A worker names a job, not its user, and may hold a limited number of leases in all accounts together.
        "JOB",
        "LEASES_OF_PRINCIPAL",
        "LEASES_OF_WORKER",
        # A figure of the whole store, without any text.
        "QUEUE",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""

JOB_COLUMNS: Final = (
    'account, user_id AS "user", job_id, kind, session_id, archive_index, plan, traceparent, state, attempts,'
    " lost_leases, conflicts, lease_epoch AS token, lease_expires, attempt_ends, worker_id, output_id, revision,"
    " failures, created_at, started, token_budget, bound_epoch AS bound_token, lease_holder AS holder,"
    " lease_digest AS digest, lost_by"
)
"""The columns that `jobs.job_of` reads."""
TASK_COLUMNS: Final = (
    "task_id, kind, session_id, archive_index, turn_id, state, attempt, lost_leases, progress, result, error, usage,"
    " last_event, created_at, started_at, ended_at"
)
"""The columns of `records.Task`."""
WORKER_COLUMNS: Final = "holder, worker_id, lost, pauses, paused_until, worked_at, accounts"
"""The columns that `worker_records` reads."""

# Jobs and their lanes


def _lane_is_free(lane: str) -> str:
    """Returns SQL for whether a job that joins the lane becomes head and ready at once: the lane has no head."""
    return (
        "CASE WHEN EXISTS (SELECT 1 FROM jobs h"
        f" WHERE h.account = $1 AND h.user_id = $2 AND h.lane = {lane} AND h.is_head = 1) THEN 0 ELSE 1 END"
    )


def _lane_end(lane: str) -> str:
    """Returns SQL for the place of a job that joins the lane."""
    return (
        "1 + (SELECT COALESCE(MAX(o.lane_sequence), 0) FROM jobs o"
        f" WHERE o.account = $1 AND o.user_id = $2 AND o.lane = {lane})"
    )


ADD_JOB = (
    "INSERT INTO jobs (account, user_id, job_id, kind, lane, session_id, archive_index, plan, traceparent,"
    " priority, state, created_at, is_head, is_ready, lane_sequence)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', $11,"
    f" {_lane_is_free('$5')}, {_lane_is_free('$5')}, {_lane_end('$5')}) RETURNING is_ready"
)
"""Adds a job at the end of its lane, as its head if the lane is free."""

REVIVE_JOB = (
    f"UPDATE jobs SET state = 'pending', is_head = {_lane_is_free('$4')},"
    f" is_ready = {_lane_is_free('$4')}, lane_sequence = {_lane_end('$4')}"
    " WHERE account = $1 AND user_id = $2 AND job_id = $3 RETURNING is_ready"
)
"""Makes an ended job pending again, at the end of its lane."""

RESET_JOB = (
    "UPDATE jobs SET attempts = 0, lost_leases = 0, lost_by = '', conflicts = 0, tokens_spent = 0, not_before = 0,"
    " created_at = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3"
)
"""Sets the counters of a job that is retried to 0."""

JOB = f"SELECT {JOB_COLUMNS} FROM jobs WHERE job_id = $1"
"""Reads a job by its id alone."""

LANE_OF_JOB = "SELECT lane FROM jobs WHERE account = $1 AND user_id = $2 AND job_id = $3"
"""Reads the lane of a job."""

COUNT_OPEN_JOBS = (
    "SELECT COUNT(*) AS n FROM jobs WHERE account = $1 AND user_id = $2 AND state IN ('pending', 'leased')"
    " AND kind = $3"
)
"""Counts the open jobs of one kind of a user."""

OPEN_JOBS = (
    "SELECT job_id FROM jobs WHERE account = $1 AND user_id = $2 AND ($3 = '' OR session_id = $3)"
    " AND state IN ('pending', 'leased')"
)
"""Reads the ids of the open jobs of a user, or of one session."""

REQUEUE_JOB = (
    "UPDATE jobs SET state = 'pending', lease_epoch = lease_epoch + 1, worker_id = '', not_before = $4,"
    " attempts = $5, lost_leases = $6, conflicts = $7, failures = $8, is_ready = $9, lost_by = $10"
    " WHERE account = $1 AND user_id = $2 AND job_id = $3"
)
"""Ends an attempt, which takes the lease away, and makes its job wait."""

END_WAIT = (
    "UPDATE jobs SET not_before = $1 WHERE job_id IN (SELECT job_id FROM jobs"
    "   WHERE is_head = 1 AND is_ready = 0 AND state = 'pending' AND not_before > $1 AND failures LIKE $2 LIMIT $3)"
    " RETURNING job_id"
)
"""Makes jobs due that wait because a part was unavailable."""


def end_job(columns: Iterable[str]) -> str:
    """Ends a job, which takes its lease away, and sets more columns, whose parameters start at $5."""
    sets = "".join(f", {name} = ${number}" for number, name in enumerate(columns, 5))
    return (
        f"UPDATE jobs SET state = $4, is_head = 0, is_ready = 0, lease_epoch = lease_epoch + 1{sets}"
        " WHERE account = $1 AND user_id = $2 AND job_id = $3"
    )


PROMOTE_NEXT_JOB = (
    "UPDATE jobs SET is_head = 1, is_ready = 1 WHERE account = $1 AND user_id = $2 AND job_id = ("
    " SELECT n.job_id FROM jobs n WHERE n.account = $1 AND n.user_id = $2 AND n.state = 'pending' AND n.lane = ("
    "   SELECT d.lane FROM jobs d WHERE d.account = $1 AND d.user_id = $2 AND d.job_id = $3)"
    " ORDER BY n.lane_sequence LIMIT 1)"
    " AND NOT EXISTS (SELECT 1 FROM jobs h WHERE h.account = $1 AND h.user_id = $2 AND h.is_head = 1"
    "   AND h.lane = (SELECT d.lane FROM jobs d WHERE d.account = $1 AND d.user_id = $2 AND d.job_id = $3))"
    " RETURNING job_id"
)
"""Makes the next pending job of an ended job's lane its head, unless the lane has one."""

SET_ARCHIVE_STATE = (
    "UPDATE archives SET state = $5"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4 AND task_id = $6"
)
"""Sets the state of the archive of a commit."""

STORE_REPAIR = "UPDATE jobs SET repair = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3"
"""Stores which parts of an output were refused."""

REPAIR = "SELECT repair FROM jobs WHERE account = $1 AND user_id = $2 AND job_id = $3"
"""Reads which parts of an output were refused."""

ADD_SPENT_TOKENS = (
    "UPDATE jobs SET tokens_spent = tokens_spent + $4 WHERE account = $1 AND user_id = $2 AND job_id = $3"
)
"""Adds tokens to what a job has spent."""

# Claims and leases


@cache
def next_account(accounts: int, without_kind: bool) -> str:
    """Reads the account whose turn it is, and whether some head's wait is over. $1 is the time. Chooses among the
    `accounts` from $2 on, if there are any. `without_kind`: chooses among accounts with a ready job of another kind
    than the last parameter."""
    mine = f" AND account IN ({places(2, accounts)})" if accounts else ""
    if without_kind:
        mine += (
            " AND EXISTS (SELECT 1 FROM jobs j"
            f" WHERE j.account = accounts.account AND j.is_ready = 1 AND j.kind <> ${2 + accounts})"
        )
    return (
        "SELECT d.due, a.account, a.vtime, a.weight, a.ahead, (SELECT MAX(vstart) FROM accounts) AS reached,"
        " (SELECT l.daily_tokens FROM account_limits l WHERE l.account = a.account) AS daily_tokens"
        " FROM (SELECT EXISTS (SELECT 1 FROM jobs"
        "   WHERE is_head = 1 AND is_ready = 0 AND state = 'pending' AND not_before <= $1) AS due) d"
        " LEFT JOIN (SELECT account, vtime, weight, ahead FROM accounts"
        f"   WHERE ready_jobs > 0 AND held_until <= $1{mine}"
        "   ORDER BY vtime, account LIMIT 1) a ON 1 = 1"
    )


WAKE_HEADS = (
    "UPDATE jobs SET is_ready = 1 WHERE job_id IN (SELECT job_id FROM jobs"
    "   WHERE is_head = 1 AND is_ready = 0 AND state = 'pending' AND not_before <= $1"
    "   ORDER BY not_before LIMIT $2)"
    " RETURNING account"
)
"""Makes heads ready whose wait is over, those first that have been due longest."""


@cache
def first_ready_job(without_kind: bool, without_priority: bool) -> str:
    """Reads the next ready job of an account. `without_kind`: none of the kind $2; `without_priority`: none that has a
    priority."""
    return (
        "SELECT user_id, job_id, kind, priority, tokens_spent FROM jobs WHERE account = $1 AND is_ready = 1"
        f"{' AND kind <> $2' if without_kind else ''}{' AND priority = 0' if without_priority else ''}"
        f" ORDER BY {'' if without_priority else 'priority DESC, '}created_at, job_id LIMIT 1"
    )


HOLD_ACCOUNT = "UPDATE accounts SET held_until = $2 WHERE account = $1"
"""Skips an account until a time, because all its tokens are reserved."""

LEASE_JOB = (
    "UPDATE jobs SET state = 'leased', is_ready = 0, lease_epoch = lease_epoch + 1, attempts = attempts + 1,"
    " started = started + 1, token_budget = $5,"
    " worker_id = $2, lease_expires = $3, attempt_ends = $4, output_id = '',"
    " bound_epoch = CASE WHEN $8 = '' THEN 0 ELSE lease_epoch + 1 END, lease_holder = $8, lease_digest = $9,"
    " revision = (SELECT s.revision FROM spaces s WHERE s.account = jobs.account AND s.user_id = jobs.user_id)"
    f" WHERE account = $1 AND user_id = $6 AND job_id = $7 RETURNING {JOB_COLUMNS}"
)
"""Leases a job and binds the lease to its holder."""

CHARGE_CLAIM = "UPDATE accounts SET vstart = $2, vtime = $3, ready_jobs = ready_jobs - 1, ahead = $4 WHERE account = $1"
"""Advances the virtual time of an account by one claim."""

ADD_READY_JOBS = "UPDATE accounts SET ready_jobs = ready_jobs + $2 WHERE account = $1"
"""Adds to an account's count of ready jobs."""

SUBTRACT_READY_JOB = (
    "UPDATE accounts SET ready_jobs = ready_jobs - (SELECT is_ready FROM jobs"
    " WHERE account = $1 AND user_id = $2 AND job_id = $3) WHERE account = $1"
)
"""Subtracts a job that is about to end from its account's count, if it is ready."""

RESERVED_TOKENS = "SELECT COALESCE(SUM(token_budget), 0) AS tokens FROM jobs WHERE account = $1 AND state = 'leased'"
"""Sums the tokens that running attempts of an account have reserved."""

LEASES_OF_PRINCIPAL = "SELECT COUNT(*) AS n FROM jobs WHERE state = 'leased' AND lease_holder = $1"
"""Counts the leases of a principal."""
LEASES_OF_WORKER = f"{LEASES_OF_PRINCIPAL} AND worker_id = $2"
"""Counts the leases of one worker of a principal."""

EXPIRED_LEASES = (
    f"SELECT {JOB_COLUMNS} FROM jobs WHERE state = 'leased' AND lease_expires < $1"
    " AND (attempt_ends >= $2 OR lease_expires < $3) ORDER BY lease_expires LIMIT $4"
)
"""Reads jobs whose lease expired."""


@cache
def leased_jobs(count: int) -> str:
    """Reads leased jobs of an account by user, id and fencing token."""
    leased = f"SELECT {JOB_COLUMNS} FROM jobs WHERE account = $1 AND state = 'leased'"
    return by_keys(leased, ("user_id", "job_id", "lease_epoch"), count, 2)


@cache
def renew_leases(count: int) -> str:
    """Extends leases by user, id, fencing token and holder. A lease that is not bound yet, see
    `runekeep_storage.jobs.lease_holders`, is bound to that holder."""
    return (
        "UPDATE jobs SET lease_expires = CASE WHEN attempt_ends < $2 THEN attempt_ends ELSE $2 END,"
        " lease_digest = CASE WHEN bound_epoch = lease_epoch OR k.column4 = '' THEN lease_digest ELSE '' END,"
        " bound_epoch = CASE WHEN k.column4 = '' THEN bound_epoch ELSE lease_epoch END, lease_holder = k.column4"
        f" FROM (VALUES {rows('(?, ?, CAST(? AS BIGINT), ?)', count, 3)}) AS k"
        " WHERE account = $1 AND user_id = k.column1 AND job_id = k.column2 AND lease_epoch = k.column3"
        f" AND state = 'leased' RETURNING {JOB_COLUMNS}"
    )


# Tasks and their events

ADD_TASK = (
    "INSERT INTO tasks (account, user_id, task_id, kind, session_id, archive_index, turn_id, state, last_event,"
    " created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', 1, $8)"
)
"""Adds a pending task, whose first event is written with it."""

TASK = f"SELECT {TASK_COLUMNS} FROM tasks WHERE account = $1 AND user_id = $2 AND task_id = $3"
"""Reads a task."""

TASKS = (
    f"SELECT {TASK_COLUMNS} FROM tasks WHERE account = $1 AND user_id = $2"
    " AND kind <> 'ask' AND ($3 = '' OR session_id = $3) AND ($4 = '' OR $4 LIKE '%,' || state || ',%')"
    " AND (created_at < $5 OR (created_at = $5 AND task_id > $6)) ORDER BY created_at DESC, task_id LIMIT $7"
)
"""Reads a page of a user's tasks, newest first; empty filters match all. A question is no task of its caller."""


def change_task(sets: str) -> str:
    """Adds one to the number of a task's newest event, and sets more columns: `sets` begins with a comma, and its
    parameters start at $4."""
    return (
        f"UPDATE tasks SET last_event = last_event + 1{sets} WHERE account = $1 AND user_id = $2 AND task_id = $3"
        " RETURNING last_event, attempt"
    )


def set_task_state(columns: Iterable[str]) -> str:
    """Changes a task's state, and more columns, whose parameters start at $5."""
    return change_task(", state = $4" + "".join(f", {name} = ${number}" for number, name in enumerate(columns, 5)))


ADD_TASK_EVENT = change_task("")
"""Counts one more event of a task."""
SET_PROGRESS = change_task(", progress = $4")
"""Changes the progress of a task."""
START_TASK = change_task(
    ", state = 'running', attempt = attempt + 1, progress = '',"
    " started_at = CASE WHEN started_at = 0 THEN $4 ELSE started_at END"
)
"""Starts the next attempt of a task."""

SET_USAGE = "UPDATE tasks SET usage = $4 WHERE account = $1 AND user_id = $2 AND task_id = $3"
"""Stores what the attempts of a task have spent."""

STORE_EVENT = (
    "INSERT INTO task_events (account, user_id, task_id, sequence, attempt, kind, body, created_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
)
"""Stores an event of a task."""

EVENTS_AFTER = (
    "SELECT sequence, attempt, kind, body, created_at FROM task_events"
    " WHERE account = $1 AND user_id = $2 AND task_id = $3 AND sequence > $4 ORDER BY sequence LIMIT $5"
)
"""Reads the events of a task above a number, in order."""

NEWEST_EVENTS_TASKS: Final = 64
"""Tasks that NEWEST_EVENTS takes."""
NEWEST_EVENTS = (
    "WITH k (account, user_id, task_id) AS (VALUES "
    + rows("(?, ?, ?)", NEWEST_EVENTS_TASKS, 1)
    + ") SELECT t.account, t.user_id, t.task_id, t.last_event"
    " FROM k JOIN tasks t ON t.account = k.account AND t.user_id = k.user_id AND t.task_id = k.task_id"
)
"""Reads the number of the newest event of tasks, each by its whole key."""

HAS_ARCHIVE = (
    "SELECT 1 FROM archives WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4"
    " AND task_id = $5"
)
"""Whether the archive of a commit's task exists."""

HAS_SESSION = "SELECT 1 FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3 AND created_at <= $4"
"""Whether a session exists that is not younger than a task."""

ENDED_TASKS = (
    "SELECT account, user_id, task_id FROM tasks WHERE ended_at > 0 AND ended_at < $1 ORDER BY ended_at LIMIT $2"
)
"""Reads tasks that ended before a time, oldest first."""

ASKS = "SELECT account, user_id, job_id, plan FROM jobs WHERE kind = 'ask' ORDER BY created_at LIMIT $1"
"""Reads questions, the oldest first. No index has the ended ones: this reads all jobs."""

ENDED_ASKS = (
    "SELECT job_id FROM jobs WHERE account = $1 AND user_id = $2 AND kind = 'ask'"
    " AND state NOT IN ('pending', 'leased')"
)
"""Reads the questions of a user that have ended."""


def delete_with_task(table: Table) -> str:
    """Deletes the rows of a table that belong to a task."""
    return f"DELETE FROM {table.name} WHERE account = $1 AND user_id = $2 AND {table.task} = $3"


# Records of attempts

STORE_RECORD = (
    "INSERT INTO extraction_records (account, user_id, task_id, number, session_id, sequence, token, extractor,"
    " base_revision, type_digests, failure, calls, ended_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
    " ON CONFLICT (account, user_id, task_id, number) DO UPDATE SET"
    " extractor = excluded.extractor, failure = excluded.failure, calls = excluded.calls,"
    " ended_at = excluded.ended_at"
)
"""Stores the record of an attempt; replaces an earlier one of the attempt."""

DELETE_OLD_RECORDS = (
    "DELETE FROM extraction_records WHERE account = $1 AND user_id = $2 AND task_id = $3 AND number <= $4"
)
"""Deletes the records of a task's older attempts."""

COMPLETE_RECORD = (
    "UPDATE extraction_records SET extractor = $5, calls = $6"
    " WHERE account = $1 AND user_id = $2 AND task_id = $3 AND token = $4"
)
"""Adds the calls to the record of an attempt."""

RECORDS = (
    "SELECT number, ended_at, extractor, base_revision, type_digests, failure, calls FROM extraction_records"
    " WHERE account = $1 AND user_id = $2 AND task_id = $3 ORDER BY number"
)
"""Reads the records of a task's attempts, oldest first."""

# Token usage

_USAGE_KEY = ("account", "user_id", "session_id", "day", "phase", "model")
_USAGE_VALUES = places(3, 3 + len(COUNTERS))
_USAGE_SESSION = f"${6 + len(COUNTERS)}"


def _add_usage(session: str) -> str:
    return (
        f"INSERT INTO usage_totals ({', '.join((*_USAGE_KEY, *COUNTERS))})"
        f" VALUES ($1, '', '', {_USAGE_VALUES}), ($1, $2, '', {_USAGE_VALUES}){session}"
        f" ON CONFLICT ({', '.join(_USAGE_KEY)})"
        f" DO UPDATE SET {', '.join(f'{name} = usage_totals.{name} + excluded.{name}' for name in COUNTERS)}"
    )


ADD_USAGE_OF_SESSION = _add_usage(f", ($1, $2, {_USAGE_SESSION}, {_USAGE_VALUES})")
"""Adds usage to the sums of an account, a user and a session."""
ADD_USAGE = _add_usage("")
"""Adds usage to the sums of an account and a user, for a session that was deleted."""

USAGE = (
    f"SELECT phase, model, {', '.join(f'SUM({name}) AS {name}' for name in COUNTERS)} FROM usage_totals"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND day >= $4 GROUP BY phase, model"
)
"""Sums usage from a day on, by phase and model."""

TOKENS_OF_DAY = (
    f"SELECT COALESCE(SUM({' + '.join(TOKENS)}), 0) AS spent FROM usage_totals"
    " WHERE account = $1 AND user_id = '' AND session_id = '' AND day = $2"
)
"""Sums the tokens that an account spent in one day."""

# Workers, which belong to no account


def workers(count: int) -> str:
    """Reads workers by principal and name."""
    return by_keys(f"SELECT {WORKER_COLUMNS} FROM workers WHERE 1 = 1", ("holder", "worker_id"), count, 1)


LOSERS = f"SELECT {WORKER_COLUMNS} FROM workers WHERE lost <> '' ORDER BY seen_at DESC LIMIT $1"
"""Reads the workers that lost jobs, the most recently seen first."""

WORKERS_SEEN_SINCE = (
    f"SELECT {WORKER_COLUMNS} FROM workers WHERE seen_at >= $1 AND worker_id <> '' ORDER BY seen_at DESC LIMIT $2"
)
"""Reads the workers seen since a time, the most recently seen first."""

STORE_WORKER = (
    "INSERT INTO workers (holder, worker_id, lost, pauses, paused_until, seen_at) VALUES ($1, $2, $3, $4, $5, $6)"
    " ON CONFLICT (holder, worker_id) DO UPDATE SET lost = excluded.lost, pauses = excluded.pauses,"
    " paused_until = excluded.paused_until, seen_at = excluded.seen_at"
)
"""Stores which jobs a worker lost, and its pause."""

STORE_COMPLETION = (
    "INSERT INTO workers (holder, worker_id, seen_at, worked_at) VALUES ($1, $2, $3, $3)"
    " ON CONFLICT (holder, worker_id) DO UPDATE SET seen_at = excluded.seen_at, worked_at = excluded.worked_at"
)
"""Stores when a worker completed a job."""


def store_seen(count: int) -> str:
    """Stores that workers are connected, $1 being the time, and the accounts whose jobs they may get."""
    return (
        f"INSERT INTO workers (holder, worker_id, accounts, seen_at) VALUES {rows('(?, ?, ?, $1)', count, 2)}"
        " ON CONFLICT (holder, worker_id) DO UPDATE SET seen_at = excluded.seen_at, accounts = excluded.accounts"
    )


def store_gone(count: int) -> str:
    """Stores that workers were last seen at the time $1."""
    return (
        f"UPDATE workers SET seen_at = $1 FROM (VALUES {rows('(?, ?)', count, 2)}) AS k"
        " WHERE holder = k.column1 AND worker_id = k.column2 AND seen_at > $1"
    )


FORGET_WORKERS = "DELETE FROM workers WHERE seen_at < $1 OR (seen_at < $2 AND lost = '' AND worked_at = 0)"
"""Deletes workers that were not seen for long, sooner those that never had a job."""

# Figures of the store


def versions(version: str) -> str:
    """Reads the version of the engine, from an expression of that engine, and the revision of the schema."""
    return f"SELECT {version} AS version, (SELECT version_num FROM alembic_version) AS revision"


QUEUE = (
    "SELECT COUNT(*) AS n, COALESCE(MIN(created_at), 0) AS oldest FROM (SELECT created_at FROM jobs"
    # Repeats the index's condition, so that SQLite uses the index.
    " WHERE state IN ('pending', 'leased') AND kind = $1 AND state = $2 ORDER BY created_at LIMIT $3) waiting"
)
"""Counts the jobs of a kind in a state, and reads when the oldest was queued."""
