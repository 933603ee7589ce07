"""From a page function to a route: finds the login, refuses forged requests, and turns errors into pages."""

import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runekeep import InvalidArgumentError, RunekeepError
from runekeep.studio.http.errors import error_page, plain_error
from runekeep.studio.http.visit import Page, Studio, Visit

MAX_FIELD_BYTES = 256 * 1024
MAX_FIELDS = 100
MAX_VISITOR_FIELD_BYTES = 4 * 1024
MAX_VISITOR_FIELDS = 10
"""Of somebody who is not logged in."""
MAX_UPLOAD_BYTES = 8 * 1024**3


def route(
    path: str, page: Page, method: str = "GET", *, public: bool = False, operator: bool = False, upload: bool = False
) -> "PageRoute":
    """Declares a page. `public`: without a login. `operator`: for operators alone, and hidden from everybody else.
    `upload`: its form may hold one file."""
    return PageRoute(path, page, method, public, operator, upload)


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A route that still lacks its studio."""

    path: str
    page: Page
    method: str
    public: bool
    operator: bool
    upload: bool

    def bind(self, studio: Studio) -> Route:
        async def endpoint(request: Request) -> Response:
            known = studio.cookies.read(request)
            visit = Visit(studio, request, known or secrets.token_urlsafe(32), studio.logins.find(known))
            response = await self._answer(visit)
            if visit.browser_id != known:
                studio.cookies.write(response, visit.browser_id)
            return response

        return Route(self.path, endpoint, methods=[self.method])

    async def _answer(self, visit: Visit) -> Response:
        if visit.found_login is None and not self.public:
            back = visit.request.url.path + (f"?{visit.request.url.query}" if visit.request.url.query else "")
            return visit.redirect("/login", next=back if self.method == "GET" and back != "/" else "")
        if self.operator and not (visit.studio.settings.operator and visit.login.operator):
            return plain_error(visit, 404, "There is no such page", "Pages for operators are off, or not for you.")
        if not self.operator and not self.public and visit.login.scope == "admin":
            return visit.redirect("/operator")
        try:
            if self.method == "POST" and not await self._read_form(visit):
                return plain_error(
                    visit,
                    403,
                    "This form is not valid",
                    "It is old, or comes from another site. Open the page again, and repeat.",
                )
            return await self.page(visit)
        except RunekeepError as error:
            return error_page(visit, error)
        finally:
            await visit.form.close()

    async def _read_form(self, visit: Visit) -> bool:
        """Reads the form. Returns whether it comes from a page of this studio. Raises InvalidArgumentError for one that
        is too large."""
        request = visit.request
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            return False
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        stranger = visit.found_login is None
        length = request.headers.get("content-length", "")
        if self.upload and not (length.isdecimal() and int(length) <= MAX_UPLOAD_BYTES):
            raise InvalidArgumentError(
                f"The file is too large: at most {MAX_UPLOAD_BYTES // 1024**3} GiB.", code="INVALID_ARGUMENT"
            )
        visit.form = await request.form(
            max_files=1 if self.upload else 0,
            max_fields=MAX_VISITOR_FIELDS if stranger else MAX_FIELDS,
            max_part_size=MAX_VISITOR_FIELD_BYTES if stranger else MAX_FIELD_BYTES,
        )
        token = request.headers.get("x-form-token") or visit.field("form_token")
        return visit.studio.cookies.is_form_token(visit.browser_id, token)
