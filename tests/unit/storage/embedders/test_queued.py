"""The queue before the embedder's model: what its metrics say of it."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from runekeep_common.telemetry import metrics
from runekeep_storage.database import Space
from runekeep_storage.embedders import queued
from runekeep_storage.embedders.base import EmbedderUnavailable
from runekeep_storage.embedders.queued import QueuedEmbedder
from tests.support.waiting import until


class Held:
    """A model that computes when it is released, and fails on "broken"; `wanted` says that it was asked, `ran` for
    what."""

    def __init__(self) -> None:
        self.wanted = threading.Semaphore(0)
        self.released = threading.Semaphore(0)
        self.ran: list[list[str]] = []

    def run(self, texts: Sequence[str]) -> list[bytes]:
        self.ran.append(list(texts))
        self.wanted.release()
        self.released.acquire()
        if "broken" in texts:
            raise ValueError
        return [b"\x00\x00\x80\x3f" for _ in texts]

    async def asked(self) -> None:
        await asyncio.to_thread(self.wanted.acquire)


def value(name: str, **labels: str) -> float:
    found = metrics.REGISTRY.get_sample_value(name, labels)
    assert found is not None
    return found


def waiting(kind: str) -> float:
    return value("runekeep_embedder_queue", kind=kind)


async def test_texts_that_nobody_waits_for_any_more_are_not_counted_as_waiting() -> None:
    model = Held()
    embedder = QueuedEmbedder("held", 1, lambda: model)
    first = asyncio.create_task(embedder.embed(["tea"]))
    await model.asked()
    given_up = asyncio.create_task(embedder.embed(["a kettle", "a cup"], bulk=True))
    await asyncio.sleep(0)
    assert waiting("bulk") == 2
    given_up.cancel()
    await asyncio.wait([given_up])
    model.released.release()
    await first
    # The worker, which has nothing else to do, finds that out by itself.
    await asyncio.to_thread(until, lambda: waiting("bulk") == 0)
    await embedder.close()


async def test_a_model_that_cannot_be_loaded_is_counted_with_every_batch() -> None:
    def load() -> Held:
        raise OSError("no such file")

    embedder = QueuedEmbedder("missing", 1, load)
    before = value("runekeep_embedder_errors_total")
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable, match="cannot be loaded"):
            await embedder.embed(["tea"])
    assert value("runekeep_embedder_errors_total") - before == 2
    await embedder.close()


async def test_a_model_that_can_be_loaded_later_is_loaded_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queued, "LOAD_RETRY_SECONDS", 0.0)
    failing = [OSError("no such file")] * 2
    model = Held()
    model.released.release()

    def load() -> Held:
        if failing:
            raise failing.pop()
        return model

    embedder = QueuedEmbedder("late", 1, load)
    assert await embedder.embed(["tea"]) == [b"\x00\x00\x80\x3f"]
    assert failing == []
    await embedder.close()


async def test_a_query_goes_before_what_comes_several_at_once_and_that_before_bulk_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queued, "_BULK_PATIENCE", 10**6)
    model = Held()
    embedder = QueuedEmbedder("held", 1, lambda: model)
    calls = [asyncio.create_task(embedder.embed(["first"]))]
    await model.asked()
    calls.append(asyncio.create_task(embedder.embed(["passage"], bulk=True)))
    await asyncio.sleep(0)
    calls.append(asyncio.create_task(embedder.embed(["a memory", "another"])))
    await asyncio.sleep(0)
    calls.append(asyncio.create_task(embedder.embed(["a query"], query=True)))
    await asyncio.sleep(0)
    model.released.release(4)
    await asyncio.gather(*calls)
    assert model.ran == [["first"], ["a query"], ["another", "a memory"], ["passage"]]
    await embedder.close()


async def test_what_was_computed_lately_is_not_computed_again() -> None:
    model = Held()
    model.released.release(100)
    embedder = QueuedEmbedder("held", 1, lambda: model)
    ada, bob = Space("home", "ada"), Space("home", "bob")
    first = await embedder.embed(["tea", "cup"], space=ada)
    again = await embedder.embed(["tea\n", "pot", "cup"], space=ada)
    assert [again[0], again[2]] == first
    assert model.ran == [["tea", "cup"], ["pot"]], "texts that differ in white space alone are one"
    assert await embedder.embed(["cup"], space=ada) == first[1:] and len(model.ran) == 2
    await embedder.embed(["tea"], space=bob)
    assert model.ran[2:] == [["tea"]], "nobody can tell by the time what another has said"
    await embedder.embed(["said"])
    await embedder.embed(["said"])
    assert model.ran[3:] == [["said"], ["said"]], "what is nobody's is not kept"
    await embedder.close()


async def test_bulk_work_rests_while_others_ask_and_goes_on_when_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queued, "_BULK_PATIENCE", 10**6)
    model = Held()
    embedder = QueuedEmbedder("held", 1, lambda: model)
    bulk = asyncio.create_task(embedder.embed([f"passage {number}" for number in range(8)], bulk=True))
    await model.asked()
    query = asyncio.create_task(embedder.embed(["a query"], query=True))
    await asyncio.sleep(0)
    model.released.release(100)
    await query
    await bulk
    assert [len(texts) for texts in model.ran] == [2, 1, 2, 2, 2]
    await embedder.close()


async def test_bulk_work_that_fails_has_no_more_than_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queued, "_BULK_PATIENCE", 100)
    model = Held()
    embedder = QueuedEmbedder("held", 1, lambda: model)
    model.released.release()
    await embedder.embed(["at once"], bulk=True)
    failing = asyncio.create_task(embedder.embed(["broken"], bulk=True))
    await model.asked()
    await model.asked()
    bulk = asyncio.create_task(embedder.embed(["a passage"], bulk=True))
    query = asyncio.create_task(embedder.embed(["a query"], query=True))
    # The first one's hundredfold is over by now, and that of this one is not.
    await asyncio.sleep(0.5)
    model.released.release(100)
    with pytest.raises(EmbedderUnavailable):
        await failing
    await asyncio.gather(bulk, query)
    assert model.ran == [["at once"], ["broken"], ["a query"], ["a passage"]]
    await embedder.close()


async def test_white_space_of_every_kind_is_one_space_to_the_model() -> None:
    model = Held()
    model.released.release(100)
    embedder = QueuedEmbedder("held", 1, lambda: model)
    await embedder.embed(["drink\x0ccoffee\n\tnow "])
    assert model.ran == [["drink coffee now"]]
    await embedder.close()


class Followed:
    """A model that answers when the next text that somebody waits for is there, until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.ran: list[list[str]] = []

    def run(self, texts: Sequence[str]) -> list[bytes]:
        self.ran.append(list(texts))
        until(lambda: self.let_go.is_set() or waiting("query") > 0)
        return [b"\x00\x00\x80\x3f" for _ in texts]


