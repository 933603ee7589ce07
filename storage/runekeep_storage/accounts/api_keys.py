"""API keys: their scope, owner and the hash of their secrets. No row contains any part of a secret.

Keys are not user data, so no statement is confined to an account, and only operators can reach them. Exceptions are
`state_of`, which looks up one key by its id, and `note_uses`.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass

from runekeep_storage.database import Row, Tx
from runekeep_storage.drivers.common.statement_lists import SIZE, filled, places
from runekeep_storage.errors import AlreadyExists, NotFound

KIND = "API key"
"""Name of API keys in errors."""
USES_AT_ONCE = 16 * SIZE
"""Maximum number of keys in one `note_uses`."""

_COLUMNS = (
    "key_id, scope, account, user_id, label, created_at, expires_at, revoked_at, rotated_at, previous_digest,"
    " previous_until, used_at, accounts"
)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to create. `lifetime`: microseconds from its creation, None: it does not expire; `request_id`: empty for
    none; `accounts`: the accounts whose jobs a worker gets."""

    key_id: str
    scope: str
    account: str
    user: str
    label: str
    digest: str
    lifetime: int | None
    request_id: str
    accounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key for operators. Times in microseconds; 0: never. `previous_until`: how long the secret before the last
    rotation stays valid."""

    key_id: str
    scope: str
    account: str
    user: str
    label: str
    created_at: int
    expires_at: int
    revoked_at: int
    rotated_at: int
    previous_until: int
    used_at: int
    accounts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyState:
    """The data that authenticates calls with a key. `read_at`: the time of the store's clock, to compare the other
    times with."""

    scope: str
    account: str
    user: str
    digest: str
    previous_digest: str
    previous_until: int
    expires_at: int
    revoked_at: int
    used_at: int
    read_at: int
    accounts: tuple[str, ...] = ()


async def create(tx: Tx, new: NewKey) -> ApiKey:
    """Creates a key. Raises AlreadyExists, with the id of the existing key as the name, for a known request id."""
    if new.request_id:
        before = await tx.fetchrow("SELECT key_id FROM api_keys WHERE request_id = $1", new.request_id)
        if before is not None:
            raise AlreadyExists(KIND, before["key_id"])
    now = tx.now()
    await tx.execute(
        "INSERT INTO api_keys (key_id, scope, account, user_id, label, digest, created_at, expires_at, request_id,"
        " accounts) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        new.key_id,
        new.scope,
        new.account,
        new.user,
        new.label,
        new.digest,
        now,
        None if new.lifetime is None else now + new.lifetime,
        new.request_id or None,
        json.dumps(new.accounts) if new.accounts else "",
    )
    return await get(tx, new.key_id)


async def get(tx: Tx, key_id: str) -> ApiKey:
    """Returns a key. Raises NotFound."""
    row = await tx.fetchrow(f"SELECT {_COLUMNS} FROM api_keys WHERE key_id = $1", key_id)
    if row is None:
        raise NotFound(KIND, key_id)
    return _key(row)


async def state_of(tx: Tx, key_id: str) -> KeyState | None:
    """Returns the data that authenticates calls with this key; None if there is no such key."""
    row = await tx.fetchrow(f"SELECT {_COLUMNS}, digest FROM api_keys WHERE key_id = $1", key_id)
    if row is None:
        return None
    return KeyState(
        row["scope"],
        row["account"],
        row["user_id"],
        row["digest"],
        row["previous_digest"],
        row["previous_until"],
        row["expires_at"] or 0,
        row["revoked_at"] or 0,
        row["used_at"] or 0,
        tx.now(),
        _accounts(row),
    )


async def rotate(tx: Tx, key_id: str, digest: str, grace: int) -> ApiKey:
    """Replaces the secret; the current one stays valid for `grace` microseconds. Raises NotFound, also for a revoked or
    expired key.

    The secret before the current one becomes invalid: a key has at most two.
    """
    now = tx.now()
    changed = await tx.execute(
        "UPDATE api_keys SET previous_digest = CASE WHEN $3 = 1 THEN digest ELSE '' END, previous_until = $4,"
        " digest = $2, rotated_at = $5"
        " WHERE key_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $5)",
        key_id,
        digest,
        int(grace > 0),
        now + grace if grace > 0 else 0,
        now,
    )
    if not changed:
        raise NotFound(KIND, key_id)
    return await get(tx, key_id)


async def revoke(tx: Tx, key_id: str) -> ApiKey:
    """Revokes the key; does not change a key that is already revoked. Raises NotFound."""
    await tx.execute(
        "UPDATE api_keys SET revoked_at = $2, previous_digest = '', previous_until = 0"
        " WHERE key_id = $1 AND revoked_at IS NULL",
        key_id,
        tx.now(),
    )
    return await get(tx, key_id)


async def page(tx: Tx, account: str, include_ended: bool, after: tuple[int, str] | None, most: int) -> list[ApiKey]:
    """Returns keys, newest first, of one account, or of all if `account` is empty. `after`: creation time and id of the
    last key of the previous page."""
    given: list[str | int] = []

    def place(value: str | int) -> str:
        given.append(value)
        return f"${len(given)}"

    conditions = ["1 = 1"]
    if account:
        conditions.append(f"account = {place(account)}")
    if not include_ended:
        conditions.append(f"revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {place(tx.now())})")
    if after is not None:
        conditions.append(f"(created_at, key_id) < ({place(after[0])}, {place(after[1])})")
    rows = await tx.fetch(
        f"SELECT {_COLUMNS} FROM api_keys WHERE {' AND '.join(conditions)}"
        f" ORDER BY created_at DESC, key_id DESC LIMIT {place(most)}",
        *given,
    )
    return [_key(row) for row in rows]


async def has_one_of(tx: Tx, scope: str) -> bool:
    """Returns whether there is a valid key of this scope."""
    row = await tx.fetchrow(
        "SELECT 1 FROM api_keys WHERE scope = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)"
        " LIMIT 1",
        scope,
        tx.now(),
    )
    return row is not None


async def note_uses(tx: Tx, used_at: int, key_ids: Collection[str]) -> None:
    """Records that these keys, at most USES_AT_ONCE, were used at `used_at`, in microseconds; never moves a time back.
    Uses one statement, because it blocks all other writers."""
    size = SIZE if len(key_ids) <= SIZE else USES_AT_ONCE
    for some in filled(key_ids, size):
        await tx.execute(
            "UPDATE api_keys SET used_at = $1 WHERE (used_at IS NULL OR used_at < $1)"
            f" AND key_id IN ({places(2, size)})",
            used_at,
            *some,
        )


def _key(row: Row) -> ApiKey:
    return ApiKey(
        row["key_id"],
        row["scope"],
        row["account"],
        row["user_id"],
        row["label"],
        row["created_at"],
        row["expires_at"] or 0,
        row["revoked_at"] or 0,
        row["rotated_at"] or 0,
        row["previous_until"],
        row["used_at"] or 0,
        _accounts(row),
    )


def _accounts(row: Row) -> tuple[str, ...]:
    return tuple(json.loads(row["accounts"])) if row["accounts"] else ()
