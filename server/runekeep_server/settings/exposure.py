"""Settings that each are fine and together would let strangers in, or keep everybody out without saying so.

A server with such settings does not start. What is checked here cannot be waived by another setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from runekeep_common.addresses import is_loopback, split_address

if TYPE_CHECKING:
    from runekeep_server.settings.model import Settings

MIN_KEY = 32
"""Characters of a key in the settings. Of random letters and digits that is more than 160 bits."""

_KEY = re.compile(rf"[!-~]{{{MIN_KEY},512}}")


def exposures(settings: Settings) -> Iterator[tuple[str, str]]:
    """What is wrong, as (name of a setting, what and what to do)."""
    yield from _certificates(settings)
    yield from _keys(settings)
    hosts = {
        name: split_address(address)[0]
        for name, address in (("address", settings.address), ("internal_address", settings.internal_address))
        if address
    }
    name, host = next(((name, host) for name, host in hosts.items() if not is_loopback(host)), ("", ""))
    local = not host
    match settings.identity_mode:
        case "development" if not local:
            yield (
                name,
                "identity_mode `development` lets every caller name any user, so it may only listen on a loopback "
                "address such as 127.0.0.1:7433",
            )
        case "keys" if not local and settings.tls.certificate is None:
            yield (
                "tls.certificate",
                f"without TLS anybody on the way to {host} could read the keys of callers, and their memories; give a "
                "certificate and its key, or listen on a loopback address",
            )
        case "mesh":
            yield from _mesh(settings, local)
    if settings.identity_mode != "mesh" and (settings.mesh.rules or settings.mesh.trust_loopback):
        yield (
            "identity_mode",
            f"rules for certificates and proxies do not hold in the mode `{settings.identity_mode}`; say `mesh`, or "
            "take mesh.rules and mesh.trust_loopback away",
        )


def _certificates(settings: Settings) -> Iterator[tuple[str, str]]:
    tls = settings.tls
    if tls.key is not None and tls.certificate is None:
        yield "tls.certificate", "there is a tls.key without it; give both, or none for no TLS"
    if tls.certificate is not None and tls.key is None:
        yield "tls.key", "there is a tls.certificate without it; give both, or none for no TLS"
    if tls.client_ca is not None and tls.certificate is None:
        yield "tls.certificate", "without it no caller's certificate is asked for; tls.client_ca needs it"


def _keys(settings: Settings) -> Iterator[tuple[str, str]]:
    given = {
        name: secret.get_secret_value()
        for name, secret in (("admin_key", settings.admin_key), ("worker_key", settings.worker_key))
        if secret.get_secret_value()
    }
    for name, key in given.items():
        if settings.identity_mode != "keys":
            yield name, f"keys do not hold in the mode `{settings.identity_mode}`; say identity_mode `keys`, or none"
        # Never the value.
        if not _KEY.fullmatch(key):
            yield (
                name,
                f"must be {MIN_KEY} to 512 visible ASCII characters without spaces; make one with "
                "`openssl rand -hex 32`",
            )
    if len(given) == 2 and settings.admin_key == settings.worker_key:
        yield "worker_key", "is that of admin_key; who holds the one must not be able to do what the other may"


def _mesh(settings: Settings, local: bool) -> Iterator[tuple[str, str]]:
    mesh, client_ca = settings.mesh, settings.tls.client_ca
    if not mesh.rules and not mesh.trust_loopback:
        yield (
            "mesh.rules",
            "nobody could call; say which certificates may do what, or trust a proxy on this machine with "
            "mesh.trust_loopback",
        )
    if mesh.trust_loopback and not local:
        yield (
            "mesh.trust_loopback",
            "others than a proxy on this machine could call too and name any user; listen on a loopback address, or "
            "give the proxy a certificate and a rule of the scope `proxy`",
        )
    if mesh.trust_loopback and settings.tls.certificate is not None:
        yield (
            "mesh.trust_loopback",
            "it is for a proxy that calls without TLS, and tls.certificate asks for TLS; leave one of them out",
        )
    if client_ca is None and (mesh.rules or not local):
        yield (
            "tls.client_ca",
            "without it callers have no certificates by which they could be known; give the file with those that "
            "theirs come from",
        )
