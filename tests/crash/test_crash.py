"""The short form of `make crash`: every fault once, on both stores, and a server that must not pass."""

from pathlib import Path

import pytest

from tests.crash.campaign import campaign, without_watermark
from tests.crash.faults import faults_on
from tests.crash.fleet import Backing, OnPostgres, OnSqlite
from tests.support.postgres import PostgresServer

OVERLAPPING = 100
"""On each of the two stores: 200 searches of a run are under way when a commit comes into sight."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Backing:
    if request.param == "sqlite":
        return OnSqlite()
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return OnPostgres(server, tmp_path)


@pytest.mark.timeout(600)
async def test_nothing_is_lost_doubled_or_half_seen_whatever_dies(backing: Backing, tmp_path: Path) -> None:
    faults = faults_on(backing.name)

    outcome = await campaign(backing, tmp_path, faults, seed="short", wanted_overlaps=OVERLAPPING)

    assert not outcome.violations, "\n".join(map(str, outcome.violations[:50]))
    assert outcome.fired.keys() == {fault.name for fault in faults}
    assert outcome.overlapping >= OVERLAPPING, outcome.as_json()


@pytest.mark.timeout(300)
async def test_without_the_watermark_the_checker_sees_half_a_commit(tmp_path: Path) -> None:
    searches, halves = await without_watermark(OnSqlite(), tmp_path)

    assert halves, f"{searches} searches, and none of them saw half a commit"
