"""The queue before the embedder's model: what its metrics say of it."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from schemas.telemetry import metrics
from storage.embedders.base import EmbedderUnavailable
from storage.embedders.queued import QueuedEmbedder
from tests.support.waiting import until


class Held:
    """A model that computes when it is released; `wanted` says that it was asked."""

    def __init__(self) -> None:
        self.wanted = threading.Semaphore(0)
        self.released = threading.Semaphore(0)

    def run(self, texts: Sequence[str]) -> list[bytes]:
        self.wanted.release()
        self.released.acquire()
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
