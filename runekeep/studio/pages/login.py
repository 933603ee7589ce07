"""To log in and out. What is asked for follows from the server: a name in development mode, else a key."""

import hmac

from starlette.responses import Response

from runekeep import AccessDeniedError, InvalidArgumentError, RunekeepError
from runekeep.client.connection.connection import Connection
from runekeep.studio.http.visit import Visit
from runekeep.studio.identity.connecting import visitor_connection
from runekeep.studio.identity.logins import Login, Scope
from runekeep.v1 import admin_service_pb2, memory_service_pb2
from runekeep.web.exposure import is_open

DEFAULT_NAME = "default"


async def login_page(visit: Visit) -> Response:
    """The form. With the printed link's token it logs in at once, where the studio has its own credentials."""
    studio = visit.studio
    token = visit.query("token")
    if studio.settings.own_credentials:
        if not token or not hmac.compare_digest(token.encode(), studio.entry_token.encode()):
            return visit.render("login.html", {"mode": "link", "problem": ""}, status=403)
        return await _log_in(visit, "", "", "")
    return visit.redirect("/") if visit.found_login is not None else await _form(visit, "")


async def log_in(visit: Visit) -> Response:
    if visit.studio.settings.own_credentials:
        return visit.redirect("/login")
    development = await is_open(visit.studio.settings.server)
    key = visit.field("api_key").strip()
    if development and not visit.studio.settings.local:
        return await _form(
            visit, "This server trusts every name, so the studio works on a loopback address alone.", 403
        )
    if not development and not key:
        return await _form(visit, "Enter a key.", 400)
    try:
        return await _log_in(
            visit, "" if development else key, visit.field("account").strip(), visit.field("user").strip()
        )
    except (AccessDeniedError, InvalidArgumentError) as error:
        return await _form(visit, error.message, 403)
    except ValueError as error:
        # A key that the transport refuses, for example one that would cross a network in plain text.
        return await _form(visit, str(error), 400)


async def log_out(visit: Visit) -> Response:
    if visit.found_login is not None:
        visit.studio.logins.end(visit.found_login.login_id)
    response = visit.redirect("/login")
    response.headers["Clear-Site-Data"] = '"cache"'
    return response


async def _form(visit: Visit, problem: str, status: int = 200) -> Response:
    mode = "development" if await is_open(visit.studio.settings.server) else "keys"
    given = {name: visit.field(name) or visit.query(name) for name in ("account", "user", "next")}
    return visit.render("login.html", {"mode": mode, "problem": problem, "given": given}, status=status)


async def _log_in(visit: Visit, key: str, account: str, user: str) -> Response:
    """Raises RunekeepError if the server refuses the credentials, and ValueError for those that cannot be sent."""
    settings = visit.studio.settings
    if settings.own_credentials:
        connection, operators = Connection(settings.server), Connection(settings.operator_server or settings.server)
    else:
        if not key:
            account, user = account or DEFAULT_NAME, user or DEFAULT_NAME
        connection = visitor_connection(settings.server, key=key, account=account, user=user)
        operators = visitor_connection(settings.operator_server or settings.server, key=key)
    scope: Scope = "user"
    try:
        operator = settings.operator and await _is_operator(operators)
        try:
            user = await _user_of(connection)
        except RunekeepError as error:
            # The key of an operator acts for no user.
            if not operator or error.code not in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
                raise
            scope, user = "admin", ""
    except RunekeepError:
        await connection.close()
        await operators.close()
        raise
    if visit.found_login is not None:
        visit.studio.logins.end(visit.found_login.login_id)
    login = Login(connection, scope, user, account, operator, operators)
    visit.studio.logins.add(login)
    # A new id with every login: whoever planted the old one does not get in.
    visit.browser_id = login.login_id
    return visit.redirect(_safe_path(visit.field("next") or visit.query("next")))


async def _user_of(connection: Connection) -> str:
    """Returns the name of the user for whom the connection calls."""
    request = memory_service_pb2.ListDirectoryRequest(node_limit=1)
    answer = await connection.call(connection.stubs.memories.ListDirectory, request)
    return answer.uri.removeprefix("viking://user/").partition("/")[0]


async def _is_operator(connection: Connection) -> bool:
    try:
        await connection.call(connection.stubs.admin.GetServerStatus, admin_service_pb2.GetServerStatusRequest())
    except RunekeepError as error:
        # UNIMPLEMENTED: the server has another address for operators.
        if error.code in ("PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED", "UNKNOWN"):
            return False
        raise
    return True


def _safe_path(path: str) -> str:
    """Returns a path of the studio; the first page for an address that leads elsewhere."""
    plain = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if plain else "/"
