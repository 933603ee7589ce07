"""The relay and a change of the embedder while the endpoint of one account is away, slow or hangs: others go on."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from runekeep_storage.database import Space, Tx
from runekeep_storage.embedders import EmbedderUnavailable
from runekeep_storage.endpoints import outage
from runekeep_storage.indexing import embedder_change
from runekeep_storage.relay import account_vectors, missing_vectors, passage_relay, reembedding
from runekeep_storage.relay.missing_vectors import Missing
from runekeep_storage.relay.reembedding import SPACES
from runekeep_storage.relay.relay import EMBEDDER
from tests.contract.relay.test_embedder_change import (
    TARGET,
    Server,
    change,
    complete,
    models,
    nearest,
    remember,
    running,
    searched_by,
    server,
    start,
)
from tests.doubles.word_embedder import WordEmbedder
from tests.support.storage.databases import ANN, CAT, Clock, commit, revise, talk
from tests.support.storage.search import Search, wordless, write

pytestmark = pytest.mark.postgres_long

AWAY = "the endpoint of this account is away"


class Endpoints:
    """The endpoints of both accounts, in place of `embed` of an embedder. `sent`: the texts, by account; `calls`: the
    account and the number of texts of each call."""

    def __init__(self, embedder: WordEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away: set[str] = set()
        self.hanging: set[str] = set()
        self.sent: dict[str, list[str]] = {ANN.account: [], CAT.account: []}
        self.calls: list[tuple[str, int]] = []
        self._embed = embedder.embed
        monkeypatch.setattr(embedder, "embed", self.embed)

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        assert space is not None, "texts without an owner have no endpoint"
        self.sent.setdefault(space.account, []).extend(texts)
        self.calls.append((space.account, len(texts)))
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


async def test_new_messages_wait_for_a_slow_endpoint_once(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_vectors, "LATE_SECONDS", 0.0)
    # Whoever waits for the endpoint waits for ever.
    monkeypatch.setattr(passage_relay, "MAX_EMBED_SECONDS", None)
    endpoints = Endpoints(search.embedder, monkeypatch)
    await talk(search.database, CAT, "first", "cat has a kettle")
    await commit(search.database, CAT, "first", "cat-1")
    await search.relay._passages.step(await search.attachment.id())
    assert endpoints.calls == [(CAT.account, 1)]

    endpoints.hanging.add(CAT.account)
    for space in (CAT, ANN):
        await talk(search.database, space, "second", f"{space.user} has a teapot")
        await commit(search.database, space, "second", f"{space.user}-2")
    search.relay.start()
    await search.caught_up(CAT, ANN)


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


async def test_a_hanging_endpoint_shrinks_the_batches_of_its_own_account_only(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_vectors, "MAX_EMBED_SECONDS", 0.05)
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 0.01)
    for number in range(4):
        await remember(search, CAT, f"m{number}", f"cat likes tea {number}")
    for number in range(40):
        await remember(search, ANN, f"m{number}", f"ann likes tea {number}")
    one = server(search)
    monkeypatch.setattr(one.target, "bulk_texts", 8)
    endpoints = Endpoints(one.target, monkeypatch)
    endpoints.hanging.add(CAT.account)
    await start(search)
    index_id = await one.attachment.attach()
    async with asyncio.timeout(60):
        while len(endpoints.sent[ANN.account]) < 40 or len(endpoints.sent[CAT.account]) < 6:
            await one.reembedder.step(index_id)
            await asyncio.sleep(0.01)
    await one.reembedder.stop()

    sizes = {account: [texts for of, texts in endpoints.calls if of == account] for account in endpoints.sent}
    assert min(sizes[ANN.account][:-1]) >= one.target.bulk_texts // 2, "a batch has rows of both accounts at times"
    assert sizes[CAT.account][1:] == [1] * (len(sizes[CAT.account]) - 1), "one text shows whether it is back"


async def test_a_slow_endpoint_is_asked_once_and_the_lease_of_the_change_is_kept(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_vectors, "LATE_SECONDS", 0.01)
    monkeypatch.setattr(reembedding, "REPORT_SECONDS", 0.0)
    for space in (CAT, ANN):
        await remember(search, space, "tea", f"{space.user} likes green tea")
    first, second = server(search), server(search)
    await start(search)

    async def step(server: Server) -> tuple[bool, float]:
        return await server.reembedder.step(await server.attachment.attach())

    slow, fast = Endpoints(first.target, monkeypatch), Endpoints(second.target, monkeypatch)
    slow.hanging.add(CAT.account)
    async with asyncio.timeout(60):
        while not slow.sent[CAT.account]:
            await step(first)
    for _ in range(10):
        # Half of the lease each time.
        clock.advance(embedder_change.LEASE_US / 2e6)
        await step(first)
        assert await step(second) == (False, 0.0), "the other server holds the change"
    assert [account for account, _ in slow.calls].count(CAT.account) == 1 and not fast.calls
    await first.reembedder.stop()


async def test_accounts_whose_endpoint_is_away_are_left_out_until_their_pause_ends(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 600.0)
    crowd = [Space("aaa", f"user-{number:02}") for number in range(2 * SPACES + 1)]
    for space in crowd:
        await revise(search.database, space, space.user, wordless(write(space, "tea", 0, 1, "green tea")))
    endpoints = Endpoints(search.embedder, monkeypatch)
    endpoints.away.add("aaa")
    read: list[Space] = []
    missing = missing_vectors.missing

    async def counted(tx: Tx, space: Space, *args: Any) -> list[Missing]:
        read.append(space)
        return await missing(tx, space, *args)

    monkeypatch.setattr(missing_vectors, "missing", counted)
    search.relay.start()

    async def has_vector(name: str) -> bool:
        answer = await search.find(ANN, name)
        return any(one.ranked.dense_rank is not None for one in answer.results)

    for name in ("kettle", "teapot", "cup"):
        # Each takes another walk over what waits.
        await revise(search.database, ANN, name, wordless(write(ANN, name, 0, 1, f"a copper {name}")))
        search.relay.wake()
        await search.until(partial(has_vector, name))
    of_crowd = [space for space in read if space.account == "aaa"]
    assert [account for account, _ in endpoints.calls].count("aaa") == 1, "tried once"
    assert len(of_crowd) <= search.embedder.bulk_texts, "no user is read again"


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


async def test_users_of_an_account_whose_vectors_are_late_are_not_walked_over(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_vectors, "LATE_SECONDS", 0.01)
    for space in (*(Space("aaa", f"user-{number:03}") for number in range(10 * SPACES)), ANN):
        await remember(search, space, "tea", f"{space.user} likes green tea")
    one = server(search)
    endpoints = Endpoints(one.target, monkeypatch)
    endpoints.hanging.add("aaa")
    await start(search)
    index_id = await one.attachment.attach()
    while not endpoints.calls:
        await one.reembedder.step(index_id)
    steps = 1
    while (await one.reembedder.step(index_id))[0]:
        steps += 1
    await one.reembedder.stop()
    assert endpoints.sent[ANN.account], "the account behind all users of the other"
    assert steps < 10, "fewer than slices of users"


async def test_a_space_that_waits_for_the_index_does_not_wait_for_the_endpoint_of_another_account(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 600.0)
    for space in (CAT, ANN):
        await remember(search, space, "tea", f"{space.user} likes green tea")
    one = server(search)
    endpoints = Endpoints(one.target, monkeypatch)
    endpoints.away.add(CAT.account)
    await start(search)
    index_id = await one.attachment.attach()
    while not endpoints.sent[ANN.account]:
        await one.reembedder.step(index_id)
    # No relay runs, so the index lacks the new vectors.
    for _ in range(3):
        assert (await one.reembedder.step(index_id))[1] == 0.0, "no pause"
    await one.reembedder.stop()


@pytest.mark.parametrize("away", [TARGET.model, WordEmbedder.model])
async def test_during_a_change_an_embedder_that_is_away_does_not_stop_the_other(
    search: Search, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 600.0)
    one = await _server_that_searches_by_the_new_embedder(search)
    endpoints = {embedder.model: Endpoints(embedder, monkeypatch) for embedder in (one.target, search.embedder)}
    failing = endpoints.pop(away)
    failing.away.add(CAT.account)
    for thing in ("kettle", "teapot"):
        await _archive(one, thing)
    (answering,) = endpoints.values()
    assert [text.split()[-1] for text in answering.sent[CAT.account]] == ["kettle", "teapot"]
    assert len(failing.calls) == 1, "left alone after its failure"
    await search.database.write_global(embedder_change.undo)


async def test_during_a_change_the_new_embedder_is_asked_again_after_its_pause(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 0.0)
    one = await _server_that_searches_by_the_new_embedder(search)
    endpoints = Endpoints(one.target, monkeypatch)
    endpoints.away.add(CAT.account)
    await _archive(one, "kettle")
    endpoints.away.clear()
    await _archive(one, "teapot")
    assert [text.split()[-1] for text in endpoints.sent[CAT.account]] == ["kettle", "teapot"]
    await search.database.write_global(embedder_change.undo)


async def _server_that_searches_by_the_new_embedder(search: Search) -> Server:
    """Returns a server that makes passages with `_archive` only."""
    await remember(search, CAT, "tea", "cat likes green tea")
    async with running(search) as first:
        await complete(first, CAT, "cat likes green tea")
        await start(search)
        await searched_by(search, TARGET.model, CAT)
    one = server(search)
    await one.attachment.attach()
    return one


async def _archive(one: Server, thing: str) -> None:
    """Archives a message about the thing, and gives all spaces their turn for passages and late vectors."""
    await talk(one.search.database, CAT, thing, f"cat has a {thing}")
    await commit(one.search.database, CAT, thing, f"cat-{thing}")
    await one.relay._passages.step(await one.attachment.id())
