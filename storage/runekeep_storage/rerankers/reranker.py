"""Asks a reranker within a deadline, fairly between accounts, and leaves one that failed alone for a while."""

import asyncio
import math
from collections.abc import Awaitable, Sequence
from time import monotonic
from typing import Literal, Protocol

import structlog

from runekeep_storage import deadline, telemetry
from runekeep_storage.drivers.common.fair_turns import FairSlots
from runekeep_storage.endpoints.json_endpoint import AnswerLate, BatchFailed, BatchRefused, EndpointUnavailable
from runekeep_storage.endpoints.outage import Outage
from runekeep_storage.rerankers.options import RerankOptions

CHECK_QUERY = "Does the reranker answer?"
CHECK_TEXTS = ("The reranker answers.", "It rains.")
"""Scored at the start and after each failure, so that no search waits for a reranker that is away."""
LATE_SHARE = 0.9
"""Share of `seconds` after which a reranker without an answer counts as away. A caller with a short deadline gives up
earlier, which says nothing about the reranker."""

Failure = Literal["late", "failed", "paused"]

_log = structlog.get_logger(__name__)


class RerankerUnavailable(Exception):
    """The reranker cannot score these texts now; the message says why, without any of them. `failure`: `paused` if it
    was not asked, because it failed before."""

    def __init__(self, message: str, failure: Failure = "failed") -> None:
        super().__init__(message)
        self.failure = failure


class Scorer(Protocol):
    """A model that scores texts for a query. Scores are higher for better texts, on a scale of the model's own. Both
    calls raise EndpointUnavailable."""

    @property
    def name(self) -> str:
        """Names the model in logs and for `runekeep doctor`."""
        ...

    async def prepare(self, query: str, texts: Sequence[str]) -> list[float]:
        """Loads the model, or finds out how the endpoint is called, and returns the scores of the texts. Called before
        the first `score` and after each failure."""
        ...

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Returns a score for each text."""
        ...

    async def close(self) -> None: ...


class Reranker:
    """Scores candidates of searches with one model. Used on one event loop. `parallel`: maximum number of concurrent
    calls of the model; the wait for a turn says nothing about the model."""

    def __init__(self, scorer: Scorer, options: RerankOptions, parallel: int) -> None:
        self.options = options
        self.name = scorer.name
        self._scorer = scorer
        self._slots = FairSlots(parallel, max(1, parallel - 1))
        self._outage = Outage()
        self._preparing: asyncio.Task[None] | None = None
        self._is_ready = False
        self._closed = False

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Returns a finite score for each text, higher for a better one. Takes `seconds` at most, and half of the time
        that the caller has left. Raises RerankerUnavailable."""
        try:
            scores = await self._rerank(query, texts)
        except RerankerUnavailable as error:
            telemetry.RERANKER_SEARCHES.labels(error.failure).inc()
            raise
        telemetry.RERANKER_SEARCHES.labels("reranked").inc()
        return scores

    def start(self) -> None:
        """Begins to load or reach the model, so that the first search need not wait for it."""
        self._preparing = asyncio.create_task(self._prepare())

    async def warm(self) -> None:
        """Loads or reaches the model now rather than at the first search. Raises RerankerUnavailable."""
        await self._reach()

    async def close(self) -> None:
        """Releases the model; later calls of `rerank` fail."""
        self._closed = True
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait([self._preparing])
        await self._scorer.close()

    async def _rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        seconds = deadline.remaining(2 * self.options.seconds) / 2
        asked_at: float | None = None
        try:
            async with asyncio.timeout(seconds):
                await self._reach()
                async with self._slots.take():
                    asked_at = monotonic()
                    with telemetry.RERANKER_SECONDS.time():
                        scores = await self._finite(self._scorer.score(query, texts), len(texts))
        except (TimeoutError, AnswerLate):
            error = EndpointUnavailable(f"{self.name} did not answer within {seconds:.2g} s")
            if asked_at is not None and monotonic() - asked_at >= LATE_SHARE * self.options.seconds:
                self._set_away(error)
            raise RerankerUnavailable(str(error), "late") from None
        except EndpointUnavailable as error:
            # A reranker that refuses these texts may accept those of others.
            if isinstance(error, BatchFailed) or not isinstance(error, BatchRefused):
                self._set_away(error)
            raise RerankerUnavailable(str(error)) from error
        if failures := self._outage.end():
            _log.info("reranker_back", reranker=self.name, failures=failures)
        return scores

    async def _reach(self) -> None:
        """Returns if the model has worked since the last failure. Waits for it at the first call only: while it is
        away, it is checked in the background."""
        if self._closed:
            raise RerankerUnavailable("the reranker is closed")
        if self._is_ready:
            return
        if self._outage.is_paused:
            raise RerankerUnavailable(self._outage.problem, "paused")
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare())
        if self._outage.failures:
            raise RerankerUnavailable(self._outage.problem, "paused")
        # It goes on for the next search if this one ends earlier.
        await asyncio.shield(self._preparing)
        if not self._is_ready:
            raise RerankerUnavailable(self._outage.problem)

    async def _prepare(self) -> None:
        deadline.ignore_deadline()
        try:
            await self._finite(self._scorer.prepare(CHECK_QUERY, CHECK_TEXTS), len(CHECK_TEXTS))
        except EndpointUnavailable as error:
            self._set_away(error)
        else:
            # The failures count until a search succeeds: a model may answer the check alone.
            self._is_ready = True

    async def _finite(self, call: Awaitable[list[float]], count: int) -> list[float]:
        """Returns the scores of a call. Raises EndpointUnavailable for every fault: none may fail a search."""
        try:
            scores = await call
        except EndpointUnavailable:
            raise
        except Exception as error:
            # Without its message, which may quote a text.
            _log.error("reranking_failed", reranker=self.name, error=type(error).__name__)
            raise EndpointUnavailable(f"{self.name} failed: {type(error).__name__}") from error
        if len(scores) != count or not all(map(math.isfinite, scores)):
            what = f"{len(scores)} scores for {count} texts" if len(scores) != count else "a score that is no number"
            raise EndpointUnavailable(f"{self.name} sent {what}")
        return scores

    def _set_away(self, error: EndpointUnavailable) -> None:
        self._is_ready = False
        if self._outage.add(error, error.retry_after):
            _log.warning("reranker_away", reranker=self.name, failures=self._outage.failures, error=str(error))
