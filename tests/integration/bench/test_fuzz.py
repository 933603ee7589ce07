"""The short form of `python -m tests.fuzz`: hostile requests to every method, streams included, in both modes."""

from pathlib import Path

import pytest

from runekeep.contract import SERVICES
from runekeep_server.rpc.methods import METHODS
from tests.fuzz.__main__ import fuzz

REQUESTS = 1500


@pytest.mark.parametrize("mode", ["development", "keys"])
async def test_hostile_requests_are_answered(mode: str, tmp_path: Path) -> None:
    report = await fuzz(mode, f"short {mode}", REQUESTS, tmp_path)
    assert report.faults == [], "\n".join(report.faults)
    assert report.probes
    assert report.sent.total() + report.unsent.total() == REQUESTS, "each is counted"
    streams = (method for service in SERVICES for method in service.methods if method.client_streaming)
    assert set(report.empty) == {f"{method.containing_service.name}/{method.name}" for method in streams}
    counted = report.empty + report.unseen + report.valid
    assert all(count <= report.sent[method] for method, count in counted.items()), "and none twice"
    assert set(report.sent) == {method.name for method in METHODS.values()}, (
        "what reflection says is what the contract says"
    )