async def test_bulk_work_gets_its_turn_though_others_never_stop_asking() -> None:
    model = Followed()
    embedder = QueuedEmbedder("followed", 1, lambda: model)

    async def ask() -> None:
        while not model.let_go.is_set():
            await embedder.embed(["one", "two"])

    # More than one batch takes, so that some of them always wait.
    asking = [asyncio.create_task(ask()) for _ in range(20)]
    await asyncio.to_thread(until, lambda: len(model.ran) > 3)
    async with asyncio.timeout(30):
        await embedder.embed([f"passage {number}" for number in range(8)], bulk=True)
    model.let_go.set()
    await asyncio.gather(*asking)
    assert sum(len(texts) for texts in model.ran if texts[0].startswith("passage")) == 8
    await embedder.close()


@pytest.mark.parametrize("texts", [["a"], ["a", "b"]], ids=["queries", "several"])
async def test_accounts_take_turns_whatever_they_have_queued(texts: list[str]) -> None:
    model = Held()
    embedder = QueuedEmbedder("held", 1, lambda: model)
    first = asyncio.create_task(embedder.embed(["tea"]))
    await model.asked()

    async def embed(account: str, number: int) -> None:
        await embedder.embed([f"{account} {number} {text}" for text in texts], space=Space(account, "user"))

    greedy = [asyncio.create_task(embed("greedy", number)) for number in range(200)]
    await asyncio.sleep(0)
    modest = asyncio.create_task(embed("modest", 0))
    await asyncio.sleep(0)
    for _ in range(2):
        model.released.release()
        await model.asked()
    # Batches of several texts are small, so that a query waits for few of them.
    assert {f"modest 0 {text}" for text in texts} <= {*model.ran[1], *model.ran[2]}
    for _ in range(400):
        model.released.release()
    await asyncio.gather(first, modest, *greedy)
    await embedder.close()
