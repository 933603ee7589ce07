"""The short form of the campaign against `runekeep up`: some kills under load, and damage is noticed if a guard is
missing.

The long form is `make crash`; `make crash-root` runs the faults that need root or a Debian package.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from tests.crash.campaign import SPACES, loaded
from tests.crash.damage import flip_blobs, look_at_copy, snapshot
from tests.crash.faults import up
from tests.crash.fleet import OnSqlite, running
from tests.crash.history import History
from tests.crash.system_campaign import SYSTEM_FAULTS, plan, system_campaign
from tests.crash.system_faults import SystemFault
from tests.crash.violations import Wrong
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

COMMITS = 2
COPY_ATTEMPTS = 10
"""Least number of commits of each user, in each of the two parts of the run that is damaged."""


def named(*names: str) -> list[SystemFault]:
    return [fault for fault in SYSTEM_FAULTS if fault.name in names]


@pytest.mark.timeout(300)
async def test_with_default_settings_nothing_is_lost_when_processes_are_killed(tmp_path: Path) -> None:
    faults = named("server killed", "extractor killed", "index process killed")

    outcome = await system_campaign(tmp_path, None, faults, seed="short")

    assert not outcome.violations, "\n".join(map(str, outcome.violations[:50]))
    assert outcome.fired.keys() == {fault.name for fault in faults} and outcome.commits


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_nor_with_two_servers_on_postgresql(postgres_server: PostgresServer, tmp_path: Path) -> None:
    faults = [fault for fault in SYSTEM_FAULTS if fault.short and "postgres" in fault.stores and not fault.needs]

    outcome = await system_campaign(tmp_path, postgres_server, faults, seed="short")

    assert not outcome.violations, "\n".join(map(str, outcome.violations[:50]))
    assert outcome.fired.keys() == {fault.name for fault in faults} and outcome.commits


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_seed_decides_which_faults_strike_and_in_which_order(store: str) -> None:
    faults = plan(store, "seven", rounds=30)

    assert faults == plan(store, "seven", rounds=30) != plan(store, "eight", rounds=30)
    assert all(store in fault.stores for fault in faults) and len(faults) > 8


def test_all_that_is_tried_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in SYSTEM_FAULTS}) == len(SYSTEM_FAULTS)


@dataclass(frozen=True, slots=True)
class Left:
    """What a run has left: its data directory, an older copy, and everything that was acknowledged."""

    data_dir: Path
    older: Path
    history: History


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def left(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Left]:
    directory, history = tmp_path_factory.mktemp("left"), History()
    older = directory / "older"

    def has_committed(more: int) -> None:
        until(lambda: all(sum(one.space == space for one in history.commits) >= more for space in SPACES))

    async with running(OnSqlite(), directory, history) as fleet:
        await asyncio.gather(*map(up, fleet.extractors))
        (server,) = fleet.servers
        async with loaded(fleet.ports, history, "left"):
            await asyncio.to_thread(has_committed, COMMITS)
            server.kill()
            await asyncio.to_thread(_copy, fleet.data_dir(0), older)
            await server.start()
            await asyncio.to_thread(has_committed, 2 * COMMITS)
        server.kill()
    yield Left(fleet.data_dir(0), older, snapshot(history))


def _copy(data_dir: Path, place: Path) -> None:
    """The index process may rename files for a moment after its server was killed."""
    for attempt in range(COPY_ATTEMPTS):
        try:
            shutil.copytree(data_dir, place)
        except shutil.Error:
            if attempt == COPY_ATTEMPTS - 1:
                raise
            shutil.rmtree(place)
            time.sleep(0.5)
        else:
            return


def copied(data_dir: Path, place: Path) -> Path:
    shutil.copytree(data_dir, place / "copy")
    return place / "copy"


@pytest.mark.asyncio(loop_scope="module")
async def test_damaged_blobs_are_refused(left: Left, tmp_path: Path) -> None:
    copy = copied(left.data_dir, tmp_path)
    assert flip_blobs(copy, Random(1))

    found = await look_at_copy(copy, left.history, embedder="none")

    assert found.signs["DATA_LOSS"] and found.right and not found.violations, found


@pytest.mark.asyncio(loop_scope="module")
async def test_damaged_blobs_that_are_served_are_seen(left: Left, tmp_path: Path) -> None:
    copy = copied(left.data_dir, tmp_path)
    flip_blobs(copy, Random(1))

    found = await look_at_copy(copy, left.history, embedder="none", blind="digest")

    assert Wrong.DAMAGED in {violation.wrong for violation in found.violations}, found


@pytest.mark.asyncio(loop_scope="module")
async def test_a_store_that_went_back_in_time_is_seen(left: Left, tmp_path: Path) -> None:
    """The older copy has everything that lies beside the database, so nothing in it can reveal the loss."""
    found = await look_at_copy(copied(left.older, tmp_path), left.history, embedder="none")

    assert Wrong.LOST in {violation.wrong for violation in found.violations}, found
