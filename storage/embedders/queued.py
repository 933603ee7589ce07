"""Texts from all callers on one model, in a thread of its own: queries first, then what comes several at once, and bulk
work in small batches. What was computed lately is not computed again."""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic
from typing import Protocol

import structlog

from schemas.telemetry import tracing
from storage import sharing, telemetry
from storage.database import Space
from storage.embedders.base import EmbedderUnavailable

_BATCH_TEXTS = 16
_BULK_TEXTS = 4
"""At most in a batch of bulk work, which what somebody waits for may have to wait for."""
_BUSY_SECONDS = 0.05
"""For so long after the last text that somebody waits for there may be more of them soon."""
_BULK_PAUSE = 3
"""Until then bulk work rests after each batch for so many times as long as that took: it gets a quarter of the time.
For a text now and then it rests for _BUSY_SECONDS at most."""
_BULK_PATIENCE = 10
"""So many times as long as its last batch took bulk work waits for others that never end; then a batch of it goes
first: passages that are never embedded are never found."""
LOAD_RETRY_SECONDS = 1.0
"""Shortest time between two attempts to load a model."""
_KEPT = 4096
"""Vectors that are kept, some 2 KB each, or 4 of two models: a commit asks for a text to search by it, to compare it
and to store it."""

_log = structlog.get_logger(__name__)


class Model(Protocol):
    """A loaded model, used by one thread."""

    def run(self, texts: Sequence[str]) -> list[bytes]:
        """Unit vectors, as little-endian float32, of the texts from the first on: of as many, and of one at least, as
        keep a query waiting for a fraction of a second only."""
        ...


