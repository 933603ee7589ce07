"""Sends the texts of all callers to an embedding service, several batches at once."""

import asyncio
from collections.abc import Sequence
from functools import partial

import structlog

from runekeep_storage import telemetry
from runekeep_storage.database import Space
from runekeep_storage.embedders.base import EmbedderUnavailable
from runekeep_storage.embedders.known_vector import KnownVector
from runekeep_storage.embedders.openai_api import EmbeddingsApi
from runekeep_storage.embedders.options import EmbeddingOptions
from runekeep_storage.embedders.text_queues import Text, TextQueue, TextQueues, measured, refuse
from runekeep_storage.endpoints.json_endpoint import AnswerLate, BatchFailed, BatchRefused, EndpointUnavailable
from runekeep_storage.endpoints.outage import Outage

MIN_FAILED_CHARACTERS = 128
"""A text is not shortened below this if the endpoint fails with a server error. In any script these are less than 512
tokens, which every model reads, so the length is not the cause."""

_log = structlog.get_logger(__name__)


class RemoteEmbedder:
    """Embeds texts by an endpoint, see `Embedder`. Used on one event loop.

    The endpoint is checked before the first batch and after each failure. While it is away, texts are refused at once,
    so that searches do not wait for it, and it is checked again after a growing pause.

    `known`: the vector that shows the model, if other endpoints must serve the same one.
    """

    def __init__(self, options: EmbeddingOptions, known: KnownVector | None = None) -> None:
        self.model = name_of_vectors(options)
        self.dimension = options.dimension
        self.bulk_texts = options.batch_texts * options.parallel_batches
        self._options = options
        self._api = EmbeddingsApi(options, known or KnownVector(options.check_file, self.model))
        self._queues = TextQueues(options.form)
        self._running: tuple[tuple[TextQueue, set[asyncio.Task[None]]], ...] = (
            (self._queues.queries, set()),
            (self._queues.documents, set()),
            (self._queues.bulk, set()),
        )
        """Batches under way, by queue: none waits for the others."""
        self._checking = asyncio.Lock()
        self._is_checked = False
        self._outage = Outage()
        self._closed = False

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        """See `Embedder.embed`. Queries wait for at most `query_seconds`, writes for `batch_seconds`."""
        if not texts:
            return []
        if self._closed:
            raise EmbedderUnavailable("the embedder is closed")
        request = self._queues.add(texts, query=query, bulk=bulk, space=space)
        if not request.missing:
            return request.vectors
        # Not at once: texts that arrive together share batches.
        asyncio.get_running_loop().call_soon(self._start_batches)
        if bulk:
            return await request.future
        seconds = self._options.query_seconds if query else self._options.batch_seconds
        try:
            async with asyncio.timeout(seconds):
                return await request.future
        except TimeoutError:
            raise EmbedderUnavailable(f"{self._api.host} did not answer within {seconds:g} s") from None

    async def warm(self) -> None:
        """See `Embedder.warm`. Checks the endpoint, unless it failed just now."""
        try:
            await self._reach(anew=True)
        except EndpointUnavailable as error:
            raise EmbedderUnavailable(str(error)) from error

    async def close(self) -> None:
        """See `Embedder.close`. Gives up the batches under way."""
        self._closed = True
        self._queues.refuse_all(EmbedderUnavailable("the embedder is closed"))
        tasks = [task for _, running in self._running for task in running]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._api.close()

    def _start_batches(self) -> None:
        if self._closed:
            return
        for queue, running in self._running:
            while len(running) < self._options.parallel_batches and (batch := self._take(queue)):
                task = asyncio.create_task(self._run(batch))
                running.add(task)
                task.add_done_callback(partial(self._end_batch, running))
        self._queues.report_lengths()

    def _take(self, queue: TextQueue) -> list[Text]:
        return queue.take(self._options.batch_texts, self._options.batch_bytes)

    async def _run(self, batch: list[Text]) -> None:
        try:
            with measured(batch):
                vectors = await self._vectors([entry.text for entry in batch], query=batch[0].request.query)
        except EndpointUnavailable as error:
            telemetry.EMBEDDER_ERRORS.inc()
            refuse(batch, EmbedderUnavailable(str(error)))
        except asyncio.CancelledError:
            refuse(batch, EmbedderUnavailable("the embedder is closed"))
            raise
        except Exception as error:
            _log.exception("embedding_failed", model=self.model, texts=len(batch))
            refuse(batch, EmbedderUnavailable(f"{self.model} failed: {type(error).__name__}"))
        else:
            telemetry.EMBEDDER_TEXTS.inc(len(vectors))
            self._queues.settle(batch, vectors)

    def _end_batch(self, running: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        running.discard(task)
        self._start_batches()

    async def _vectors(self, texts: list[str], *, query: bool) -> list[bytes]:
        """Returns the vectors of a batch. Texts that are too much for the endpoint are sent again in smaller batches,
        and one that it refuses alone is shortened, because a text without a vector would hold up the others for
        ever."""
        await self._reach()
        try:
            vectors = await self._api.embed(texts, query=query)
        except (AnswerLate, BatchRefused) as error:
            smaller = _split(texts, error)
            if isinstance(error, AnswerLate) and not smaller and not query:
                self._set_away(error)
                raise
            # The check tells whether these texts are too much for the endpoint or it refuses every text.
            self._is_checked = False
            await self._reach()
            # A caller waits for a query no longer than for one answer.
            if not smaller or (query and isinstance(error, AnswerLate)):
                raise
            _log.info("embedding_batch_refused", model=self.model, texts=len(texts), error=str(error))
        except EndpointUnavailable as error:
            self._set_away(error)
            raise
        else:
            if failures := self._outage.end():
                _log.info("embedder_back", model=self.model, failures=failures)
            return vectors
        return [vector for some in smaller for vector in await self._vectors(some, query=query)]

    async def _reach(self, *, anew: bool = False) -> None:
        """Checks the endpoint unless it has worked since the last failure. Raises EndpointUnavailable, without a call
        if the pause after the last failure is not over. `anew`: check it in any case."""
        if self._is_checked and not anew:
            return
        async with self._checking:
            if self._is_checked and not anew:
                return
            if self._outage.is_paused:
                raise EndpointUnavailable(self._outage.problem)
            try:
                await self._api.check()
            except EndpointUnavailable as error:
                self._set_away(error)
                raise
            # The failures count until a batch succeeds: an endpoint may answer the check alone.
            self._is_checked = True

    def _set_away(self, error: EndpointUnavailable) -> None:
        self._is_checked = False
        if self._outage.add(error, error.retry_after):
            _log.warning("embedder_away", model=self.model, failures=self._outage.failures, error=str(error))


def name_of_vectors(options: EmbeddingOptions) -> str:
    """Returns the name of the vectors, see `Embedder.model`. Some models serve vectors of several dimensions."""
    return f"{options.identity('openai')}/{options.dimension}"


def _split(texts: list[str], error: AnswerLate | BatchRefused) -> list[list[str]]:
    """Returns smaller batches that the endpoint may accept after the error; none if it may accept none."""
    if len(texts) > 1:
        half = len(texts) // 2
        # One text alone tells soon whether the endpoint is out of order, before halves take their time.
        first = 1 if isinstance(error, AnswerLate) else 0
        return [some for some in (texts[:first], texts[first:half], texts[half:]) if some]
    length = len(texts[0])
    shortest = MIN_FAILED_CHARACTERS if isinstance(error, BatchFailed) else 0
    # An endpoint that is late with one text is out of order: a shorter text would only hide it.
    if isinstance(error, AnswerLate) or length <= shortest:
        return []
    return [[texts[0][: max(length // 2, shortest)]]]
