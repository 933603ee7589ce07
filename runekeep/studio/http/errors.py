"""Errors of calls as pages: what went wrong, and which section of the handbook explains it."""

from starlette.responses import Response

from runekeep import RunekeepError
from runekeep.studio.http.visit import Visit

_STATUS = {
    "INVALID_ARGUMENT": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "FAILED_PRECONDITION": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_TITLES = {
    400: "That cannot be asked",
    401: "The server does not know you any more",
    403: "You may not do that",
    404: "There is nothing of that name",
    409: "That does not fit what is there now",
    429: "Too much at a time",
    501: "The server does not serve this here",
    503: "The server cannot be reached",
    504: "The server did not answer in time",
}


def error_page(visit: Visit, error: RunekeepError) -> Response:
    """Answers with the server's own words, as data."""
    status = _STATUS.get(error.code, 500)
    if status == 401 and visit.found_login is not None:
        visit.studio.logins.end(visit.found_login.login_id)
        visit.found_login = None
    context = {"title": _TITLES.get(status, "The server failed"), "error": error, "status": status}
    return visit.render("error.html", context, status=status)


def plain_error(visit: Visit, status: int, title: str, message: str) -> Response:
    """Answers with an error of the studio's own."""
    context = {"title": title, "error": RunekeepError(message, code=""), "status": status}
    return visit.render("error.html", context, status=status)
