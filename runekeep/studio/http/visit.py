"""One request: who makes it, how it calls the server, and how it is answered."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.message import Message
from jinja2 import Environment
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from runekeep.client.connection.connection import Connection, UnaryMethod
from runekeep.studio.identity.cookies import Cookies
from runekeep.studio.identity.logins import Login, Logins
from runekeep.studio.rendering.links import link
from runekeep.studio.settings import StudioSettings

Answer = TypeVar("Answer")
Asked = TypeVar("Asked", bound=Message)


@dataclass(frozen=True, slots=True)
class Studio:
    """What all requests share."""

    settings: StudioSettings
    logins: Logins
    cookies: Cookies
    templates: Environment
    entry_token: str
    """What the printed link carries, where the studio acts with its own credentials."""


@dataclass(slots=True)
class Visit:
    """A request, and who makes it. `found_login`: None for somebody who is not logged in."""

    studio: Studio
    request: Request
    browser_id: str
    found_login: Login | None
    form: FormData = field(default_factory=FormData)

    @property
    def login(self) -> Login:
        assert self.found_login is not None, "the page is open to visitors who are not logged in"
        return self.found_login

    @property
    def connection(self) -> Connection:
        return self.login.connection

    async def call(self, method: UnaryMethod[Asked, Answer], request: Asked) -> Answer:
        """Calls the server as the visitor. Raises RunekeepError."""
        return await self.connection.call(method, request)

    @property
    def stubs(self) -> Any:
        """The services of the contract, for users."""
        return self.connection.stubs

    def query(self, name: str, default: str = "") -> str:
        """Returns a parameter of the address, without blanks around it."""
        return self.request.query_params.get(name, default).strip()

    def number(self, name: str, default: int = 0) -> int:
        """Returns a parameter of the address that is a count; `default` for anything else."""
        text = self.query(name)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else default

    def field(self, name: str, default: str = "") -> str:
        """Returns a text of the form, with line ends as memories have them."""
        value = self.form.get(name, default)
        return value.replace("\r\n", "\n") if isinstance(value, str) else default

    @property
    def partial(self) -> bool:
        """Whether a piece of a page is asked for, by htmx."""
        headers = self.request.headers
        # With the back button htmx asks for the whole page again.
        return "hx-request" in headers and "hx-history-restore-request" not in headers

    def render(self, template: str, context: Mapping[str, Any] | None = None, *, status: int = 200) -> HTMLResponse:
        """Answers with a page."""
        return HTMLResponse(self.text(template, context), status)

    def text(self, template: str, context: Mapping[str, Any] | None = None) -> str:
        """Returns a page, or a piece of one."""
        return self.studio.templates.get_template(template).render(
            visit=self,
            login=self.found_login,
            path=self.request.url.path,
            form_token=self.studio.cookies.form_token(self.browser_id),
            **(context or {}),
        )

    def redirect(self, path: str, **parameters: str | int) -> Response:
        """Sends the browser to another page of the studio, by GET."""
        address = link(path, **parameters)
        if self.partial:
            return Response(status_code=204, headers={"HX-Redirect": address})
        return RedirectResponse(address, 303)


Page = Callable[[Visit], Awaitable[Response]]
