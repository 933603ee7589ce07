"""Which job a worker gets next: fair between accounts, in the order of priority and age within one.

Jobs of a priority go ahead of an account's commits, but no stream of them holds up commits for good, which may be
another user's: after MOST_AHEAD such jobs in a row the oldest job without a priority is next, if one is ready.

A claim looks at ready jobs and at accounts that have some, so it costs the same with ten pending jobs and with a
hundred thousand, of which none or all wait for a model that is away. Its statements run over all accounts, and so do
those that wake heads whose wait is over.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache

from storage import tasks
from storage.budgets import UNLIMITED, Due, TokenLimits, allow
from storage.database import Row, Topic, Tx
from storage.jobs import COLUMNS, LeaseTerms, count_ready, get, job_of, space_of
from storage.records import Job
from storage.statement_lists import places

SHARE = 27_720
"""Virtual time that one job costs an account of weight 1. All weights up to 12 divide it."""
WOKEN = 100
"""Most heads whose wait is over that one claim makes ready: an outage may have gathered more than a claim can carry."""
HELD = 1_000_000
"""Microseconds after which an account whose tokens are all reserved is looked at again."""
MOST_AHEAD = 3
"""Claims of an account in a row that go to jobs ahead of commits, while a commit of it is ready."""
LOOKED_AT = 100
"""Most accounts whose tokens are all reserved that one claim puts off: it has the store for itself meanwhile."""


@cache
def _next(accounts: int) -> str:
    """Selects the account whose turn it is. $1 is the time. Limits the choice to the accounts from $2 on, if any are
    given."""
    mine = f" AND account IN ({places(2, accounts)})" if accounts else ""
    return (
        "SELECT d.due, a.account, a.vtime, a.weight, a.ahead, (SELECT MAX(vstart) FROM accounts) AS reached,"
        " (SELECT l.daily_tokens FROM account_limits l WHERE l.account = a.account) AS daily_tokens"
        " FROM (SELECT EXISTS (SELECT 1 FROM jobs"
        "   WHERE is_head = 1 AND is_ready = 0 AND state = 'pending' AND not_before <= $1) AS due) d"
        " LEFT JOIN (SELECT account, vtime, weight, ahead FROM accounts"
        f"   WHERE ready_jobs > 0 AND held_until <= $1{mine}"
        "   ORDER BY vtime, account LIMIT 1) a ON 1 = 1"
    )


@dataclass(frozen=True, slots=True)
class Holder:
    """Who gets a job. `name`: its principal; `digest`: of the lease's secret, see `storage.leases`; `accounts`: those
    whose jobs it may get, empty for all; `max_jobs`: leases that the principal may hold; `max_own_jobs`: leases that
    its worker of that name may hold; None: any number.
    """

    name: str = ""
    digest: str = ""
    accounts: tuple[str, ...] = ()
    max_jobs: int | None = None
    max_own_jobs: int | None = None


NOBODY = Holder()
"""Binds the lease to no principal."""


@dataclass(frozen=True, slots=True)
class AtLimit:
    """The worker holds as many leases as it may. `principal`: all workers of the principal together do."""

    principal: bool


@dataclass(frozen=True, slots=True)
class OutOfBudget:
    """A job that is due and may spend nothing: nobody is to get it."""

    job: Job
    why: str


@dataclass(frozen=True, slots=True)
class Unwanted:
    """A job that is due, of a kind that is not worked on."""

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
    # Only if there is a job: workers ask more often than they get one.
    if following is not None and following["account"] is not None:
        limit = await _limit(tx, worker_id, holder)
        if limit is not None:
            return limit
    for _ in range(LOOKED_AT):
        if following is None or following["account"] is None:
            return None
        account = following["account"]
        first = await _first(tx, account, following["ahead"])
        if first["kind"] in unwanted:
            return Unwanted(await get(tx, first["job_id"]))
        allowance = await allow(tx, account, _own(limits, following), first["tokens_spent"])
        if allowance.due is not Due.WAITS:
            break
        await tx.execute("UPDATE accounts SET held_until = $2 WHERE account = $1", account, now + HELD)
        following = await _following(tx, now, holder)
    else:
        # Who is told claims again at once, before these are looked at again.
        tx.notify(Topic.JOBS)
        return None
    if allowance.due is not Due.GIVEN:
        return OutOfBudget(await get(tx, first["job_id"]), allowance.due.value)
    row = await tx.fetchrow(
        "UPDATE jobs SET state = 'leased', is_ready = 0, lease_epoch = lease_epoch + 1, attempts = attempts + 1,"
        " started = started + 1, token_budget = $5,"
        " worker_id = $2, lease_expires = $3, attempt_ends = $4, output_id = '',"
        " bound_epoch = CASE WHEN $8 = '' THEN 0 ELSE lease_epoch + 1 END, lease_holder = $8, lease_digest = $9,"
        " revision = (SELECT s.revision FROM spaces s WHERE s.account = jobs.account AND s.user_id = jobs.user_id)"
        f" WHERE account = $1 AND user_id = $6 AND job_id = $7 RETURNING {COLUMNS}",
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
        "UPDATE accounts SET vstart = $2, vtime = $3, ready_jobs = ready_jobs - 1, ahead = $4 WHERE account = $1",
        account,
        start,
        start + SHARE // following["weight"],
        min(following["ahead"] + 1, MOST_AHEAD) if first["priority"] else 0,
    )
    job = job_of(row)
    return job, await tasks.start(tx, space_of(job), job.job_id)


async def _following(tx: Tx, now: int, holder: Holder) -> Row | None:
    return await tx.fetchrow(_next(len(holder.accounts)), now, *holder.accounts)


async def _limit(tx: Tx, worker_id: str, holder: Holder) -> AtLimit | None:
    count = "SELECT COUNT(*) AS n FROM jobs WHERE state = 'leased' AND lease_holder = $1"
    if holder.max_jobs is not None:
        row = await tx.fetchrow(count, holder.name)
        if row is not None and row["n"] >= holder.max_jobs:
            return AtLimit(principal=True)
    if holder.max_own_jobs is not None:
        row = await tx.fetchrow(f"{count} AND worker_id = $2", holder.name, worker_id)
        if row is not None and row["n"] >= holder.max_own_jobs:
            return AtLimit(principal=False)
    return None


def _own(limits: TokenLimits, account: Row) -> TokenLimits:
    """With the account's own bound of a day, where it has one."""
    daily = account["daily_tokens"]
    return limits if daily is None else replace(limits, account_daily=int(daily))


