"""The mode mesh: callers are known by their client certificates, or by what a proxy that is trusted says of them.

By the time a call comes here the handshake has proved that the certificate comes from `tls.client_ca`, is in force and
belongs to the peer. What is left is to find out whose it is: by its subject alternative names alone, of which URIs and
DNS names count. The common name never does.
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

from server.errors import ApiError, access_denied, unauthenticated
from server.identity.authenticator import Context, Grant, principal_for
from server.identity.metadata import ACCOUNT_KEY, USER_KEY, Metadata, named_id, only_values
from server.identity.principals import Audience, Principal, Scope
from server.identity.traces import Trace
from server.settings import MeshRule, MeshSettings

SCOPE_KEY = "x-runekeep-scope"
PROXY = "proxy"

# What a proxy may say; an account's scope would let whoever stands behind it choose the user.
_SCOPES_OF_PROXIES = {scope.value: scope for scope in (Scope.USER, Scope.ADMIN, Scope.WORKER)}

# The letters that SPIFFE allows in a part of a path, but for the dot: so it stays within one label of a DNS name, and
# nothing that is written with per cent signs, or is a wildcard itself, can pass for another name.
# https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md#22-path
_ANY = "[A-Za-z0-9_-]+"

_LONGEST_SECONDS = 86_400.0


class MeshAuthenticator:
    """Knows callers by certificates and proxies, after the rules of the settings."""

    def __init__(self, settings: MeshSettings) -> None:
        self._rules = tuple(_compiled(rule) for rule in settings.rules)
        self._trust_loopback = settings.trust_loopback

    async def may_know(self, metadata: Metadata) -> bool:
        """True: who has no certificate does not get here, and whose it is tells the connection."""
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
        """Waits until the caller's certificate ends: a stream must not outlive what opened it."""
        ends = _end_of_certificate(context)
        while True:
            left = _LONGEST_SECONDS if ends is None else (ends - datetime.now(UTC)).total_seconds()
            if left <= 0:
                return _ended()
            # In parts, since the clock of the wait and that of the certificate may drift apart.
            await asyncio.sleep(min(left, _LONGEST_SECONDS))

    def _rule_of(self, context: Context) -> tuple["_Rule", str]:
        """The first rule that fits, with the name that it fits."""
        if _is_plain(context):
            if self._trust_loopback and _from_loopback(context):
                return _LOOPBACK, ""
            raise unauthenticated(
                "The call came without TLS", "Call with a client certificate that a rule of this server names."
            )
        ends = _end_of_certificate(context)
        if ends is None or ends <= datetime.now(UTC):
            # The handshake looked, but a connection may be open for longer, or go on from an earlier one.
            raise _ended()
        uris, names = _values(context, "peer_uri"), _values(context, "peer_dns")
        if len(uris) > 1:
            # As the standard of SPIFFE asks: whose it is would depend on who looks.
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
    """What the metadata say of the caller. Twice the same is refused too: what stands behind a proxy could have sent
    one of the two."""
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
    """Whether the peer is on this machine: `ipv4:127.0.0.1:5000`, `ipv6:%5B::1%5D:5000`."""
    kind, _, address = unquote(context.peer()).partition(":")
    host = address.rpartition(":")[0].strip("[]")
    try:
        return kind in ("ipv4", "ipv6") and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _values(context: Context, key: str) -> Sequence[str]:
    """What the handshake found out. A name with other letters than ASCII fits nothing, as it stands for another."""
    # Its type says tuples of (str, bytes); what comes is bytes.
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
