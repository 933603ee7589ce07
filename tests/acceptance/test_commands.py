"""The commands a user meets first: the demo, the command line, and a wheel outside the checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from runekeep import Client, TextPart, ToolPart
from tests.acceptance.processes import ROOT, Processes, environment, run, well_ended
from tests.support.fork_server import run_module

LOCOMO = ROOT.parent / "shared" / "data" / "locomo-dev.json"
WAIT_SECONDS = 120.0
PACKAGES = (
    "runekeep",
    "runekeep_server",
    "runekeep_storage",
    "runekeep_schemas",
    "runekeep_common",
    "runekeep_extractor",
)
OWN_MODULES = ("server", "storage", "schemas", "extractor")
STANDARD_MODULES = ("types", "logging")
"""Names of modules that a user's project may have."""


def cli(*arguments: str, address: str = "", **variables: str) -> Any:
    """What `runekeep ... --json` prints, parsed."""
    known = environment({**({"RUNEKEEP_ADDRESS": address} if address else {}), **variables})
    return json.loads(well_ended(run_module("runekeep", *arguments, "--json", environment=known)).stdout)


def processes_of(directory: Path) -> list[str]:
    """Command lines of living processes that name a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # ended while we looked
            if str(directory) in line:
                found.append(line)
    return found


def test_the_demo_shows_what_its_sample_says_ends_well_and_leaves_no_process(tmp_path: Path) -> None:
    """A sentence of the sample is another one, so that the demo cannot print what it did not read."""
    copy = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", copy, ignore=shutil.ignore_patterns("node", "typescript", "go", "java"))
    sample = copy / "conversation.jsonl"
    text = sample.read_text()
    assert "Verpak in Antwerp" in text
    sample.write_text(text.replace("Verpak in Antwerp", "Doosjes in Rotterdam"))
    finished = run(sys.executable, copy / "demo.py", TMPDIR=str(tmp_path), COLUMNS="200", PYTHONPATH=str(ROOT))
    assert "Doosjes in Rotterdam" in finished.stdout
    assert "Verpak in Antwerp" not in finished.stdout
    assert "offline" in finished.stdout
    assert "memory_diff.json" in finished.stdout
    told = finished.stdout.partition("What a model would be told")[2]
    assert "## Memories" in told and "20 March" in told and "Only a preview" in told
    assert not processes_of(tmp_path)


def test_the_index_is_rebuilt_from_the_store_without_an_embedder(fleet: Processes) -> None:
    server = fleet.server()
    fleet.extractor("worker", "--engine", "offline")
    with Client(fleet.address) as client:
        session = client.session(session_id="chat")
        session.add_message("user", [TextPart("I prefer green tea over coffee, every morning.")])
        task = client.wait_task(session.commit()["task_id"], timeout=WAIT_SECONDS)
        assert task["result"], fleet.log()
        # A passage follows its commit; found with its vector, so that the rebuild has something to bring back.
        revision = task["result"]["revision"]
        before = _answers(client, revision)
    server.stop()
    shutil.rmtree(fleet.data_dir / "index")
    counts = cli("index", "rebuild", "--data-dir", str(fleet.data_dir))
    assert counts["memories"] >= 1
    assert counts["passages"] == 1
    fleet.server()
    with Client(fleet.address) as client:
        assert _answers(client, revision) == before


def _answers(client: Client, revision: int) -> list[tuple[str, float]]:
    """Names and scores of everything found, once the passages are in the index."""
    while True:
        found = client.find("what does the user drink", limit=20, min_revision=revision)
        if not found["pending_passages"]:
            return [(hit["uri"], round(hit["score"], 4)) for hit in found["results"]]


@pytest.mark.skipif(not LOCOMO.exists(), reason="the LoCoMo file lies beside the checkout only where we develop")
def test_ingest_commits_every_session_of_a_conversation(fleet: Processes, tmp_path: Path) -> None:
    fleet.server()
    fleet.extractor("one", "--concurrency", "2")
    conversations = json.loads(LOCOMO.read_text())[:2]
    conversation = conversations[1]
    # Six of its nineteen: the others are of the same kind.
    later = [f"session_{number}" for number in range(7, 40)]
    conversation["conversation"] = {
        name: value for name, value in conversation["conversation"].items() if name not in later
    }
    sessions = [name for name, turns in conversation["conversation"].items() if isinstance(turns, list) and turns]
    assert len(sessions) == 6
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps(conversations))
    only = ("--only", conversation["sample_id"])
    summary = cli("ingest", str(file), *only, address=fleet.address)
    assert summary["commits"] == len(sessions)
    assert set(summary["outcomes"]) <= {"applied", "nothing_to_extract"}
    # Message ids come from the file: the same talk a second time is known.
    again = cli("ingest", str(file), *only, address=fleet.address)
    assert again["outcomes"] == {"skipped": len(sessions)}


@pytest.fixture(scope="session")
def outside(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing of the checkout but its wheel; other packages are borrowed."""
    folder = tmp_path_factory.mktemp("outside")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    # A line in a .pth file adds a folder without reading the .pth files in it, so not the editable checkout.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed", wheel, cwd=folder)
    return folder


