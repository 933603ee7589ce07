"""Selects the next job for a worker: fair between accounts, by priority and age within an account.

Jobs with a priority precede an account's commits, but a stream of them must not block commits, possibly of another
user, forever: after MAX_AHEAD such jobs in a row, the oldest ready job without a priority is next.

A claim reads only ready jobs and accounts that have some, so it costs the same with ten pending jobs and with a hundred
thousand, even if all of them wait for an unavailable model. Its statements run over all accounts, and so do those that
wake heads whose wait is over.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from runekeep_storage.database import Row, Topic, Tx
from runekeep_storage.jobs import statements, tasks
from runekeep_storage.jobs.budgets import UNLIMITED, Due, TokenLimits, allow
from runekeep_storage.jobs.jobs import LeaseTerms, count_ready, get, job_of, space_of
from runekeep_storage.records import Job

SHARE = 27_720
"""Virtual time that one job costs an account of weight 1. All weights up to 12 divide it."""
WOKEN = 100
"""Maximum number of heads that one claim makes ready: an outage may have gathered more than a claim can handle."""
HELD = 1_000_000
"""Microseconds until an account whose tokens are all reserved is checked again."""
MAX_AHEAD = 3
"""Maximum number of consecutive claims of an account for jobs with a priority while one of its commits is ready."""
LOOKED_AT = 100
"""Maximum number of accounts with fully reserved tokens that one claim skips, because the claim has the store to
itself."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The principal that gets a job. `name`: the principal; `digest`: hash of the lease's secret, see
    `runekeep_storage.jobs.lease_holders`; `accounts`: those whose jobs it may get, empty for all; `max_jobs`: leases
    that the principal may hold; `max_own_jobs`: leases that its worker of that name may hold; None: no limit.
    `without_kind`: a kind of jobs that its worker cannot do, empty if it can do all; such jobs must have lanes of their
    own."""

    name: str = ""
    digest: str = ""
    accounts: tuple[str, ...] = ()
    max_jobs: int | None = None
    max_own_jobs: int | None = None
    without_kind: str = ""


NOBODY = Holder()
"""Binds the lease to no principal."""


@dataclass(frozen=True, slots=True)
class AtLimit:
    """The worker holds its maximum number of leases. `principal`: the maximum of all workers of the principal
    together."""

    principal: bool


@dataclass(frozen=True, slots=True)
class OutOfBudget:
    """A job that is due but may spend no tokens, so that no worker may get it."""

    job: Job
    why: str


@dataclass(frozen=True, slots=True)
class Unwanted:
    """A job that is due, of a kind that no worker may get."""

    job: Job


async def claim(
    tx: Tx,
    worker_id: str,
    terms: LeaseTerms,
    limits: TokenLimits = UNLIMITED,
    unwanted: Collection[str] = (),
    holder: Holder = NOBODY,
) -> tuple[Job, int] | OutOfBudget | Unwanted | AtLimit | None:
    """Leases the next job, from the account that has had least so far. Returns None if nothing is due, or if LOOKED_AT
    accounts were skipped; the next claim continues behind those. `unwanted`: kinds of jobs that nobody may get. Such a
    job, like one that is out of budget, stays first until its caller ends it. `holder`: to whom the lease is bound.

    Also returns the number of the attempt: attempts started, whether or not they count against a limit. The job's
    `revision` is the revision of its space at which the attempt reads.

    Accounts share by start-time fair queueing (Goyal, Vin, Cheng 1996). A claim starts at the account's virtual time,
    or where the claim before it started, whichever is later, and advances the account by `SHARE / weight`. Hence, while
    two accounts of weights v and w both have a ready job all the time, their numbers of claims, each divided by its
    weight, differ by at most 1/v + 1/w over any run of claims. Time without a ready job is neither credit nor debt: an
    account of weight w that comes back waits for at most 1 + v/w claims of each other account of weight v, and from
    then on gets its share and no more. A head is ready once a claim has seen that its wait is over; each claim sees up
    to `WOKEN` of them, those that have been due longest first.
    """
    now = tx.now()
    following = await _following(tx, now, holder)
    if following is not None and following["due"]:
        await _wake(tx, now)
        following = await _following(tx, now, holder)
    # Check only if there is a job: workers claim more often than they get one.
    if following is not None and following["account"] is not None:
        limit = await _limit(tx, worker_id, holder)
        if limit is not None:
            return limit
    for _ in range(LOOKED_AT):
        if following is None or following["account"] is None:
            return None
        account = following["account"]
        first = await _first(tx, account, following["ahead"], holder.without_kind)
        if first["kind"] in unwanted:
            return Unwanted(await get(tx, first["job_id"]))
        allowance = await allow(tx, account, _own(limits, following), first["tokens_spent"])
        if allowance.due is not Due.WAITS:
            break
        await tx.execute(statements.HOLD_ACCOUNT, account, now + HELD)
        following = await _following(tx, now, holder)
    else:
        # Notified workers claim again at once, before these accounts are checked again.
        tx.notify(Topic.JOBS)
        return None
    if allowance.due is not Due.GIVEN:
        return OutOfBudget(await get(tx, first["job_id"]), allowance.due.value)
    row = await tx.fetchrow(
        statements.LEASE_JOB,
        account,
        worker_id,
        now + terms.first,
        now + terms.attempt,
        allowance.tokens,
        first["user_id"],
        first["job_id"],
        holder.name,
        holder.digest,
    )
    if row is None:
        raise RuntimeError(f"job {first['job_id']} was there and is not")
    start = max(following["vtime"], following["reached"])
    await tx.execute(
        statements.CHARGE_CLAIM,
        account,
        start,
        start + SHARE // following["weight"],
        min(following["ahead"] + 1, MAX_AHEAD) if first["priority"] else 0,
    )
    job = job_of(row)
    return job, await tasks.start(tx, space_of(job), job.job_id)


async def _following(tx: Tx, now: int, holder: Holder) -> Row | None:
    without = _kind_parameters(holder.without_kind)
    statement = statements.next_account(len(holder.accounts), bool(without))
    return await tx.fetchrow(statement, now, *holder.accounts, *without)


def _kind_parameters(kind: str) -> list[str]:
    """Returns the last parameters of a statement that leaves out a kind."""
    return [kind] if kind else []


async def _limit(tx: Tx, worker_id: str, holder: Holder) -> AtLimit | None:
    if holder.max_jobs is not None:
        row = await tx.fetchrow(statements.LEASES_OF_PRINCIPAL, holder.name)
        if row is not None and row["n"] >= holder.max_jobs:
            return AtLimit(principal=True)
    if holder.max_own_jobs is not None:
        row = await tx.fetchrow(statements.LEASES_OF_WORKER, holder.name, worker_id)
        if row is not None and row["n"] >= holder.max_own_jobs:
            return AtLimit(principal=False)
    return None


def _own(limits: TokenLimits, account: Row) -> TokenLimits:
    """Returns the limits with the account's own daily limit, if it has one."""
    daily = account["daily_tokens"]
    return limits if daily is None else replace(limits, account_daily=int(daily))


async def _first(tx: Tx, account: str, ahead: int, without_kind: str) -> Row:
    """Returns the account's next job. `ahead`: how many jobs in a row preceded its commits."""
    row, without = None, _kind_parameters(without_kind)
    if ahead >= MAX_AHEAD:
        row = await tx.fetchrow(statements.first_ready_job(bool(without), True), account, *without)
    if row is None:
        row = await tx.fetchrow(statements.first_ready_job(bool(without), False), account, *without)
    if row is None:
        raise RuntimeError(f"account {account} counts a ready job that is not there")
    return row


async def _wake(tx: Tx, now: int) -> None:
    """Makes heads of all accounts ready whose wait is over."""
    rows = await tx.fetch(statements.WAKE_HEADS, now, WOKEN)
    for account, woken in sorted(Counter(row["account"] for row in rows).items()):
        await count_ready(tx, account, woken)
