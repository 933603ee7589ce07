"""Client of an `/v1/embeddings` endpoint, as OpenAI, Voyage, TEI, vLLM, Infinity, Ollama and llama.cpp serve it.

Errors name the host and the status only: what an endpoint says may quote a text or the key.
"""

import asyncio
import base64
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from pydantic_core import from_json

from runekeep_storage.embedders.known_vector import KnownVector
from runekeep_storage.embedders.options import EmbeddingOptions
from runekeep_storage.embedders.vectors import cosine, to_unit_vectors
from runekeep_storage.endpoints.json_endpoint import BatchRefused, EndpointUnavailable, JsonEndpoint

CHECK_TEXT = "The embedder answers."
"""Embedded at the start and after each failure, to learn whether the endpoint works and still serves the same model."""
MIN_SAME_COSINE = 0.99
"""Cosine of two vectors of CHECK_TEXT from which they are of one model. Batches and processors move it by less."""


class EmbeddingsApi:
    """One endpoint and its connections, used on one event loop. Raises EndpointUnavailable if it cannot answer, and for
    an answer that cannot be right."""

    def __init__(self, options: EmbeddingOptions, known: KnownVector) -> None:
        self._options = options
        self._endpoint = JsonEndpoint(options.url.rstrip("/") + "/embeddings", options.api_key)
        self.host = self._endpoint.host
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
        return await self._endpoint.post(body, partial(self._read, count=len(texts)), seconds=seconds)

    async def check(self) -> None:
        """Embeds CHECK_TEXT, also as a query if queries have other fields. Raises EndpointUnavailable too if the vector
        shows another model than the first one."""
        (vector,) = await self.embed([CHECK_TEXT], query=False)
        known = await asyncio.to_thread(self._known.keep, vector)
        if cosine(vector, known) < MIN_SAME_COSINE:
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
        await self._endpoint.close()

    def _read(self, content: bytes, *, count: int) -> list[bytes]:
        """Returns the vectors of an answer in the order of their texts, scaled to length 1."""
        try:
            answer = from_json(content)
            entries = {entry["index"]: entry["embedding"] for entry in answer["data"]}
            served = answer.get("model")
        except (ValueError, TypeError, KeyError, AttributeError):
            raise EndpointUnavailable(
                f"{self.host} sent no answer of the embeddings API; most servers have it below /v1"
            ) from None
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
