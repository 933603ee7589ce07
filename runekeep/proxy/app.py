"""The proxy as an ASGI application: forwards requests, and adds memory to those that have a conversation."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import unquote

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from runekeep.proxy.dialects import dialect_of, json_object
from runekeep.proxy.memory import KEY_HEADER, SESSION_HEADER, RequestMemory, Turn
from runekeep.proxy.settings import ProxySettings
from runekeep.proxy.streams import AnswerReader
from runekeep.web.callers import ACCOUNT_HEADER, USER_HEADER
from runekeep.web.exposure import called_names, is_known_page

MEMORY_HEADER = "x-runekeep-memory"
"""Of responses: `added`, `nothing` was relevant, memory was `unavailable`, or the request has `no-conversation`."""

MAX_REQUEST_BYTES = 64 * 1024 * 1024
MAX_PENDING_APPENDS = 1_000
_CLOSE_SECONDS = 5.0
_TIMEOUT = httpx2.Timeout(600.0, connect=10.0)
# Not 100: the next stream would wait in silence for one of them to end.
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
# Headers of one connection, which are not forwarded, and headers that the proxy sets itself.
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
    """Forwards requests to one API."""

    def __init__(self, settings: ProxySettings, http: httpx2.AsyncClient) -> None:
        self._upstream = httpx2.URL(settings.upstream)
        self._names = called_names(settings)
        self._memory = RequestMemory(settings)
        self._http = http
        self._appending: set[asyncio.Task[None]] = set()

    async def handle(self, request: Request) -> Response:
        if not is_known_page(request.headers, self._names):
            return _error(403, "unknown host name, or a request from a page of another site; --name allows a host name")
        url = self._target(request)
        if url is None:
            return _error(400, "expected a path that begins with / and has no dot segments")
        content = await _read_body(request)
        if content is None:
            return _error(413, f"the request is larger than {MAX_REQUEST_BYTES} bytes")
        prepared = await self._prepare(request, content)
        try:
            forwarded = self._http.build_request(
                request.method, url, headers=_request_headers(request), content=prepared.content
            )
            response = await self._http.send(forwarded, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            log.warning("the model's API cannot be reached: %s", type(error).__name__)
            shown = self._upstream.copy_with(userinfo=b"")
            return _error(502, f"{shown} cannot be reached: {type(error).__name__}", prepared.memory)
        answer = StreamingResponse(self._forward(response, request.headers, prepared.turn), response.status_code)
        # As bytes, since not every server sends ASCII.
        answer.raw_headers.extend(
            (name.lower(), value)
            for name, value in response.headers.raw
            if name.decode("latin-1").lower() not in _HOP_HEADERS
        )
        answer.headers[MEMORY_HEADER] = prepared.memory
        return answer

    async def close(self) -> None:
        """Waits up to 5 seconds for pending appends."""
        if self._appending:
            await asyncio.wait(self._appending, timeout=_CLOSE_SECONDS)

    def _target(self, request: Request) -> httpx2.URL | None:
        """Returns the URL to call, with path and query as they were sent; None if it could lead out of the upstream."""
        path: bytes = request.scope["raw_path"]
        query: bytes = request.scope["query_string"]
        segments = unquote(path.decode("latin-1")).replace("\\", "/").split("/")
        if not path.startswith(b"/") or not (path + query).isascii() or not {".", ".."}.isdisjoint(segments):
            return None
        base = self._upstream.raw_path.partition(b"?")[0].rstrip(b"/")
        try:
            return self._upstream.copy_with(raw_path=base + path + (b"?" + query if query else b""))
        except httpx2.InvalidURL:
            return None

    async def _prepare(self, request: Request, content: bytes) -> _Prepared:
        dialect = dialect_of(request.method, request.scope["path"])
        body = json_object(content) if dialect is not None else None
        place = dialect.find_user_message(body) if dialect is not None and body is not None else None
        if dialect is None or body is None or place is None:
            return _Prepared(content, "no-conversation")
        turn = Turn(dialect, body, place, request.headers.get(SESSION_HEADER, ""))
        kept = turn if turn.session else None
        if not turn.query:
            return _Prepared(content, "nothing", kept)
        found = await self._memory.recall(request.headers, turn.query)
        if found is None:
            return _Prepared(content, "unavailable", kept)
        if not found.stable_text and not found.text:
            return _Prepared(content, "nothing", kept)
        changed = dialect.with_memory(body, place, found.stable_text, found.text)
        # In ASCII, which can also hold half a surrogate pair.
        return _Prepared(json.dumps(changed).encode(), "added", kept)

    async def _forward(
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
            # Here, because many callers close at the end mark of a stream. Nothing is awaited before: they cancel this.
            if turn is not None and reader is not None:
                self._start_append(headers, turn, reader)
            await response.aclose()

    def _start_append(self, headers: Mapping[str, str], turn: Turn, reader: AnswerReader) -> None:
        """Appends a turn whose answer is complete, in the background: the caller has its answer already."""
        try:
            answer = reader.text()
            messages = turn.messages(answer) if answer else []
        except Exception as error:  # the answer must reach the caller, whatever this is
            log.warning("an answer could not be read: %s", type(error).__name__)
            return
        if not messages:
            return
        if len(self._appending) >= MAX_PENDING_APPENDS:
            log.warning("a turn was not appended: %d others are pending", MAX_PENDING_APPENDS)
            return
        appending = asyncio.create_task(self._memory.append(dict(headers), turn.session, messages))
        self._appending.add(appending)
        appending.add_done_callback(self._appending.discard)


def create_app(settings: ProxySettings) -> Starlette:
    """Returns the proxy. Its lifespan owns the connections to the model's API."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[dict[str, Any], None]:
        # Cookies are those of one caller; the client would send them with the requests of all.
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
        async with httpx2.AsyncClient(
            timeout=_TIMEOUT, limits=_LIMITS, cookies=no_cookies, follow_redirects=False
        ) as http:
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


def _request_headers(request: Request) -> list[tuple[bytes, bytes]]:
    dropped = _HOP_HEADERS | _OWN_HEADERS
    kept = [(name, value) for name, value in request.headers.raw if name.decode("latin-1").lower() not in dropped]
    # The proxy could not read a compressed answer.
    return [*kept, (b"accept-encoding", b"identity")]


def _error(status: int, message: str, memory: str = "no-conversation") -> Response:
    body = {"error": {"type": "proxy_error", "message": message}}
    return JSONResponse(body, status, headers={MEMORY_HEADER: memory})
