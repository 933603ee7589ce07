"""Calls of operators: keys, accounts, audit log, state of a server."""

from collections.abc import AsyncGenerator, Collection
from datetime import datetime
from typing import Literal

from google.protobuf.duration_pb2 import Duration

from runekeep.client.blocking import BlockingWrapper, blocking, blocking_iter
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.wire.arguments import time_to_wire
from runekeep.client.wire.proto_json import enum_number, to_json
from runekeep.client.wire.result import Result
from runekeep.v1 import admin_service_pb2 as wire

_PAGE = 200

Scope = Literal["user", "account", "admin", "worker"]
EmbedderAction = Literal["start", "pause", "resume", "undo", "finish"]


class ApiKey(Result):
    """A key without its secret. `previous_expire_time`: when the secret before the last rotation expires.
    `last_use_time` is exact to the hour. `accounts`: a worker gets only their jobs; empty: all."""

    key_id: str
    scope: Scope
    account: str
    user: str
    label: str
    create_time: datetime
    expire_time: datetime | None
    revoke_time: datetime | None
    rotate_time: datetime | None
    previous_expire_time: datetime | None
    last_use_time: datetime | None
    accounts: list[str]


class NewApiKey(Result):
    """A key and its secret, which no other call returns."""

    key: ApiKey
    secret: str


class AccountLimits(Result):
    """None: the limit of the server's settings. 0: no limit."""

    calls_per_second: float | None
    concurrent_calls: int | None
    streams: int | None
    stored_bytes: int | None
    daily_tokens: int | None


class AccountUsage(Result):
    """`count_time` None: not counted yet."""

    users: int
    sessions: int
    messages: int
    memories: int
    stored_bytes: int
    count_time: datetime | None


class Account(Result):
    """An account with its limits and what it has stored."""

    account: str
    limits: AccountLimits | None
    usage: AccountUsage | None


class AuditEvent(Result):
    """`code` is empty while the call runs, and stays empty if its server was killed."""

    sequence: int
    create_time: datetime
    method: str
    actor: str
    scope: Scope
    account: str
    user: str
    subject: str
    code: str
    trace_id: str
    peer: str


class Dependency(Result):
    """`round_trip` in seconds. `problem`: what is wrong, for operators."""

    name: str
    kind: str
    available: bool
    round_trip: float | None
    problem: str


class JobCount(Result):
    """`oldest_time`: when the oldest of these jobs was queued."""

    state: str
    kind: str
    jobs: int
    oldest_time: datetime | None


class DataCheck(Result):
    """`name`: `database` or `blobs`. `problem`: what is wrong, for operators. `end_time` of the last check; None if
    there was none yet."""

    name: str
    problem: str
    end_time: datetime | None
    extent: str
    blobs: int
    damaged_blobs: int
    missing_blobs: int


class PausedWorker(Result):
    """`remaining` in seconds. An empty `worker_id` means all workers with these credentials that have completed no job
    yet."""

    actor: str
    worker_id: str
    lost_jobs: int
    remaining: float | None


class EmbedderChange(Result):
    """A change of the embedder. `state`: `running`, `paused`, `finishing`, `finished`, `undoing` or `undone`.
    `total_rows`: -1 before they are counted. `remaining`: estimated seconds; None: not known. `users_left`: users who
    are searched by the old embedder."""

    state: str
    from_embedder: str
    from_model: str
    embedder: str
    model: str
    rows_per_second: int
    start_time: datetime
    total_rows: int
    done_rows: int
    users_left: int
    remaining: float | None
    problem: str


class ServerStatus(Result):
    """`index_lag` is in seconds; None: the index is up to date. `embedder_change`: the newest one, None if there was
    none."""

    version: str
    protocol_version: int
    store_revision: str
    identity_mode: str
    start_time: datetime
    server_time: datetime
    store_time: datetime | None
    dependencies: list[Dependency]
    jobs: list[JobCount]
    workers: int
    index_lag: float | None
    data_checks: list[DataCheck]
    paused_workers: list[PausedWorker]
    embedder_change: EmbedderChange | None


