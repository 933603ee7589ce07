"""How much of a session one rollback takes back."""

from types import SimpleNamespace
from typing import Any

import pytest

from runekeep.v1 import history_service_pb2 as pb
from runekeep_server.history.rollback import roll_back
from runekeep_server.history.session_rollback import MAX_CHANGES, roll_back_session
from runekeep_server.protocol.api_error import ApiError
from runekeep_storage.database import Database
from runekeep_storage.memories import revisions
from runekeep_storage.memories.revisions import Origin
from tests.support.storage.archives import REGISTRY
from tests.support.storage.databases import ANN, talk, write

MOST_BYTES = 3 * 2**20


async def test_more_than_one_call_takes_back_is_refused_until_few_enough_are_left(database: Database) -> None:
    await talk(database, ANN, "s", "hello")
    for index, names in enumerate((range(MAX_CHANGES), range(MAX_CHANGES, MAX_CHANGES + 1)), 1):
        writes = [write(ANN, f"n{number}", 0, 1, "tea") for number in names]
        await database.write(revisions.make, ANN, writes, "{}", Origin("commit", f"job-{index}", "s", index))
    models, relay = SimpleNamespace(main=""), SimpleNamespace(wake=lambda: None)
    parts: Any = SimpleNamespace(
        database=database, registry=REGISTRY, attachment=SimpleNamespace(models=models), relay=relay
    )
    for preview in (True, False):
        request = pb.RollbackSessionRequest(session="s", preview=preview)
        with pytest.raises(ApiError, match=r"RollbackRevision, .* revision 2;") as raised:
            await roll_back_session(parts, ANN, request, MOST_BYTES)
        assert (raised.value.code.name, raised.value.reason_name) == ("RESOURCE_EXHAUSTED", "TOO_LARGE")

    one = await roll_back(parts, ANN, pb.RollbackRevisionRequest(revision=2), MOST_BYTES)
    assert one.revision == 3
    done = await roll_back_session(parts, ANN, pb.RollbackSessionRequest(session="s"), MOST_BYTES)
    assert list(done.revisions) == [4] and len(done.changes) + done.changes_omitted == MAX_CHANGES
