"""Parts of `tests.bench` without extractors, with so few calls that their figures say nothing: they come to an end on
both stores, each figure stands there once, and what has a target is held against it."""

import importlib
from collections.abc import Iterator

import pytest
from rich.progress import Progress

from tests.bench.figures import POSTGRES, SQLITE
from tests.bench.setting import Setting, setting

pytestmark = pytest.mark.long

TARGETS = {
    "streams": {
        f"append by stream to {where}, {under_way} under way, 16 clients{beside}"
        for where in ("one session", "many sessions")
        for under_way, beside in (("one", ", beside a call"), ("16", ""), ("16", ", beside a call"))
    },
    "calls": {"commit of 20 messages, its first phase, 1 client"},
    "claims": {"claims, 200 pending, 1 claimer", "claims, 200 pending, 4 claimers"},
    "search": {
        f"find, {where}: while neither embedding nor index is at work"
        for where in (
            *(f"{points} points of the space" for points in ("10", "100", "1,000")),
            "10 points of the space and 1,000 of others",
        )
    },
    "turns": set[str](),
}


@pytest.fixture
def quick() -> Iterator[Setting]:
    with (
        Progress(disable=True) as progress,
        setting([SQLITE, POSTGRES], 2, progress, quick=True, soak=0.0) as given,
    ):
        yield given


@pytest.mark.parametrize("part", TARGETS)
async def test_a_part_gives_its_figures_on_both_stores(quick: Setting, part: str) -> None:
    figures = await importlib.import_module(f"tests.bench.parts.{part}").measure(quick)
    places = [(figure.name, figure.unit, figure.store) for figure in figures]
    assert len(set(places)) == len(places), "two figures have one place"
    for store in (SQLITE, POSTGRES):
        own = [figure for figure in figures if figure.store == store]
        assert {figure.name for figure in own if figure.reached is not None} == TARGETS[part]
        assert all(least > 0 for figure in own if figure.floor is not None for least in figure.floor.each)
