"""When keys were used: kept for many of them in one statement, since nobody else writes while it runs."""

from typing import Any

from runekeep_storage.accounts import api_keys
from runekeep_storage.accounts.api_keys import USES_AT_ONCE, NewKey
from runekeep_storage.database import Database, Tx
from tests.support.storage.databases import SECOND
from tests.support.storage.statements import Statements

HOUR = 3600 * SECOND
KEYS = [f"key-{number:04}" for number in range(USES_AT_ONCE)]


async def make(tx: Tx) -> None:
    for key_id in KEYS:
        await api_keys.create(tx, NewKey(key_id, "admin", "", "", "", "0" * 64, None, ""))


async def used(tx: Tx) -> dict[str, int]:
    return {row["key_id"]: row["used_at"] for row in await tx.fetch("SELECT key_id, used_at FROM api_keys")}


async def note(tx: Tx, used_at: int, key_ids: list[str]) -> int:
    counted: Any = Statements(tx)
    await api_keys.note_uses(counted, used_at, key_ids)
    return int(counted.number)


async def test_uses_of_many_keys_are_kept_in_one_statement(database: Database) -> None:
    await database.write_global(make)
    for count in (1, 40, len(KEYS)):
        assert await database.write_global(note, HOUR, KEYS[:count]) == 1
    assert await database.read_global(used) == dict.fromkeys(KEYS, HOUR)
    # Others stay as they are, and so do those that were used since; what there is not is no fault.
    assert await database.write_global(note, 3 * HOUR, KEYS[:2]) == 1
    await database.write_global(note, 2 * HOUR, [KEYS[0], KEYS[5], "none"])
    expected = dict.fromkeys(KEYS, HOUR) | {KEYS[0]: 3 * HOUR, KEYS[1]: 3 * HOUR, KEYS[5]: 2 * HOUR}
    assert await database.read_global(used) == expected
    assert await database.write_global(note, HOUR, []) == 0
