"""The arithmetic of docs/operate/sizing.md: every figure of the plan follows from what was measured and assumed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operate" / "sizing.md").read_text()
SECONDS_A_DAY = 86_400
MESSAGES, COMMITS, PEAK, MODEL_SECONDS = 60, 1, 4, 20


def measured(row: str) -> float:
    """PostgreSQL's figure, the last one of a row."""
    found = re.search(rf"^\| {re.escape(row)} \|.* ([\d.,]+) \|$", PAGE, re.MULTILINE)
    assert found, row
    return number(found[1])


def number(text: str) -> float:
    return float(text.replace(",", ""))


STORE = measured("appended: bytes in the store") + measured("committed, extracted, indexed: bytes in the store")
LOG = measured("appended: bytes of write-ahead log") + measured(
    "committed, extracted, indexed: bytes of write-ahead log"
)
CORES = measured("committed, extracted, indexed: server, ms of processor time") / 1000


def test_the_plan_follows_from_what_was_measured() -> None:
    rows = [
        [number(cell) for cell in row.split("|")[1:-1]]
        for row in re.findall(r"^\| [\d,]+000 (?:\| [\d.,]+ ){7}\|$", PAGE, re.MULTILINE)
    ]
    assert len(rows) == 5
    for users, *told in rows:
        messages = users * MESSAGES * PEAK / SECONDS_A_DAY
        commits = messages * COMMITS / MESSAGES
        assert told == [
            round(messages, 1),
            round(messages * CORES, 1),
            round(messages * LOG / 1e6, 2),
            round(commits, 2),
            round(users * MESSAGES * STORE / 1e9, 2),
            round(users * MESSAGES * 2 / 1e6, 2),
            round(commits * MODEL_SECONDS, 1),
        ], users


def test_the_sums_of_the_page_are_right() -> None:
    small, large = (re.search(rf"^\| {count} points \| (\d+) \|", PAGE, re.MULTILINE) for count in ("10,000", "50,000"))
    assert small and large
    a_point = (int(large[1]) - int(small[1])) * 1024**2 / 40_000
    assert f"{a_point:,.0f} bytes" in PAGE
    assert f"= {LOG:,.0f} bytes" in PAGE and f"= {STORE:,.0f} bytes" in PAGE
    assert f"{384 * 4 * 1.5:,.0f} bytes" in PAGE
    limit = 294 * MESSAGES / COMMITS * SECONDS_A_DAY / (MESSAGES * PEAK)
    assert limit == pytest.approx(6.4e6, rel=0.02) and "6.4 million" in PAGE


def test_the_plan_is_of_the_commit_that_was_measured() -> None:
    (command,) = re.findall(r"^    python -m tests\.bench\.sizing .*--messages (\d+)", PAGE, re.MULTILINE)
    assert int(command) == MESSAGES // COMMITS
    assert f"{MESSAGES} messages to a commit" in PAGE
    assert f"says {MESSAGES} messages in one commit" in PAGE


def test_the_bench_takes_the_arguments_of_the_page() -> None:
    # It would take minutes: only what it is asked for is tried.
    (command,) = re.findall(r"^    python (-m tests\.bench\.sizing .*)$", PAGE, re.MULTILINE)
    subprocess.run([sys.executable, *shlex.split(command), "--help"], cwd=ROOT, check=True, capture_output=True)
