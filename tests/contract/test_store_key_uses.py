"""When keys were used: kept for many of them in one statement, since nobody else writes while it runs."""

from typing import Any

from storage import api_keys
from storage.api_keys import USES_AT_ONCE, NewKey
from storage.database import Database, Row, Tx
from tests.contract.store_fixtures import SECOND

HOUR = 3600 * SECOND
KEYS = [f"key-{number:04}" for number in range(USES_AT_ONCE)]


async def make(tx: Tx) -> None:
    for key_id in KEYS:
        await api_keys.create(tx, NewKey(key_id, "admin", "", "", "", "0" * 64, None, ""))


async def used(tx: Tx) -> dict[str, int]:
    return {row["key_id"]: row["used_at"] for row in await tx.fetch("SELECT key_id, used_at FROM api_keys")}


class Counted:
    """A transaction that counts its statements."""

    def __init__(self, tx: Any) -> None:
        self._tx = tx
        self.statements = 0

    async def execute(self, sql: str, *args: Any) -> Row:
        self.statements += 1
        return await self._tx.execute(sql, *args)


async def note(tx: Tx, used_at: int, key_ids: list[str]) -> int:
    counted: Any = Counted(tx)
    await api_keys.note_uses(counted, used_at, key_ids)
    return int(counted.statements)


async def test_uses_of_many_keys_are_kept_in_one_statement(database: Database) -> None:
    await database.write(make)
    for count in (1, 40, len(KEYS)):
        assert await database.write(note, HOUR, KEYS[:count]) == 1
    assert await database.read(used) == dict.fromkeys(KEYS, HOUR)
    # Others stay as they are, and so do those that were used since; what there is not is no fault.
    assert await database.write(note, 3 * HOUR, KEYS[:2]) == 1
    await database.write(note, 2 * HOUR, [KEYS[0], KEYS[5], "none"])
    expected = dict.fromkeys(KEYS, HOUR) | {KEYS[0]: 3 * HOUR, KEYS[1]: 3 * HOUR, KEYS[5]: 2 * HOUR}
    assert await database.read(used) == expected
    assert await database.write(note, HOUR, []) == 0
