"""The example with turn memory, as it stands, on a server of its own: what each step saw decides what is said later."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.processes import environment

ROOT = Path(__file__).parent.parent.parent
MAX_SECONDS = 200


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What it printed by its headings; lines that were broken for 80 columns are joined."""
    finished = subprocess.run(
        [sys.executable, "examples/turn_agent.py"],
        cwd=ROOT,
        env=environment({"COLUMNS": "80", "TMPDIR": str(tmp_path_factory.mktemp("turns"))}),
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-6000:]
    broken = [line for line in finished.stdout.splitlines() if len(line) > 80 and not line.startswith("Serving on")]
    assert not broken
    parts = re.split(r"^(\S.*?) ─+$", finished.stdout, flags=re.MULTILINE)
    return {name: " ".join(body.split()) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def test_the_gate_finds_the_turn_that_a_reaction_is_about(blocks: dict[str, str]) -> None:
    assert "reads not_ok about turn-1 (Plant the balcony)" in blocks["monday, turn-2"]
    assert "reads ok about turn-3 (Mend the pond pump)" in blocks["monday, turn-4"]
    assert "reads" not in blocks["monday, turn-1"]
    assert "2 by machines; 2 ok, 1 not ok" in blocks["How the user liked it"]


def test_the_reconciler_chooses_by_objective_over_a_change_of_subject(blocks: dict[str, str]) -> None:
    assert "chooses no earlier turn" in blocks["monday, turn-3"]
    last = blocks["monday, turn-5"]
    # The three turns before it do not reach back to the first one: its own words do.
    assert "gate sees memories of turn-4, turn-3, turn-2;" in last
    assert "turn-1 found by words" in last
    assert "chooses turn-2, turn-1" in last
    assert "answer sees memories of turn-5, turn-2, turn-1;" in last


def test_the_answer_keeps_to_what_was_said_and_offers_nothing_twice(blocks: dict[str, str]) -> None:
    assert "3 of hosta and ivy each, 69 of your 80 euros." in blocks["monday, turn-5"]
    assert "promotes care_plan" in blocks["monday, turn-1"]
    for turn in ("monday, turn-2", "monday, turn-5", "tuesday, turn-1"):
        assert re.search(r"care_plan was promoted \w+ ago: not again", blocks[turn])
    assert re.search(
        r"monday turn-3 filter_kit monday turn-1 care_plan$",
        blocks["What the assistant promoted, in all conversations"],
    )


def test_an_extractor_fills_in_and_folds_into_buckets(blocks: dict[str, str]) -> None:
    assert "inquiry My orchid loses its leaves." in blocks["What an extractor adds to the last turn by itself"]
    themes = blocks["The conversation's themes, folded into buckets"]
    assert 'assertion budget = {"max": 80} (must, scope=objective)' in themes
    assert 'exception plants = {"exclude": ["fern"]} (do_not, scope=objective)' in themes
    assert "balcony obj-balcony-" in themes and "pond obj-pond-" in themes
