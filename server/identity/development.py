"""The mode development: the metadata are believed as they stand.

That is safe only because the settings refuse this mode on any but a loopback address: whoever can call is on this
machine.
"""

import asyncio

from server.errors import ApiError
from server.identity.authenticator import Context
from server.identity.metadata import ACCOUNT_KEY, USER_KEY, Metadata, named_id, only_values
from server.identity.principals import Admin, Audience, Caller, Principal, Worker
from server.identity.traces import Trace

ACTOR = "development"
DEFAULT_ID = "default"


def development_caller(metadata: Metadata, trace: Trace) -> Caller:
    """The caller that the metadata name, `default` where they name none. ApiError UNAUTHENTICATED for an unsafe id."""
    named = only_values(metadata, (ACCOUNT_KEY, USER_KEY))
    account, user = named_id(named, ACCOUNT_KEY), named_id(named, USER_KEY)
    return Caller(account or DEFAULT_ID, user or DEFAULT_ID, trace, ACTOR)


class DevelopmentAuthenticator:
    """Everybody is whoever the service that they call is for."""

    async def may_know(self, metadata: Metadata) -> bool:
        """True."""
        return True

    async def authenticate(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> Principal:
        """The user that the metadata name, a worker or an operator. ApiError UNAUTHENTICATED for an unsafe id."""
        match audience:
            case Audience.USERS:
                return development_caller(metadata, trace)
            case Audience.WORKERS:
                return Worker(trace, ACTOR)
            case Audience.ADMINS:
                return Admin(trace, ACTOR)

    async def until_refused(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> ApiError:
        """Never returns."""
        never: asyncio.Future[ApiError] = asyncio.get_running_loop().create_future()
        return await never
