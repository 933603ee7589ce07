"""Limits the tokens that an attempt may spend, so that commits and accounts stay within their budgets.

A claim gives an attempt its tokens, and reserves them until the attempt ends. So the account's spending plus all
reservations never exceeds the day's budget. A claim has the store to itself, so two claims never give the same tokens.

Spending can exceed the budget in two ways. A worker may spend more than it was given, which is counted as well. Or the
cost of an attempt is not reported in time: its commit was cancelled, its worker is gone, or its output was refused for
breaking the contract and the worker reports a moment later. Each of the latter costs at most what the attempt was
given. Of a cancelled question, that counts as spent, see `runekeep_storage.jobs.asks.forget`.
"""

from dataclasses import dataclass
from enum import Enum

from runekeep_storage.database import Tx
from runekeep_storage.jobs import statements, token_usage

ATTEMPT_TOKENS = 200_000
ATTEMPT_SHARE = 16
"""For commits without a budget, an attempt reserves a sixteenth of the account's day, but at least ATTEMPT_TOKENS: one
that reserved the whole day would block the account's other commits."""


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """Limits of tokens, input and output together: for all attempts of a commit, and for an account in a UTC day unless
    the account has its own limit. 0: no limit."""

    commit: int = 0
    account_daily: int = 0


UNLIMITED = TokenLimits()


class Due(Enum):
    """The decision about a job that is due."""

    GIVEN = "given"
    WAITS = "waits"
    """The rest of the day's tokens is reserved, and some of it may come back."""
    COMMIT_SPENT = "the commit has spent the tokens that it may"
    ACCOUNT_SPENT = "the account has spent the tokens that it may in one day (UTC)"


@dataclass(frozen=True, slots=True)
class Allowance:
    """`tokens`: what an attempt is given; None: no limit."""

    due: Due
    tokens: int | None = None


_ANY = Allowance(Due.GIVEN)


async def allow(tx: Tx, account: str, limits: TokenLimits, spent: int) -> Allowance:
    """Returns what the account's next attempt may spend. `spent`: tokens that the job has spent already."""
    if limits == UNLIMITED:
        return _ANY
    left = limits.commit - spent if limits.commit else None
    if left is not None and left <= 0:
        return Allowance(Due.COMMIT_SPENT)
    if not limits.account_daily:
        return Allowance(Due.GIVEN, left)
    return await _of_account(tx, account, limits.account_daily, left)


async def _of_account(tx: Tx, account: str, daily: int, left: int | None) -> Allowance:
    """`left`: the rest of the commit's own budget; None if it has none."""
    unspent = daily - await token_usage.spent_today(tx, account)
    if unspent <= 0:
        return Allowance(Due.ACCOUNT_SPENT)
    row = await tx.fetchrow(statements.RESERVED_TOKENS, account)
    reserved = int(row["tokens"]) if row else 0
    wanted = min(daily, left if left is not None else max(ATTEMPT_TOKENS, daily // ATTEMPT_SHARE))
    free = unspent - reserved
    if free >= wanted:
        return Allowance(Due.GIVEN, wanted)
    # Give the rest of the day's tokens if no other attempt holds a reservation that may come back.
    return Allowance(Due.WAITS) if reserved else Allowance(Due.GIVEN, free)
