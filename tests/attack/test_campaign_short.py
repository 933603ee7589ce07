"""The short form of `make attack`: every attack once and small. It judges no delay."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.attack.campaign import ATTACKS, campaign
from tests.attack.identities import Mode
from tests.attack.probe import Delays
from tests.attack.report import MAX_GROWTH_BYTES, MAX_RATIO, NOISE_MS, Report, Row
from tests.support.postgres import PostgresServer

QUIET = Delays(100, NOISE_MS / 2, NOISE_MS, [])
HELD = Row("a", 1.0, 1, 100, 2, {"UNIMPLEMENTED": 2}, MAX_GROWTH_BYTES, replace(QUIET, p99_ms=NOISE_MS * MAX_RATIO))


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (replace(HELD, breaches=["a message of another account"]), "leak: a message"),
        (replace(HELD, failures=["a new connection was not served"]), "others: a new"),
        (replace(HELD, probe=replace(QUIET, failed=["append: UNAVAILABLE"])), "1 calls of the probe failed"),
        (replace(HELD, started=0), "the attack did not run"),
        (replace(HELD, sent_bytes=0), "the attack did not run"),
        (replace(HELD, growth_bytes=MAX_GROWTH_BYTES + 1), "memory grew"),
        (replace(HELD, probe=replace(QUIET, p99_ms=NOISE_MS * MAX_RATIO * 1.1)), "p99 3.3 times"),
    ],
)
def test_what_a_server_must_not_do(row: Row, why: str) -> None:
    held = Report("keys", "sqlite", "1", [HELD], [QUIET])
    assert held.passed
    broken = Report("keys", "sqlite", "1", [HELD, row], [QUIET])
    assert not broken.passed
    (found,) = broken.broken(row)
    assert why in found
    assert found in broken.table() and broken.as_json()["rows"][1]["broken"] == [found]
    assert not Report("keys", "sqlite", "1", [HELD], [QUIET], ["the server ended badly"]).passed


@pytest.fixture(params=[("keys", "sqlite"), ("mesh", "sqlite"), ("keys", "postgres")], ids="-".join)
def place(request: pytest.FixtureRequest) -> tuple[Mode, str, str]:
    """A mode, a store, and the URL of a new database where the store is PostgreSQL."""
    mode, store = request.param
    if store == "sqlite":
        return mode, store, ""
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    return mode, store, postgres.url(postgres.create())


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.timeout(300)
async def test_nothing_leaks_and_others_are_served(place: tuple[Mode, str, str], tmp_path: Path) -> None:
    mode, store, url = place
    report = await campaign(mode, store, tmp_path, list(ATTACKS), "short", url=url, short=True)
    assert not report.faults
    assert {row.attack: row.wrong() for row in report.rows} == {name: [] for name in ATTACKS}
