"""The page of known figures, and what becomes of parts that a run did not measure."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.bench import plots, report
from tests.bench.figures import POSTGRES, SQLITE, Figure, Floor, Target

ORDER = ("appends", "search", "soak")
RUN = report.Run(
    date="2026-11-22 21:00",
    commit="abc1234",
    changed=False,
    seconds=61.4,
    load=(0.42, 1.97),
    processors=2,
    memory_gb=25.3,
    repeats=3,
    stores=(SQLITE, POSTGRES),
    versions={"Python": "3.11.7", "SQLite": "3.40.1"},
)


def section(part: str, *figures: Figure, run: report.Run = RUN) -> dict[str, Any]:
    module = ModuleType(f"tests.bench.parts.{part}", f"What {part} are.\n\nAnd how they are measured.")
    made = report.section(module, run, figures)
    # What is printed has been in a file.
    read: dict[str, Any] = json.loads(json.dumps(made))
    return read


def rate(store: str, each: list[float], floor: list[float]) -> Figure:
    return Figure(
        "appends", "append, 16 clients", "calls/s", each, store,
        floor=Floor("bare echo", floor), target=Target("share", "at least", 0.6), notes={"CPU, ms": 0.3123},
    )  # fmt: skip


FAST = rate(SQLITE, [1300.0, 1000.0, 1234.0], [2000.0, 1600.0, 2000.0])
SLOW = rate(POSTGRES, [500.0, 400.0, 450.0], [2000.0, 2000.0, 2000.0])
TIME = Figure("appends", "append, 16 clients", "ms", [12.34, 13.0, 11.0], SQLITE, [30.0, 20.0, 25.0])


def test_a_figure_is_written_with_all_that_follows_from_its_repetitions() -> None:
    assert report.plain(FAST) == {
        "name": "append, 16 clients",
        "store": SQLITE,
        "unit": "calls/s",
        "value": 1234.0,
        "spread": [1000.0, 1300.0],
        "each": [1300.0, 1000.0, 1234.0],
        "floor": {"name": "bare echo", "value": 2000.0, "each": [2000.0, 1600.0, 2000.0]},
        "share": 0.625,
        "share_each": [0.65, 0.625, 0.617],
        "target": {"of": "share", "bound": "at least", "limit": 0.6, "reached": True},
        "notes": {"CPU, ms": 0.3123},
    }
    assert report.plain(TIME)["p95"] == 25.0
    assert "share" not in report.plain(TIME) and "target" not in report.plain(TIME)


def test_the_page_tells_each_figure_with_its_floor_and_its_target() -> None:
    page = report.page({"sections": [section("appends", FAST, TIME, SLOW)]}, {"appends": [("plots/a.svg", "A plot.")]})
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    table = rows[rows.index(next(row for row in rows if row[0] == "what")) :]
    assert table[0] == [
        "what", "store", "value", "p95", "least to most", "floor", "of floor", "of floor, least to most", "target",
        "beside it",
    ]  # fmt: skip
    target = "at least 0.60 of bare echo"
    # The same thing of two stores stands together, whatever came between.
    assert table[2:] == [
        ["append, 16 clients", SQLITE, "1,234 calls/s", "", "1,000 to 1,300", "bare echo: 2,000", "0.62",
         "0.62 to 0.65", f"{target}: reached", "CPU, ms: 0.31"],
        ["append, 16 clients", POSTGRES, "450 calls/s", "", "400 to 500", "bare echo: 2,000", "0.23",
         "0.20 to 0.25", f"{target}: **missed**", "CPU, ms: 0.31"],
        ["append, 16 clients", SQLITE, "12.3 ms", "25", "11 to 13", "", "", "", "", ""],
    ]  # fmt: skip
    assert ["appends", "append, 16 clients", SQLITE, target, "0.62", "yes"] in rows
    assert ["appends", "append, 16 clients", POSTGRES, target, "0.23", "**no**"] in rows
    assert "1 of 2 were reached. Why the others were not: [findings.md](findings.md)." in page
    assert "![A plot.](plots/a.svg)" in page
    assert "And how they are measured." in page
    assert (
        "Measured on 2026-11-22 21:00 UTC at commit abc1234, in 61.4 s; 3 repetitions; 2 processors, 25.3 GB of memory;"
        " load 0.4 before and 2.0 behind it, its own included. Python 3.11.7, SQLite 3.40.1." in page
    )


def test_a_page_without_a_missed_target_sends_nobody_to_the_findings() -> None:
    page = report.page({"sections": [section("appends", FAST)]}, {})
    assert "1 of 1 were reached." in page and "findings" not in page


def test_columns_that_nothing_stands_in_are_left_out() -> None:
    page = report.page({"sections": [section("appends", Figure("appends", "start", "s of CPU", [1.5]))]}, {})
    assert "| what | value |\n| --- | ---: |\n| start | 1.50 s of CPU |" in page


def test_a_part_that_is_measured_again_takes_the_place_of_what_was() -> None:
    old = {"sections": [section("appends", SLOW), section("soak", TIME)]}
    made = report.merged(old, [section("search", TIME), section("appends", FAST)], ORDER)
    assert [one["part"] for one in made["sections"]] == ["appends", "search", "soak"]
    assert [one["store"] for one in made["sections"][0]["figures"]] == [SQLITE]


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0"), (1234567.8, "1,234,568"), (99.94, "99.9"), (3.14159, "3.14"), (0.0314, "0.031"), (-2.5, "-2.50")],
)
def test_numbers_have_as_many_digits_as_are_worth_reading(value: float, told: str) -> None:
    assert report.number(value) == told


# Plots


def lines() -> list[Figure]:
    ways = (
        "bare echo",
        "append to many sessions, with a request id",
        "append to one session, with a request id",
        "append to one session, without a request id",
    )
    return [
        Figure("appends", f"{way}, {clients} client{'s' if clients > 1 else ''}", "calls/s", [clients * 100.0], store)
        for store in (SQLITE, POSTGRES)
        for way in ways
        for clients in (1, 16, 64)
    ]


def soak() -> list[Figure]:
    return [
        Figure("soak", name, "MB", [base + minute for minute in range(5)], SQLITE)
        for name, base in (("server", 140.0), ("index", 300.0))
    ]


def test_plots_are_the_same_bytes_for_the_same_figures_and_keep_text(tmp_path: Path) -> None:
    made = {"sections": [section("appends", *lines()), section("soak", *soak())]}
    drawn = plots.draw(made, tmp_path / "one")
    again = plots.draw(made, tmp_path / "other")
    assert drawn == again and set(drawn) == {"appends", "soak"}
    for path, _ in (plot for some in drawn.values() for plot in some):
        text = (tmp_path / "one" / path).read_text()
        assert text == (tmp_path / "other" / path).read_text()
        ElementTree.fromstring(text)
        assert not re.search(r"\d{4}-\d\d-\d\dT", text), "a date"
    shown = (tmp_path / "one" / "plots" / "appends-by-clients.svg").read_text()
    assert ">append to many sessions, with a request id<" in shown and ">64<" in shown


def test_panels_side_by_side_reach_as_high_as_the_highest_of_them() -> None:
    _, panels = plots._axes(2, sharey=True)
    for axes, height in zip(panels, (10.0, 90.0), strict=True):
        axes.plot([1, 2], [height / 2, height])
        plots._finish(axes, "clients", "calls/s")
    assert panels[0].get_ylim() == panels[1].get_ylim()
    low, high = panels[0].get_ylim()
    assert low == 0 and high >= 90


def test_every_colour_that_a_dark_page_would_hide_is_changed_for_it(tmp_path: Path) -> None:
    plots.draw({"sections": [section("soak", *soak())]}, tmp_path)
    text = (tmp_path / "plots" / "soak-memory.svg").read_text()
    rules = re.search(r"<style>@media \(prefers-color-scheme: dark\)(.*?)</style>", text)
    assert rules is not None
    seen = set(re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", text.replace(rules[0], "")))
    lasting = {f"{property_}: {color}" for property_ in ("fill", "stroke") for color in (plots.BLUE, plots.ORANGE)}
    changed = set(re.findall(r'\[style\*="([^"]+)"\]', rules[1]))
    assert seen - lasting and seen - lasting <= changed
    # Text in no colour of its own would be black.
    assert all("fill: " in style for style in re.findall(r'<text style="([^"]*)"', text))


def test_without_their_figures_there_are_no_plots(tmp_path: Path) -> None:
    assert plots.draw({"sections": [section("appends", TIME), section("soak", TIME)]}, tmp_path) == {}
