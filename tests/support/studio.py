"""A browser without a screen: calls the studio as an ASGI application, and reads its answers as a parser does."""

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

import httpx

from runekeep.studio.app import create_app
from runekeep.studio.settings import StudioSettings

BASE = "http://127.0.0.1:7480"
ATTACK = (
    "</textarea></title><script>pwned()</script><img src=https://evil.example/i.png onerror=pwned()>"
    '" autofocus onfocus="pwned()" <a href=javascript:pwned()>x</a> [m](javascript:pwned()) ![i](https://evil.example/m.png)'
)
"""What somebody may have said. Nothing of it may become an element or an attribute."""


@asynccontextmanager
async def studio(server: str, **settings: Any) -> AsyncIterator[httpx.ASGITransport]:
    """The studio beside a server, for browsers."""
    app = create_app(StudioSettings(server=server, port=7480, **settings))
    async with app.router.lifespan_context(app):
        yield httpx.ASGITransport(app)


class Browser:
    """Keeps cookies, and sends forms as pages have them."""

    def __init__(self, transport: httpx.AsyncBaseTransport, base: str = BASE) -> None:
        self.http = httpx.AsyncClient(transport=transport, base_url=base)

    async def log_in(self, **fields: str) -> httpx.Response:
        return await self.submit("/login", "/login", **fields)

    async def get(self, path: str) -> httpx.Response:
        """The page to which an address leads at last."""
        return await self.http.get(path, follow_redirects=True)

    async def submit(self, page: str, action: str, files: Any = None, **fields: str) -> httpx.Response:
        """Sends the form of a page: its hidden fields, changed and completed by `fields`."""
        shown = await self.get(page)
        hidden = form_fields(shown.text, action) | fields
        return await self.http.post(action, data=hidden, files=files, follow_redirects=True)


def form_fields(text: str, action: str) -> dict[str, str]:
    """The values of a page's first form that is sent to `action`."""
    found = re.search(rf'<form method="post" action="{re.escape(action)}".*?</form>', text, re.DOTALL)
    assert found is not None, f"no form leads to {action}:\n{text[:2000]}"
    fields = re.findall(r'<input type="(?:hidden|range)" [^>]*?name="([^"]+)"[^>]*? value="([^"]*)"', found[0])
    inputs = re.findall(r'<input name="([^"]+)" value="([^"]*)"', found[0])
    areas = re.findall(r'<textarea name="([^"]+)"[^>]*>\n(.*?)</textarea>', found[0], re.DOTALL)
    return {name: html.unescape(value) for name, value in (*fields, *inputs, *areas)}


def links(text: str) -> list[str]:
    """Where a page leads within the studio."""
    return [html.unescape(found) for found in re.findall(r'(?:href|hx-get)="(/(?!static/)[^"#]*)', text)]


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        for name, value in given.items():
            if name.startswith("on") or name == "style":
                self.wrong.append(f"<{tag} {name}={value!r}>")
            if name in ("href", "src", "action") and value.strip().lower().startswith(("javascript:", "data:text")):
                self.wrong.append(f"<{tag} {name}={value!r}>")
            if name == "src" and not value.startswith(("/static/", "data:image/")):
                self.wrong.append(f"<{tag} {name}={value!r}>")
        if tag in ("iframe", "object", "embed", "style", "base") or (tag == "script" and "src" not in given):
            self.wrong.append(f"<{tag}>")


def what_could_run(text: str) -> list[str]:
    """Elements and attributes of a page by which something could run or be loaded from elsewhere."""
    elements = _Elements()
    elements.feed(text)
    return elements.wrong
