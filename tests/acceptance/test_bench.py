"""`python -m tests.bench` with so few calls that it takes seconds: it writes its report, fails where calls fail, and
leaves no process behind."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runekeep.v1 import session_service_pb2
from tests.bench.load.client import Order
from tests.bench.load.echo import SAY
from tests.bench.load.process import CallsFailed, echo, load
from tests.bench.parts.appends import WAYS
from tests.support.server_process import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.long

SECONDS = 200.0
MARK = "BENCH_TEST_RUN"
"""A variable that all processes of one run inherit, by which they are found wherever they are."""
REQUEST = session_service_pb2.AddMessagesRequest(session="one").SerializeToString()


@contextmanager
def bench(mark: str, *options: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench", "--stores", "sqlite", *options],
        cwd=ROOT, env={**os.environ, MARK: mark}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def running(mark: str) -> dict[int, str]:
    """Command lines of the processes of a run."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # Gone, or of somebody else.
            continue
    return found


def test_a_quick_run_writes_its_report_and_keeps_the_parts_that_it_does_not_measure(tmp_path: Path) -> None:
    run = {"date": "2026-01-01 00:00", "commit": "abc1234", "changed": False, "seconds": 1, "load": [0, 0]}
    machine = {"processors": 2, "memory_gb": 4, "repeats": 1, "stores": ["SQLite"], "versions": {}}
    old = {"part": "claims", "what": "Of another run.", "run": {**run, **machine}, "figures": []}
    (tmp_path / "report.json").write_text(json.dumps({"sections": [old]}))
    mark = str(uuid.uuid4())
    options = ("--parts", "appends", "--quick", "--repeats", "2", "--out", str(tmp_path))
    with bench(mark, *options) as process:
        page, said = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, said[-4000:]
    assert running(mark) == {}
    section, kept = json.loads((tmp_path / "report.json").read_text())["sections"]
    assert kept == old and "Of another run." in page
    figures = {(one["name"], one["unit"]): one for one in section["figures"]}
    # Each way beside an echo of its own, in this run.
    one = figures["append to one session, with a request id, 16 clients", "calls/s"]
    bare = figures["bare echo, 16 clients", "calls/s"]
    assert one["store"] == "SQLite" and len(one["each"]) == 2
    beside = [figures[f"{way}, 16 clients", "calls/s"]["floor"]["each"] for way in WAYS]
    assert all(len(set(each)) == len(WAYS) for each in zip(*beside, strict=True)), "ways that share an echo"
    assert bare["each"] == pytest.approx([sum(each) / len(WAYS) for each in zip(*beside, strict=True)], rel=1e-3)
    assert one["value"] > 0 and one["share"] > 0 and len(one["share_each"]) == 2
    assert one["target"]["reached"] is (one["share"] >= 0.6)
    lengths = [name for name, _ in figures if name.startswith("append to a session of")]
    assert len(lengths) == 4 and "append to a session of 1,000 messages, 1 client" in lengths
    assert section["run"]["repeats"] == 2 and section["run"]["commit"] and section["run"]["versions"]["SQLite"]
    assert page.strip() == (tmp_path / "report.md").read_text().strip()
    assert {plot.name for plot in (tmp_path / "plots").iterdir()} == {"appends-by-clients.svg", "appends-by-length.svg"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_half_way_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    mark = str(uuid.uuid4())
    # With so many repetitions that it would not end by itself.
    with bench(mark, "--parts", "appends", "--quick", "--repeats", "100000", "--out", str(tmp_path)) as process:
        for part in ("runekeep_server", "tests.bench.load.client", "tests.bench.load.inserts"):
            until(lambda part=part: any(f"-m {part} " in command for command in running(mark).values()))  # type: ignore[misc]
        started = running(mark)
        process.send_signal(number)
        process.communicate(timeout=SECONDS)
        assert process.returncode != 0
    assert len(started) >= 5, f"the run, its server, a client, an echo and a writer: {started}"
    assert running(mark) == {}
    assert not (tmp_path / "report.json").exists()


async def test_a_call_that_does_not_end_well_fails_the_run() -> None:
    async with echo() as server, load() as client:
        order = Order(server.address, SAY, 3, 10, [(REQUEST, [])])
        taken = await client.run(order)
        assert taken.statuses == {"OK": 10} and len(taken.each) == 10
        unknown = Order(server.address, "/bench.Echo/Unknown", 3, 10, [(REQUEST, [])])
        with pytest.raises(CallsFailed, match=r"Unknown: {'UNIMPLEMENTED': 10} of 10 calls; Method not found!"):
            await client.run(unknown)
        # The client goes on.
        assert (await client.run(order)).statuses == {"OK": 10}


def test_figures_of_a_quick_run_do_not_get_into_the_report() -> None:
    with bench("", "--parts", "appends", "--quick") as process:
        _, said = process.communicate(timeout=SECONDS)
        assert process.returncode == 2 and "give --out" in said
