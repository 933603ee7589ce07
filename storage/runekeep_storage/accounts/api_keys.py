"""API keys: their scope, owner and the hash of their secrets. No row contains any part of a secret.

Keys are not user data, so no statement is confined to an account, and only operators can reach them. Exceptions are
`state_of`, which looks up one key by its id, and `note_uses`.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass

from runekeep_storage.accounts import statements
from runekeep_storage.database import Row, Tx
from runekeep_storage.drivers.common.statement_lists import SIZE, filled
from runekeep_storage.errors import AlreadyExists, NotFound

KIND = "API key"
"""Name of API keys in errors."""
USES_AT_ONCE = 16 * SIZE
"""Maximum number of keys in one `note_uses`."""


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
        before = await tx.fetchrow(statements.KEY_OF_REQUEST, new.request_id)
        if before is not None:
            raise AlreadyExists(KIND, before["key_id"])
    now = tx.now()
    await tx.execute(
        statements.ADD_KEY,
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
    row = await tx.fetchrow(statements.KEY, key_id)
    if row is None:
        raise NotFound(KIND, key_id)
    return _key(row)


async def state_of(tx: Tx, key_id: str) -> KeyState | None:
    """Returns the data that authenticates calls with this key; None if there is no such key."""
    row = await tx.fetchrow(statements.KEY_WITH_DIGEST, key_id)
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
    until = now + grace if grace > 0 else 0
    changed = await tx.execute(statements.ROTATE_KEY, key_id, digest, int(grace > 0), until, now)
    if not changed:
        raise NotFound(KIND, key_id)
    return await get(tx, key_id)


async def revoke(tx: Tx, key_id: str) -> ApiKey:
    """Revokes the key; does not change a key that is already revoked. Raises NotFound."""
    await tx.execute(statements.REVOKE_KEY, key_id, tx.now())
    return await get(tx, key_id)


async def page(tx: Tx, account: str, include_ended: bool, after: tuple[int, str] | None, most: int) -> list[ApiKey]:
    """Returns keys, newest first, of one account, or of all if `account` is empty. `after`: creation time and id of the
    last key of the previous page."""
    statement = statements.keys(over_all=not account, include_ended=include_ended, is_first=after is None)
    given: list[str | int] = [account] if account else []
    if not include_ended:
        given.append(tx.now())
    rows = await tx.fetch(statement, *given, *(after or ()), most)
    return [_key(row) for row in rows]


async def has_one_of(tx: Tx, scope: str) -> bool:
    """Returns whether there is a valid key of this scope."""
    return await tx.fetchrow(statements.HAS_VALID_KEY, scope, tx.now()) is not None


async def note_uses(tx: Tx, used_at: int, key_ids: Collection[str]) -> None:
    """Records that these keys, at most USES_AT_ONCE, were used at `used_at`, in microseconds; never moves a time back.
    Uses one statement, because it blocks all other writers."""
    size = SIZE if len(key_ids) <= SIZE else USES_AT_ONCE
    for some in filled(key_ids, size):
        await tx.execute(statements.set_used(size), used_at, *some)


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
