"""Backups of an embedded store: `python -m runekeep_server.backup make|restore DIR [--config FILE] [--data-dir
DIR]`."""

import argparse
import asyncio
import json
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runekeep_server.app import StartError
from runekeep_server.rpc.methods import METHODS
from runekeep_server.services import store_options
from runekeep_server.settings import Settings, SettingsError, load_settings
from runekeep_server.telemetry import logs
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.drivers.common.private_files import set_private_umask
from runekeep_storage.errors import StoreError
from runekeep_storage.store import POSTGRES_SCHEMES, embedded_database
from runekeep_storage.transfer.backup import BackupFailed, Source, make
from runekeep_storage.transfer.backup_manifest import Manifest
from runekeep_storage.transfer.deletions_since_backup import Deletion, deletions_since
from runekeep_storage.transfer.restore import Destination, check, restore

EXIT_REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes, checks or restores a backup. Returns 2 if nothing was made or restored, 1 for a backup of a store with
    missing or damaged blobs."""
    flags = _flags(arguments)
    set_private_umask()
    try:
        settings = load_settings(flags.config, {"data_dir": flags.data_dir} if flags.data_dir else {})
        logs.configure(settings)
        said = asyncio.run(_make(settings, flags) if flags.what == "make" else _restore(settings, flags))
    except (SettingsError, StartError, StoreError, sqlite3.Error) as error:
        return _refused(flags, str(error))
    except OSError as error:
        return _refused(flags, f"{error.filename or flags.backup}: {error.strerror or error}")
    print(json.dumps(said) if flags.json else _in_words(said))
    return 1 if said["missing_blobs"] or said["damaged_blobs"] else 0


def _refused(flags: argparse.Namespace, why: str) -> int:
    print(f"{'No backup was made' if flags.what == 'make' else 'Nothing was restored'}: {why}", file=sys.stderr)
    return EXIT_REFUSED


def _flags(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m runekeep_server.backup", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("backup", type=Path, metavar="DIR")
    shared.add_argument("--config", type=Path, metavar="FILE")
    shared.add_argument("--data-dir", type=Path, metavar="DIR")
    shared.add_argument("--json", action="store_true", help="one JSON object on standard output")
    what.add_parser("make", parents=[shared], help="also while a server runs")
    putting = what.add_parser("restore", parents=[shared], help="into a data directory that is empty")
    putting.add_argument("--check", action="store_true", help="read all of the backup, and restore nothing")
    putting.add_argument(
        "--former", type=Path, metavar="DIR", help="data directory before, to list what was erased since the backup"
    )
    return parser.parse_args(arguments)


async def _make(settings: Settings, flags: argparse.Namespace) -> dict[str, Any]:
    place = _destination(settings)
    manifest = await make(Source(place.database, place.blobs), flags.backup)
    return {"done": "made", **_said(flags.backup, manifest)}


async def _restore(settings: Settings, flags: argparse.Namespace) -> dict[str, Any]:
    place = _destination(settings)
    # Before anything is restored, so that a misspelled directory is reported in time.
    taken = None
    if flags.former is not None:
        destructive = {method.name for method in METHODS.values() if method.destructive}
        taken = deletions_since(flags.backup, DataDirectory(flags.former).database, destructive)
    manifest = await (check(flags.backup) if flags.check else restore(flags.backup, place))
    said = {"done": "checked" if flags.check else "restored", **_said(flags.backup, manifest)}
    if not flags.check:
        said["data_dir"] = str(settings.data_dir)
    if taken is not None:
        said["taken_away_since"] = [_taken(one) for one in taken]
    return said


def _destination(settings: Settings) -> Destination:
    """Returns where the embedded store is. Raises BackupFailed, StartError."""
    if settings.store_url.startswith(POSTGRES_SCHEMES):
        raise BackupFailed(
            "store_url (RUNEKEEP_STORE_URL) names a PostgreSQL: back it up with its own programs, see"
            " docs/operate/backup.md"
        )
    options = store_options(settings)
    directory = DataDirectory(settings.data_dir)
    blobs = None if settings.blob_url else settings.blob_dir or directory.blobs
    return Destination(settings.data_dir, embedded_database(options), blobs)


def _said(backup: Path, manifest: Manifest) -> dict[str, Any]:
    return {
        "backup": str(backup),
        "runekeep": manifest.runekeep,
        "revision": manifest.revision,
        "snapshot_at": manifest.snapshot_at.isoformat(),
        "database_bytes": manifest.database.bytes,
        "blobs": manifest.blobs.count,
        "blob_bytes": manifest.blobs.bytes,
        "blobs_elsewhere": manifest.blobs.place != "backup",
        "missing_blobs": list(manifest.blobs.missing),
        "damaged_blobs": list(manifest.blobs.damaged),
    }


def _taken(one: Deletion) -> dict[str, str]:
    return {
        "at": one.at.isoformat(),
        "account": one.account,
        "user": one.user,
        "what": one.what,
        "subject": one.subject,
    }


def _in_words(said: dict[str, Any]) -> str:
    size = f"{(said['database_bytes'] + said['blob_bytes']) / 1e6:.1f} MB"
    blobs = "1 blob" if said["blobs"] == 1 else f"{said['blobs']} blobs"
    what = f"the store of {said['snapshot_at'][:19].replace('T', ' ')} UTC, {size} with {blobs}"
    lines = {
        "made": [f"{said['backup']} holds {what}."],
        "checked": [f"{said['backup']} is whole: {what}."],
        "restored": [f"{said.get('data_dir')} holds {what}.", "The first server to start makes the index anew."],
    }[said["done"]]
    if said["blobs_elsewhere"]:
        lines.append("Large tool outputs and buckets are in the object store and none of this backup's.")
    for name, are in (("missing_blobs", "missing"), ("damaged_blobs", "damaged")):
        lines += [f"{are} in the store already: {blob}" for blob in said[name]]
    taken = said.get("taken_away_since")
    if taken is not None:
        lines.append("Taken away since, and here again:" if taken else "Nothing was taken away since.")
        lines += [f"  {one['at'][:19]} {one['account']}/{one['user']} {one['what']} {one['subject']}" for one in taken]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
