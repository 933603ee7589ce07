"""How often the store is asked while an output is worked into memories."""

import json
from types import SimpleNamespace
from typing import Any, cast

from runekeep.v1.common_pb2 import ExtractorInfo
from runekeep_schemas.policy import Plan
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.apply.applier import Applier, _LoadedJob
from runekeep_server.apply.output import Output
from runekeep_storage.memories.memories import LATEST
from runekeep_storage.records import Job
from runekeep_storage.store import Store
from tests.support.worker import write

PLAN = Plan(True, (), ("profile", "preferences", "events"), (), False)


class EmptyTx:
    """Answers as a space does in which no memory ever was. `statements`: how many it was asked."""

    def __init__(self) -> None:
        self.statements = 0

    async def fetchrow(self, sql: str, *args: Any) -> dict[str, Any]:
        self.statements += 1
        return {"newest": 0, "uri": None}


class Counting:
    """A store without memories. `reads`: transactions."""

    def __init__(self) -> None:
        self.reads = 0
        self.tx = EmptyTx()

    async def read(self, work: Any, *args: Any) -> Any:
        self.reads += 1
        return await work(self.tx, *args)


async def test_however_many_memories_an_output_touches_one_transaction_reads_them() -> None:
    database = Counting()
    store = SimpleNamespace(database=database, all_spaces=database, registry=Registry.load())
    operations = [write("preferences", topic=f"Tea {number}", content="Likes it.") for number in range(20)]
    job = cast(Job, SimpleNamespace(account="acme", user="anna", session_id="s", plan=json.dumps(PLAN.to_json())))
    output = cast(Output, SimpleNamespace(operations=operations, extractor=ExtractorInfo()))
    merged = await Applier(cast(Store, store))._merged(job, _LoadedJob(job), output, LATEST)
    assert not merged.outcome.rejected
    assert len(merged.drafts) == 21, "the profile too"
    assert database.reads == 1
    assert database.tx.statements == len(merged.drafts)
