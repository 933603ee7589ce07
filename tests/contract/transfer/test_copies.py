"""Copies of a user that fail, and repeats of one that is under way."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runekeep_server.protocol.api_error import ApiError
from runekeep_server.settings import LimitSettings
from runekeep_server.spaces.importing import Imports
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.common.idempotent_requests import RequestKey
from runekeep_storage.erasure import deletion
from tests.support.storage.archives import Parts
from tests.support.storage.databases import ANN, ON_SQLITE, talk
from tests.support.storage.deletions import STAYS, dump

COPY = Space(ANN.account, "copy")

pytestmark = ON_SQLITE


@pytest.fixture
async def imports(database: Database, tmp_path: Path) -> Imports:
    await talk(database, ANN, "s", "one", "two")
    limits = LimitSettings(account_imports=1)
    parts = Parts(database, FolderBlobs(tmp_path))
    return Imports(parts, most_bytes=2**30, limits=limits, lease_seconds=60.0, queued=lambda: None)  # type: ignore[arg-type]  # the parts of a store that it uses


async def test_an_own_export_that_is_not_accepted_is_no_fault_of_the_caller(
    imports: Imports, database: Database
) -> None:
    async def damage(tx: Tx, space: Space) -> None:
        sql = "UPDATE messages SET role = 'nobody' WHERE account = $1 AND user_id = $2"
        await tx.execute(sql, space.account, space.user)

    await database.write(damage, ANN)
    with capture_logs() as logged, pytest.raises(ApiError) as raised:
        await imports.copy(ANN, COPY, None)
    assert raised.value.code.name == "INTERNAL"
    (failed,) = [line for line in logged if line["event"] == "copy_failed"]
    assert failed["incident"] == raised.value.metadata["incident"] and "messages" in failed["error"]
    assert set(await dump(database, COPY)) - {"leftovers", "messages"} <= STAYS


async def test_data_deleted_meanwhile_asks_for_another_copy(
    imports: Imports, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the deletion is under way for long.
    monkeypatch.setattr(deletion, "AT_ONCE", 1)
    await database.write(deletion.delete_user, ANN, "")
    with pytest.raises(ApiError, match=r"`ann` was deleted .* copied.*; copy again\.") as raised:
        await imports.copy(ANN, COPY, None)
    assert (raised.value.code.name, raised.value.reason_name) == ("ABORTED", "VERSION_MISMATCH")


async def test_a_repeat_that_waits_for_the_first_call_gets_its_answer(imports: Imports) -> None:
    key = RequestKey("CopyUser", "once", "of the request")
    first, second = await asyncio.gather(*(imports.copy(ANN, COPY, key) for _ in range(2)))
    assert first == second and first.contents.messages == 2
