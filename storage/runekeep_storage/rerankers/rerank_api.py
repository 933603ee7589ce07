"""Client of a `/rerank` endpoint in the three forms that are in use. The forms differ in names only, and a server of
one refuses the others, so `auto` tries them with texts that say nothing."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pydantic_core import from_json

from runekeep_storage.endpoints.json_endpoint import BatchRefused, EndpointUnavailable, JsonEndpoint
from runekeep_storage.rerankers.options import RerankOptions

CHECK_SECONDS = 10.0
"""Deadline of a check, which no search waits for longer than it waits for any answer."""
FORMS = ("jina", "cohere", "tei")
"""`jina`: Jina, vLLM, llama.cpp, Infinity. `cohere`: Cohere. `tei`: Hugging Face's Text Embeddings Inference. In the
order in which `auto` tries them."""


class _UnknownAnswer(EndpointUnavailable):
    """The answer is not of the form."""


class RerankApi:
    """One endpoint, see `Scorer`."""

    def __init__(self, options: RerankOptions) -> None:
        self._options = options
        self._endpoint = JsonEndpoint(options.url.rstrip("/") + "/rerank", options.api_key)
        self.name = self._endpoint.host
        self._form = "" if options.form == "auto" else options.form

    async def prepare(self, query: str, texts: Sequence[str]) -> list[float]:
        """See `Scorer.prepare`. Finds out the form, unless it is set or was found out before."""
        if self._form:
            try:
                return await self._post(self._form, query, texts, CHECK_SECONDS)
            except _UnknownAnswer:
                if self._options.form != "auto":
                    raise
                # Another server may have taken its place.
                self._form = ""
        problems = []
        for form in FORMS:
            try:
                scores = await self._post(form, query, texts, CHECK_SECONDS)
            except (BatchRefused, _UnknownAnswer) as error:
                problems.append(f"{form}: {error}")
            else:
                self._form = form
                return scores
        raise EndpointUnavailable(f"{self.name} speaks no known form of /rerank ({'; '.join(problems)})")

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """See `Scorer.score`."""
        return await self._post(self._form, query, texts, self._options.seconds)

    async def close(self) -> None:
        await self._endpoint.close()

    async def _post(self, form: str, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        body = self._body(form, query, texts)
        return await self._endpoint.post(body, partial(self._read, form=form, count=len(texts)), seconds=seconds)

    def _body(self, form: str, query: str, texts: Sequence[str]) -> Mapping[str, Any]:
        if form == "tei":
            return {"query": query, "texts": list(texts), "truncate": True, **self._options.fields}
        body = {"query": query, "documents": list(texts), "top_n": len(texts)}
        if self._options.model:
            body["model"] = self._options.model
        if form == "jina":
            # Jina sends the texts back otherwise. Cohere refuses the field.
            body["return_documents"] = False
        return body | dict(self._options.fields)

    def _read(self, content: bytes, *, form: str, count: int) -> list[float]:
        """Returns the scores of an answer in the order of their texts."""
        name = "score" if form == "tei" else "relevance_score"
        try:
            answer = from_json(content)
            results = answer if form == "tei" else answer["results"]
            scores = {int(one["index"]): float(one[name]) for one in results}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _UnknownAnswer(f"{self.name} sent no answer of the form {form}") from None
        if len(results) != count or scores.keys() != set(range(count)):
            raise EndpointUnavailable(f"{self.name} sent {len(results)} scores for {count} texts")
        return [scores[place] for place in range(count)]
