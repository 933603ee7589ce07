"""`python -m runekeep_server.doctor [--config FILE] [--data-dir DIR]`: one JSON object on standard output.

`checks` holds the results, `address` is where a server with these settings listens for operators, and `running` says
whether a server uses the data directory. `runekeep doctor` also asks the running server.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from runekeep_common.addresses import is_loopback, split_address
from runekeep_server.doctor import destinations, languages, machine, reranking, stores
from runekeep_server.doctor.check import (
    Check,
    State,
    ok,
    passwords_in,
    problem,
    skipped,
    warning,
    without_secrets,
)
from runekeep_server.settings import Settings, SettingsError, load_settings, suspicious_variables
from runekeep_server.settings.account_endpoints import AccountEndpoint
from runekeep_server.settings.loading import SECRETS
from runekeep_storage.drivers.common.private_files import set_private_umask

SECONDS = 60.0
"""Timeout of each group of checks: an embedder may be slow to load, and an index slow to open."""

_Group = Callable[[Settings], AsyncIterator[Check] | Iterator[Check]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all checks. Returns 1 if there is a problem."""
    parser = argparse.ArgumentParser(prog="python -m runekeep_server.doctor", description=__doc__)
    parser.add_argument("--config", type=Path, metavar="FILE")
    parser.add_argument("--data-dir", type=Path, metavar="DIR")
    flags = parser.parse_args(arguments)
    _quiet()
    # SQLite may create a file next to a database that it only reads.
    set_private_umask()
    said = asyncio.run(_examine(flags))
    print(json.dumps(said))
    return 1 if any(check["state"] == State.PROBLEM for check in said["checks"]) else 0


def _quiet() -> None:
    """Silences the logs of libraries: the checks find and report the same problems."""
    import structlog

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), processors=[lambda _, __, event: str(event)])


async def _examine(flags: argparse.Namespace) -> dict[str, Any]:
    try:
        settings = load_settings(flags.config, {"data_dir": flags.data_dir} if flags.data_dir else {})
    except SettingsError as error:
        advice = "Mend it: docs/reference/settings.md."
        wrong = [problem("settings.load", line, advice) for line in str(error).splitlines()]
        checks = [*wrong, *_variables(), *machine.packages()]
        return {"checks": [check.to_json() for check in checks], "address": "", "running": False}
    checks = [ok("settings.load", "every setting is within its bounds"), *_variables(), *_exposure(settings)]
    checks += await _group("data.check", machine.data_directory, settings)
    running = machine.holder(settings.data_dir) is not None
    checks += await _group("store.check", stores.store, settings)
    checks += await _group("index.check", stores.index, settings)
    checks += await _group("blobs.check", stores.blobs, settings)
    checks += await _group("embedder.check", stores.embedder, settings)
    checks += await _group("reranker.check", reranking.reranker, settings)
    checks += await _group("text.check", destinations.destinations, settings)
    checks += await _group("text.check", languages.languages, settings)
    if running:
        checks.append(skipped("ports.address", "the server listens there"))
    else:
        checks += await _group("ports.check", machine.ports, settings)
    checks += await _group("tls.check", machine.certificates, settings)
    checks += machine.packages()
    secrets = list(_secrets(settings))
    return {
        "checks": [without_secrets(check, secrets).to_json() for check in checks],
        "address": settings.internal_address or settings.address,
        "running": running,
    }


async def _group(name: str, group: _Group, settings: Settings) -> list[Check]:
    """Returns the results of a group. If the group itself fails, they include the check `name` with the failure."""
    found: list[Check] = []
    try:
        async with asyncio.timeout(SECONDS):
            checks = group(settings)
            async for check in checks if isinstance(checks, AsyncIterator) else _one_by_one(checks):
                found.append(check)
    except PermissionError as error:
        found.append(problem(name, f"{error.filename}: {error.strerror}", machine.AS_THE_SERVERS_USER))
    except TimeoutError:
        found.append(problem(name, f"no answer within {SECONDS:g} s", "Is it overloaded, or is its network cut?"))
    except Exception as error:  # One group failed; the others run all the same.
        found.append(problem(name, f"{type(error).__name__}: {error}", "Tell the makers: this check failed itself."))
    return found


async def _one_by_one(checks: Iterator[Check]) -> AsyncIterator[Check]:
    for check in checks:
        yield check


def _variables() -> list[Check]:
    found = suspicious_variables(os.environ)
    if not found:
        return [ok("settings.variables", "no variable looks misspelled")]
    return [warning("settings.variables", f"{name} is no setting", f"Did you mean {meant}?") for name, meant in found]


def _exposure(settings: Settings) -> list[Check]:
    """Reports how exposed the server is. Settings that expose data are refused when they are loaded."""
    host, _ = split_address(settings.address)
    reach = "this machine alone" if is_loopback(host) else "the network"
    tls = "with TLS" if settings.tls.certificate is not None else "without TLS"
    found = f"mode {settings.identity_mode}, {tls}, for {reach}"
    if settings.identity_mode == "development":
        return [warning("settings.exposure", found, "Any local user may name any caller: fine to try things out.")]
    metrics = split_address(settings.metrics_address)[0] if settings.metrics_address else ""
    if metrics and not is_loopback(metrics):
        return [
            warning("settings.exposure", f"{found}; metrics for the network", "Let only your collector reach them.")
        ]
    return [ok("settings.exposure", found)]


def _secrets(settings: Settings) -> Iterable[str]:
    for name in SECRETS:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
    for entry in settings.account_endpoints.values():
        for one in (entry.embedding, entry.next_embedding, entry.rerank):
            if isinstance(one, AccountEndpoint):
                yield one.key
    for url in (settings.store_url, *settings.index_url.split(",")):
        yield from passwords_in(url)


if __name__ == "__main__":
    sys.exit(main())
