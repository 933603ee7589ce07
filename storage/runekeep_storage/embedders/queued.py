"""Runs the texts of all callers on one model, in its own thread: queries first, then documents that somebody waits for,
then bulk work in small batches."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

import structlog

from runekeep_storage import telemetry
from runekeep_storage.database import Space
from runekeep_storage.drivers.common.fair_turns import lower_priority
from runekeep_storage.embedders.base import EmbedderUnavailable
from runekeep_storage.embedders.text_form import TextForm
from runekeep_storage.embedders.text_queues import Text, TextQueues, measured, refuse

_QUERY_TEXTS = 16
"""Maximum number of queries in a batch."""
_OTHER_TEXTS = 2
"""Maximum number of other texts in a batch. A query that arrives meanwhile waits for the batch, some milliseconds a
text."""
_BUSY_SECONDS = 0.05
"""How long after the last text that somebody waits for more of them are expected."""
_BULK_PAUSE = 3
"""Within that time bulk work pauses after each batch for this multiple of the batch's duration, so it gets a quarter of
the time. If texts arrive only now and then, it pauses for _BUSY_SECONDS at most."""
_BULK_PATIENCE = 10
"""If other texts never end, bulk work waits for this multiple of its last batch's duration, then one batch goes first:
passages that are never embedded are never found."""
_NICE = 5
"""Added to the nice value of the model's threads on Linux, so that threads that answer calls get the processor first.
While one account stored hundreds of memories, calls of another one had a p99 of 91 to 122 ms without it, and of 61 to
63 ms with it."""
LOAD_RETRY_SECONDS = 1.0
"""Minimum time between two attempts to load a model."""
_AS_IT_IS = TextForm()

_log = structlog.get_logger(__name__)


class Model(Protocol):
    """A loaded model, used by one thread."""

    def run(self, texts: Sequence[str]) -> list[bytes]:
        """Returns unit vectors, as little-endian float32, of the first texts: of at least one, and of as many as keep a
        query waiting for only a fraction of a second."""
        ...


class QueuedEmbedder:
    """Embeds the texts of all callers in batches, with one model in a thread of its own: see `Embedder`.

    `load` returns the model. It is called at the first text or at `warm`; if it fails, it is called again for a later
    text, at most once every LOAD_RETRY_SECONDS. `load_seconds`: how long texts wait for a model that is being loaded;
    None for as long as it takes. A download may take longer than any caller has time.
    """

    bulk_texts = 32

    def __init__(
        self,
        model: str,
        dimension: int,
        load: Callable[[], Model],
        form: TextForm = _AS_IT_IS,
        load_seconds: float | None = None,
    ) -> None:
        self.model = model
        self.dimension = dimension
        self._load = load
        self._load_seconds = load_seconds
        self._is_loaded = False
        self._wake = threading.Condition()
        self._queues = TextQueues(form)
        self._busy_until = 0.0
        self._bulk_from = 0.0
        self._bulk_first_from = 0.0
        """All three on the clock `monotonic`."""
        self._bulk_took = _BUSY_SECONDS
        self._worker: threading.Thread | None = None
        self._closed = False

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        """See `Embedder.embed`. Queries go before bulk work, which is done in small batches."""
        if not texts:
            return []
        try:
            async with asyncio.timeout(None if self._is_loaded else self._load_seconds):
                return await self._embed(texts, query=query, bulk=bulk, space=space)
        except TimeoutError:
            raise EmbedderUnavailable(f"{self.model} is still being loaded") from None

    async def _embed(self, texts: Sequence[str], *, query: bool, bulk: bool, space: Space | None) -> list[bytes]:
        with self._wake:
            if self._closed:
                raise EmbedderUnavailable("the embedder is closed")
            if bulk and not self._queues.bulk:
                self._bulk_first_from = monotonic() + _BULK_PATIENCE * self._bulk_took
            request = self._queues.add(texts, query=query, bulk=bulk, space=space)
            if not request.missing:
                return request.vectors
            if not bulk:
                self._busy_until = monotonic() + _BUSY_SECONDS
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="embedder", daemon=True)
                self._worker.start()
            self._wake.notify()
        return await request.future

    async def warm(self) -> None:
        """See `Embedder.warm`."""
        (vector,) = await self._embed(["warm"], query=True, bulk=False, space=None)
        if len(vector) != 4 * self.dimension:
            raise EmbedderUnavailable(f"its vectors have {len(vector) // 4} numbers, not {self.dimension}")

    async def close(self) -> None:
        """See `Embedder.close`. Waits for the current batch."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._worker is not None:
            await asyncio.to_thread(self._worker.join)

    def _work(self) -> None:
        # Before loading: threads that the model starts inherit it.
        lower_priority(_NICE)
        model = self._loaded()
        while model is not None and (batch := self._take()):
            began = monotonic()
            try:
                with measured(batch):
                    vectors = model.run([entry.text for entry in batch])
            except Exception as error:
                telemetry.EMBEDDER_ERRORS.inc()
                _log.error("embedding_failed", model=self.model, texts=len(batch), error=str(error))
                refuse(batch, EmbedderUnavailable(f"{self.model} failed: {error}"))
                continue
            finally:
                # Also after a failure; otherwise the rest of the failed bulk work would go before all other texts.
                if batch[0].request.bulk:
                    self._bulk_took = monotonic() - began
                    self._bulk_from = monotonic() + _BULK_PAUSE * self._bulk_took
                    self._bulk_first_from = monotonic() + _BULK_PATIENCE * self._bulk_took
            telemetry.EMBEDDER_TEXTS.inc(len(vectors))
            with self._wake:
                self._queues.put_back(batch[len(vectors) :])
                self._queues.settle(batch, vectors)

    def _loaded(self) -> Model | None:
        """Returns the model; None once closed. Refuses incoming texts until the model can be loaded."""
        failures = 0
        while True:
            try:
                model = self._load()
            except Exception as error:
                failures += 1
                # Logs the first failure, then ever fewer: a file may be missing for hours.
                if failures.bit_count() == 1:
                    _log.warning("embedder_not_loaded", model=self.model, failures=failures, error=str(error))
                failure = EmbedderUnavailable(f"{self.model} cannot be loaded: {error}")
            else:
                self._is_loaded = True
                return model
            again_at = monotonic() + LOAD_RETRY_SECONDS
            while (batch := self._take()) and monotonic() < again_at:
                telemetry.EMBEDDER_ERRORS.inc()
                refuse(batch, failure)
            if not batch:
                return None
            with self._wake:
                self._queues.put_back(batch)

    def _take(self) -> list[Text]:
        """Waits for work and returns the next batch, queries first, unless bulk work has waited too long; empty once
        closed."""
        queues = self._queues
        with self._wake:
            while True:
                if self._closed:
                    queues.refuse_all(EmbedderUnavailable("the embedder is closed"))
                    return []
                starved = queues.bulk and monotonic() >= self._bulk_first_from
                queue = queues.bulk if starved else queues.queries or queues.documents or queues.bulk
                rest = min(self._bulk_from, self._busy_until) - monotonic()
                if queue is queues.bulk and queue and rest > 0:
                    self._wake.wait(rest)
                    continue
                batch = queue.take(_QUERY_TEXTS if queue is queues.queries else _OTHER_TEXTS)
                queues.report_lengths()
                if batch:
                    return batch
                if not queues.queries and not queues.documents and not queues.bulk:
                    self._wake.wait()
