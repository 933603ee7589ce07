"""What operators do: keys, accounts, the audit log, the state of a server."""

from collections.abc import AsyncGenerator, Collection
from datetime import datetime
from typing import cast

import grpc
from google.protobuf.duration_pb2 import Duration

from runekeep.client.admin_results import Account, ApiKey, AuditEvent, NewApiKey, Scope, ServerStatus
from runekeep.client.arguments import timestamp
from runekeep.client.connection import Connection, new_request_id
from runekeep.client.plain import enum_number, plain
from runekeep.v1 import admin_service_pb2 as wire

_PAGE = 200


class AsyncAdmin:
    """The calls of AdminService, over the connection of its client, which needs credentials of the scope admin."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create_key(
        self,
        scope: Scope,
        *,
        account: str = "",
        user: str = "",
        label: str = "",
        lifetime: float | None = None,
        accounts: Collection[str] = (),
        request_id: str | None = None,
    ) -> NewApiKey:
        """Makes a key: for a user (`account` and `user`), for all users of an `account`, for operators or for workers.
        `lifetime` in seconds; None: it does not expire. `accounts`: those whose jobs a worker gets; empty: all.

        Its secret is in this answer alone. Raises AlreadyExistsError, which names the key, when it was made by an
        earlier attempt whose answer was lost: rotate it then.
        """
        request = wire.CreateApiKeyRequest(
            request_id=request_id or new_request_id(),
            scope=enum_number(wire.Scope, scope),  # type: ignore[arg-type]  # a number of the enum
            account=account,
            user=user,
            label=label,
            lifetime=_duration(lifetime),
            accounts=accounts,
        )
        response = await self._connection.call(self._connection.stubs.admin.CreateApiKey, request, 5)
        return cast(NewApiKey, plain(response))

    async def keys(self, account: str = "", *, include_ended: bool = False) -> AsyncGenerator[ApiKey, None]:
        """Keys, newest first, of one account or of all; `include_ended`: those too that were revoked or have
        expired."""
        request = wire.ListApiKeysRequest(account=account, include_ended=include_ended, page_size=_PAGE)
        while True:
            page = await self._connection.call(self._connection.stubs.admin.ListApiKeys, request, 5)
            for key in page.keys:
                yield cast(ApiKey, plain(key))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def rotate_key(self, key_id: str, *, grace: float = 0) -> NewApiKey:
        """Gives a key another secret; the one that there was is taken for `grace` more seconds, 30 days at most.

        It is not repeated by itself when the answer is lost: a second rotation would end the grace. Raises
        NotFoundError for a key that has ended too.
        """
        request = wire.RotateApiKeyRequest(key_id=key_id, grace=_duration(grace))
        connection = self._connection
        try:
            response = await connection.stubs.admin.RotateApiKey(request, timeout=5, metadata=connection.metadata)
        except grpc.aio.AioRpcError as error:
            raise connection.failure(error) from error
        return cast(NewApiKey, plain(response))

    async def revoke_key(self, key_id: str) -> ApiKey:
        """Ends a key for good, with the streams that are open with it. Raises NotFoundError."""
        request = wire.RevokeApiKeyRequest(key_id=key_id)
        response = await self._connection.call(self._connection.stubs.admin.RevokeApiKey, request, 5)
        return cast(ApiKey, plain(response.key))

    async def accounts(self) -> AsyncGenerator[Account, None]:
        """Accounts that were ever written to or limited, by name."""
        request = wire.ListAccountsRequest(page_size=_PAGE)
        while True:
            page = await self._connection.call(self._connection.stubs.admin.ListAccounts, request, 5)
            for account in page.accounts:
                yield cast(Account, plain(account))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def set_limits(
        self,
        account: str,
        *,
        calls_per_second: float | None = None,
        concurrent_calls: int | None = None,
        streams: int | None = None,
        stored_bytes: int | None = None,
        daily_tokens: int | None = None,
    ) -> Account:
        """Sets all limits of an account: None is that of the server's settings, 0 is none."""
        limits = wire.AccountLimits(
            calls_per_second=calls_per_second,
            concurrent_calls=concurrent_calls,
            streams=streams,
            stored_bytes=stored_bytes,
            daily_tokens=daily_tokens,
        )
        request = wire.UpdateAccountLimitsRequest(account=account, limits=limits)
        response = await self._connection.call(self._connection.stubs.admin.UpdateAccountLimits, request, 5)
        return cast(Account, plain(response.account))

    async def audit_events(
        self,
        account: str = "",
        *,
        actor: str = "",
        start_time: datetime | None = None,
        end_time: datetime | None = None,
    ) -> AsyncGenerator[AuditEvent, None]:
        """Administrative and destructive calls, newest first: about one `account`, of one `actor`, from `start_time`
        on, before `end_time`; times without a zone are local."""
        request = wire.ListAuditEventsRequest(
            account=account,
            actor=actor,
            start_time=timestamp(start_time),
            end_time=timestamp(end_time),
            page_size=_PAGE,
        )
        while True:
            page = await self._connection.call(self._connection.stubs.admin.ListAuditEvents, request, 10)
            for event in page.events:
                yield cast(AuditEvent, plain(event))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def status(self) -> ServerStatus:
        """How the server that answers, and what it depends on, are doing."""
        request = wire.GetServerStatusRequest()
        response = await self._connection.call(self._connection.stubs.admin.GetServerStatus, request, 10)
        return cast(ServerStatus, plain(response))


def _duration(seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    made = Duration()
    made.FromNanoseconds(round(seconds * 1e9))
    return made
