"""The relay and a change of the embedder while the endpoint of one account is away or hangs: others go on."""

import asyncio
from collections.abc import Sequence

import pytest

from runekeep_storage.database import Space
from runekeep_storage.embedders import EmbedderUnavailable
from runekeep_storage.endpoints import outage
from runekeep_storage.indexing import embedder_change
from runekeep_storage.indexing.reembedding import SPACES
from runekeep_storage.indexing.relay import EMBEDDER
from tests.contract.indexing.test_embedder_change import (
    TARGET,
    change,
    complete,
    models,
    nearest,
    remember,
    running,
    searched_by,
    start,
)
from tests.doubles.word_embedder import WordEmbedder
from tests.support.storage.databases import ANN, CAT, commit, revise, talk
from tests.support.storage.search import Search, wordless, write

pytestmark = pytest.mark.postgres_long

AWAY = "the endpoint of this account is away"


class Endpoints:
    """The endpoints of both accounts, in place of `embed` of an embedder. `sent`: the texts, by account."""

    def __init__(self, embedder: WordEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away: set[str] = set()
        self.hanging: set[str] = set()
        self.sent: dict[str, list[str]] = {ANN.account: [], CAT.account: []}
        self._embed = embedder.embed
        monkeypatch.setattr(embedder, "embed", self.embed)

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        assert space is not None, "texts without an owner have no endpoint"
        self.sent.setdefault(space.account, []).extend(texts)
        if space.account in self.hanging:
            await asyncio.Event().wait()
        if space.account in self.away:
            raise EmbedderUnavailable(AWAY)
        return await self._embed(texts, query=query, bulk=bulk, space=space)


@pytest.mark.parametrize("how", ["away", "hanging"])
async def test_late_vectors_of_an_account_do_not_wait_for_the_endpoint_of_another(
    search: Search, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    endpoints = Endpoints(search.embedder, monkeypatch)
    getattr(endpoints, how).add(CAT.account)
    for space in (CAT, ANN):
        await revise(search.database, space, f"{space.user}-1", wordless(write(space, "tea", 0, 1, "green tea")))
        await talk(search.database, space, "s", f"{space.user} has a kettle")
        if space == ANN:
            await commit(search.database, space, "s", f"{space.user}-2")
    search.relay.start()

    async def has_all_vectors() -> bool:
        answer = await search.find(ANN, "green tea")
        return len(answer.results) > 1 and all(one.ranked.dense_rank is not None for one in answer.results)

    await search.until(has_all_vectors)
    assert not any("cat" in text for text in endpoints.sent[ANN.account])
    assert not any("ann" in text for text in endpoints.sent[CAT.account])
    assert endpoints.sent[CAT.account], "the endpoint was tried"


async def test_a_change_of_the_embedder_goes_on_for_accounts_whose_endpoint_answers(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    for space in (CAT, ANN):
        await remember(search, space, "tea", f"{space.user} likes green tea")
    async with running(search) as one:
        endpoints = Endpoints(one.target, monkeypatch)
        endpoints.away.add(CAT.account)
        await start(search)
        await searched_by(search, TARGET.model, ANN)
        assert await models(search, CAT) == [WordEmbedder.model]
        assert nearest(await complete(one, CAT, "cat likes green tea")) > 0.9

        async def shows_problem() -> bool:
            one.relay.wake(EMBEDDER)
            return (await change(search)).problem == AWAY

        await search.until(shows_problem)
        endpoints.away.clear()
        await searched_by(search, TARGET.model, CAT)
        assert not any("cat" in text for text in endpoints.sent[ANN.account])
        await search.database.write_global(embedder_change.undo)


async def test_many_users_of_an_account_whose_endpoint_is_away_hold_up_no_change_for_others(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More users than are looked at together, before the others; the endpoint is left alone for longer than the test
    takes."""
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 600.0)
    crowd = [Space("aaa", f"user-{number:02}") for number in range(2 * SPACES + 1)]
    for space in (*crowd, ANN):
        await remember(search, space, "tea", f"{space.user} likes green tea")
    async with running(search) as one:
        Endpoints(one.target, monkeypatch).away.add("aaa")
        await start(search)
        await searched_by(search, TARGET.model, ANN)
        assert await models(search, crowd[0]) == [WordEmbedder.model]
        await search.database.write_global(embedder_change.undo)
