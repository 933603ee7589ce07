"""What every identity mode has to say: whose a call is. And the rules that all modes share."""

from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from server.errors import ApiError, access_denied, unauthenticated
from server.identity.metadata import ACCOUNT_KEY, USER_KEY, Metadata, named_id, only_values
from server.identity.principals import Admin, Audience, Caller, Principal, Scope, Worker
from server.identity.traces import Trace

# The types of messages differ from method to method.
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
    """Knows callers by their credentials, in one identity mode."""

    async def may_know(self, metadata: Metadata) -> bool:
        """Whether `authenticate` is worth asking. It is asked before anything of the request is read, so that nobody
        without credentials makes the server read one; True where the metadata alone do not tell. Never raises."""
        ...

    async def authenticate(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> Principal:
        """Whose a call to a service for `audience` is. The metadata are the caller's own words.

        ApiError, all with the reason ACCESS_DENIED: UNAUTHENTICATED where it does not come from anybody known,
        PERMISSION_DENIED where whoever it comes from may not call this, or not in this name.
        """
        ...

    async def until_refused(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> ApiError:
        """Waits until credentials that were taken would be refused, and returns why. A stream that is open so long
        is ended then. Waits without end in modes in which credentials cannot be withdrawn."""
        ...


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller's credentials allow. `account` is set for the scopes user and account, `user` for the scope user,
    and `accounts` for the scope worker, where empty means all."""

    scope: Scope
    actor: str
    account: str = ""
    user: str = ""
    accounts: tuple[str, ...] = ()


def principal_for(grant: Grant, audience: Audience, metadata: Metadata, trace: Trace) -> Principal:
    """In whose name a call with this grant is made; the metadata may say no more than the grant allows.

    ApiError PERMISSION_DENIED for a service of another audience and for metadata that contradict, UNAUTHENTICATED for
    an account's grant without the user for whom it acts.
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
