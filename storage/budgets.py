"""How many tokens an attempt may spend, so that a commit and an account stay within theirs.

An attempt is given its tokens when it is claimed, and what attempts under way were given is reserved: nobody else gets
it. So all that attempts may spend, together with what the account has spent, never comes to more than the day's budget.
A claim has the store for itself, which is why two of them never give the same tokens.

More than the budget can be spent by workers alone that spend more than they were given, which is counted as well, and
by attempts of whose cost nobody tells in time: one that was cancelled, one whose worker is gone, or one whose output
was refused for breaking the contract, whose worker tells a moment later. Each of these is at most what that attempt was
given.
"""

from dataclasses import dataclass
from enum import Enum

from storage import usage
from storage.database import Tx

ATTEMPT_TOKENS = 200_000
ATTEMPT_SHARE = 16
"""Where commits have no budget, an attempt reserves a sixteenth of the account's day, and not less than
ATTEMPT_TOKENS: one that took all of it would keep the account's other commits waiting."""


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """Tokens, input and output together: of all attempts at a commit, and of an account in a UTC day, where the account
    has no bound of its own. 0: any number."""

    commit: int = 0
    account_daily: int = 0


UNLIMITED = TokenLimits()


class Due(Enum):
    """What becomes of a job that is due."""

    GIVEN = "given"
    WAITS = "waits"
    """All that is left of the day is reserved, and some of it may come back."""
    COMMIT_SPENT = "the commit has spent the tokens that it may"
    ACCOUNT_SPENT = "the account has spent the tokens that it may in one day (UTC)"


@dataclass(frozen=True, slots=True)
class Allowance:
    """`tokens`: what an attempt is given; None: any number."""

    due: Due
    tokens: int | None = None


_ANY = Allowance(Due.GIVEN)


async def allow(tx: Tx, account: str, limits: TokenLimits, spent: int) -> Allowance:
    """What the next attempt of the account may spend: one at a job that has spent so many tokens already."""
    if limits == UNLIMITED:
        return _ANY
    left = limits.commit - spent if limits.commit else None
    if left is not None and left <= 0:
        return Allowance(Due.COMMIT_SPENT)
    if not limits.account_daily:
        return Allowance(Due.GIVEN, left)
    return await _of_account(tx, account, limits.account_daily, left)


async def _of_account(tx: Tx, account: str, daily: int, left: int | None) -> Allowance:
    """`left`: of the commit's own budget, None where it has none."""
    unspent = daily - await usage.spent_today(tx, account)
    if unspent <= 0:
        return Allowance(Due.ACCOUNT_SPENT)
    row = await tx.fetchrow(
        "SELECT COALESCE(SUM(token_budget), 0) AS tokens FROM jobs WHERE account = $1 AND state = 'leased'", account
    )
    reserved = int(row["tokens"]) if row else 0
    wanted = min(daily, left if left is not None else max(ATTEMPT_TOKENS, daily // ATTEMPT_SHARE))
    free = unspent - reserved
    if free >= wanted:
        return Allowance(Due.GIVEN, wanted)
    # The rest of the day's, where nobody else may give anything back.
    return Allowance(Due.WAITS) if reserved else Allowance(Due.GIVEN, free)