def test_a_wheel_runs_among_modules_of_any_name(outside: Path, tmp_path: Path) -> None:
    runekeep = outside / "venv" / "bin" / "runekeep"
    python = outside / "venv" / "bin" / "python"
    where = run(python, "-P", "-c", f"import {', '.join(PACKAGES)}, sys; print(sys.modules.values())", cwd=tmp_path)
    assert str(ROOT) not in where.stdout
    ran = tmp_path / "ran"
    for name in (*OWN_MODULES, *STANDARD_MODULES):
        (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r}); raise SystemExit(9)\n")
    # Python itself would not start with a module `types` on its path.
    (tmp_path / "own").mkdir()
    for name in OWN_MODULES:
        shutil.copy(tmp_path / f"{name}.py", tmp_path / "own")
    up = subprocess.Popen(
        [runekeep, "up", "--json", "--address", "127.0.0.1:0", "--data-dir", tmp_path / "data"],
        cwd=tmp_path,
        env=environment({"PYTHONPATH": "own"}),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stdout is not None
        address = json.loads(up.stdout.readline())["address"]
        with Client(address) as client:
            session = client.session(session_id="chat_001")
            session.add_message("user", [TextPart("I am a ceramics teacher from Ghent.")])
            tool = ToolPart(tool_id="t", tool_name="web_search", output="found", status="completed", duration_ms=1200)
            session.add_message("assistant", [TextPart("Noted."), tool])
            result = session.commit()
            assert result["status"] == "accepted"
            assert result["archived"] is True
            task = client.wait_task(result["task_id"], timeout=WAIT_SECONDS)
            assert task["status"] == "completed"
            assert task["result"] is not None
            assert task["result"]["memories_extracted"]["tools"] == 1
            assert "Avg time: 1.2s" in client.read("viking://agent/memories/tools/web_search.md")
    finally:
        up.terminate()
        up.wait(60)
        assert up.stdout is not None
        up.stdout.close()
    assert up.returncode == 0
    for command in (["index", "rebuild"], ["backup", tmp_path / "backup"]):
        run(runekeep, *command, "--data-dir", tmp_path / "data", cwd=tmp_path, PYTHONPATH="own")
    assert not ran.exists(), f"ran {ran.read_text()}"
    assert not processes_of(tmp_path / "data")


PROGRAM = """
from runekeep import Client, TextPart

with Client("127.0.0.1:7433", user="robin") as client:
    session = client.session("kitchen")
    session.add_message("user", [TextPart("Tea, please.")])
    for update in client.watch_task(session.commit().task_id):
        if update.kind == "ended":
            print(update.task.status)
    best = client.find("tea").results[0]
    score: float = best.score
"""
SLIPS = (
    'session.add_message("robot", [])',
    'client.find("tea", limit="3")',
    'client.find("tea").found',
    "client.forget()",
)


def test_a_type_checker_reads_the_client_of_a_wheel_and_finds_slips(outside: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    lines = PROGRAM.splitlines()
    program.write_text("\n".join([*lines, *(f"    {slip}" for slip in SLIPS)]) + "\n")
    python = outside / "venv" / "bin" / "python"
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "--cache-dir", tmp_path, program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    wrong = [int(line) for line in re.findall(r"program\.py:(\d+): error: ", checked.stdout)]
    assert wrong == [len(lines) + 1 + place for place in range(len(SLIPS))], checked.stdout + checked.stderr
