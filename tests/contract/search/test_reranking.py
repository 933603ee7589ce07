"""Which texts of a search a reranker gets: few, short, and none that the search may not return."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from runekeep_storage.index.base import Hit, PointKind
from runekeep_storage.rerankers import Reranker, Rerankers, RerankOptions, open_reranker
from runekeep_storage.search.requests import FindAnswer, FindRequest
from runekeep_storage.search.searcher import Searcher
from tests.doubles.rerank_api import RerankApi, RerankRequest
from tests.support.storage.databases import ANN, BOB, ON_SQLITE, commit, revise, talk, uri
from tests.support.storage.search import Search, memories, write

pytestmark = ON_SQLITE
CANDIDATES = 3
TEAS = {
    "black": "black tea, best",
    "green": "green tea, good",
    "oolong": "oolong tea",
    "white": "white tea",
    "red": "tea",
}


class Reranked:
    """Searches with a reranker, which puts short texts first."""

    def __init__(self, search: Search, api: RerankApi, reranker: Reranker) -> None:
        self._api = api
        self._finder = Searcher(
            search.database,
            search.attachment,
            search.embedders,
            search.finder.ranking,
            lambda _: None,
            "",
            Rerankers(reranker),
        )

    async def find(self, words: str, **options: Any) -> FindAnswer:
        self._api.requests.clear()
        return await self._finder.find(ANN, FindRequest(words, rerank=True, **options))

    @property
    def sent(self) -> list[str]:
        """The texts of the only request since the last search; empty if there was none. None is another user's."""
        assert len(self._api.requests) <= 1
        texts = [text for one in self._api.requests if isinstance(one, RerankRequest) for text in one.texts]
        assert not any("bob" in text for text in texts)
        return texts


@pytest.fixture
async def reranked(search: Search) -> AsyncIterator[Reranked]:
    await revise(search.database, ANN, "t1", *(write(ANN, name, 0, 1, text) for name, text in TEAS.items()))
    await revise(search.database, BOB, "t2", write(BOB, "secret", 0, 1, "tea of bob"))
    await talk(search.database, ANN, "s", "tea " * 100, "a tea")
    await commit(search.database, ANN, "s", "t3")
    search.relay.start()
    await search.caught_up(ANN, BOB)
    with RerankApi("tei") as api:
        api.score = lambda query, text: -len(text)
        options = RerankOptions(
            url=api.base_url, form="tei", candidates=CANDIDATES, max_characters=100, request_bytes=170, seconds=20
        )
        reranker = open_reranker("endpoint", options=options)
        assert reranker is not None
        await reranker.warm()
        yield Reranked(search, api, reranker)
        await reranker.close()


async def test_the_best_candidates_change_places_and_the_others_stay(search: Search, reranked: Reranked) -> None:
    plain = memories(await search.find(ANN, "green tea", kinds=(PointKind.MEMORY,)))
    found = memories(await reranked.find("green tea", kinds=(PointKind.MEMORY,)))
    assert found == [*sorted(plain[:CANDIDATES], key=len), *plain[CANDIDATES:]] != plain
    assert sorted(text.rpartition("\n")[2] for text in reranked.sent) == sorted(plain[:CANDIDATES])


async def test_texts_are_cut_and_a_request_is_bounded(reranked: Reranked) -> None:
    await reranked.find("tea", kinds=(PointKind.PASSAGE,))
    assert max(map(len, reranked.sent)) == 100
    await reranked.find("tea " * 1000, kinds=(PointKind.MEMORY,))
    # A query of 100 characters leaves no room for a third text.
    assert len(reranked.sent) == 2 and sum(map(len, reranked.sent)) <= 170 - 100


async def test_what_is_filtered_known_or_below_the_threshold_is_not_sent(search: Search, reranked: Reranked) -> None:
    def known(hit: Hit) -> bool:
        return hit.uri == uri(ANN, "black")

    await reranked.find("black tea", kinds=(PointKind.MEMORY,), known=known)
    assert len(reranked.sent) == CANDIDATES and not any("black" in text for text in reranked.sent)
    assert memories(await reranked.find("tea", fields={"topic": "green"})) == ["green tea, good"]
    assert not reranked.sent, "one candidate alone has no order"
    plain = (await search.find(ANN, "black tea", kinds=(PointKind.MEMORY,))).results
    above = await reranked.find("black tea", kinds=(PointKind.MEMORY,), score_threshold=plain[1].score)
    assert len(above.results) == len(reranked.sent) == 2
