"""Two reports beside each other: what agrees within noise, and how the page tells it."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.bench import again, report
from tests.bench.figures import POSTGRES, SQLITE, Figure, Floor, Target
from tests.bench.pairs import Compared, Pair, compared

RATE = "append, 16 clients"
ROOT = Path(__file__).parents[3]


def run(**given: Any) -> report.Run:
    usual: dict[str, Any] = {
        "date": "2026-11-22 21:00", "commit": "abc1234", "changed": False, "seconds": 61.4, "load": (0.42, 1.97),
        "processors": 2, "memory_gb": 25.3, "repeats": 3, "stores": (SQLITE,), "versions": {"Python": "3.11.7"},
    }  # fmt: skip
    return report.Run(**{**usual, **given})


def written(*figures: Figure, part: str = "appends", **given: Any) -> dict[str, Any]:
    """A report as it has been in a file."""
    section = report.section(ModuleType(f"tests.bench.parts.{part}", "What it is."), run(**given), figures)
    read: dict[str, Any] = json.loads(json.dumps({"sections": [section]}))
    return read


def share(*each: float, name: str = RATE, limit: float | None = None, times: float = 1.0) -> Figure:
    """A figure of such shares, on a machine that is so many times as fast."""
    target = None if limit is None else Target("share", "at least", limit)
    floor = Floor("bare echo", [1000.0 * times] * len(each))
    return Figure("appends", name, "calls/s", [1000 * times * one for one in each], SQLITE, (), floor, target)


def only_pair(first: Figure, second: Figure) -> Pair:
    (pair,) = compared(written(first), written(second)).pairs
    return pair


@pytest.mark.parametrize(
    ("first", "second", "agrees"),
    [
        ([0.40, 0.42, 0.44], [0.44, 0.50, 0.52], True),  # a value in common
        ([0.44, 0.50, 0.52], [0.40, 0.42, 0.44], True),
        ([0.30, 0.50, 0.90], [0.59, 0.60, 0.61], True),  # one range lies within the other
        ([0.40, 0.41, 0.42], [0.43, 0.43, 0.44], True),  # no value in common, but medians near each other
        ([0.40, 0.42, 0.44], [0.45, 0.50, 0.52], False),
        ([0.45, 0.50, 0.52], [0.40, 0.42, 0.44], False),
        ([0.40], [0.43], False),
        ([0.40], [0.41], True),
    ],
)
def test_shares_agree_where_their_ranges_meet_or_their_medians_are_near(
    first: list[float], second: list[float], agrees: bool
) -> None:
    assert only_pair(share(*first), share(*second)).agrees is agrees


def test_a_machine_twice_as_fast_changes_no_share() -> None:
    pair = only_pair(share(0.40, 0.42, 0.41), share(0.42, 0.41, 0.40, times=2.0))
    assert pair.agrees and pair.apart == pytest.approx(0.0)
    assert (pair.of, pair.first.median) == ("share", pytest.approx(0.41))


def test_what_a_target_is_of_is_compared_too_and_what_has_neither_share_nor_target_is_not() -> None:
    floor = Floor("embedding", [10.0, 10.0, 10.0])
    value = Target("value", "at most", 150.0)
    figures = [
        Figure("commits", "commit, 1 user", "ms", [140.0, 142.0, 141.0], SQLITE, (), floor, value),
        Figure("commits", "find", "ms", [1.0], POSTGRES, [7.0], None, Target("p95", "at most", 5.0)),
        Figure("commits", "memory", "MB", [100.0]),
    ]
    found = compared(written(*figures, part="commits"), written(*figures, part="commits"))
    told = {(pair.name, pair.of): (pair.first.median, pair.first.reached, pair.target) for pair in found.pairs}
    assert told == {
        ("commit, 1 user", "share"): (pytest.approx(14.1), None, ""),
        ("commit, 1 user", "value"): (141.0, True, "at most 150 ms"),
        ("find", "p95"): (7.0, False, "p95 at most 5 ms"),
    }


FIRST = written(
    share(0.61, 0.62, 0.63, name="steady", limit=0.6),
    share(0.59, 0.61, 0.63, name="on the edge", limit=0.6),
    share(0.20, 0.21, 0.22, name="far"),
    share(0.20, 0.21, 0.22, name="farther"),
    share(0.5, name="old"),
)
SECOND = written(
    share(0.62, 0.62, 0.64, name="steady", limit=0.6),
    share(0.58, 0.59, 0.62, name="on the edge", limit=0.6),
    share(0.30, 0.31, 0.32, name="far"),
    share(0.80, 0.81, 0.82, name="farther"),
    share(0.5, name="new"),
    date="2026-11-23 12:00", commit="def5678", load=(3.5, 4.0),
)  # fmt: skip


def both() -> Compared:
    return compared(FIRST, SECOND)


def test_those_that_differ_stand_first_then_those_whose_verdicts_do() -> None:
    assert [pair.name for pair in both().pairs] == ["farther", "far", "on the edge", "steady"]
    assert list(both().only) == [f"appends, {name}, SQLite, calls/s" for name in ("old", "new")]


def test_the_page_counts_names_both_runs_and_lists_verdicts_that_differ() -> None:
    page = again.page(both())
    assert (
        "**2 of 4 shares agree within noise, 0 of 0 other figures, and 1 of 2 verdicts on targets are the sam" in page
    )
    assert "those of 0.40 shares would by chance" in page  # four, each by one in ten
    assert "- appends: on the edge, SQLite, at least 0.60 of bare echo: 0.61, reached; then 0.59, missed" in page
    assert "- appends, first: Measured on 2026-11-22 21:00 UTC at commit abc1234, in 61.4 s; 3 repetitions;" in page
    assert "- appends, second: Measured on 2026-11-23 12:00 UTC at commit def5678" in page
    assert "load 3.5 before and 4.0 behind it" in page and "within 5% of each other" in page
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    assert rows[2:] == [
        ["appends", "farther", SQLITE, "calls/s, of its floor", "0.21", "0.20 to 0.22", "0.81", "0.80 to 0.82", "74%",
         "**no**", ""],
        ["appends", "far", SQLITE, "calls/s, of its floor", "0.21", "0.20 to 0.22", "0.31", "0.30 to 0.32", "32%",
         "**no**", ""],
        ["appends", "on the edge", SQLITE, "calls/s, of its floor", "0.61", "0.59 to 0.63", "0.59", "0.58 to 0.62",
         "3%", "yes", "**differs**"],
        ["appends", "steady", SQLITE, "calls/s, of its floor", "0.62", "0.61 to 0.63", "0.62", "0.62 to 0.64", "0%",
         "yes", "reached by both"],
    ]  # fmt: skip


def test_ranges_lie_apart_by_chance_as_often_as_one_run_has_all_of_the_larger_values() -> None:
    order = range(5)
    apart = [some for some in itertools.combinations(order, 2) if set(some) in ({0, 1}, {3, 4})]
    expected = len(apart) / math.comb(len(order), 2)
    pair = only_pair(share(0.1, 0.2, 0.3), share(0.5, 0.6))
    assert pair.chance == pytest.approx(expected) and expected == 0.2


def test_reports_without_a_share_are_compared_by_their_targets() -> None:
    figure = Figure("process", "memory", "MB", [100.0], SQLITE, target=Target("value", "at most", 150.0))
    page = again.page(compared(written(figure), written(figure)))
    assert "**0 of 0 shares agree within noise, 1 of 1 other figures" in page


def test_reports_with_nothing_in_common_are_refused() -> None:
    with pytest.raises(ValueError, match="no share and no target in common"):
        compared(written(share(0.5)), written(share(0.5), part="turns"))


def test_the_committed_report_agrees_with_itself(tmp_path: Path) -> None:
    committed = ROOT / "docs" / "bench" / "report.json"
    command = [sys.executable, "-m", "tests.bench.again", str(committed), str(committed), "--json"]
    page = tmp_path / "again.md"
    ran = subprocess.run(
        [*command, "--page", str(page)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    told = json.loads(ran.stdout)
    assert told["agree"] == len(told["pairs"]) > 100 and not told["only"]
    targets = sum("target" in one for part in json.loads(committed.read_text())["sections"] for one in part["figures"])
    assert f"{targets} of {targets} verdicts on targets are the same" in page.read_text()