async def _first(tx: Tx, account: str, ahead: int) -> Row:
    """The account's next job, after so many in a row that went ahead of its commits."""
    ready = "SELECT user_id, job_id, kind, priority, tokens_spent FROM jobs WHERE account = $1 AND is_ready = 1"
    row = None
    if ahead >= MOST_AHEAD:
        row = await tx.fetchrow(f"{ready} AND priority = 0 ORDER BY created_at, job_id LIMIT 1", account)
    if row is None:
        row = await tx.fetchrow(f"{ready} ORDER BY priority DESC, created_at, job_id LIMIT 1", account)
    if row is None:
        raise RuntimeError(f"account {account} counts a ready job that is not there")
    return row


async def _wake(tx: Tx, now: int) -> None:
    """Makes heads ready whose wait is over, of all accounts."""
    rows = await tx.fetch(
        "UPDATE jobs SET is_ready = 1 WHERE job_id IN (SELECT job_id FROM jobs"
        "   WHERE is_head = 1 AND is_ready = 0 AND state = 'pending' AND not_before <= $1"
        "   ORDER BY not_before LIMIT $2)"
        " RETURNING account",
        now,
        WOKEN,
    )
    for account, woken in sorted(Counter(row["account"] for row in rows).items()):
        await count_ready(tx, account, woken)
