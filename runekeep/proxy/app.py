"""The proxy as an ASGI application: passes requests on, with memory where they have a conversation."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from runekeep.proxy.dialects import dialect_of
from runekeep.proxy.memory import (
    ACCOUNT_HEADER,
    KEY_HEADER,
    SESSION_HEADER,
    USER_HEADER,
    RequestMemory,
    Turn,
)
from runekeep.proxy.settings import ProxySettings
from runekeep.proxy.streams import AnswerReader

MEMORY_HEADER = "x-runekeep-memory"
"""Of responses: `added`, `nothing` was relevant, memory was `unavailable`, or the request has `no-conversation`."""

MAX_REQUEST_BYTES = 64 * 1024 * 1024
_CLOSE_SECONDS = 5.0
_TIMEOUT = httpx2.Timeout(600.0, connect=10.0)
# Of one connection, not of the request; and those that are made anew.
_HOP_HEADERS = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade host "
    "content-length accept-encoding".split()
)
_OWN_HEADERS = frozenset((KEY_HEADER, ACCOUNT_HEADER, USER_HEADER, SESSION_HEADER))
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]

log = logging.getLogger("runekeep.proxy")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What is sent to the model. `turn` None: nothing will be appended."""

    content: bytes
    memory: str
    turn: Turn | None = None


class Proxy:
    """Passes requests on to one API."""

    def __init__(self, settings: ProxySettings, http: httpx2.AsyncClient) -> None:
        self._upstream = settings.upstream.rstrip("/")
        self._names = {"127.0.0.1", "localhost", "::1", settings.host, *settings.names}
        self._memory = RequestMemory(settings)
        self._http = http
        self._appending: set[asyncio.Task[None]] = set()

    async def handle(self, request: Request) -> Response:
        if not self._is_welcome(request):
            return _error(403, "called by another name, or from a page of another site; --name allows a name")
        content = await _read_body(request)
        if content is None:
            return _error(413, f"the request is larger than {MAX_REQUEST_BYTES} bytes")
        prepared = await self._prepare(request, content)
        try:
            passed = self._http.build_request(
                request.method,
                f"{self._upstream}{_raw_target(request)}",
                headers=_request_headers(request),
                content=prepared.content,
            )
            response = await self._http.send(passed, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            log.warning("the model's API cannot be reached: %s", type(error).__name__)
            return _error(502, f"{self._upstream} cannot be reached: {type(error).__name__}", prepared.memory)
        passing = StreamingResponse(self._pass_on(response, request.headers, prepared.turn), response.status_code)
        for name, value in response.headers.multi_items():
            if name.lower() not in _HOP_HEADERS:
                passing.headers.append(name, value)
        passing.headers[MEMORY_HEADER] = prepared.memory
        return passing

    async def close(self) -> None:
        """Waits a moment for what is still being appended."""
        if self._appending:
            await asyncio.wait(self._appending, timeout=_CLOSE_SECONDS)

    def _is_welcome(self, request: Request) -> bool:
        """Keeps pages of other sites out, which could reach a loopback address, also by a name of their own."""
        origin = request.headers.get("origin")
        called = _host_of(f"//{request.headers.get('host', '')}")
        return called in self._names and (origin is None or _host_of(origin) in self._names)

    async def _prepare(self, request: Request, content: bytes) -> _Prepared:
        dialect = dialect_of(request.method, request.url.path)
        body = _json_object(content) if dialect is not None else None
        place = dialect.last_words(body) if dialect is not None and body is not None else None
        if dialect is None or body is None or place is None:
            return _Prepared(content, "no-conversation")
        turn = Turn(dialect, body, place, request.headers.get(SESSION_HEADER, ""))
        kept = turn if turn.session else None
        if not turn.query:
            return _Prepared(content, "nothing", kept)
        found = await self._memory.recall(request.headers, turn.query)
        if found is None:
            return _Prepared(content, "unavailable", kept)
        if not found["stable_text"] and not found["text"]:
            return _Prepared(content, "nothing", kept)
        changed = dialect.with_memory(body, place, found["stable_text"], found["text"])
        # In ASCII, which takes half surrogates too.
        return _Prepared(json.dumps(changed).encode(), "added", kept)

    async def _pass_on(
        self, response: httpx2.Response, headers: Mapping[str, str], turn: Turn | None
    ) -> AsyncGenerator[bytes, None]:
        streamed = response.headers.get("content-type", "").startswith("text/event-stream")
        reader = AnswerReader(turn.dialect, streamed) if turn is not None and response.is_success else None
        try:
            async for chunk in response.aiter_raw():
                if reader is not None:
                    reader.take(chunk)
                yield chunk
        finally:
            await response.aclose()
        if turn is not None and reader is not None and (answer := reader.text()):
            # The caller has its answer already.
            appending = asyncio.create_task(self._memory.append(dict(headers), turn, answer))
            self._appending.add(appending)
            appending.add_done_callback(self._appending.discard)


def create_app(settings: ProxySettings) -> Starlette:
    """Returns the proxy. Its lifespan owns the connections to the model's API."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[dict[str, Any], None]:
        async with httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False) as http:
            proxy = Proxy(settings, http)
            yield {"proxy": proxy}
            await proxy.close()

    async def handle(request: Request) -> Response:
        proxy: Proxy = request.state.proxy
        return await proxy.handle(request)

    return Starlette(routes=[Route("/{path:path}", handle, methods=_METHODS)], lifespan=lifespan)


async def _read_body(request: Request) -> bytes | None:
    """Returns the body; None if it is too large."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_REQUEST_BYTES:
            return None
    return bytes(content)


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _raw_target(request: Request) -> str:
    """Returns path and query as they were sent."""
    path = request.scope["raw_path"].decode("ascii", "replace")
    return f"{path}?{request.url.query}" if request.url.query else path


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _request_headers(request: Request) -> list[tuple[str, str]]:
    dropped = _HOP_HEADERS | _OWN_HEADERS
    kept = [(name, value) for name, value in request.headers.items() if name.lower() not in dropped]
    # What is compressed could not be read on its way.
    return [*kept, ("accept-encoding", "identity")]


def _error(status: int, message: str, memory: str = "no-conversation") -> Response:
    body = {"error": {"type": "proxy_error", "message": message}}
    return JSONResponse(body, status, headers={MEMORY_HEADER: memory})
