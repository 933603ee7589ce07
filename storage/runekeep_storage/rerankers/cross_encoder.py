"""Cross-encoders run by the package `fastembed`, see `local_models`."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from runekeep_storage.drivers.common.fair_turns import FairThreads
from runekeep_storage.endpoints.json_endpoint import EndpointUnavailable
from runekeep_storage.endpoints.local_models import load_model
from runekeep_storage.rerankers.options import RerankOptions

_BATCH_TEXTS = 8
"""Texts that the model reads at once. Between two batches it stops if nobody waits any more."""


class CrossEncoder:
    """A model in a thread of its own, see `Scorer`."""

    def __init__(self, options: RerankOptions, threads: int) -> None:
        self.name = options.model
        self._options = options
        self._model_threads = threads
        self._model: Any = None
        self._threads = FairThreads(1, "reranker")

    async def prepare(self, query: str, texts: Sequence[str]) -> list[float]:
        """See `Scorer.prepare`."""
        if self._model is None:
            self._model = await asyncio.wrap_future(self._threads.submit(self._load))
        return await self.score(query, texts)

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """See `Scorer.score`. Stops soon after the caller does."""
        stop = threading.Event()
        try:
            return await asyncio.wrap_future(self._threads.submit(self._run, query, list(texts), stop))
        finally:
            stop.set()

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    def _run(self, query: str, texts: list[str], stop: threading.Event) -> list[float]:
        scores: list[float] = []
        try:
            for start in range(0, len(texts), _BATCH_TEXTS):
                if stop.is_set():
                    break
                scores += map(float, self._model.rerank(query, texts[start : start + _BATCH_TEXTS]))
        except Exception as error:
            # The name alone: the message may quote a text.
            raise EndpointUnavailable(f"{self.name} failed: {type(error).__name__}") from None
        return scores

    def _load(self) -> Any:
        options = self._options
        try:
            return load_model("TextCrossEncoder", options.model, options.path, self._model_threads, setting="rerank")
        except Exception as error:
            raise EndpointUnavailable(f"{self.name} cannot be loaded: {error}") from error
