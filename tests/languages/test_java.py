"""The client for Java: its own tests pass, and a program of another Maven project uses it."""

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.acceptance.processes import well_ended
from tests.support.language_servers import language_servers
from tests.support.pages import DOCS, ROOT
from tests.support.restarted_example import check_lines, restarted_example

PROJECT = ROOT / "clients" / "java"
EXAMPLE = ROOT / "examples" / "java"
MAVEN = ["mvn", "--batch-mode", "--no-transfer-progress"]
BUILD_SECONDS = 500

pytestmark = [pytest.mark.languages, pytest.mark.timeout(BUILD_SECONDS + 150)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What Maven says: it compiles the client, runs its tests against real servers, and installs it for the example."""
    with language_servers(tmp_path_factory.mktemp("java")) as variables:
        ended = subprocess.run(
            [*MAVEN, "clean", "install"],
            cwd=PROJECT,
            env=variables,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    return well_ended(ended).stdout


def test_its_own_tests_pass_against_real_servers(installed: str) -> None:
    assert "Tests run: " in installed and "Skipped: 0" in installed


async def test_the_example_goes_on_after_a_restart_of_the_server(installed: str, tmp_path: Path) -> None:
    command = [*MAVEN, "--quiet", "compile", "exec:java"]
    check_lines(await restarted_example(command, EXAMPLE, tmp_path))


def test_page_and_readme_show_the_example() -> None:
    source = (EXAMPLE / "src" / "main" / "java" / "example" / "Remember.java").read_text()
    assert source in (DOCS / "start" / "java.md").read_text()
    shown = re.search(r"^```java\n(.*?)^```$", (PROJECT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert shown and textwrap.indent(shown[1], "    ") in source