class AsyncAdmin:
    """The calls of AdminService. The client needs credentials of the scope admin."""

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
        """Creates a key: for a user (`account` and `user`), for all users of an `account`, for operators or workers.
        `lifetime` is in seconds; None: it does not expire. `accounts`: a worker gets only their jobs; empty: all.

        Only this response has the secret. If an earlier attempt created the key and its response was lost, raises
        AlreadyExistsError, which names the key: then rotate it.

        ```python
        key = client.admin.create_key("user", account="acme", user="robin", lifetime=86400)
        print(key.key.key_id, key.secret)
        ```
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
        response = await self._connection.call(self._connection.stubs.admin.CreateApiKey, request)
        return NewApiKey(to_json(response))

    async def keys(self, account: str = "", *, include_ended: bool = False) -> AsyncGenerator[ApiKey, None]:
        """Lists keys, newest first, of one account or of all. `include_ended` adds revoked and expired keys.

        ```python
        for key in client.admin.keys("acme"):
            print(key.key_id, key.label, key.last_use_time)
        ```
        """
        request = wire.ListApiKeysRequest(account=account, include_ended=include_ended, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.admin.ListApiKeys, request):
            for key in page.keys:
                yield ApiKey(to_json(key))

    async def rotate_key(self, key_id: str, *, grace: float = 0) -> NewApiKey:
        """Gives a key a new secret. The old one stays valid for `grace` seconds, at most 30 days.

        The client does not repeat this call: a second rotation would end the grace. Raises NotFoundError, also for a
        revoked or expired key.

        ```python
        for key in client.admin.keys("acme"):
            print(client.admin.rotate_key(key.key_id, grace=3600).secret)
        ```
        """
        request = wire.RotateApiKeyRequest(key_id=key_id, grace=_duration(grace))
        response = await self._connection.call(self._connection.stubs.admin.RotateApiKey, request)
        return NewApiKey(to_json(response))

    async def revoke_key(self, key_id: str) -> ApiKey:
        """Revokes a key for good, and ends its open streams. Raises NotFoundError.

        ```python
        for key in client.admin.keys("acme"):
            print(client.admin.revoke_key(key.key_id).revoke_time)
        ```
        """
        request = wire.RevokeApiKeyRequest(key_id=key_id)
        response = await self._connection.call(self._connection.stubs.admin.RevokeApiKey, request)
        return ApiKey(to_json(response.key))

    async def accounts(self) -> AsyncGenerator[Account, None]:
        """Lists accounts that have data or limits, by name.

        ```python
        for account in client.admin.accounts():
            print(account.account, account.usage.memories if account.usage else "not counted")
        ```
        """
        request = wire.ListAccountsRequest(page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.admin.ListAccounts, request):
            for account in page.accounts:
                yield Account(to_json(account))

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
        """Sets all limits of an account. None: the limit of the server's settings; 0: no limit.

        ```python
        client.admin.set_limits("acme", calls_per_second=50, stored_bytes=10**9)
        ```
        """
        limits = wire.AccountLimits(
            calls_per_second=calls_per_second,
            concurrent_calls=concurrent_calls,
            streams=streams,
            stored_bytes=stored_bytes,
            daily_tokens=daily_tokens,
        )
        request = wire.UpdateAccountLimitsRequest(account=account, limits=limits)
        response = await self._connection.call(self._connection.stubs.admin.UpdateAccountLimits, request)
        return Account(to_json(response.account))

    async def audit_events(
        self,
        account: str = "",
        *,
        actor: str = "",
        start_time: datetime | None = None,
        end_time: datetime | None = None,
    ) -> AsyncGenerator[AuditEvent, None]:
        """Lists administrative and destructive calls, newest first: about one `account`, by one `actor`, from
        `start_time` on, before `end_time`. Times without a zone are local.

        ```python
        for event in client.admin.audit_events("acme"):
            print(event.create_time, event.actor, event.method, event.code)
        ```
        """
        request = wire.ListAuditEventsRequest(
            account=account,
            actor=actor,
            start_time=time_to_wire(start_time, "start_time"),
            end_time=time_to_wire(end_time, "end_time"),
            page_size=_PAGE,
        )
        async for page in self._connection.pages(self._connection.stubs.admin.ListAuditEvents, request):
            for event in page.events:
                yield AuditEvent(to_json(event))

    async def status(self) -> ServerStatus:
        """Reports the state of the server that answers, and of its dependencies.

        ```python
        for dependency in client.admin.status().dependencies:
            print(dependency.name, dependency.available, dependency.problem)
        ```
        """
        request = wire.GetServerStatusRequest()
        response = await self._connection.call(self._connection.stubs.admin.GetServerStatus, request)
        return ServerStatus(to_json(response))

    async def change_embedder(
        self, action: EmbedderAction, *, embedder: str = "", rows_per_second: int = 0
    ) -> EmbedderChange:
        """Starts, pauses, resumes, undoes or finishes a change of the embedder. For `start`: the name of the new
        embedder as in the settings, and how many memories and messages may get vectors in a second; 0: no limit.
        Raises InvalidArgumentError with the reason if the change is refused.

        ```python
        change = client.admin.change_embedder("start", embedder="minilm")
        print(change.state, change.total_rows)
        ```
        """
        request = wire.ChangeEmbedderRequest(
            action=enum_number(wire.EmbedderAction, action),  # type: ignore[arg-type]  # a number of the enum
            embedder=embedder,
            rows_per_second=rows_per_second,
        )
        response = await self._connection.call(self._connection.stubs.admin.ChangeEmbedder, request)
        return EmbedderChange(to_json(response.change))


class Admin(BlockingWrapper[AsyncAdmin]):
    """Blocking versions of the methods of AsyncAdmin."""

    create_key = blocking(AsyncAdmin.create_key)
    keys = blocking_iter(AsyncAdmin.keys)
    rotate_key = blocking(AsyncAdmin.rotate_key)
    revoke_key = blocking(AsyncAdmin.revoke_key)
    accounts = blocking_iter(AsyncAdmin.accounts)
    set_limits = blocking(AsyncAdmin.set_limits)
    audit_events = blocking_iter(AsyncAdmin.audit_events)
    status = blocking(AsyncAdmin.status)
    change_embedder = blocking(AsyncAdmin.change_embedder)


def _duration(seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    made = Duration()
    made.FromNanoseconds(round(seconds * 1e9))
    return made
