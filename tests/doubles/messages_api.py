"""A double of a server that speaks the Anthropic Messages API, for tests of everything that calls one.

It speaks the real wire format over a real socket, so the real SDK runs against it, in this process or in another one
that gets its address in ANTHROPIC_BASE_URL. It refuses requests that the real API would refuse. It is no model: what
it answers is scripted by the test, request by request.

    with MessagesApi() as api:
        api.script(overloaded(retry_after=0.01), answer({"write_operations": []}))
        api.otherwise = answer(lambda request: {...})
        ... AsyncAnthropic(base_url=api.url, api_key="any") ...
        assert len(api.requests) == 2
"""

import itertools
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from extractor.anthropic_engine.probe import FORMAT_QUESTION, IMAGE_QUESTION, TOOL, TOOL_QUESTION
from tests.doubles.messages_api_rules import complaint

CHARACTERS_PER_TOKEN = 4
"""How the double counts tokens."""


@dataclass(frozen=True)
class Request:
    """A request as it came in. `headers` have lower-case names."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def system_text(self) -> str:
        """The system prompt as one text."""
        system = self.body.get("system", "")
        return system if isinstance(system, str) else "\n".join(block["text"] for block in system)

    @property
    def last_text(self) -> str:
        """The texts and tool results of the last message."""
        content = self.body["messages"][-1]["content"]
        if isinstance(content, str):
            return content
        return "\n".join(str(block.get("text") or block.get("content") or "") for block in content)

    @property
    def prompt_text(self) -> str:
        """Everything that the messages say."""
        return json.dumps(self.body["messages"], ensure_ascii=False)

    @property
    def is_probe(self) -> bool:
        """Whether it only asks what the server can do."""
        return self.last_text.strip() in (FORMAT_QUESTION, TOOL_QUESTION, IMAGE_QUESTION)


@dataclass(frozen=True)
class Response:
    """What goes back: a JSON object, or bytes as they are; `reset` breaks the connection instead."""

    status: int = 200
    body: Mapping[str, Any] | bytes = b""
    headers: Mapping[str, str] | None = None
    reset: bool = False


Behaviour = Callable[[Request], Response]
_ids = itertools.count(1)


def answer(what: object, *, stop_reason: str = "end_turn") -> Behaviour:
    """Answer with a text, or with an object as JSON; a function gets the request and makes either."""

    def behave(request: Request) -> Response:
        made = what(request) if callable(what) else what
        text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)
        return _message(request, [{"type": "text", "text": text}], stop_reason)

    return behave


def tool_use(*calls: tuple[str, Mapping[str, Any]]) -> Behaviour:
    """Ask for tools, each by name and input."""

    def behave(request: Request) -> Response:
        blocks = [
            {"type": "tool_use", "id": f"toolu_{next(_ids):08}", "name": name, "input": arguments}
            for name, arguments in calls
        ]
        return _message(request, [{"type": "text", "text": "I look first."}, *blocks], "tool_use")

    return behave


def truncated(text: str = '{"reasoning": "It began well') -> Behaviour:
    """An answer that ran into max_tokens."""
    return answer(text, stop_reason="max_tokens")


def refusal(category: str | None = None) -> Behaviour:
    """The model refuses."""

    def behave(request: Request) -> Response:
        details = {"type": "refusal", "category": category, "explanation": None}
        return _message(request, [], "refusal", stop_details=details)

    return behave


def error(status: int, kind: str, message: str = "no", *, retry_after: float | None = None) -> Behaviour:
    """An error body of the API. `retry_after` in seconds goes into the header."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}

    def behave(_: Request) -> Response:
        body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_{next(_ids):08}"}
        return Response(status, body, headers)

    return behave


def overloaded(*, retry_after: float | None = None) -> Behaviour:
    """529."""
    return error(529, "overloaded_error", "Overloaded", retry_after=retry_after)


def rate_limited(*, retry_after: float | None = None) -> Behaviour:
    """429."""
    return error(429, "rate_limit_error", "Number of request tokens has exceeded your limit", retry_after=retry_after)


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


