"""AdminService: keys, accounts, the audit log and the status of this server. It reads no user data."""

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import admin_service_pb2 as pb
from runekeep.v1 import admin_service_pb2_grpc
from runekeep_schemas.documents.uris import IdKind, is_safe_id
from runekeep_server.admin.accounts import Accounts
from runekeep_server.admin.embedder_changes import EmbedderChanges
from runekeep_server.admin.status import ServerStatus
from runekeep_server.identity import Scope
from runekeep_server.identity.key_format import new_key
from runekeep_server.protocol.errors import already_exists, invalid, not_found
from runekeep_server.protocol.pagination import next_token, open_page
from runekeep_server.rpc.audit import is_about
from runekeep_server.wire import admin as wire
from runekeep_server.wire.basics import microseconds
from runekeep_storage.accounts import api_keys, audit
from runekeep_storage.accounts.api_keys import NewKey
from runekeep_storage.database import Database
from runekeep_storage.errors import AlreadyExists, NotFound

Context = grpc.aio.ServicerContext[Any, Any]

_ENDED = "One that was revoked or has expired is not rotated: make another one"


class AdminService(admin_service_pb2_grpc.AdminServiceServicer):
    """`key_changed` is called with the id of a rotated or revoked key, before the call is answered."""

    def __init__(
        self,
        database: Database,
        accounts: Accounts,
        status: ServerStatus,
        embedder_changes: EmbedderChanges,
        *,
        key_changed: Callable[[str], None],
    ) -> None:
        self._embedder_changes = embedder_changes
        self._database = database
        self._status = status
        self._accounts = accounts
        self._key_changed = key_changed

    async def CreateApiKey(self, request: pb.CreateApiKeyRequest, context: Context) -> pb.CreateApiKeyResponse:
        scope = _scope_with_its_names(request)
        made = new_key()
        is_about(made.key_id)
        new = NewKey(
            key_id=made.key_id,
            scope=scope,
            account=request.account,
            user=request.user,
            label=request.label,
            digest=made.digest,
            lifetime=_microseconds(request.lifetime) if request.HasField("lifetime") else None,
            request_id=request.request_id,
            accounts=tuple(request.accounts),
        )
        try:
            key = await self._database.write_global(api_keys.create, new)
        except AlreadyExists as error:
            is_about(error.name)
            raise already_exists(
                error.kind, error.name, "This request made it, and its secret was told then; rotate it to get another"
            ) from None
        return pb.CreateApiKeyResponse(key=wire.api_key(key), secret=made.text)

    async def ListApiKeys(self, request: pb.ListApiKeysRequest, context: Context) -> pb.ListApiKeysResponse:
        page = open_page(request, (int, str))
        after: Any = page.after
        found = await self._database.read_global(
            api_keys.page, request.account, request.include_ended, after, page.size + 1
        )
        token = ""
        if len(found) > page.size:
            last = found[page.size - 1]
            token = next_token(request, (last.created_at, last.key_id))
        return pb.ListApiKeysResponse(keys=map(wire.api_key, found[: page.size]), next_page_token=token)

    async def RotateApiKey(self, request: pb.RotateApiKeyRequest, context: Context) -> pb.RotateApiKeyResponse:
        made = new_key(request.key_id)
        try:
            key = await self._database.write_global(
                api_keys.rotate, request.key_id, made.digest, _microseconds(request.grace)
            )
        except NotFound as error:
            raise not_found(error.kind, error.name, _ENDED) from None
        finally:
            # Also if the answer of the store was lost: the key may have changed.
            self._key_changed(request.key_id)
        is_about(key.key_id, key.account)
        return pb.RotateApiKeyResponse(key=wire.api_key(key), secret=made.text)

    async def RevokeApiKey(self, request: pb.RevokeApiKeyRequest, context: Context) -> pb.RevokeApiKeyResponse:
        try:
            key = await self._database.write_global(api_keys.revoke, request.key_id)
        finally:
            self._key_changed(request.key_id)
        is_about(key.key_id, key.account)
        return pb.RevokeApiKeyResponse(key=wire.api_key(key))

    async def ListAccounts(self, request: pb.ListAccountsRequest, context: Context) -> pb.ListAccountsResponse:
        return await self._accounts.list_accounts(request)

    async def UpdateAccountLimits(
        self, request: pb.UpdateAccountLimitsRequest, context: Context
    ) -> pb.UpdateAccountLimitsResponse:
        return await self._accounts.update_limits(request)

    async def ListAuditEvents(self, request: pb.ListAuditEventsRequest, context: Context) -> pb.ListAuditEventsResponse:
        page = open_page(request, (int,))
        before: Any = page.after[0] if page.after else None
        wanted = audit.Wanted(request.account, request.actor, _time("start_time", request), _time("end_time", request))
        found = await self._database.read_global(audit.page, wanted, before, page.size + 1)
        token = next_token(request, (found[page.size - 1].sequence,)) if len(found) > page.size else ""
        return pb.ListAuditEventsResponse(events=map(wire.audit_event, found[: page.size]), next_page_token=token)

    async def GetServerStatus(self, request: pb.GetServerStatusRequest, context: Context) -> pb.GetServerStatusResponse:
        return await self._status.read()

    async def ChangeEmbedder(self, request: pb.ChangeEmbedderRequest, context: Context) -> pb.ChangeEmbedderResponse:
        return pb.ChangeEmbedderResponse(change=await self._embedder_changes.change(request))


def _scope_with_its_names(request: pb.CreateApiKeyRequest) -> Scope:
    """Returns the scope of the new key. Raises ApiError if account and user do not match the scope."""
    scope = wire.scope_of(request.scope)
    if scope is None:
        raise invalid("scope", "is none that this server knows")
    for field, kind, value, needed in (
        ("account", IdKind.ACCOUNT, request.account, scope in (Scope.USER, Scope.ACCOUNT)),
        ("user", IdKind.USER, request.user, scope is Scope.USER),
    ):
        if not needed and value:
            raise invalid(field, f"is not for the scope {scope}", "Leave it empty")
        if needed and not is_safe_id(kind, value):
            raise invalid(field, f"must hold an id, which the scope {scope} needs", "Give one")
    if request.accounts and scope is not Scope.WORKER:
        raise invalid("accounts", f"are not for the scope {scope}", "Leave them out")
    return scope


def _microseconds(duration: Duration) -> int:
    return max(0, int(duration.ToMicroseconds()))


def _time(field: str, request: pb.ListAuditEventsRequest) -> int | None:
    if not request.HasField(field):  # type: ignore[arg-type]  # by its name
        return None
    try:
        return microseconds(getattr(request, field))
    except ValueError as error:
        raise invalid(field, "is no valid time", "Give one of the years 1 to 9999") from error
