"""Accounts for operators: their own limits, their usage, and which of them exceed their storage quota.

`runekeep_storage.accounts.usage_stats` counts the usage; this module only reads it. The listing statements run over all
accounts, a page at a time.
"""

from dataclasses import dataclass

from runekeep_storage.accounts import statements
from runekeep_storage.accounts.statements import LIMITS as LIMITS
from runekeep_storage.accounts.statements import USAGE
from runekeep_storage.database import Row, Tx

PAGE = 500
"""Accounts that one statement reads."""


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """Limits of one account that override the settings. None: as in the settings; 0: no limit."""

    calls_per_second: float | None = None
    concurrent_calls: int | None = None
    streams: int | None = None
    stored_bytes: int | None = None
    daily_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What an account stored at `counted_at`, in microseconds; 0: not counted yet."""

    users: int = 0
    sessions: int = 0
    messages: int = 0
    memories: int = 0
    stored_bytes: int = 0
    counted_at: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    limits: OwnLimits
    usage: Usage


def _account(row: Row) -> Account:
    return Account(
        row["account"],
        OwnLimits(**{name: row[f"limit_{name}"] for name in LIMITS}),
        Usage(**{name: row[f"usage_{name}"] or 0 for name in USAGE}),
    )


async def page(tx: Tx, after: str, limit: int) -> list[Account]:
    """Returns accounts that ever stored data or got limits, by name, after `after`."""
    rows = await tx.fetch(statements.ACCOUNTS, after, limit)
    return [_account(row) for row in rows]


async def get(tx: Tx, account: str) -> Account:
    """Returns the account. An unknown account has no usage and no limits of its own."""
    row = await tx.fetchrow(statements.ACCOUNT, account)
    if row is None:
        raise RuntimeError("a row that is made by the statement itself is not there")
    return _account(row)


async def set_limits(tx: Tx, account: str, limits: OwnLimits) -> Account:
    """Replaces all of the account's own limits."""
    await tx.execute(statements.SET_LIMITS, account, *(getattr(limits, name) for name in LIMITS), tx.now())
    return await get(tx, account)


async def limited(tx: Tx, after: str) -> list[tuple[str, OwnLimits]]:
    """Returns the next PAGE accounts with limits of their own, by name."""
    rows = await tx.fetch(statements.LIMITED_ACCOUNTS, after, PAGE)
    return [(row["account"], OwnLimits(**{name: row[name] for name in LIMITS})) for row in rows]


async def full(tx: Tx, after: str, stored_bytes: int) -> list[str]:
    """Returns the next accounts, at most PAGE, that have reached their storage quota: their own, else `stored_bytes`. 0
    means no quota."""
    rows = await tx.fetch(statements.FULL_ACCOUNTS, after, stored_bytes, PAGE)
    return [row["account"] for row in rows]


async def daily_tokens(tx: Tx, account: str, usual: int) -> int:
    """Returns the tokens that the account may spend in a day: its own limit, else `usual`. 0: no limit."""
    row = await tx.fetchrow(statements.DAILY_TOKENS, account)
    return usual if row is None or row["daily_tokens"] is None else int(row["daily_tokens"])
