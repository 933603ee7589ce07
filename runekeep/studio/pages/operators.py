"""Pages for operators: the server's state, accounts and limits, keys, the audit log."""

from typing import Any

from google.protobuf.duration_pb2 import Duration
from starlette.responses import Response

from runekeep import InvalidArgumentError
from runekeep.client.connection.connection import UnaryMethod, new_request_id
from runekeep.studio.http.visit import Answer, Asked, Visit
from runekeep.v1 import admin_service_pb2

ROWS = 100
DAY_SECONDS = 86_400
SCOPES = ("user", "account", "admin", "worker")
LIMITS = ("calls_per_second", "concurrent_calls", "streams", "stored_bytes", "daily_tokens")


async def status(visit: Visit) -> Response:
    answer = await _call(visit, _stub(visit).GetServerStatus, admin_service_pb2.GetServerStatusRequest())
    return visit.render("operator_status.html", {"status": answer})


async def accounts(visit: Visit) -> Response:
    request = admin_service_pb2.ListAccountsRequest(page_size=ROWS, page_token=visit.query("page"))
    answer = await _call(visit, _stub(visit).ListAccounts, request)
    context = {"accounts": answer.accounts, "next": answer.next_page_token, "limits": LIMITS}
    return visit.render("operator_accounts.html", context)


async def set_limits(visit: Visit) -> Response:
    """Sets all limits of an account; an empty one falls back to the server's settings."""
    limits = admin_service_pb2.AccountLimits()
    for name in LIMITS:
        text = visit.field(name).strip()
        if not text:
            continue
        try:
            setattr(limits, name, float(text) if name == "calls_per_second" else int(text))
        except ValueError:
            raise _invalid(f"Invalid `{name}`: expected a number.") from None
    request = admin_service_pb2.UpdateAccountLimitsRequest(account=visit.field("account").strip(), limits=limits)
    await _call(visit, _stub(visit).UpdateAccountLimits, request)
    return visit.redirect("/operator/accounts")


async def keys(visit: Visit) -> Response:
    return await _keys(visit)


async def create_key(visit: Visit) -> Response:
    """Makes a key, and shows its secret on this page alone."""
    days = visit.field("days").strip()
    if days and not days.isdecimal():
        raise _invalid("Invalid `days`: expected a number of days.")
    scope = visit.field("scope")
    if scope not in SCOPES:
        raise _invalid("Choose a scope.")
    request = admin_service_pb2.CreateApiKeyRequest(
        scope=admin_service_pb2.Scope.Value(f"SCOPE_{scope.upper()}"),
        account=visit.field("account").strip(),
        user=visit.field("user").strip(),
        label=visit.field("label").strip(),
        lifetime=Duration(seconds=int(days) * DAY_SECONDS) if days else None,
        request_id=visit.field("request_id"),
    )
    answer = await _call(visit, _stub(visit).CreateApiKey, request)
    return await _keys(visit, answer.key, answer.secret)


async def rotate_key(visit: Visit) -> Response:
    request = admin_service_pb2.RotateApiKeyRequest(key_id=visit.field("key_id"), grace=Duration(seconds=DAY_SECONDS))
    answer = await _call(visit, _stub(visit).RotateApiKey, request)
    return await _keys(visit, answer.key, answer.secret)


async def revoke_key(visit: Visit) -> Response:
    request = admin_service_pb2.RevokeApiKeyRequest(key_id=visit.field("key_id"))
    await _call(visit, _stub(visit).RevokeApiKey, request)
    return visit.redirect("/operator/keys", account=visit.query("account"))


async def audit(visit: Visit) -> Response:
    request = admin_service_pb2.ListAuditEventsRequest(
        account=visit.query("account"), actor=visit.query("actor"), page_size=ROWS, page_token=visit.query("page")
    )
    answer = await _call(visit, _stub(visit).ListAuditEvents, request)
    return visit.render("operator_audit.html", {"events": answer.events, "next": answer.next_page_token})


async def _keys(visit: Visit, made: admin_service_pb2.ApiKey | None = None, secret: str = "") -> Response:
    request = admin_service_pb2.ListApiKeysRequest(
        account=visit.query("account"),
        include_ended=visit.query("ended") == "yes",
        page_size=ROWS,
        page_token=visit.query("page"),
    )
    answer = await _call(visit, _stub(visit).ListApiKeys, request)
    context = {
        "keys": answer.keys,
        "next": answer.next_page_token,
        "scopes": SCOPES,
        "made": made,
        "secret": secret,
        "request_id": new_request_id(),
    }
    return visit.render("operator_keys.html", context)


def _stub(visit: Visit) -> Any:
    return visit.login.operator_connection.stubs.admin


async def _call(visit: Visit, method: UnaryMethod[Asked, Answer], request: Asked) -> Answer:
    return await visit.login.operator_connection.call(method, request)


def _invalid(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, code="INVALID_ARGUMENT", reason="FIELD_INVALID")
