"""What a commit found out about its turns, filled in within its transaction: in as few statements as can be."""

from typing import Any

from schemas.turns.fingerprint import Fingerprint
from schemas.turns.summary import Summary
from storage import fingerprints
from storage.database import Database, Space, Tx
from storage.turn_memories import Filled, TurnMemory, fill_in
from tests.contract.store_fixtures import ANN
from tests.contract.turn_fixtures import say, submit

TURNS = [f"t{number}" for number in range(6)]


class Reads:
    """A transaction that counts the statements that read fingerprints."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.count = 0

    async def fetch(self, sql: str, *args: Any) -> Any:
        self.count += "FROM turn_artifacts" in sql
        return await self._tx.fetch(sql, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


async def test_the_fingerprints_of_all_turns_are_read_at_once(database: Database) -> None:
    await say(database, " ".join(TURNS))
    await submit(database, "t1", objective="said", topics=("tea",))
    found = [TurnMemory(turn_id, Fingerprint(turn_id, f"aim {turn_id}"), Summary(notes="n")) for turn_id in TURNS]

    async def work(tx: Tx, space: Space) -> tuple[Filled, int]:
        reads = Reads(tx)
        return await fill_in(reads, space, "s", found), reads.count

    assert await database.write(work, ANN) == (Filled(changed=5, made=5), 1)

    now = await database.read(fingerprints.of, ANN, "s", TURNS)
    assert [now[turn_id].objective for turn_id in TURNS] == ["aim t0", "said", *(f"aim {one}" for one in TURNS[2:])]
    assert now["t1"].topics == ("tea",)
