"""The interface of an identity mode, and the rules that all modes share."""

from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from runekeep_server.identity.metadata import ACCOUNT_KEY, USER_KEY, Metadata, named_id, only_values
from runekeep_server.identity.principals import Admin, Audience, Caller, Principal, Scope, Worker
from runekeep_server.identity.traces import Trace
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.errors import access_denied, unauthenticated

# Message types differ from method to method.
Context = grpc.aio.ServicerContext[Any, Any]

_ALLOWED = {
    Audience.USERS: (Scope.USER, Scope.ACCOUNT),
    Audience.WORKERS: (Scope.WORKER,),
    Audience.ADMINS: (Scope.ADMIN,),
}
_NEEDED = {
    Audience.USERS: "of the scope user or account",
    Audience.WORKERS: "of the scope worker",
    Audience.ADMINS: "of the scope admin",
}


class Authenticator(Protocol):
    """Identifies callers by their credentials. Each identity mode has one implementation."""

    async def may_know(self, metadata: Metadata) -> bool:
        """Returns whether `authenticate` may succeed with this metadata. The server asks before it reads the request,
        so that callers without credentials cannot make it read one. Returns True if the metadata alone cannot tell.
        Never raises."""
        ...

    async def authenticate(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> Principal:
        """Returns the principal of a call to a service for `audience`. The metadata comes from the caller and is not
        trusted.

        Raises ApiError with the reason ACCESS_DENIED: UNAUTHENTICATED if the caller is unknown, PERMISSION_DENIED if
        the caller may not call this service or not in this name.
        """
        ...

    async def until_refused(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> ApiError:
        """Waits until accepted credentials would be refused, and returns the reason. The server then ends the stream
        that they opened. Waits forever in modes in which credentials cannot be withdrawn."""
        ...


@dataclass(frozen=True, slots=True)
class Grant:
    """What credentials allow. `account` is set for the scopes user and account, `user` for the scope user, and
    `accounts` for the scope worker, where empty means all accounts."""

    scope: Scope
    actor: str
    account: str = ""
    user: str = ""
    accounts: tuple[str, ...] = ()


def principal_for(grant: Grant, audience: Audience, metadata: Metadata, trace: Trace) -> Principal:
    """Returns the principal of a call with this grant. The metadata may name no more than the grant allows.

    Raises ApiError PERMISSION_DENIED for a service of another audience and for metadata that contradicts the grant, and
    UNAUTHENTICATED if an account's grant comes without the user for whom it acts.
    """
    if grant.scope not in _ALLOWED[audience]:
        raise access_denied(
            f"The scope {grant.scope} does not allow this call", f"Call with credentials {_NEEDED[audience]}."
        )
    if grant.scope is Scope.WORKER:
        return Worker(trace, grant.actor, grant.accounts)
    if grant.scope is Scope.ADMIN:
        return Admin(trace, grant.actor)
    named = only_values(metadata, (ACCOUNT_KEY, USER_KEY))
    if named_id(named, ACCOUNT_KEY) not in (None, grant.account):
        raise access_denied(
            "These credentials are for another account than the metadata name", f"Leave {ACCOUNT_KEY} out."
        )
    user = named_id(named, USER_KEY)
    if grant.scope is Scope.ACCOUNT:
        if user is None:
            raise unauthenticated(
                "The call does not say for which user of the account it is made",
                f"Name the user in the metadata key {USER_KEY}, or call with credentials of the scope user.",
            )
        return Caller(grant.account, user, trace, grant.actor, Scope.ACCOUNT)
    if user not in (None, grant.user):
        raise access_denied("These credentials are for another user than the metadata name", f"Leave {USER_KEY} out.")
    return Caller(grant.account, grant.user, trace, grant.actor)
