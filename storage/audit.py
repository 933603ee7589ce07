"""The audit log: administrative and destructive calls, each a row that is there before the call is served.

A row tells who called what in whose name, about what and how it ended; never what was said or remembered. Rows are no
user's data: they outlive the deletion and the erasure of the users that they name.
"""

from dataclasses import dataclass

from storage.database import Row, Space, Tx

BATCH = 1000
"""Rows that one transaction of the sweep takes away."""

_COLUMNS = "sequence, created_at, method, actor, scope, account, user_id, subject, code, trace_id, peer"


@dataclass(frozen=True, slots=True)
class Call:
    """A call that begins. `account` and `user`: in whose name, or the account that an operator's call is about."""

    method: str
    actor: str
    scope: str
    account: str
    user: str
    subject: str
    trace_id: str
    peer: str


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """A call that began at `created_at`, microseconds. `code` is empty while it is under way, and for good when its
    server was killed meanwhile."""

    sequence: int
    created_at: int
    call: Call
    code: str


def lane(account: str) -> Space:
    """What a transaction about a call of this account is confined to: the account's rows, of no user, so that a user
    who is being deleted is not in its way."""
    return Space(account, "")


async def begin(tx: Tx, call: Call) -> int:
    """Writes the row of an operator's call; its number. It may be about any account."""
    # The account is the first argument, as in every statement of a transaction of one account.
    row = await tx.fetchrow(
        "INSERT INTO audit_events (account, user_id, created_at, method, actor, scope, subject, trace_id, peer)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING sequence",
        call.account,
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


async def begin_of(tx: Tx, of: Space, call: Call) -> int:
    """As `begin`, of a call in the name of a user; `of` is the `lane` of its account."""
    return await begin(tx, call)


async def end(tx: Tx, sequence: int, code: str, account: str, subject: str) -> None:
    """Writes how an operator's call ended, and what is known by now of what it was about."""
    await tx.execute(
        "UPDATE audit_events SET account = $1, subject = $2, code = $3 WHERE sequence = $4",
        account,
        subject,
        code,
        sequence,
    )


async def end_of(tx: Tx, of: Space, sequence: int, code: str, subject: str) -> None:
    """As `end`, of a call in the name of a user; `of` is the `lane` of its account."""
    await tx.execute(
        "UPDATE audit_events SET subject = $3, code = $4 WHERE account = $1 AND sequence = $2",
        of.account,
        sequence,
        subject,
        code,
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events: empty texts and None choose all. Times in microseconds, `start` inclusive, `end` exclusive."""

    account: str = ""
    actor: str = ""
    start: int | None = None
    end: int | None = None


async def page(tx: Tx, wanted: Wanted, before: int | None, most: int) -> list[AuditEvent]:
    """Events of all accounts or of one, newest first; `before`: number of the last one of the page before."""
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
    """Drops rows older than `keep` microseconds, of all accounts, up to BATCH of them; how many."""
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
        row["account"],
        row["user_id"],
        row["subject"],
        row["trace_id"],
        row["peer"],
    )
    return AuditEvent(row["sequence"], row["created_at"], call, row["code"])
