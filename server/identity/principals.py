"""Who calls, once it is known, and what the call at hand may reach by it."""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from server.identity.traces import Trace
from storage.database import Space


class Scope(StrEnum):
    """What credentials allow. The words are those of the contract's enum, of the settings and of the store."""

    USER = "user"
    ACCOUNT = "account"
    ADMIN = "admin"
    WORKER = "worker"


class Audience(StrEnum):
    """Whom a service is for."""

    USERS = "users"
    WORKERS = "workers"
    ADMINS = "admins"


@dataclass(frozen=True, slots=True)
class Caller:
    """A user of an account, in whose name a call is made. `actor` names the credentials, for logs and the audit log:
    `key:{key_id}`, `certificate:{name}`, `proxy` or `development`."""

    account: str
    user: str
    trace: Trace
    actor: str
    scope: Scope = Scope.USER


@dataclass(frozen=True, slots=True)
class Worker:
    """An extractor worker. It acts for no user: what it may read and write follows from the leases it holds, which are
    bound to its `actor`. `accounts`: the accounts whose jobs it may get; empty means all."""

    trace: Trace
    actor: str
    accounts: tuple[str, ...] = ()

    @property
    def scope(self) -> Scope:
        return Scope.WORKER


@dataclass(frozen=True, slots=True)
class Admin:
    """An operator. Acts for no user, and reads nobody's memories."""

    trace: Trace
    actor: str

    @property
    def scope(self) -> Scope:
        return Scope.ADMIN


Principal = Caller | Worker | Admin

_principal: ContextVar[Principal] = ContextVar("principal")


def current_caller() -> Caller:
    """The user in whose name the call at hand is made. LookupError outside of one and in the call of a worker or an
    operator."""
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
    """The space of the user in whose name the call at hand is made: all that the call may reach."""
    caller = current_caller()
    return Space(caller.account, caller.user)


def current_trace() -> Trace:
    """The trace of the call at hand, whoever makes it. LookupError outside of one."""
    return _principal.get().trace


def enter_principal(principal: Principal) -> None:
    """Make `principal` the one of the call at hand. Each call has a context of its own, so nothing is reset."""
    _principal.set(principal)
