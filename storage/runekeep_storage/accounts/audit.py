"""The audit log: one row for each administrative or destructive call, committed before the call is served.

A row records the caller, the method, the user, the subject and the outcome, never messages or memories. Rows are not
user data: they outlive the deletion and the erasure of the users that they name.
"""

from dataclasses import dataclass

from runekeep_storage.database import Row, Tx

BATCH = 1000
"""Rows that one transaction of the sweep deletes."""

_COLUMNS = "sequence, created_at, method, actor, scope, account, user_id, subject, code, trace_id, peer"


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
        "INSERT INTO audit_events (account, user_id, created_at, method, actor, scope, subject, trace_id, peer)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING sequence",
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
    await tx.execute(
        "UPDATE audit_events SET account = $1, subject = $2, code = $3 WHERE sequence = $4",
        account,
        subject,
        code,
        sequence,
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filter of events: empty texts and None match all. Times in microseconds, `start` inclusive, `end` exclusive."""

    account: str = ""
    actor: str = ""
    start: int | None = None
    end: int | None = None


async def page(tx: Tx, wanted: Wanted, before: int | None, most: int) -> list[AuditEvent]:
    """Returns events, newest first; `before`: number of the last event of the previous page."""
    given: list[str | int] = []

    def place(value: str | int) -> str:
        given.append(value)
        return f"${len(given)}"

    conditions = ["1 = 1"]
    if wanted.account:
        conditions.append(f"account = {place(wanted.account)}")
    if wanted.actor:
        conditions.append(f"actor = {place(wanted.actor)}")
    if wanted.start is not None:
        conditions.append(f"created_at >= {place(wanted.start)}")
    if wanted.end is not None:
        conditions.append(f"created_at < {place(wanted.end)}")
    if before is not None:
        conditions.append(f"sequence < {place(before)}")
    rows = await tx.fetch(
        f"SELECT {_COLUMNS} FROM audit_events WHERE {' AND '.join(conditions)} ORDER BY sequence DESC"
        f" LIMIT {place(most)}",
        *given,
    )
    return [_event(row) for row in rows]


async def forget_old(tx: Tx, keep: int) -> int:
    """Deletes rows older than `keep` microseconds, of all accounts, up to BATCH of them; returns how many."""
    return await tx.execute(
        "DELETE FROM audit_events WHERE sequence IN"
        " (SELECT sequence FROM audit_events WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
        tx.now() - keep,
        BATCH,
    )


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
