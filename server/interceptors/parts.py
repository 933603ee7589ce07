"""What the call chain needs of the rest of the server."""

from dataclasses import dataclass

from server.audit import Audit
from server.identity import Authenticator
from server.limits import Limits


@dataclass(frozen=True, slots=True)
class CallParts:
    """Who calls, how much of it is too much, and where it is written down. `audit` None, of a server without a store:
    calls that have to be logged fail."""

    authenticator: Authenticator
    limits: Limits
    audit: Audit | None = None
