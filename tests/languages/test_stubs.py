"""The commands of docs/start/languages.md, as they stand: stubs of each language generated, compiled, and run, in
development mode and with a key over TLS."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.processes import environment, processes
from tests.support.secured import secured
from tests.support.tours import broken_tour

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "start" / "languages.md"
ADDRESS = "127.0.0.1:7433"
BUILD_SECONDS = 500

STEPS = ["session", "added", "refused", "committed", "ended", "found", "document", "history", "deleted"]

pytestmark = [pytest.mark.languages, pytest.mark.timeout(BUILD_SECONDS + 150)]


def commands(language: str) -> list[list[str]]:
    """The command lines below the heading of a language; the last one is the tour, without the address."""
    section = re.search(rf"^### {language}$(.*?)^##", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert section, f"{PAGE.name} has no heading {language}"
    lines = [shlex.split(line) for line in re.findall(r"^    (\S.*)$", section[1], re.MULTILINE)]
    assert len(lines) >= 2 and lines[0][0] == "make" and lines[-1].pop() == ADDRESS, lines
    return lines


<<<<<<< HEAD
@pytest.mark.parametrize("language", ["TypeScript"])
=======
@pytest.mark.parametrize("language", ["Go", "Java"])
>>>>>>> ts
async def test_the_stubs_of_a_language_are_generated_compiled_and_run(language: str, tmp_path: Path) -> None:
    *build, tour = commands(language)
    for command in build:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
        assert ended.returncode == 0, f"{shlex.join(command)}: {ended.stdout[-3000:]}{ended.stderr[-3000:]}"

    open_to_all, closed = tmp_path / "open", tmp_path / "closed"
    open_to_all.mkdir()
    closed.mkdir()
    with processes(open_to_all) as fleet:
        fleet.server()
        look_at(await broken_tour(fleet, tour, ROOT), f"{language.lower()}-tour")
    with processes(closed) as fleet:
        client, extractor = secured(fleet, closed, "nils")
        look_at(await broken_tour(fleet, tour, ROOT, client, extractor), "nils")


def look_at(steps: list[dict[str, Any]], user: str) -> None:
    said = {step["step"]: step for step in steps}
    assert [step["step"] for step in steps if step["step"] not in ("event", "resumed")] == STEPS
    assert said["session"]["uri"].startswith(f"viking://user/{user}/sessions/")
    assert said["session"]["created"] is True and said["added"]["sequences"] == [1, 2]
    error = said["refused"].get("error", said["refused"])
    assert (error["reason"], error["fields"]) == ("FIELD_INVALID", ["messages[0].parts"])
    assert said["ended"]["state"].endswith("COMPLETED") and said["ended"]["outcome"].endswith("APPLIED")
    best = said["found"]["results"][0]
    # The message itself may be found before the memory that came from it; nothing else may.
    places = [one["uri"] for one in said["found"]["results"]]
    assert said["document"]["uri"] in places[:2]
    assert all(place == said["document"]["uri"] or place.startswith(said["session"]["uri"]) for place in places)
    assert "in the morning" in said["document"]["text"]
    assert best["score"] > 0 and {"dense", "sparse"} <= parts(best["parts"])
    numbers = [one["number"] if isinstance(one, dict) else one for one in said["history"]["revisions"]]
    assert numbers == [said["ended"]["revision"]]


def parts(named: dict[str, float] | list[dict[str, object]]) -> set[str]:
    return set(named) if isinstance(named, dict) else {str(part["name"]) for part in named}


async def test_node_needs_no_key_in_development_mode(tmp_path: Path) -> None:
    with processes(tmp_path) as fleet:
        fleet.server()
        steps = await broken_tour(fleet, ["node", "tour.js"], ROOT / "examples" / "node")
    assert steps[0]["uri"].startswith("viking://user/node-tour/sessions/")
    assert steps[-1]["step"] == "erased"
