"""The parts that the call chain needs from the rest of the server."""

from dataclasses import dataclass

from runekeep_server.identity import Authenticator
from runekeep_server.rpc.audit import Audit
from runekeep_server.rpc.limits import Limits


@dataclass(frozen=True, slots=True)
class CallParts:
    """Identity, limits and audit log of calls. `audit` is None for a server without a store; then audited calls
    fail."""

    authenticator: Authenticator
    limits: Limits
    audit: Audit | None = None
