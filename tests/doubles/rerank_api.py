"""A double of an endpoint that speaks `/rerank`, for tests of everything that calls one.

It speaks the wire format over a real socket in one of three forms, refuses requests of the other forms, and its errors
have the form of that server's. It is no model: a text's score is the share of the query's words that it has, unless the
test says otherwise.

    with RerankApi("tei") as api:
        api.script(api.failure(429))
        ... RUNEKEEP_RERANK__URL=api.url ...
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.doubles.model_api import Behaviour, ModelApi, Request, Response, raw

__all__ = ["FORMS", "MODEL", "RerankApi", "raw", "shared_words"]

MODEL = "words-in-common"
FORMS = ("jina", "cohere", "tei")
MAX_TEXTS = 64
"""Texts that the form `tei` accepts at once."""


class RerankRequest(Request):
    """A request in any form."""

    @property
    def texts(self) -> list[str]:
        return list(self.body.get("texts") or self.body.get("documents") or ())

    @property
    def system_text(self) -> str:
        return ""

    @property
    def last_text(self) -> str:
        return str(self.body.get("query", ""))


def shared_words(query: str, text: str) -> float:
    wanted = set(query.lower().split())
    return len(wanted & set(text.lower().split())) / len(wanted)


class RerankApi(ModelApi):
    """The endpoint, see `ModelApi`. `score`: returns the score of a text for a query."""

    request_class = RerankRequest
    request_id_header = "x-request-id"

    def __init__(self, form: str = "jina") -> None:
        super().__init__()
        self.form = form
        self.calls_path = {"jina": "/v1/rerank", "cohere": "/v2/rerank", "tei": "/rerank"}[form]
        self.score: Callable[[str, str], float] = shared_words
        self.otherwise = self.answer()

    @property
    def base_url(self) -> str:
        """The value of `rerank.url`."""
        return self.url + self.calls_path.removesuffix("/rerank")

    def answer(self, change: Callable[[list[dict[str, Any]]], Sequence[Any]] = lambda results: results) -> Behaviour:
        """Scores for all texts, best first. `change` gets the results and returns those to send."""
        name = "score" if self.form == "tei" else "relevance_score"

        def behave(request: Request) -> Response:
            assert isinstance(request, RerankRequest)
            results = [
                {"index": place, name: self.score(request.last_text, text)} for place, text in enumerate(request.texts)
            ]
            sent = change(sorted(results, key=lambda one: -one[name]))
            if self.form == "tei":
                return Response(body=json.dumps(sent).encode())
            return Response(body={"id": "1", "results": sent, "model": MODEL, "usage": {"total_tokens": 1}})

        return behave

    def failure(self, status: int, said: str = "") -> Behaviour:
        """An error in the form of the server, which quotes the key and the query."""

        def behave(request: Request) -> Response:
            quoted = said or f"no, {request.headers.get('authorization')}, not {request.last_text}"
            bodies = {
                "jina": {"detail": quoted},
                "cohere": {"id": "1", "message": quoted},
                "tei": {"error": quoted, "error_type": "Validation"},
            }
            return Response(status, bodies[self.form])

        return behave

    def respond(self, request: Request) -> Response:
        assert isinstance(request, RerankRequest)
        if request.path != self.calls_path:
            return self.failure(404)(request)
        if problem := self._problem(request):
            return self.failure(422, problem)(request)
        behave = self.scripted()
        assert behave is not None
        return behave(request)

    def _problem(self, request: RerankRequest) -> str:
        """Returns what the real server would refuse about the request; empty if nothing."""
        body = request.body
        needed = {"jina": {"model", "query", "documents"}, "cohere": {"model", "query", "documents"}}
        known = {"jina": {"top_n", "return_documents"}, "cohere": {"top_n", "max_tokens_per_doc"}}
        must = needed.get(self.form, {"query", "texts"})
        may = must | known.get(self.form, {"truncate", "raw_scores", "return_text"})
        if not must <= body.keys() or not body.keys() <= may:
            return f"missing {sorted(must - body.keys())}, unknown {sorted(body.keys() - may)}"
        if self.form == "tei" and len(request.texts) > MAX_TEXTS:
            return f"batch size {len(request.texts)} > maximum allowed batch size {MAX_TEXTS}"
        return ""
