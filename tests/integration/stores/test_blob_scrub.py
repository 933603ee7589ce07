"""Damaged or missing blobs are found before somebody needs them: by the running server, and by the doctor."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest

from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc
from runekeep_server.doctor import stores
from runekeep_server.settings import load_settings
from tests.doubles import s3_server
from tests.integration.stores.test_damaged_data import DAMAGED, flip
from tests.integration.stores.test_damaged_database import run
from tests.integration.stores.test_object_store import at
from tests.support.callers import Caller, failure, used_tool
from tests.support.doctor import server_checks
from tests.support.scrapes import metrics_address, scraped
from tests.support.server_process import ServerProcess
from tests.support.turns import bucketed

Servers = Callable[..., ServerProcess]
SCRUBS = {"RUNEKEEP_DATA_CHECK_SECONDS": "0.2", "RUNEKEEP_METRICS_ADDRESS": "127.0.0.1:0"}
WAIT_SECONDS = 60.0


class Folder:
    """Returns the blobs of a data directory, by their content."""

    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, data_dir: Path) -> None:
        self._blobs = data_dir / "blobs"

    def _holding(self, text: str) -> Path:
        (found,) = (path for path in self._blobs.rglob("*") if path.is_file() and text.encode() in path.read_bytes())
        return found

    def damage(self, text: str) -> None:
        flip(self._holding(text))

    def remove(self, text: str) -> None:
        self._holding(text).unlink()


class Objects:
    """Returns the same for an object store."""

    def __init__(self, double: s3_server.S3Double) -> None:
        self._double = double
        self.settings = at(double)

    def _holding(self, text: str) -> str:
        (found,) = (key for key, (data, _) in self._double.objects.items() if text.encode() in data)
        return found

    def damage(self, text: str) -> None:
        key = self._holding(text)
        data, put_at = self._double.objects[key]
        self._double.objects[key] = (data[:-1], put_at)

    def remove(self, text: str) -> None:
        del self._double.objects[self._holding(text)]


@pytest.fixture(params=["folder", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "folder":
        yield Folder(tmp_path / "data")
        return
    with s3_server.running() as double:
        yield Objects(double)


async def scrubbed(channel: grpc.aio.Channel, **numbers: int) -> Any:
    """Returns what the server reports of its blobs, once a scrub has ended with these numbers."""
    stub = admin_service_pb2_grpc.AdminServiceStub(channel)
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            status = await stub.GetServerStatus(admin_service_pb2.GetServerStatusRequest())
            (check,) = (one for one in status.data_checks if one.name == "blobs")
            if {name: getattr(check, name) for name in numbers} == numbers and check.HasField("end_time"):
                return check
            await asyncio.sleep(0.05)


async def test_a_file_that_cannot_be_read_does_not_hold_up_a_scrub(own_server: Servers, tmp_path: Path) -> None:
    server = own_server(SCRUBS)
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        for number, output in enumerate(("unreadable " * 3000, "whole " * 4000)):
            await caller.add(session, used_tool(f"call-{number}", output))
        await scrubbed(channel, blobs=2, damaged_blobs=0)
        file = Folder(tmp_path / "data")._holding("unreadable")
        # Stands for a bad sector: each read fails, while the folder takes other files.
        file.unlink()
        file.symlink_to(file)
        await scrubbed(channel, blobs=2, damaged_blobs=1, missing_blobs=0)


async def test_a_scrub_finds_damaged_and_missing_blobs(own_server: Servers, place: Any, tmp_path: Path) -> None:
    server = own_server({**SCRUBS, **place.settings})
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        rotten, gone, whole = ("rotten " * 4000, "gone " * 5000, "whole " * 4000)
        for number, output in enumerate((rotten, gone, whole)):
            await caller.add(session, used_tool(f"call-{number}", output))
        # The row of the first blob names another one by now, but its message still names the first.
        await caller.add(session, used_tool("call-0", "again " * 4000))
        await bucketed(caller, session, "Greece")
        fine = await scrubbed(channel, blobs=5, damaged_blobs=0, missing_blobs=0)
        assert not fine.problem and fine.extent == "full"

        place.damage("rotten")
        place.damage("Greece")
        place.remove("gone")

        found = await scrubbed(channel, blobs=4, damaged_blobs=2, missing_blobs=1)
        assert found.problem == "2 damaged, 1 missing"
        told = (await server_checks(server))["server.blobs_data"]
        assert told["state"] == "problem" and "2 damaged, 1 missing" in told["found"]
        samples = await asyncio.to_thread(scraped, metrics_address(tmp_path / "data.log"))
        assert samples["runekeep_blobs_damaged", {"kind": "damaged"}] == 2
        assert samples["runekeep_blobs_damaged", {"kind": "missing"}] == 1
        assert samples["runekeep_data_check_timestamp_seconds", {"data": "blobs"}] > 0
        assert {"blob_damaged", "blob_missing"} == {fault["event"] for fault in server.faults()}

        # Content that is stored once more is intact again, and stays so.
        await caller.add(session, used_tool("call-0", rotten), used_tool("call-1", gone))
        for number, output in ((0, rotten), (1, gone)):
            document = await caller.read(f"viking://session/{session}/tools/call-{number}/tool.json")
            assert json.loads(document.text)["output"] == output
        await scrubbed(channel, missing_blobs=0)
    server.discard()


async def test_a_read_that_meets_damage_is_told_before_any_scrub(own_server: Servers) -> None:
    server = own_server({"RUNEKEEP_DATA_CHECK_SECONDS": "0"})
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        await caller.add(session, used_tool("call-1", "rotten " * 4000))
        Folder(server.data_dir).damage("rotten")
        assert (await failure(caller.read(f"viking://session/{session}/tools/call-1/tool.json"))).seen == DAMAGED
        told = (await server_checks(server))["server.blobs_data"]
        assert told["state"] == "problem" and told["found"].startswith("1 damaged, 0 missing (not checked yet")
    server.discard()


async def test_the_doctor_reads_blobs_where_no_server_runs(own_server: Servers, place: Any) -> None:
    server = own_server(place.settings)
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        for number, word in enumerate(("rotten ", "gone ", "whole ")):
            await caller.add(session, used_tool(f"call-{number}", word * 5000))
    server.stop()

    def told() -> dict[str, str]:
        ran = run("runekeep", "doctor", "--data-dir", server.data_dir, "--json", **place.settings)
        checks = [check for check in json.loads(ran.stdout)["checks"] if check["check"] == "blobs.integrity"]
        return {check["state"] + " " + check["found"].partition(":")[0]: check["do"] for check in checks}

    assert list(await asyncio.to_thread(told)) == ["ok 3 read, all whole"]
    place.damage("rotten")
    place.remove("gone")
    assert list(await asyncio.to_thread(told)) == ["problem damaged", "problem missing"]


async def test_the_doctor_reads_no_longer_than_it_may(own_server: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        await caller.add(await caller.session(), used_tool("call-1", "whole " * 5000))
    server.stop()
    real = stores.blob_facts
    monkeypatch.setattr(stores, "blob_facts", lambda database, place: real(database, place, -1.0))
    settings = load_settings(None, {"embedder": "none", "data_dir": server.data_dir})
    found = {check.name: check async for check in stores.blobs(settings)}
    assert found["blobs.integrity"].state == "ok" and "there are more" in found["blobs.integrity"].found
