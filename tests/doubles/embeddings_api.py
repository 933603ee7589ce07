"""A double of an endpoint that speaks OpenAI's embeddings API, for tests of everything that calls one.

It speaks the wire format over a real socket. It is no model: a vector is eight numbers from hashed words, so texts that
share words are near.

    with EmbeddingsApi() as api:
        api.script(failure(429, retry_after=0.01))
        ... RUNEKEEP_EMBEDDING__URL=api.url ...
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from runekeep_storage.embedders.vectors import from_bytes
from tests.doubles.word_embedder import DIMENSION, vector

__all__ = ["DIMENSION", "MODEL", "Answer", "EmbeddingsApi", "Request", "answer", "failure", "late"]

MODEL = "hashed-words"


@dataclass(frozen=True)
class Request:
    """A request as it came in. `headers` have lower-case names."""

    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        return list(self.body["input"])


@dataclass(frozen=True)
class Answer:
    """What goes back. A status of 0 breaks the connection instead."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] | None = None


Behaviour = Callable[[Request], Answer]


def answer(
    change: Callable[[list[dict[str, Any]]], Sequence[Any]] = lambda data: data,
    *,
    model: str = MODEL,
    vector_of: Callable[[str], Sequence[float]] = lambda text: from_bytes(vector(text)),
) -> Behaviour:
    """A vector for each text. `change` gets the entries of `data` and returns those to send."""

    def behave(request: Request) -> Answer:
        data = [
            {"object": "embedding", "index": place, "embedding": list(vector_of(text))}
            for place, text in enumerate(request.texts)
        ]
        return Answer(200, json.dumps({"object": "list", "data": change(data), "model": model}).encode())

    return behave


def failure(status: int, *, retry_after: float | None = None) -> Behaviour:
    """An error as OpenAI sends it, which quotes the key. A status of 0 breaks the connection."""

    def behave(request: Request) -> Answer:
        said = f"no, {request.headers.get('authorization')}, not {request.texts}"
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        return Answer(status, json.dumps({"error": {"message": said, "type": "invalid"}}).encode(), headers)

    return behave


def late(seconds: float) -> Behaviour:
    """A right answer, after that time."""

    def behave(request: Request) -> Answer:
        time.sleep(seconds)
        return answer()(request)

    return behave


class EmbeddingsApi:
    """The endpoint, on a free port of 127.0.0.1. A context manager.

    `requests` holds all that came in. `script` says what is done with the next requests, one each; then `otherwise`.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.otherwise: Behaviour = answer()
        self._script: deque[Behaviour] = deque()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def script(self, *behaviours: Behaviour) -> None:
        with self._lock:
            self._script.extend(behaviours)

    def __enter__(self) -> "EmbeddingsApi":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def respond(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            behaviour = self._script.popleft() if self._script else self.otherwise
        return behaviour(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                request = Request({name.lower(): value for name, value in self.headers.items()}, body)
                sent = api.respond(request) if self.path == "/v1/embeddings" else Answer(404)
                if not sent.status:
                    self.close_connection = True
                    return
                self.send_response(sent.status)
                for name, value in (sent.headers or {}).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(sent.body)))
                self.end_headers()
                self.wfile.write(sent.body)

            def log_message(self, *_: object) -> None:
                return

        return Handler
