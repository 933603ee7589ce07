"""Texts that wait for an embedder, fair between accounts, and a cache of recent vectors."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from runekeep_common.telemetry import tracing
from runekeep_storage import telemetry
from runekeep_storage.database import Space
from runekeep_storage.drivers.common import fair_turns
from runekeep_storage.embedders.base import EmbedderUnavailable
from runekeep_storage.embedders.text_form import TextForm

MAX_CACHED = 4096
"""Number of cached vectors, some 2 to 6 KB each: a commit embeds the same text to search by it, to compare it and to
store it."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Request:
    """One call of `embed`. `missing`: number of vectors that it waits for; `vectors`: empty where they are missing."""

    account: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[list[bytes]]
    query: bool
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
            # The caller's event loop is closed, so nobody waits for the result.
            _log.warning("embedding_result_unclaimed", texts=len(self.vectors))

    def _finish(self, error: EmbedderUnavailable | None) -> None:
        # The caller may have been cancelled. Setting a result would raise.
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.vectors)
        else:
            self.future.set_exception(error)


@dataclass(frozen=True, slots=True)
class Text:
    """A text that waits, as the model reads it, and its position in its request."""

    request: Request
    position: int
    text: str
    key: bytes | None


class TextQueue:
    """Waiting texts, in one queue for each account. Accounts take turns, one text each, so that none waits for
    everything that another one queued."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[str, deque[Text]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Text]:
        return (text for texts in self._accounts.values() for text in texts)

    def extend(self, texts: Sequence[Text]) -> None:
        for text in texts:
            self._accounts.setdefault(text.request.account, deque()).append(text)
        self._size += len(texts)

    def appendleft(self, text: Text) -> None:
        """Puts a text back at the head: it is the next one of its account, and its account is next."""
        account = text.request.account
        self._accounts.setdefault(account, deque()).appendleft(text)
        self._accounts.move_to_end(account, last=False)
        self._size += 1

    def take(self, max_texts: int, max_bytes: int | None = None) -> list[Text]:
        """Returns the next texts: at most that many, and at least one, however long it is. Drops texts that nobody
        waits for, because their call was cancelled or has failed."""
        batch: list[Text] = []
        size = 0
        while self._size and len(batch) < max_texts:
            text = self._popleft()
            if text.request.future.done():
                continue
            if max_bytes is not None:
                size += len(text.text.encode("utf-8", errors="replace"))
                if batch and size > max_bytes:
                    self.appendleft(text)
                    break
            batch.append(text)
        return batch

    def _popleft(self) -> Text:
        account, texts = self._accounts.popitem(last=False)
        text = texts.popleft()
        if texts:
            self._accounts[account] = texts
        self._size -= 1
        return text


class TextQueues:
    """The three queues of an embedder, and its cache. Not safe for threads: the embedder locks it if it has one."""

    def __init__(self, form: TextForm) -> None:
        self.queries = TextQueue()
        self.documents = TextQueue()
        """Texts of jobs and writes that wait for their vectors. People wait for queries."""
        self.bulk = TextQueue()
        self._form = form
        self._reported = {"query": 0, "bulk": 0}
        """The lengths that the metrics hold. Other embedders of this server add theirs."""
        self._cached: OrderedDict[bytes, bytes] = OrderedDict()

    def add(self, texts: Sequence[str], *, query: bool, bulk: bool, space: Space | None) -> Request:
        """Queues the texts whose vectors are not cached, on the caller's event loop. If the request misses none, its
        future is never set."""
        texts = [self._form.apply(text, query=query) for text in texts]
        keys = [None if bulk else self._form.cache_key(space, text, query=query) for text in texts]
        vectors = [self._look_up(key) for key in keys]
        loop = asyncio.get_running_loop()
        account = fair_turns.current() if space is None else space.account
        missing = vectors.count(b"")
        request = Request(account, loop, loop.create_future(), query, bulk, tracing.traceparent(), missing, vectors)
        waiting = [
            Text(request, position, text, key)
            for position, (text, key) in enumerate(zip(texts, keys, strict=True))
            if not vectors[position]
        ]
        # Neighbours in the queue share a batch, which some models pad, so they should have similar lengths.
        waiting.sort(key=lambda entry: len(entry.text))
        self._queue_of(request).extend(waiting)
        self.report_lengths()
        return request

    def put_back(self, texts: Sequence[Text]) -> None:
        for text in reversed(texts):
            self._queue_of(text.request).appendleft(text)

    def settle(self, batch: Sequence[Text], vectors: Sequence[bytes]) -> None:
        """Caches the vectors of the first texts and reports them to their requests."""
        for entry, vector in zip(batch, vectors, strict=False):
            if entry.key is not None:
                self._cached[entry.key] = vector
            entry.request.report(entry.position, vector)
        while len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)

    def refuse_all(self, error: EmbedderUnavailable) -> None:
        waiting = [*self.queries, *self.documents, *self.bulk]
        self.queries, self.documents, self.bulk = TextQueue(), TextQueue(), TextQueue()
        self.report_lengths()
        refuse(waiting, error)

    def report_lengths(self) -> None:
        """Updates the metrics of the queues."""
        lengths = {"query": len(self.queries) + len(self.documents), "bulk": len(self.bulk)}
        for kind, length in lengths.items():
            telemetry.EMBEDDER_QUEUE.labels(kind).inc(length - self._reported[kind])
        self._reported = lengths

    def _look_up(self, key: bytes | None) -> bytes:
        if key is None or key not in self._cached:
            return b""
        self._cached.move_to_end(key)
        return self._cached[key]

    def _queue_of(self, request: Request) -> TextQueue:
        if request.bulk:
            return self.bulk
        return self.queries if request.query else self.documents


def refuse(batch: Sequence[Text], error: EmbedderUnavailable) -> None:
    for entry in batch:
        entry.request.refuse(error)


@contextmanager
def measured(batch: Sequence[Text]) -> Iterator[None]:
    """Measures and traces one batch, on behalf of all its callers."""
    asked = [entry.request.traceparent for entry in batch]
    with (
        telemetry.EMBEDDER_BATCHES.time(),
        tracing.batch("embed", asked, {"runekeep.texts": len(batch), "runekeep.bulk": batch[0].request.bulk}),
    ):
        yield
