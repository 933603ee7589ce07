"""What a commit found out about its turns, filled in within its transaction: in as few statements as can be."""

from typing import Any

import pytest

from runekeep_schemas.turns.fingerprint import Fingerprint
from runekeep_schemas.turns.summary import Summary
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.turns import fingerprints
from runekeep_storage.turns.memories import Filled, TurnMemory, fill_in
from tests.support.storage.databases import ANN
from tests.support.storage.statements import Statements
from tests.support.storage.turns import say, submit

pytestmark = pytest.mark.postgres_long

TURNS = [f"t{number}" for number in range(6)]


async def test_the_fingerprints_of_all_turns_are_read_at_once(database: Database) -> None:
    await say(database, " ".join(TURNS))
    await submit(database, "t1", objective="said", topics=("tea",))
    found = [TurnMemory(turn_id, Fingerprint(turn_id, f"aim {turn_id}"), Summary(notes="n")) for turn_id in TURNS]

    async def work(tx: Tx, space: Space) -> tuple[Filled, int]:
        noted: Any = Statements(tx)
        filled = await fill_in(noted, space, "s", found)
        return filled, sum("FROM turn_artifacts" in sql and sql.startswith("SELECT") for sql in noted.made)

    assert await database.write(work, ANN) == (Filled(changed=5, made=5), 1)

    now = await database.read(fingerprints.of, ANN, "s", TURNS)
    assert [now[turn_id].objective for turn_id in TURNS] == ["aim t0", "said", *(f"aim {one}" for one in TURNS[2:])]
    assert now["t1"].topics == ("tea",)
