"""The parts of `tests.bench` that run a whole fleet, with so few calls that their figures say nothing: they come to an
end, find nothing lost or doubled, and give every figure that is asked of them."""

from collections.abc import Iterator

import pytest
from rich.progress import Progress

from tests.bench.figures import SQLITE, Figure
from tests.bench.parts import commits, process, soak
from tests.bench.setting import Setting, setting

pytestmark = pytest.mark.long
SOAK_MINUTES = 0.4


@pytest.fixture
def quick() -> Iterator[Setting]:
    with (
        Progress(disable=True) as progress,
        setting([SQLITE], 1, progress, quick=True, soak=SOAK_MINUTES) as given,
    ):
        yield given


def named(figures: list[Figure]) -> dict[str, Figure]:
    found = {figure.name: figure for figure in figures}
    assert len(found) == len(figures), "two figures have one name"
    return found


async def test_commits_beside_their_floors(quick: Setting) -> None:
    found = named(await commits.measure(quick))
    alone = found["commit of 10 messages to COMPLETED, 1 user"]
    together = found["commits of 10 messages to COMPLETED, 32 users"]
    assert alone.target is not None and together.target is not None
    assert alone.share is not None and alone.share > 1 and together.share is not None and together.share < 1
    assert alone.notes["bare echo, ms"] < alone.value
    for figure in (alone, together):
        assert figure.notes["CPU of server a commit, ms"] > figure.notes["CPU of model double a commit, ms"]
    assert [name for name in found if name.startswith("apply of ")] == [
        "apply of 1 new memory, to the verdict",
        "apply of 3 new memories, to the verdict",
        "apply of 30 new memories, to the verdict",
    ]


async def test_memory_of_each_process(quick: Setting) -> None:
    found = named(await process.measure(quick))
    bare, whole = found["server, idle, no embedder"], found["server, idle, its embedder"]
    assert found["the embedder's share"].value == whole.value - bare.value > 50
    both = found["server and index, idle, no embedder"]
    assert both.value > bare.value and both.target is not None
    assert 20 < found["extractor, idle, engine offline"].value < found["extractor, idle, engine anthropic"].value
    assert found["start to SERVING, with its embedder"].value > 0.1


async def test_a_soak_watches_every_process_and_no_call_fails(quick: Setting) -> None:
    found = named(await soak.measure(quick))
    assert found["calls and tasks that failed"].notes == {}
    for name in ("server", "index", "extractor 1", "extractor 2"):
        for what in ("memory", "open descriptors", "threads"):
            seen = found[f"{what} of {name}"]
            assert len(seen.each) == soak.LOOKS and min(seen.each) > 0
    flat = [figure for figure in found.values() if figure.unit == "ratio"]
    assert len(flat) == 6 and all(figure.target is not None for figure in flat)
    living, written = (found[name].each for name in (soak.LIVING, soak.WRITTEN))
    assert len(living) == len(written) == soak.LOOKS and list(written) == sorted(written) and written[-1] > 0
    assert found[soak.INDEX_GROWTH].notes["points written meanwhile"] >= 0
    assert len(found["age of the oldest job, at most"].each) == soak.LOOKS
    kinds = [figure for figure in found.values() if figure.unit == "ms"]
    assert {"append", "find", "commit to its end", "delete a user"} <= {figure.name for figure in kinds}
    assert all(len(figure.p95) == len(figure.each) == soak.LOOKS for figure in kinds)
