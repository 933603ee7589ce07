"""The package without extras: client and command line, and none of the packages of a server or a model."""

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.acceptance.processes import Processes, environment, run

MAX_DIRECT_PACKAGES = 12
MAX_INSTALLED_BYTES = 80_000_000
HEAVY = (
    *("alembic", "anthropic", "asyncpg", "cryptography", "numpy", "obstore", "onnxruntime", "openai"),
    *("qdrant_client", "qdrant_edge", "sqlalchemy", "starlette", "tokenizers"),
)
PROGRAM = """
import json, sys
from importlib.util import find_spec
from runekeep import Client, TextPart

with Client(user="robin") as client:
    session = client.session("kitchen")
    session.add_message("user", [TextPart("I live in Lisbon and I prefer tea to coffee.")])
    task = client.wait_task(session.commit()["task_id"], timeout=120)
    found = client.find("Where does Robin live?", min_revision=task["result"]["revision"])
    recalled = client.recall("Where does Robin live?")
heavy = sys.argv[1:]
print(json.dumps({
    "results": found["results"],
    "text": recalled["text"],
    "imported": [name for name in heavy if name in sys.modules],
    "installed": [name for name in heavy if find_spec(name)],
}))
"""


def closure(requirements: list[str]) -> dict[str, Distribution]:
    """Returns the packages of this environment that these requirements bring, by name."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in found or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        assert not one.extras, f"{one}: follow its extras too"
        found[name] = distribution(name)
        waiting += [Requirement(text) for text in found[name].requires or []]
    return found


@pytest.fixture(scope="session")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and the packages that it needs without extras, no others.

    The packages are copied from this environment, as pip would install them, so that the test needs no network.
    """
    folder = tmp_path_factory.mktemp("light")
    # To install pip takes most of the time that it takes to make an environment; this one's pip installs there.
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    before = _bytes_in(packages)
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=folder)
    (metadata,) = packages.glob("runekeep-*.dist-info")
    own = [text for text in Distribution.at(metadata).requires or [] if "extra ==" not in text]
    assert len(own) <= MAX_DIRECT_PACKAGES
    for package in closure(own).values():
        for file in package.files or []:
            if ".." not in file.parts:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), packages / file)
    assert _bytes_in(packages) - before < MAX_INSTALLED_BYTES
    run(*pip, "check", cwd=folder)
    return folder / "bin"


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_client_and_commands_work_without_the_packages_of_a_server(
    light: Path, fleet: Processes, tmp_path: Path
) -> None:
    fleet.server()
    fleet.extractor("worker", "--engine", "offline")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    here = {"RUNEKEEP_ADDRESS": fleet.address, "PYTHONPATH": ""}
    said = json.loads(run(light / "python", "-I", program, *HEAVY, cwd=tmp_path, **here).stdout)
    assert said["imported"] == said["installed"] == []
    assert said["results"] and "Lisbon" in said["text"]

    def command(*arguments: str) -> str:
        return run(light / "runekeep", *arguments, "--user", "robin", cwd=tmp_path, **here).stdout

    assert "kitchen" in command("session", "list")
    assert "profile.md" in command("memory", "tree")
    checks = json.loads(run(light / "runekeep", "doctor", "--json", cwd=tmp_path, **here).stdout)["checks"]
    states = {check["check"]: check["state"] for check in checks}
    assert states["server.health"] == "ok"
    assert states["packages.server"] == states["packages.extractor"] == "skipped"


@pytest.mark.parametrize(
    ("command", "extras"),
    [
        ("serve", "server"),
        ("up", "server,extractor"),
        ("extractor", "extractor"),
        ("studio", "studio"),
        ("http", "http"),
        ("mcp", "mcp"),
        ("proxy --upstream https://api.example.com", "proxy"),
        ("index rebuild", "server"),
        ("backup folder", "server"),
        ("restore folder", "server"),
    ],
)
def test_a_command_says_which_extra_it_needs(light: Path, tmp_path: Path, command: str, extras: str) -> None:
    finished = subprocess.run(
        [light / "runekeep", *command.split()],
        cwd=tmp_path,
        env=environment({"PYTHONPATH": ""}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 2 and not finished.stdout
    assert f"pip install 'runekeep[{extras}]'" in finished.stderr
    assert not re.search("Traceback|ModuleNotFoundError", finished.stderr)
