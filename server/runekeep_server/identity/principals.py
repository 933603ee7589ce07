"""The principal of a call, and what the current call may access."""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from runekeep_server.identity.traces import Trace
from runekeep_storage.database import Space

DEVELOPMENT = "development"
"""The actor of calls in development mode."""


class Scope(StrEnum):
    """What credentials allow. The contract's enum, the settings and the store use the same words."""

    USER = "user"
    ACCOUNT = "account"
    ADMIN = "admin"
    WORKER = "worker"


class Audience(StrEnum):
    """The kind of callers that a service is for."""

    USERS = "users"
    WORKERS = "workers"
    ADMINS = "admins"


@dataclass(frozen=True, slots=True)
class Caller:
    """A user of an account. `actor` names the credentials in logs and in the audit log: `key:{key_id}`,
    `certificate:{name}`, `proxy` or `development`."""

    account: str
    user: str
    trace: Trace
    actor: str
    scope: Scope = Scope.USER

    @property
    def may_name_users(self) -> bool:
        """Whether the caller could make the same call for any other user of the account."""
        return self.scope is Scope.ACCOUNT or self.actor == DEVELOPMENT


@dataclass(frozen=True, slots=True)
class Worker:
    """An extractor worker. It acts for no user: the leases that it holds, which are bound to its `actor`, decide what
    it may read and write. `accounts`: the accounts whose jobs it may get; empty means all."""

    trace: Trace
    actor: str
    accounts: tuple[str, ...] = ()

    @property
    def scope(self) -> Scope:
        return Scope.WORKER


@dataclass(frozen=True, slots=True)
class Admin:
    """An operator. It acts for no user and reads nobody's memories."""

    trace: Trace
    actor: str

    @property
    def scope(self) -> Scope:
        return Scope.ADMIN


Principal = Caller | Worker | Admin

_principal: ContextVar[Principal] = ContextVar("principal")


def current_caller() -> Caller:
    """Returns the user of the current call. Raises LookupError outside of a call and in calls of workers and
    operators."""
    principal = _principal.get()
    if not isinstance(principal, Caller):
        raise LookupError(f"this call is made by a {type(principal).__name__.lower()}, not by a user")
    return principal


def current_worker() -> Worker:
    """Returns the worker that makes the current call. Raises LookupError outside of a call and for other callers."""
    principal = _principal.get()
    if not isinstance(principal, Worker):
        raise LookupError(f"this call is made by a {type(principal).__name__.lower()}, not by a worker")
    return principal


def caller_space() -> Space:
    """Returns the space of the current call's user. A call can access only this space."""
    caller = current_caller()
    return Space(caller.account, caller.user)


def current_trace() -> Trace:
    """Returns the trace of the current call, whoever makes it. Raises LookupError outside of a call."""
    return _principal.get().trace


def enter_principal(principal: Principal) -> None:
    """Sets the principal of the current call. Each call has its own context, so nothing is reset."""
    _principal.set(principal)
