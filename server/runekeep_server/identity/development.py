"""The mode development: the server trusts the metadata without credentials.

This is safe only because the settings refuse this mode on any address but loopback, so every caller is on this machine.
"""

import asyncio

from runekeep_server.identity.authenticator import Context
from runekeep_server.identity.metadata import ACCOUNT_KEY, USER_KEY, Metadata, named_id, only_values
from runekeep_server.identity.principals import DEVELOPMENT, Admin, Audience, Caller, Principal, Worker
from runekeep_server.identity.traces import Trace
from runekeep_server.protocol.api_error import ApiError

DEFAULT_ID = "default"


def development_caller(metadata: Metadata, trace: Trace) -> Caller:
    """Returns the caller that the metadata names; each missing id is `default`. Raises ApiError UNAUTHENTICATED for an
    unsafe id."""
    named = only_values(metadata, (ACCOUNT_KEY, USER_KEY))
    account, user = named_id(named, ACCOUNT_KEY), named_id(named, USER_KEY)
    return Caller(account or DEFAULT_ID, user or DEFAULT_ID, trace, DEVELOPMENT)


class DevelopmentAuthenticator:
    """Gives every caller the role that the called service is for."""

    async def may_know(self, metadata: Metadata) -> bool:
        """Returns True."""
        return True

    async def authenticate(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> Principal:
        """Returns the user that the metadata names, a worker or an operator. Raises ApiError UNAUTHENTICATED for an
        unsafe id."""
        match audience:
            case Audience.USERS:
                return development_caller(metadata, trace)
            case Audience.WORKERS:
                return Worker(trace, DEVELOPMENT)
            case Audience.ADMINS:
                return Admin(trace, DEVELOPMENT)

    async def until_refused(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> ApiError:
        """Never returns."""
        never: asyncio.Future[ApiError] = asyncio.get_running_loop().create_future()
        return await never
