"""What a search costs at most: candidates, rows that are read, and time on the event loop."""

import threading
from collections import Counter
from typing import Any

import pytest

from runekeep_storage.index.base import IndexHits, IndexQuery, PointKind
from runekeep_storage.search import joining, ranking, searcher
from tests.support.storage.databases import ANN, ON_SQLITE, commit, revise, talk
from tests.support.storage.search import Search, memories, said, write

pytestmark = ON_SQLITE

MANY = 150
"""Beyond the 20 candidates that a leg of these searches gives at first."""


@pytest.fixture
def asked(search: Search, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the index was asked for points of each kind, and the store for `rows`."""
    counted: Counter[str] = Counter()
    query, items = search.index.query, joining._items

    async def count_query(wanted: IndexQuery) -> IndexHits:
        # The leg of vectors follows that of words, for as many of the same kinds.
        if wanted.sparse is not None:
            counted.update(kind.value for kind in wanted.kinds)
        return await query(wanted)

    async def count_items(*args: Any) -> Any:
        counted["rows"] += 1
        return await items(*args)

    monkeypatch.setattr(search.index, "query", count_query)
    monkeypatch.setattr(joining, "_items", count_items)
    return counted


async def remembered(search: Search, count: int) -> None:
    await revise(search.database, ANN, "t1", *(write(ANN, f"n{one:03}", 0, 1, "green tea") for one in range(count)))


async def heard(search: Search, count: int) -> None:
    await talk(search.database, ANN, "s", *(f"green tea {number}" for number in range(count)))
    await commit(search.database, ANN, "s", "t2")


async def indexed(search: Search) -> None:
    search.relay.start()
    await search.caught_up(ANN)


async def test_a_small_search_that_nothing_fits_reads_rows_by_the_hundred(search: Search, asked: Counter[str]) -> None:
    await remembered(search, MANY)
    await indexed(search)

    assert not (await search.find(ANN, "green tea", limit=1, fields={"topic": "none"})).results
    # Once each with 20, 80 and 320 candidates of a leg, or what of them is there; the first row always comes alone.
    assert asked[PointKind.MEMORY.value] == 3
    assert asked["rows"] <= 2 + 2 + 3


async def test_a_search_for_fields_has_no_passages_among_its_candidates(search: Search, asked: Counter[str]) -> None:
    await remembered(search, 1)
    await heard(search, MANY)
    await indexed(search)

    assert memories(await search.find(ANN, "green tea", limit=1, fields={"topic": "n000"})) == ["green tea"]
    assert asked == {PointKind.MEMORY.value: 1, "rows": 1}
    asked.clear()
    passages = await search.find(ANN, "green tea", fields={"topic": "n000"}, kinds=(PointKind.PASSAGE,))
    assert not passages.results and not asked, "what was said has no fields"


async def test_a_threshold_ends_the_search(search: Search, asked: Counter[str]) -> None:
    await heard(search, MANY)
    await indexed(search)
    best = await search.find(ANN, "green tea", limit=20)
    asked.clear()

    above = await search.find(ANN, "green tea", limit=10, score_threshold=best.results[0].score + 1)
    assert not above.results and asked == {kind.value: 1 for kind in PointKind}
    below = await search.find(ANN, "green tea", limit=20, score_threshold=best.results[-1].score - 1)
    assert said(below) == said(best)


async def test_passages_with_a_quota_are_not_looked_through_for_missing_memories(
    search: Search, asked: Counter[str]
) -> None:
    await remembered(search, 2)
    await heard(search, MANY)
    await indexed(search)

    answer = await search.find(ANN, "green tea", limit=10, quotas={"passages": 3})

    assert (len(memories(answer)), len(said(answer))) == (2, 3)
    assert [asked[kind.value] for kind in PointKind] == [1, 1]


@pytest.mark.parametrize(("hits", "apart"), [(10**6, False), (1, True)], ids=["few", "many"])
async def test_many_candidates_are_ranked_beside_the_event_loop(
    search: Search, monkeypatch: pytest.MonkeyPatch, hits: int, apart: bool
) -> None:
    await heard(search, 3)
    await indexed(search)
    rank, threads = ranking.rank, []

    def watched(*args: Any, **options: Any) -> Any:
        threads.append(threading.current_thread())
        return rank(*args, **options)

    monkeypatch.setattr(searcher, "MIN_THREADED_HITS", hits)
    monkeypatch.setattr(ranking, "rank", watched)
    assert len(said(await search.find(ANN, "green tea"))) == 3
    assert [one is not threading.current_thread() for one in threads] == [apart]
