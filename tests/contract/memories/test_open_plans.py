"""The open plans of a user in the order in which they are due, on every driver."""

import json
from dataclasses import replace

import pytest

from runekeep_schemas.memory_types.event_time import happened_at
from runekeep_schemas.memory_types.plans import due
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Database
from runekeep_storage.memories.open_plans import MAX_BYTES, open_plans
from runekeep_storage.records import MemoryWrite
from tests.support.storage.databases import ANN, BOB, revise, write

pytestmark = pytest.mark.postgres_long

DIRECTORY = "viking://user/ann/memories/plans/"
PLANS = Registry.load()["plans"]


def plan(name: str, status: str, due: str, base: int = 0, content: str = "") -> MemoryWrite:
    fields = {"plan_name": name, "status": status, "due": due, "content": content}
    made = write(ANN, name, base, base + 1, fields=json.dumps(fields), happened_at=happened_at(PLANS, fields))
    return replace(made, uri=f"{DIRECTORY}{name}.md", memory_type="plans")


async def test_open_plans_come_as_they_are_due_and_closed_ones_not(database: Database) -> None:
    await revise(
        database,
        ANN,
        "t1",
        plan("trip", "open", "2026-07"),
        plan("someday", "open", ""),
        plan("dentist", "open", "2026-05-14T09:30"),
        plan("taxes", "", "2026-05-31"),
        plan("party", "dropped", "2026-05-01"),
        plan("visit", "open", "2026-06-01"),
        plan("novel", "open", "2026-05-02", content="x" * MAX_BYTES),
    )
    await revise(database, ANN, "t2", plan("visit", "done", "2026-06-01", base=1))
    found = await database.read(open_plans, ANN, DIRECTORY, 10)
    assert [one.uri.removeprefix(DIRECTORY) for one in found] == ["dentist.md", "taxes.md", "trip.md", "someday.md"]
    month = due(json.loads(found[2].fields))
    assert month is not None and (month.start, month.precision) == (found[2].happened_at, "month")
    assert [one.uri for one in await database.read(open_plans, ANN, DIRECTORY, 1)] == [found[0].uri]
    assert await database.read(open_plans, BOB, DIRECTORY, 10) == []