class MessagesApi:
    """The server, on a free port of 127.0.0.1. A context manager; leaving it releases all gates made by `gate`.

    `requests` holds all that came in, also those that were refused. `otherwise` answers once the script is used up;
    without it that is an error 500, which the SDK reports. Probes are answered as a server would that supports what
    this one supports, and take nothing of the script. `structured_output`, `tools`: False complains about them, None
    takes them in silence and does nothing. `images`: False complains about them as llama.cpp does. `counts_tokens`:
    whether there is count_tokens; `counts_usage`: whether answers say what they cost.
    """

    def __init__(
        self,
        *,
        structured_output: bool | None = True,
        tools: bool | None = True,
        images: bool = True,
        counts_tokens: bool = True,
        counts_usage: bool = True,
    ) -> None:
        self.requests: list[Request] = []
        self.otherwise: Behaviour | None = None
        self._structured_output = structured_output
        self._tools = tools
        self._images = images
        self._counts_tokens = counts_tokens
        self._counts_usage = counts_usage
        self._script: deque[Behaviour] = deque()
        self._gates: list[Gate] = []
        self._cached: set[str] = set()
        self._lock = threading.Lock()
        self._refusing = threading.Event()
        self._socket = _bound(0)
        self._port = self._socket.getsockname()[1]
        self._serve()

    @property
    def url(self) -> str:
        """For ANTHROPIC_BASE_URL."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def calls(self) -> list[Request]:
        """Requests for an answer of the model, without probes."""
        return [request for request in self.requests if request.path == "/v1/messages" and not request.is_probe]

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

    def __enter__(self) -> "MessagesApi":
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

    def respond(self, request: Request) -> Response:
        """What the double does with a request."""
        if self._refusing.is_set():
            return Response(reset=True)
        with self._lock:
            self.requests.append(request)
        wrong = complaint(
            request.path,
            request.headers,
            request.body,
            structured_output=self._structured_output is not False,
            tools=self._tools is not False,
        )
        if wrong is not None:
            status, kind, message = wrong
            return error(status, kind, message)(request)
        if not self._images and '"type": "image"' in request.prompt_text:
            hint = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
            return error(500, "server_error", hint)(request)
        if request.path == "/v1/messages/count_tokens":
            if not self._counts_tokens:
                return error(404, "not_found_error", "Not found")(request)
            return Response(200, {"input_tokens": len(json.dumps(request.body)) // CHARACTERS_PER_TOKEN})
        if request.is_probe:
            behaviour: Behaviour | None = self._probed(request)
        else:
            with self._lock:
                behaviour = self._script.popleft() if self._script else self.otherwise
        if behaviour is None:
            return error(500, "api_error", "the test scripted no answer for this request")(request)
        response = behaviour(request)
        if self._counts_usage and isinstance(response.body, Mapping) and "usage" in response.body:
            return Response(200, {**response.body, "usage": self._usage(request, response.body)})
        return response

    def _probed(self, request: Request) -> Behaviour:
        if "output_config" in request.body and self._structured_output:
            return answer({"number": 1})
        if "tools" in request.body and self._tools:
            return tool_use((TOOL["name"], {"word": "tea"}))
        return answer("Hello!")

    def _usage(self, request: Request, message: Mapping[str, Any]) -> dict[str, int]:
        """Tokens, with a cache of the marked prefix as the real API keeps it: tools, then system."""
        whole = len(json.dumps(request.body["messages"]))
        prefix = json.dumps([request.body.get("tools"), request.body.get("system")], sort_keys=True)
        tokens = len(prefix) // CHARACTERS_PER_TOKEN
        marked = '"cache_control"' in prefix
        with self._lock:
            hit = marked and prefix in self._cached
            if marked:
                self._cached.add(prefix)
        return {
            "input_tokens": whole // CHARACTERS_PER_TOKEN + (0 if marked else tokens),
            "cache_creation_input_tokens": tokens if marked and not hit else 0,
            "cache_read_input_tokens": tokens if hit else 0,
            "output_tokens": len(json.dumps(message["content"])) // CHARACTERS_PER_TOKEN + 1,
        }


def _message(
    request: Request, content: list[dict[str, Any]], stop_reason: str, *, stop_details: Mapping[str, Any] | None = None
) -> Response:
    body = {
        "id": f"msg_{next(_ids):08}",
        "type": "message",
        "role": "assistant",
        "model": request.body["model"],
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "stop_details": stop_details,
        "usage": {},
    }
    return Response(200, body)


def _bound(port: int) -> socket.socket:
    """On 127.0.0.1; 0 takes a free port. It refuses connections until somebody listens."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, bound: socket.socket, api: MessagesApi) -> None:
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
        response = self.server.api.respond(Request(path, headers, body))
        if response.reset:
            # Linger of zero makes close() send RST, as a crashed peer does.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            with suppress(OSError):
                self.connection.close()
            return
        payload = response.body if isinstance(response.body, bytes) else json.dumps(response.body).encode()
        self.send_response(response.status)
        for name, value in self._response_headers(response, len(payload)):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def _response_headers(self, response: Response, length: int) -> Iterator[tuple[str, str]]:
        yield "content-type", "application/json"
        yield "content-length", str(length)
        yield "request-id", f"req_{next(_ids):08}"
        yield from (response.headers or {}).items()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the test's output."""
