"""Checks the data directory, ports and certificates of this machine, and the installed packages."""

import contextlib
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

from runekeep_common.addresses import split_address
from runekeep_server.doctor.check import Check, ok, problem, skipped, warning
from runekeep_server.settings import Settings
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.drivers.common.lock_owner import describe_owner
from runekeep_storage.drivers.common.private_files import LOST_AND_FOUND, is_protected_by_root

if TYPE_CHECKING:
    from packaging.requirements import Requirement

LITTLE_BYTES = 1_000_000_000
"""Free bytes below which the check warns; below a tenth of it, it reports a problem."""
AS_THE_SERVERS_USER = "Run doctor as the server's user."
_DISTRIBUTION = "runekeep"


def data_directory(settings: Settings) -> Iterator[Check]:
    root = settings.data_dir.absolute()
    if not _may_see(root):
        yield problem("data.directory", f"{root} is hidden from this user", AS_THE_SERVERS_USER)
        return
    if not root.exists():
        yield _to_be_made(root)
        return
    if not root.is_dir():
        yield problem("data.directory", f"{root} is no folder", "Name another one with RUNEKEEP_DATA_DIR.")
        return
    # The other checks need access.
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        yield problem("data.directory", f"{root} may not be written to by this user", AS_THE_SERVERS_USER)
        return
    yield _directory(root)
    yield _owner(root)
    yield _space(root)
    yield _lock(root)


def _may_see(root: Path) -> bool:
    """Returns whether this user may see whether `root` exists."""
    try:
        root.stat()
    except PermissionError:
        return False
    except OSError:
        return True
    return True


def _to_be_made(root: Path) -> Check:
    above = next(folder for folder in root.parents if folder.exists())
    if os.access(above, os.W_OK | os.X_OK):
        return ok("data.directory", f"{root} is not there yet; a server makes it at its first start")
    return problem("data.directory", f"{root} cannot be made in {above}", "Make it, owned by the server's user.")


def _directory(root: Path) -> Check:
    if DataDirectory(root).restore_is_unfinished():
        return problem("data.directory", f"a restore into {root} was interrupted", "Run `runekeep restore` again.")
    return ok("data.directory", str(root))


def _owner(root: Path) -> Check:
    there = (path for path in root.iterdir() if path.name != LOST_AND_FOUND)
    files = [root, *(path for path in there if path.name.startswith("runekeep.db") or path.is_dir())]
    mounted = [path for path in files if path.is_dir() and os.geteuid() != 0 and is_protected_by_root(path.stat())]
    files = [path for path in files if path not in mounted]
    others = [path.name or str(path) for path in files if path.stat().st_uid != os.geteuid()]
    if others:
        return warning(
            "data.owner",
            f"{', '.join(others)} belong to another user than the one who asks, {os.geteuid()}",
            "Run doctor as the server's user; else give all of it to that user with chown -R.",
        )
    if root in files and root.stat().st_mode & 0o077:
        return warning(
            "data.owner",
            "others on this machine may look into it",
            f"Run chmod 700 {root}, or start the server, which does the same.",
        )
    return ok("data.owner", f"user {os.geteuid()} alone may enter it")


def _space(root: Path) -> Check:
    free = shutil.disk_usage(root).free
    # Purging an erasure temporarily takes twice the size of the database.
    database = DataDirectory(root).database
    wanted = max(LITTLE_BYTES, 2 * database.stat().st_size if database.exists() else 0)
    found = f"{free / 1e9:.1f} GB free"
    if free < LITTLE_BYTES / 10:
        return problem("data.space", found, "Make room: without it nothing can be written.")
    if free < wanted:
        return warning("data.space", f"{found}, {wanted / 1e9:.1f} GB would be good", "Make room: erasures take it.")
    return ok("data.space", found)


def _lock(root: Path) -> Check:
    owner = holder(root)
    if owner is None:
        return ok("data.lock", "no server works on it")
    return ok("data.lock", f"held by the server with {owner}")


def holder(root: Path) -> str | None:
    """Describes the server that works on a data directory; None if there is none."""
    with held_off(root) as owner:
        return owner


@contextlib.contextmanager
def held_off(root: Path) -> Iterator[str | None]:
    """Keeps servers from starting on a data directory. Yields a description of a server that already runs; it keeps
    running."""
    try:
        lock = (root / "lock").open()
    except OSError:
        # No server ever ran here, or this user may not see it. Opening the files will tell.
        yield None
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield describe_owner(lock.read())
            return
        yield None


def ports(settings: Settings) -> Iterator[Check]:
    """Checks whether the addresses are free. Call it only if no server runs."""
    for name, address in (
        ("ports.address", settings.address),
        ("ports.internal", settings.internal_address),
        ("ports.metrics", settings.metrics_address),
    ):
        if address:
            yield _port(name, address)


def _port(name: str, address: str) -> Check:
    host, port = split_address(address)
    if port == 0:
        return ok(name, f"a free port of {host} will be taken")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        return problem(
            name, f"{address}: {error.strerror or error}", "End what listens there (ss -ltnp), or choose another port."
        )
    return ok(name, f"{address} is free")


def certificates(settings: Settings) -> Iterator[Check]:
    if settings.tls.certificate is None:
        yield skipped("tls.certificate", "no TLS is set")
        return
    from runekeep_server.rpc.tls import TlsError, check, read_files

    now = datetime.now(UTC)
    try:
        endings = check(read_files(settings.tls), settings.tls, now)
    except TlsError as error:
        yield problem("tls.certificate", str(error), "Mend or renew the files; a server takes new ones by itself.")
        return
    for ending in endings:
        found = f"{ending.subject} ends in {(ending.ends - now).days} days, {ending.ends:%Y-%m-%d}"
        if ending.is_near(now):
            yield warning(f"tls.{ending.name}", found, "Renew it; a server takes the new files by itself.")
        else:
            yield ok(f"tls.{ending.name}", found)


def packages() -> Iterator[Check]:
    """Compares the installed packages with the requirements of this release."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(text) for text in requires(_DISTRIBUTION) or ()]
    except PackageNotFoundError:
        yield skipped("packages.versions", "runekeep is not installed, it runs from its sources")
        return
    wrong = []
    needed = [one for one in wanted if _is_for(one, "server")]
    # Extractors may run elsewhere, but if their packages are here they must fit.
    for one in (*needed, *(one for one in wanted if _is_for(one, "extractor") and one not in needed)):
        try:
            there = version(one.name)
        except PackageNotFoundError:
            if one in needed:
                wrong.append(f"{one.name} is missing")
            continue
        if not one.specifier.contains(there, prereleases=True):
            wrong.append(f"{one.name} is {there}, not {one.specifier}")
    if wrong:
        yield problem("packages.versions", "; ".join(wrong), "Run pip install --upgrade 'runekeep[all]'.")
    else:
        yield ok(
            "packages.versions", f"runekeep {version(_DISTRIBUTION)}, its {len(needed)} packages as they should be"
        )


def _is_for(requirement: "Requirement", extra: str) -> bool:
    """Returns whether the package alone, or this extra of it, asks for a requirement here."""
    marker = requirement.marker
    return marker is None or marker.evaluate({"extra": ""}) or marker.evaluate({"extra": extra})
