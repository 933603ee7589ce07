"""Shapes of what operators are answered; see `runekeep.client.results`."""

from typing import Literal, TypedDict

Scope = Literal["user", "account", "admin", "worker"]


class ApiKey(TypedDict):
    """A key, without its secret. `previous_expire_time`: until when the secret before the last rotation is accepted;
    `last_use_time` is exact to the hour; `accounts`: those whose jobs a worker gets, empty for all."""

    key_id: str
    scope: Scope
    account: str
    user: str
    label: str
    create_time: str
    expire_time: str | None
    revoke_time: str | None
    rotate_time: str | None
    previous_expire_time: str | None
    last_use_time: str | None
    accounts: list[str]


class NewApiKey(TypedDict):
    """A key and its secret, which cannot be had again."""

    key: ApiKey
    secret: str


class AccountLimits(TypedDict):
    """None: that of the server's settings. 0: none."""

    calls_per_second: float | None
    concurrent_calls: int | None
    streams: int | None
    stored_bytes: int | None
    daily_tokens: int | None


class AccountUsage(TypedDict):
    """`count_time` None: not counted yet."""

    users: int
    sessions: int
    messages: int
    memories: int
    stored_bytes: int
    count_time: str | None


class Account(TypedDict):
    account: str
    limits: AccountLimits | None
    usage: AccountUsage | None


class AuditEvent(TypedDict):
    """`code` is empty while the call is under way, and for good when its server was killed meanwhile."""

    sequence: int
    create_time: str
    method: str
    actor: str
    scope: Scope
    account: str
    user: str
    subject: str
    code: str
    trace_id: str
    peer: str


class Dependency(TypedDict):
    """`round_trip` in seconds. `problem`: what is wrong, for operators."""

    name: str
    kind: str
    available: bool
    round_trip: float | None
    problem: str


class JobCount(TypedDict):
    state: str
    kind: str
    jobs: int
    oldest_time: str | None


class DataCheck(TypedDict):
    """`name`: `database` or `blobs`. `problem`: what is wrong, for operators. `end_time` of the last check; None if
    there was none yet."""

    name: str
    problem: str
    end_time: str | None
    extent: str
    blobs: int
    damaged_blobs: int
    missing_blobs: int


class PausedWorker(TypedDict):
    """`remaining` in seconds. An empty `worker_id` means all workers with these credentials that have completed no job
    yet."""

    actor: str
    worker_id: str
    lost_jobs: int
    remaining: float | None


class ServerStatus(TypedDict):
    """`index_lag` in seconds; None: nothing waits to be found."""

    version: str
    protocol_version: int
    store_revision: str
    identity_mode: str
    start_time: str
    server_time: str
    store_time: str | None
    dependencies: list[Dependency]
    jobs: list[JobCount]
    workers: int
    index_lag: float | None
    data_checks: list[DataCheck]
    paused_workers: list[PausedWorker]
