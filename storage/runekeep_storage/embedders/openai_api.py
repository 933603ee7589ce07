"""Client of an `/v1/embeddings` endpoint, as OpenAI, Voyage, TEI, vLLM, Infinity, Ollama and llama.cpp serve it.

Errors name the host and the status only: what an endpoint says may quote a text or the key.
"""

import asyncio
import base64
import email.utils
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2
import numpy as np
from pydantic_core import from_json
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_random_exponential

from runekeep_storage.embedders.base import EmbedderUnavailable
from runekeep_storage.embedders.known_vector import KnownVector
from runekeep_storage.embedders.options import EmbeddingOptions
from runekeep_storage.embedders.vectors import cosine, to_unit_vectors

ATTEMPTS = 4
CONNECT_SECONDS = 5.0
CHECK_TEXT = "The embedder answers."
"""Embedded at the start and after each failure, to learn whether the endpoint works and still serves the same model."""
MIN_SAME_COSINE = 0.99
"""Cosine of two vectors of CHECK_TEXT from which they are of one model. Batches and processors move it by less."""
_REFUSED = frozenset({400, 413, 422, 500})
"""Statuses by which endpoints refuse a text that is too long, or a batch that is too large. llama.cpp says 500."""
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_MEANINGS = {
    401: ": it refuses the key",
    402: ": it wants to be paid",
    403: ": it refuses the key",
    404: ": it does not know the address or the model",
}
_backoff = wait_random_exponential(multiplier=0.2, max=5)


class EndpointUnavailable(EmbedderUnavailable):
    """The endpoint cannot answer now. `retry_after`: the seconds that it asks to wait, 0 if it does not say."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BatchRefused(EndpointUnavailable):
    """The endpoint refused these texts. It may accept fewer or shorter ones."""


class AnswerLate(EndpointUnavailable):
    """The endpoint took too long for these texts."""


class _Transient(EndpointUnavailable):
    """The same request may succeed in a moment."""


class BatchFailed(_Transient, BatchRefused):
    """The endpoint failed, perhaps because of these texts."""


class EmbeddingsApi:
    """One endpoint and its connections, used on one event loop. Raises EndpointUnavailable if it cannot answer, and for
    an answer that cannot be right."""

    def __init__(self, options: EmbeddingOptions, known: KnownVector) -> None:
        self.host = urlsplit(options.url).hostname or options.url
        self._url = options.url.rstrip("/") + "/embeddings"
        self._options = options
        headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
        # Only the connection has a timeout of its own; `embed` bounds the whole call.
        self._http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS))
        self._served_model: str | None = None
        """The model that the answers name."""
        self._known = known
        """The first vector of CHECK_TEXT."""

    async def embed(self, texts: Sequence[str], *, query: bool, seconds: float | None = None) -> list[bytes]:
        """Returns unit vectors, in order, within `seconds`; None for `query_seconds` or `batch_seconds`. Raises
        BatchRefused and AnswerLate too."""
        options = self._options
        if seconds is None:
            seconds = options.query_seconds if query else options.batch_seconds
        fields = options.query_fields if query else options.document_fields
        # Endpoints refuse empty texts.
        body = {"model": options.model, "input": [text or "." for text in texts], **fields}
        content = json.dumps(body).encode()
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(_Transient),
            stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(seconds),
            wait=_wait,
            reraise=True,
        )
        try:
            async with asyncio.timeout(seconds):
                return await attempts(self._post, content, len(texts))
        except TimeoutError:
            raise AnswerLate(f"{self.host} did not answer within {seconds:g} s") from None

    async def check(self) -> None:
        """Embeds CHECK_TEXT, also as a query if queries have other fields. Raises EndpointUnavailable too if the vector
        shows another model than the first one."""
        (vector,) = await self.embed([CHECK_TEXT], query=False)
        known = await asyncio.to_thread(self._known.read)
        # Another length means a damaged file: the name of the vectors includes their dimension.
        if len(known) != len(vector):
            await asyncio.to_thread(self._known.write, vector)
        elif cosine(vector, known) < MIN_SAME_COSINE:
            raise EndpointUnavailable(f"{self.host} serves another model than before under the same name")
        if self._options.form.separates_queries:
            try:
                # An endpoint that is too slow for searches still serves documents.
                await self.embed([CHECK_TEXT], query=True, seconds=self._options.batch_seconds)
            except BatchRefused as error:
                raise EndpointUnavailable(
                    f"{error} to a query: check embedding.query_fields", error.retry_after
                ) from error

    async def close(self) -> None:
        await self._http.aclose()

    async def _post(self, content: bytes, count: int) -> list[bytes]:
        try:
            response = await self._http.post(self._url, content=content, headers={"content-type": "application/json"})
        except httpx2.TransportError as error:
            raise _Transient(f"{self.host} cannot be reached: {type(error).__name__}") from error
        status = response.status_code
        if status == 200:
            # In a thread: a batch is up to a megabyte of JSON.
            return await asyncio.to_thread(self._read, response.content, count)
        message = f"{self.host} answered with status {status}{_MEANINGS.get(status, '')}"
        if status in _TRANSIENT:
            raise (BatchFailed if status in _REFUSED else _Transient)(message, _retry_after(response.headers))
        raise (BatchRefused if status in _REFUSED else EndpointUnavailable)(message)

    def _read(self, content: bytes, count: int) -> list[bytes]:
        """Returns the vectors of an answer in the order of their texts, scaled to length 1."""
        try:
            answer = from_json(content)
            entries = {entry["index"]: entry["embedding"] for entry in answer["data"]}
            served = answer.get("model")
        except (ValueError, TypeError, KeyError, AttributeError):
            raise EndpointUnavailable(f"{self.host} sent no answer of the embeddings API") from None
        if len(answer["data"]) != count or entries.keys() != set(range(count)):
            raise EndpointUnavailable(f"{self.host} sent {len(answer['data'])} vectors for {count} texts")
        try:
            vectors = to_unit_vectors(
                [_numbers(entries[index]) for index in range(count)], count, self._options.dimension
            )
        except ValueError as error:
            raise EndpointUnavailable(f"{self.host} sent {error}") from None
        before, self._served_model = self._served_model, served
        if before not in (None, served):
            # The check that follows tells by a vector whether it is another model or only another name.
            raise EndpointUnavailable(f"{self.host} names another model than before")
        return vectors


def _numbers(embedding: Any) -> Any:
    if isinstance(embedding, str):
        # Some endpoints send base64 unless floats are asked for.
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    return embedding


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after if isinstance(error, EndpointUnavailable) else 0.0
    return max(asked, _backoff(state))


def _retry_after(headers: Mapping[str, str]) -> float:
    """Returns the seconds that a response asks to wait, 0 if it does not say."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        date = email.utils.parsedate_tz(value)
        seconds = 0.0 if date is None else email.utils.mktime_tz(date) - time.time()
    # `nan` and `inf` are floats too.
    return min(max(seconds, 0.0), 3600.0) if seconds == seconds else 0.0