class QueuedEmbedder:
    """Embeds the texts of all callers in batches, with one model in a thread of its own: see `Embedder`.

    `load` returns the model. It is called at the first text or at `warm`; if it fails, it is called again for a later
    text, at most once every LOAD_RETRY_SECONDS.
    """

    def __init__(self, model: str, dimension: int, load: Callable[[], Model]) -> None:
        self.model = model
        self.dimension = dimension
        self._load = load
        self._wake = threading.Condition()
        self._queries = _Queue()
        self._several = _Queue()
        """Of calls that somebody waits for too, and that bring more than one: jobs do, and people wait for queries."""
        self._bulk = _Queue()
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._busy_until = 0.0
        self._bulk_from = 0.0
        self._bulk_first_from = 0.0
        """All three by `monotonic`."""
        self._bulk_took = _BUSY_SECONDS
        self._worker: threading.Thread | None = None
        self._closed = False

    async def embed(self, texts: Sequence[str], *, bulk: bool = False, space: Space | None = None) -> list[bytes]:
        """See `Embedder.embed`. Queries go before bulk work, which is done in small batches."""
        if not texts:
            return []
        # Models differ in what they do about white space, so that what is kept as the same text has to be read as one.
        texts = [" ".join(text.split()) for text in texts]
        keys = [_key(space, text) for text in texts]
        loop = asyncio.get_running_loop()
        with self._wake:
            if self._closed:
                raise EmbedderUnavailable("the embedder is closed")
            vectors = [self._kept.get(key, b"") if key is not None else b"" for key in keys]
            for key, vector in zip(keys, vectors, strict=True):
                if key is not None and vector:
                    self._kept.move_to_end(key)
            if all(vectors):
                return vectors
            account = sharing.current() if space is None else space.account
            request = _Request(
                account,
                loop,
                loop.create_future(),
                bulk,
                tracing.traceparent(),
                missing=vectors.count(b""),
                vectors=vectors,
            )
            waiting = [
                _Text(request, position, text, key)
                for position, (text, key) in enumerate(zip(texts, keys, strict=True))
                if not vectors[position]
            ]
            # Neighbours in the queue share a batch, which some models pad, so let them be of like length.
            waiting.sort(key=lambda entry: len(entry.text))
            if bulk and not self._bulk:
                self._bulk_first_from = monotonic() + _BULK_PATIENCE * self._bulk_took
            self._queue_of(request).extend(waiting)
            if not bulk:
                self._busy_until = monotonic() + _BUSY_SECONDS
            self._tell_queue()
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="embedder", daemon=True)
                self._worker.start()
            self._wake.notify()
        return await request.future

    async def warm(self) -> None:
        """See `Embedder.warm`."""
        await self.embed(["warm"])

    async def close(self) -> None:
        """See `Embedder.close`. Waits for the batch that is being worked on."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._worker is not None:
            await asyncio.to_thread(self._worker.join)

    def _work(self) -> None:
        model = self._loaded()
        while model is not None and (batch := self._take()):
            began = monotonic()
            try:
                with _computing(batch):
                    vectors = model.run([entry.text for entry in batch])
            except Exception as error:
                telemetry.EMBEDDER_ERRORS.inc()
                _log.error("embedding_failed", model=self.model, texts=len(batch), error=str(error))
                _refuse(batch, EmbedderUnavailable(f"{self.model} failed: {error}"))
                continue
            finally:
                # Also of one that failed: else all others would go behind the rest of them.
                if batch[0].request.bulk:
                    self._bulk_took = monotonic() - began
                    self._bulk_from = monotonic() + _BULK_PAUSE * self._bulk_took
                    self._bulk_first_from = monotonic() + _BULK_PATIENCE * self._bulk_took
            telemetry.EMBEDDER_TEXTS.inc(len(vectors))
            self._put_back(batch[len(vectors) :])
            self._keep(batch, vectors)
            for entry, vector in zip(batch, vectors, strict=False):
                entry.request.report(entry.position, vector)

    def _loaded(self) -> Model | None:
        """Returns the model; None once closed. Until the model can be loaded, incoming texts are refused."""
        failures = 0
        while True:
            try:
                return self._load()
            except Exception as error:
                failures += 1
                # The first failure, then ever fewer: a file may be missing for hours.
                if failures.bit_count() == 1:
                    _log.warning("embedder_not_loaded", model=self.model, failures=failures, error=str(error))
                failure = EmbedderUnavailable(f"{self.model} cannot be loaded: {error}")
            again_at = monotonic() + LOAD_RETRY_SECONDS
            while (batch := self._take()) and monotonic() < again_at:
                telemetry.EMBEDDER_ERRORS.inc()
                _refuse(batch, failure)
            if not batch:
                return None
            self._put_back(batch)

    def _take(self) -> "list[_Text]":
        """The texts of the next batch, queries first, unless bulk work has waited too long; waits for work, empty once
        closed."""
        with self._wake:
            while True:
                if self._closed:
                    waiting = [*self._queries, *self._several, *self._bulk]
                    _refuse(waiting, EmbedderUnavailable("the embedder is closed"))
                    return []
                starved = self._bulk and monotonic() >= self._bulk_first_from
                queue = self._bulk if starved else self._queries or self._several or self._bulk
                rest = min(self._bulk_from, self._busy_until) - monotonic()
                if queue is self._bulk and queue and rest > 0:
                    self._wake.wait(rest)
                    continue
                batch: list[_Text] = []
                while queue and len(batch) < (_BULK_TEXTS if queue is self._bulk else _BATCH_TEXTS):
                    entry = queue.popleft()
                    # Nobody waits any more for a call that was cancelled or has failed.
                    if not entry.request.future.done():
                        batch.append(entry)
                self._tell_queue()
                if batch:
                    return batch
                if not self._queries and not self._several and not self._bulk:
                    self._wake.wait()

    def _put_back(self, rest: "list[_Text]") -> None:
        with self._wake:
            for entry in reversed(rest):
                self._queue_of(entry.request).appendleft(entry)

    def _keep(self, batch: "Sequence[_Text]", vectors: Sequence[bytes]) -> None:
        with self._wake:
            for entry, vector in zip(batch, vectors, strict=False):
                if entry.key is not None:
                    self._kept[entry.key] = vector
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    def _queue_of(self, request: "_Request") -> "_Queue":
        if request.bulk:
            return self._bulk
        return self._queries if len(request.vectors) == 1 else self._several

    def _tell_queue(self) -> None:
        telemetry.EMBEDDER_QUEUE.labels("query").set(len(self._queries) + len(self._several))
        telemetry.EMBEDDER_QUEUE.labels("bulk").set(len(self._bulk))


@dataclass(slots=True)
class _Request:
    """One call of `embed` that waits for the vectors of its texts."""

    account: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[list[bytes]]
    bulk: bool
    traceparent: str
    missing: int
    vectors: list[bytes] = field(repr=False)

    def report(self, position: int, vector: bytes) -> None:
        self.vectors[position] = vector
        self.missing -= 1
        if not self.missing:
            self._settle(None)

    def refuse(self, error: EmbedderUnavailable) -> None:
        self._settle(error)

    def _settle(self, error: EmbedderUnavailable | None) -> None:
        try:
            self.loop.call_soon_threadsafe(self._finish, error)
        except RuntimeError:
            # The caller's loop has been closed and its future with it: nobody is left to tell.
            _log.warning("embedding_result_unclaimed", texts=len(self.vectors))

    def _finish(self, error: EmbedderUnavailable | None) -> None:
        # The caller may have been cancelled meanwhile; setting a result then would raise.
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.vectors)
        else:
            self.future.set_exception(error)


@dataclass(frozen=True, slots=True)
class _Text:
    request: _Request
    position: int
    text: str
    key: bytes | None


class _Queue:
    """Waiting texts, in a queue for each account. Accounts take turns, one text each, so that none waits for everything
    that another one brought."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[str, deque[_Text]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def extend(self, texts: Sequence[_Text]) -> None:
        for text in texts:
            self._accounts.setdefault(text.request.account, deque()).append(text)
        self._size += len(texts)

    def popleft(self) -> _Text:
        account, texts = self._accounts.popitem(last=False)
        text = texts.popleft()
        if texts:
            self._accounts[account] = texts
        self._size -= 1
        return text

    def appendleft(self, text: _Text) -> None:
        """Puts texts back at the head of the queue: each is the next one of its account, and its account is next."""
        account = text.request.account
        self._accounts.setdefault(account, deque()).appendleft(text)
        self._accounts.move_to_end(account, last=False)
        self._size += 1

    def __iter__(self) -> Iterator[_Text]:
        return (text for texts in self._accounts.values() for text in texts)


def _key(space: Space | None, text: str) -> bytes | None:
    """None: of nobody, and so computed."""
    if space is None:
        return None
    owned = "\0".join((space.account, space.user, text))
    return blake2b(owned.encode("utf-8", errors="replace"), digest_size=16).digest()


@contextmanager
def _computing(batch: Sequence[_Text]) -> Iterator[None]:
    """Around what the model computes at once, for callers that may be several."""
    asked = [entry.request.traceparent for entry in batch]
    with (
        telemetry.EMBEDDER_BATCHES.time(),
        tracing.batch("embed", asked, {"runekeep.texts": len(batch), "runekeep.bulk": batch[0].request.bulk}),
    ):
        yield


def _refuse(batch: Sequence[_Text], error: EmbedderUnavailable) -> None:
    for entry in batch:
        entry.request.refuse(error)
