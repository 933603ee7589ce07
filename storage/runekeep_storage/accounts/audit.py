"""The audit log: one row for each administrative or destructive call, committed before the call is served.

A row records the caller, the method, the user, the subject and the outcome, never messages or memories. Rows are not
user data: they outlive the deletion and the erasure of the users that they name.
"""

from dataclasses import dataclass

from runekeep_storage.accounts import statements
from runekeep_storage.database import Row, Tx

BATCH = 1000
"""Rows that one transaction of the sweep deletes."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that begins. `user`: on whose behalf; empty for an operator's call."""

    method: str
    actor: str
    scope: str
    user: str
    subject: str
    trace_id: str
    peer: str


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """A call that began at `created_at`, in microseconds, on behalf of or about `account`. `code` is empty while the
    call runs, and stays empty if its server was killed meanwhile."""

    sequence: int
    created_at: int
    account: str
    call: Call
    code: str


async def begin(tx: Tx, account: str, call: Call) -> int:
    """Writes the row of a call on behalf of or about an account; returns its number. An operator's call may be about
    none; then `account` is empty."""
    row = await tx.fetchrow(
        statements.BEGIN_CALL,
        account,
        call.user,
        tx.now(),
        call.method,
        call.actor,
        call.scope,
        call.subject,
        call.trace_id,
        call.peer,
    )
    if row is None:
        raise RuntimeError("the audit log gave no number")
    return int(row["sequence"])


async def end(tx: Tx, account: str, sequence: int, code: str, subject: str) -> None:
    """Records the outcome of a call, and the account and the subject as they are known by now."""
    await tx.execute(statements.END_CALL, account, subject, code, sequence)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filter of events: empty texts and None match all. Times in microseconds, `start` inclusive, `end` exclusive."""

    account: str = ""
    actor: str = ""
    start: int | None = None
    end: int | None = None


async def page(tx: Tx, wanted: Wanted, before: int | None, most: int) -> list[AuditEvent]:
    """Returns events, newest first; `before`: number of the last event of the previous page."""
    statement = statements.calls(
        over_all=not wanted.account,
        over_all_actors=not wanted.actor,
        has_start=wanted.start is not None,
        has_end=wanted.end is not None,
        is_first=before is None,
    )
    given = (wanted.account or None, wanted.actor or None, wanted.start, wanted.end, before)
    rows = await tx.fetch(statement, *(one for one in given if one is not None), most)
    return [_event(row) for row in rows]


async def forget_old(tx: Tx, keep: int) -> int:
    """Deletes rows older than `keep` microseconds, of all accounts, up to BATCH of them; returns how many."""
    return await tx.execute(statements.DELETE_OLD_CALLS, tx.now() - keep, BATCH)


def _event(row: Row) -> AuditEvent:
    call = Call(
        row["method"],
        row["actor"],
        row["scope"],
        row["user_id"],
        row["subject"],
        row["trace_id"],
        row["peer"],
    )
    return AuditEvent(row["sequence"], row["created_at"], row["account"], call, row["code"])
