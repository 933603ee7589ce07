"""Accounts for operators: their own limits, their usage, and which of them exceed their storage quota.

`runekeep_storage.accounts.usage_stats` counts the usage; this module only reads it. The listing statements run over all
accounts, a page at a time.
"""

from dataclasses import dataclass, fields

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


LIMITS = tuple(field.name for field in fields(OwnLimits))
_USAGE = tuple(field.name for field in fields(Usage))
_SELECT = (
    "SELECT n.account, "
    + ", ".join(f"l.{name} AS limit_{name}" for name in LIMITS)
    + ", "
    + ", ".join(f"u.{name} AS usage_{name}" for name in _USAGE)
)
_JOINS = " LEFT JOIN account_limits l ON l.account = n.account LEFT JOIN account_usage u ON u.account = n.account"


def _account(row: Row) -> Account:
    return Account(
        row["account"],
        OwnLimits(**{name: row[f"limit_{name}"] for name in LIMITS}),
        Usage(**{name: row[f"usage_{name}"] or 0 for name in _USAGE}),
    )


async def page(tx: Tx, after: str, limit: int) -> list[Account]:
    """Returns accounts that ever stored data or got limits, by name, after `after`."""
    rows = await tx.fetch(
        f"{_SELECT} FROM ("
        "SELECT account FROM (SELECT account FROM accounts WHERE account > $1 ORDER BY account LIMIT $2) a"
        " UNION SELECT account FROM (SELECT account FROM account_limits WHERE account > $1 ORDER BY account LIMIT $2) b"
        f") n{_JOINS} ORDER BY n.account LIMIT $2",
        after,
        limit,
    )
    return [_account(row) for row in rows]


async def get(tx: Tx, account: str) -> Account:
    """Returns the account. An unknown account has no usage and no limits of its own."""
    row = await tx.fetchrow(f"{_SELECT} FROM (SELECT CAST($1 AS TEXT) AS account) n{_JOINS}", account)
    if row is None:
        raise RuntimeError("a row that is made by the statement itself is not there")
    return _account(row)


async def set_limits(tx: Tx, account: str, limits: OwnLimits) -> Account:
    """Replaces all of the account's own limits."""
    await tx.execute(
        f"INSERT INTO account_limits (account, {', '.join(LIMITS)}, updated_at)"
        f" VALUES ({', '.join(f'${number + 1}' for number in range(len(LIMITS) + 2))})"
        " ON CONFLICT (account) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in (*LIMITS, "updated_at")),
        account,
        *(getattr(limits, name) for name in LIMITS),
        tx.now(),
    )
    return await get(tx, account)


async def limited(tx: Tx, after: str) -> list[tuple[str, OwnLimits]]:
    """Returns the next PAGE accounts with limits of their own, by name."""
    rows = await tx.fetch(
        f"SELECT account, {', '.join(LIMITS)} FROM account_limits WHERE account > $1 ORDER BY account LIMIT $2",
        after,
        PAGE,
    )
    return [(row["account"], OwnLimits(**{name: row[name] for name in LIMITS})) for row in rows]


async def full(tx: Tx, after: str, stored_bytes: int) -> list[str]:
    """Returns the next accounts, at most PAGE, that have reached their storage quota: their own, else `stored_bytes`. 0
    means no quota."""
    rows = await tx.fetch(
        "SELECT u.account FROM account_usage u LEFT JOIN account_limits l ON l.account = u.account"
        " WHERE u.account > $1 AND COALESCE(l.stored_bytes, $2) > 0 AND u.stored_bytes >= COALESCE(l.stored_bytes, $2)"
        " ORDER BY u.account LIMIT $3",
        after,
        stored_bytes,
        PAGE,
    )
    return [row["account"] for row in rows]


async def daily_tokens(tx: Tx, account: str, usual: int) -> int:
    """Returns the tokens that the account may spend in a day: its own limit, else `usual`. 0: no limit."""
    row = await tx.fetchrow("SELECT daily_tokens FROM account_limits WHERE account = $1", account)
    return usual if row is None or row["daily_tokens"] is None else int(row["daily_tokens"])
