"""The mode mesh: a client certificate, or a trusted proxy, identifies the caller.

The handshake has already verified that the certificate comes from `tls.client_ca`, is valid and belongs to the peer.
This module maps its subject alternative names (URIs and DNS names) to a grant. The common name is never used.
"""

import asyncio
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import unquote

from cryptography import x509

from runekeep_server.identity.authenticator import Context, Grant, principal_for
from runekeep_server.identity.metadata import ACCOUNT_KEY, USER_KEY, Metadata, named_id, only_values
from runekeep_server.identity.principals import Audience, Principal, Scope
from runekeep_server.identity.traces import Trace
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.errors import access_denied, unauthenticated
from runekeep_server.settings import MeshRule, MeshSettings

SCOPE_KEY = "x-runekeep-scope"
PROXY = "proxy"

# The scopes that a proxy may name. The scope account is missing: whoever is behind the proxy could choose the user.
_SCOPES_OF_PROXIES = {scope.value: scope for scope in (Scope.USER, Scope.ADMIN, Scope.WORKER)}

# The letters that SPIFFE allows in a path segment, without the dot. So a wildcard stays within one label of a DNS name,
# and neither percent-encoding nor another wildcard can pass for another name.
# https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md#22-path
_ANY = "[A-Za-z0-9_-]+"

_MAX_SECONDS = 86_400.0


class MeshAuthenticator:
    """Identifies callers by certificates and proxies, following the rules in the settings."""

    def __init__(self, settings: MeshSettings) -> None:
        self._rules = tuple(_compiled(rule) for rule in settings.rules)
        self._trust_loopback = settings.trust_loopback

    async def may_know(self, metadata: Metadata) -> bool:
        """Returns True: the connection identifies the caller, and the handshake refuses peers without a certificate."""
        return True

    async def authenticate(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> Principal:
        """See Authenticator."""
        metadata = tuple(metadata)
        said = _said_once(metadata)
        rule, name = self._rule_of(context)
        if rule.scope == PROXY:
            return principal_for(_grant_of_proxy(said), audience, metadata, trace)
        if said.get(SCOPE_KEY, rule.scope) != rule.scope:
            raise access_denied(
                "This certificate stands for another scope than the metadata name", f"Leave {SCOPE_KEY} out."
            )
        grant = Grant(Scope(rule.scope), f"certificate:{name}", rule.account, rule.user, rule.accounts)
        return principal_for(grant, audience, metadata, trace)

    async def until_refused(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> ApiError:
        """Waits until the caller's certificate expires. A stream must not outlive the certificate that opened it."""
        ends = _end_of_certificate(context)
        while True:
            left = _MAX_SECONDS if ends is None else (ends - datetime.now(UTC)).total_seconds()
            if left <= 0:
                return _ended()
            # Sleeps in parts, because the clock of the event loop and the wall clock may drift apart.
            await asyncio.sleep(min(left, _MAX_SECONDS))

    def _rule_of(self, context: Context) -> tuple["_Rule", str]:
        """Returns the first rule that matches, and the name that it matches."""
        if _is_plain(context):
            if self._trust_loopback and _from_loopback(context):
                return _LOOPBACK, ""
            raise unauthenticated(
                "The call came without TLS", "Call with a client certificate that a rule of this server names."
            )
        ends = _end_of_certificate(context)
        if ends is None or ends <= datetime.now(UTC):
            # The handshake checked this, but the connection may have been open since then, or resume an earlier
            # session.
            raise _ended()
        uris, names = _values(context, "peer_uri"), _values(context, "peer_dns")
        if len(uris) > 1:
            # The SPIFFE standard requires this: with two URIs, two readers could see different identities.
            raise unauthenticated(
                "The client certificate has more than one URI among its names", "Call with one that has a single URI."
            )
        for rule in self._rules:
            for name in uris if rule.for_uris else names:
                if rule.pattern.fullmatch(name):
                    return rule, name
        raise unauthenticated(
            "No rule of this server fits the client certificate",
            "Ask its operator for one (mesh.rules), by a URI or DNS name of the certificate.",
        )


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    for_uris: bool
    scope: str
    account: str
    user: str
    accounts: tuple[str, ...]


_LOOPBACK = _Rule(re.compile("(?!)"), False, PROXY, "", "", ())


def _compiled(rule: MeshRule) -> _Rule:
    pattern = _ANY.join(re.escape(part) for part in rule.certificate.split("*"))
    for_uris = "://" in rule.certificate
    return _Rule(re.compile(pattern), for_uris, rule.scope, rule.account, rule.user, rule.accounts)


def _said_once(metadata: Metadata) -> Mapping[str, str]:
    """Returns the values of the identity keys in the metadata. Raises ApiError for a repeated key, even with equal
    values: a client behind a proxy may have sent one of them."""
    keys = (ACCOUNT_KEY, USER_KEY, SCOPE_KEY)
    sent = [key for key, _ in metadata if key in keys]
    for key in keys:
        if sent.count(key) > 1:
            raise unauthenticated(f"The metadata hold {key} more than once", "Send it once.")
    return only_values(metadata, keys)


def _grant_of_proxy(said: Mapping[str, str]) -> Grant:
    scope = _SCOPES_OF_PROXIES.get(said.get(SCOPE_KEY, Scope.USER))
    if scope is None:
        raise unauthenticated(
            f"The metadata key {SCOPE_KEY} holds no scope that a proxy may name", "Use user, admin or worker."
        )
    if scope is not Scope.USER:
        return Grant(scope, PROXY)
    account, user = named_id(said, ACCOUNT_KEY), named_id(said, USER_KEY)
    if account is None or user is None:
        raise unauthenticated(
            "The proxy does not say for whom it calls", f"It must set {ACCOUNT_KEY} and {USER_KEY} on every call."
        )
    return Grant(scope, PROXY, account, user)


def _is_plain(context: Context) -> bool:
    return _values(context, "transport_security_type") != ["ssl"]


def _from_loopback(context: Context) -> bool:
    """Returns whether the peer is on this machine: `ipv4:127.0.0.1:5000`, `ipv6:%5B::1%5D:5000`."""
    kind, _, address = unquote(context.peer()).partition(":")
    host = address.rpartition(":")[0].strip("[]")
    try:
        return kind in ("ipv4", "ipv6") and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _values(context: Context, key: str) -> Sequence[str]:
    """Returns the values from the handshake. Non-ASCII letters are replaced, so that such a name matches no rule."""
    # The annotated type is tuples of (str, bytes); the values are bytes.
    found: Mapping[str, Sequence[bytes]] = context.auth_context()  # type: ignore[assignment]
    return [value.decode("ascii", "replace") for value in found.get(key, ())]


def _end_of_certificate(context: Context) -> datetime | None:
    found: Mapping[str, Sequence[bytes]] = context.auth_context()  # type: ignore[assignment]
    pem = b"".join(found.get("x509_pem_cert", ()))
    return _end_of(pem) if pem else None


@lru_cache(maxsize=4096)
def _end_of(pem: bytes) -> datetime:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


def _ended() -> ApiError:
    return unauthenticated("The client certificate has expired", "Connect again with the new one.")
