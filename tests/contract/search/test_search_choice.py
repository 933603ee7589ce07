"""A search of which the caller knows some of the results already, or wants few of one type."""

import pytest

from runekeep_storage.records import Memory
from runekeep_storage.search import searcher
from runekeep_storage.search.result_selector import MAX_KNOWN
from tests.support.storage.databases import ANN, ON_SQLITE, commit, revise, talk, uri
from tests.support.storage.search import Search, memories, said, write

pytestmark = ON_SQLITE


async def test_neither_kind_crowds_the_other_out_of_a_search_with_quotas(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more nearer passages than a search has candidates there may be so many, and then comes a memory."""
    monkeypatch.setattr(searcher, "MAX_CANDIDATES", 20)
    far = write(ANN, "far", 0, 1, "likes nothing at all of what there is in any of the many shops here")
    await revise(search.database, ANN, "t1", far)
    await talk(search.database, ANN, "s", *(f"likes green tea {number}" for number in range(60)))
    await commit(search.database, ANN, "s", "t2")
    search.relay.start()
    await search.caught_up(ANN)
    answer = await search.find(ANN, "likes green tea", limit=30)
    assert not memories(answer), "without quotas it is no candidate"
    for most in (0, 3):
        answer = await search.find(ANN, "likes green tea", limit=2, quotas={"passages": most})
        assert len(said(answer)) == most and len(memories(answer)) == 1
        assert [one.score for one in answer.results] == sorted((one.score for one in answer.results), reverse=True)
    nothing = await search.find(ANN, "likes green tea", limit=2, quotas={"passages": 3, "preferences": 0})
    assert len(said(nothing)) == 3 and not memories(nothing)


async def test_what_is_known_comes_beside_the_limit(search: Search) -> None:
    names = [f"n{number:03}" for number in range(150)]
    await revise(search.database, ANN, "t1", *(write(ANN, name, 0, 1, "likes green tea") for name in names))
    search.relay.start()
    await search.caught_up(ANN)
    unknown = {uri(ANN, "n007"), uri(ANN, "n140"), uri(ANN, "n149")}
    answer = await search.find(ANN, "green tea", limit=4, known=lambda hit: hit.uri not in unknown)
    found = [one.item.uri for one in answer.results if isinstance(one.item, Memory)]
    assert unknown <= set(found) and len(found) == 3 + MAX_KNOWN
    answer = await search.find(ANN, "green tea", limit=3)
    assert len(answer.results) == 3
