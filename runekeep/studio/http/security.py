"""Response headers of every answer, and the refusal of foreign hosts."""

from collections.abc import Set as AbstractSet

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runekeep.web.exposure import is_known_host

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # data: is for images of conversations, which are shown without a request to anybody.
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: browsers would send `Origin: null` with the studio's own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityMiddleware:
    """Refuses a foreign name in `Host`: a page of another site whose name was made to lead here (DNS rebinding) would
    otherwise read what this machine may read."""

    def __init__(self, app: ASGIApp, names: AbstractSet[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                static = scope["path"].startswith("/static/")
                headers.setdefault("Cache-Control", "no-cache" if static else "no-store")
            await send(message)

        if not is_known_host(Headers(scope=scope), self._names):
            refused = PlainTextResponse("This name is not known here: start the studio with --name.", 421)
            await refused(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)
