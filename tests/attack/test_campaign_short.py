"""The short form of `make attack`: every attack once and small. It judges no delay."""

import sys
from pathlib import Path

import pytest

from tests.attack.campaign import ATTACKS, campaign
from tests.attack.identities import Mode
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mode", "store"), [("keys", "sqlite"), ("mesh", "sqlite"), ("keys", "postgres")])
async def test_nothing_leaks_and_others_are_served(
    mode: Mode, store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = ""
    if store == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        url = postgres.url(postgres.create())
    report = await campaign(mode, store, tmp_path, list(ATTACKS), "short", url=url, short=True)
    assert not report.faults
    assert {row.attack: row.wrong() for row in report.rows} == {name: [] for name in ATTACKS}
