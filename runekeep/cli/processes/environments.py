"""The environment variables that child processes get: only those that each one needs.

A process that handles untrusted input, or code that got into it, then finds no key but its own.
"""

import os
from collections.abc import Mapping
from typing import Final

_SYSTEM: Final = (
    *("HOME", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SYSTEMROOT", "TEMP", "TERM", "TMP", "TMPDIR", "TZ"),
    *("USER", "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE"),
)
_SYSTEM_PREFIXES: Final = (
    # FAKETIME: of libfaketime, which LD_PRELOAD brings in where clocks are tested.
    *("DYLD_", "FAKETIME", "GRPC_", "LC_", "LD_", "MALLOC_", "OMP_", "OTEL_", "PYTHON", "SSL_CERT_", "XDG_"),
    "RUNEKEEP_FAILPOINT",
)
_SERVER: Final = (
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
    "LONG_MEMORIES_LOG",
    "MEMORY_RECONCILE_ENABLED",
    "MSI_ENDPOINT",
)
_SERVER_PREFIXES: Final = ("AWS_", "AZURE_", "GOOGLE_", "PG", "RUNEKEEP_")
_EXTRACTOR_PREFIXES: Final = ("ANTHROPIC_", "OPENAI_", "RUNEKEEP_EXTRACTOR_")
_CLIENT: Final = ("RUNEKEEP_API_KEY",)
_STUDIO: Final = ("RUNEKEEP_CA_FILE",)
_WORKER_KEYS: Final = {
    "RUNEKEEP_WORKER_KEY": "RUNEKEEP_EXTRACTOR_API_KEY",
    "RUNEKEEP_WORKER_KEY_FILE": "RUNEKEEP_EXTRACTOR_API_KEY_FILE",
}


def server_environment() -> dict[str, str]:
    """Returns a server's environment: its settings, and what it needs to reach its database and its object store."""
    every = _chosen(os.environ, _SERVER, _SERVER_PREFIXES)
    return {
        name: value
        for name, value in every.items()
        if not name.upper().startswith(_EXTRACTOR_PREFIXES) and name.upper() not in _CLIENT
    }


def extractor_environment() -> dict[str, str]:
    """Returns an extractor's environment: its settings, the model's, and the server's worker key if it has no key of
    its own."""
    chosen = _chosen(os.environ, (), _EXTRACTOR_PREFIXES)
    # Names of settings are not case-sensitive.
    own = {name.upper() for name, value in chosen.items() if value}
    if not own & set(_WORKER_KEYS.values()):
        for name, value in os.environ.items():
            if value and name.upper() in _WORKER_KEYS:
                chosen[_WORKER_KEYS[name.upper()]] = value
    return chosen


def studio_environment() -> dict[str, str]:
    """Returns a studio's environment: no key, since it calls with those of its visitors."""
    return _chosen(os.environ, _STUDIO, ())


def _chosen(environment: Mapping[str, str], names: tuple[str, ...], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.upper() in (*_SYSTEM, *names) or name.upper().startswith((*_SYSTEM_PREFIXES, *prefixes))
    }
