"""What the doubles of model servers have in common: a real socket, a script of behaviours, outages and gates."""

import itertools
import json
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from runekeep_extractor.providers.probe import QUESTIONS

CHARACTERS_PER_TOKEN = 4
"""How the doubles count tokens."""


@dataclass(frozen=True)
class Request(ABC):
    """A request as it came in. `headers` have lower-case names."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    @abstractmethod
    def system_text(self) -> str:
        """The system prompt as one text."""

    @property
    @abstractmethod
    def last_text(self) -> str:
        """The texts and tool results of the last message."""

    @property
    def prompt_text(self) -> str:
        """Everything that the messages say."""
        return json.dumps(self.body["messages"], ensure_ascii=False)

    @property
    def is_probe(self) -> bool:
        """Whether it only asks what the server can do."""
        return self.last_text.strip() in QUESTIONS


@dataclass(frozen=True)
class Response:
    """What goes back: a JSON object, or bytes as they are; `reset` breaks the connection instead. `events`: sent one by
    one in place of a body.
    """

    status: int = 200
    body: Mapping[str, Any] | bytes = b""
    headers: Mapping[str, str] | None = None
    reset: bool = False
    events: Sequence[bytes] = ()


Behaviour = Callable[[Request], Response]
ids = itertools.count(1)


def raw(body: bytes, *, status: int = 200) -> Behaviour:
    """These bytes, whatever they are."""
    return lambda _: Response(status, body)


def reset() -> Behaviour:
    """Break the connection without a word."""
    return lambda _: Response(reset=True)


@dataclass
class Gate:
    """Holds a call open: `entered` is set when a request has come, `release` lets it go on."""

    entered: threading.Event
    release: threading.Event


def held(gate: Gate, then: Behaviour) -> Behaviour:
    """Keep the call open until the gate is released, then behave as `then`."""

    def behave(request: Request) -> Response:
        gate.entered.set()
        gate.release.wait()
        return then(request)

    return behave


class ModelApi(ABC):
    """A server on a free port of 127.0.0.1. A context manager; leaving it releases all gates made by `gate`.

    `requests` holds all that came in, also those that were refused. `otherwise` answers once the script is used up;
    without it that is an error 500, which the SDK reports. Probes are answered as a server would that supports what
    this one supports, and take nothing of the script. `hangs`: a gate that holds all requests, also probes.
    """

    request_class: type[Request]
    request_id_header: str
    calls_path: str
    """The path of requests for an answer of the model."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.otherwise: Behaviour | None = None
        self.hangs: Gate | None = None
        self.event_seconds = 0.0
        """The pause before each event of a streamed answer."""
        self._script: deque[Behaviour] = deque()
        self._gates: list[Gate] = []
        self._lock = threading.Lock()
        self._refusing = threading.Event()
        self._socket = _bound(0)
        self._port = self._socket.getsockname()[1]
        self._serve()

    @property
    def url(self) -> str:
        """The base URL of the server."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def calls(self) -> list[Request]:
        """Requests for an answer of the model, without probes."""
        return [request for request in self.requests if request.path == self.calls_path and not request.is_probe]

    @property
    def probes(self) -> list[Request]:
        """Requests that ask what the server can do."""
        return [request for request in self.requests if request.is_probe]

    def script(self, *behaviours: Behaviour) -> None:
        """Add to what is done with the next requests, one each."""
        with self._lock:
            self._script.extend(behaviours)

    def gate(self) -> Gate:
        """A gate for `held`."""
        gate = Gate(threading.Event(), threading.Event())
        self._gates.append(gate)
        return gate

    def down(self) -> None:
        """As when its process is gone: connections are refused, and those that are open break at the next request."""
        self._refusing.set()
        self._stop()
        # Bound without listening, so that nobody takes the port meanwhile.
        self._socket = _bound(self._port)

    def up(self) -> None:
        """After `down`."""
        self._refusing.clear()
        self._serve()
        self._thread.start()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for gate in self._gates:
            gate.release.set()
        if self._refusing.is_set():
            self._socket.close()
        else:
            self._stop()

    def _serve(self) -> None:
        self._server = _Server(self._socket, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def _stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, request: Request) -> Response:
        """Returns what goes back for a request."""
        if self._refusing.is_set():
            return Response(reset=True)
        with self._lock:
            self.requests.append(request)
        return held(self.hangs, self.respond)(request) if self.hangs else self.respond(request)

    def scripted(self) -> Behaviour | None:
        """Returns the next behaviour of the script; None if there is none."""
        with self._lock:
            return self._script.popleft() if self._script else self.otherwise

    @abstractmethod
    def respond(self, request: Request) -> Response:
        """Returns what the API answers to a request."""


def _bound(port: int) -> socket.socket:
    """On 127.0.0.1; 0 takes a free port. It refuses connections until somebody listens."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, bound: socket.socket, api: ModelApi) -> None:
        self.api = api
        super().__init__(bound.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = bound
        self.server_activate()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of many tests; anything else is a fault of the double and shows."""
        import sys

        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError:
            body = {}
        path = self.path.partition("?")[0]
        headers = {name.lower(): value for name, value in self.headers.items()}
        response = self.server.api.take(self.server.api.request_class(path, headers, body))
        if response.reset:
            # Linger of zero makes close() send RST, as a crashed peer does.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            with suppress(OSError):
                self.connection.close()
            return
        if response.events:
            self._stream(response)
            return
        payload = response.body if isinstance(response.body, bytes) else json.dumps(response.body).encode()
        self.send_response(response.status)
        for name, value in self._response_headers(response, len(payload)):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def _stream(self, response: Response) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        for name, value in (response.headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        for event in response.events:
            time.sleep(self.server.api.event_seconds)
            self.wfile.write(event)
            self.wfile.flush()
        self.close_connection = True

    def _response_headers(self, response: Response, length: int) -> Iterator[tuple[str, str]]:
        yield "content-type", "application/json"
        yield "content-length", str(length)
        yield self.server.api.request_id_header, f"req_{next(ids):08}"
        yield from (response.headers or {}).items()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the test's output."""
