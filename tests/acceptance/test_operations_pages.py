"""What the pages about doctor, backups and upgrades say is tried as it stands there."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runekeep import Client, TextPart, ToolPart
from runekeep_storage.transfer.backup_manifest import BLOBS, DATABASE, MANIFEST
from tests.acceptance.processes import environment
from tests.support.pages import DOCS, ROOT, first_cells, section
from tests.support.server_process import ServerProcess

LARGE = "x" * 30_000


def commands(text: str) -> list[str]:
    return re.findall(r"^    (\S.*)$", text, re.MULTILINE)


def run(line: str, cwd: Path, **variables: str) -> str:
    """A command of a page; `runekeep` is that of this checkout."""
    program, *arguments = shlex.split(line)
    command = [sys.executable, "-m", "runekeep"] if program == "runekeep" else [program]
    ran = subprocess.run(
        [*command, *arguments],
        cwd=cwd,
        env=environment({"PYTHONPATH": str(ROOT), "COLUMNS": "80", "RUNEKEEP_EMBEDDER": "none", **variables}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, f"{line}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def fill(address: str) -> None:
    with Client(address, user="ann") as client:
        session = client.session("s")
        session.add_message("user", [TextPart("I drink green tea.")])
        session.add_message("assistant", [ToolPart(tool_id="c", tool_name="t", output=LARGE, status="completed")])


def is_filled(address: str) -> bool:
    with Client(address, user="ann") as client:
        said, used = list(client.session("s").messages())
        whole = client.read("viking://session/s/tools/c/tool.json")
        return said.parts == [TextPart("I drink green tea.")] and json.loads(whole)["output"] == LARGE and bool(used)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """On the data directory that the pages name, with something in it."""
    started = ServerProcess(tmp_path / "runekeep-data").start()
    fill(started.address)
    yield started
    started.discard()


def test_the_embedded_store_is_backed_up_and_restored_as_the_page_says(server: ServerProcess, tmp_path: Path) -> None:
    page = DOCS / "operate" / "backup.md"
    make, check, restore = commands(section(page, "The embedded store"))
    assert "holds the store of" in run(make, tmp_path) and "is whole" in run(check, tmp_path)
    assert "makes the index anew" in run(restore, tmp_path)
    with Client(server.address, user="ann") as client:
        client.erase(session="s")
    server.stop()
    (former,) = commands(section(page, "What was erased since"))
    told = run(former, tmp_path)
    assert "Taken away since, and here again:" in told
    assert re.search(r"^  \S+ default/ann session *$", told, re.MULTILINE), "the receipt"
    assert re.search(r"^  \S+ default/ann SpaceService/EraseData ", told, re.MULTILINE), "the audit log"

    restored = ServerProcess(tmp_path / "restored").start()
    assert is_filled(restored.address)
    restored.stop()
    text = section(page, "The embedded store")
    table = text[text.index("| in it | what |") : text.index("### Restoring")]
    assert re.findall(r"^\| `([\w.]+)", table, re.MULTILINE) == [MANIFEST, DATABASE, BLOBS]


def test_the_doctor_is_called_as_the_page_says(tmp_path: Path) -> None:
    page = DOCS / "operate" / "doctor.md"
    table, lines = commands(page.read_text())
    assert "settings.load" in run(table, tmp_path)
    checks = json.loads(run(lines, tmp_path))["checks"]
    assert {"check", "state", "found", "do"} == set(checks[0])
    areas = first_cells(section(page, "Checks"))
    assert {"settings", "store", "model"} <= {check["check"].partition(".")[0] for check in checks} <= areas


def test_the_upgrade_page_says_how_long_a_migration_waits() -> None:
    from runekeep_storage.migrations.migrate import TABLE_LOCK_MS

    assert f"waits {TABLE_LOCK_MS // 1000} seconds for a table" in (DOCS / "operate" / "upgrades.md").read_text()
