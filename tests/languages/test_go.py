"""The client for Go: its stubs are those of the contract, its tests pass, and a program of another module uses it."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.processes import environment, well_ended
from tests.support.language_servers import language_servers
from tests.support.pages import DOCS, ROOT
from tests.support.restarted_example import check_lines, restarted_example

MODULE = ROOT / "clients" / "go"
EXAMPLE = ROOT / "examples" / "go"
BUILD_SECONDS = 500

pytestmark = [pytest.mark.languages, pytest.mark.timeout(BUILD_SECONDS + 150)]


def run(*command: str | Path, cwd: Path, variables: dict[str, str] | None = None) -> str:
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=environment() if variables is None else variables,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    return well_ended(ended).stdout


def sources(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.go"))}


def test_the_stubs_are_those_of_the_contract(tmp_path: Path) -> None:
    run("buf", "generate", "--template", "buf.gen.go.yaml", "-o", tmp_path, cwd=ROOT)
    made, committed = sources(tmp_path / "clients" / "go" / "gen"), sources(MODULE / "gen")
    stale = sorted(name for name in made.keys() | committed.keys() if made.get(name) != committed.get(name))
    assert made and not stale, f"not fresh: {stale}; run `make stubs-go`"


def test_go_finds_nothing_to_mend() -> None:
    for folder in (MODULE, EXAMPLE):
        run("go", "mod", "tidy", "-diff", cwd=folder)
        run("go", "vet", "./...", cwd=folder)
    assert run("gofmt", "-l", MODULE, EXAMPLE, cwd=ROOT) == ""


def test_its_own_tests_pass_against_real_servers(tmp_path: Path) -> None:
    with language_servers(tmp_path) as variables:
        said = run("go", "test", "-race", "-count=1", "-v", ".", cwd=MODULE, variables=variables)
    assert "--- PASS" in said and "--- SKIP" not in said


def test_the_program_of_its_readme_runs(tmp_path: Path) -> None:
    program = re.search(r"^```go\n(.*?)^```$", (MODULE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert program
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "main.go").write_text(program[1])
    (folder / "go.mod").write_text((EXAMPLE / "go.mod").read_text().replace("../../clients/go", str(MODULE)))
    (folder / "go.sum").write_bytes((EXAMPLE / "go.sum").read_bytes())
    assert run("gofmt", "-l", folder, cwd=ROOT) == ""
    with language_servers(tmp_path) as variables:
        address = {"RUNEKEEP_ADDRESS": variables["RUNEKEEP_TEST_OPEN"]}
        assert "Lisbon" in run("go", "run", ".", cwd=folder, variables=variables | address)


async def test_the_example_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    program = tmp_path / "example"
    run("go", "build", "-o", program, ".", cwd=EXAMPLE)
    check_lines(await restarted_example([program], EXAMPLE, tmp_path))


def test_the_page_shows_the_example() -> None:
    assert (EXAMPLE / "main.go").read_text() in (DOCS / "start" / "go.md").read_text()
