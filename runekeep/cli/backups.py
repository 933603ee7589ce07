"""Commands that back up an embedded store, and put a backup back; both run beside the server, not in it."""

from pathlib import Path
from typing import Annotated

import typer

from runekeep.cli.options import AsJson
from runekeep.cli.processes import DataDir, become, flag

Backup = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the backup.", show_default=False)]


def backup(directory: Backup, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Back up the embedded store, also while its server runs.

    DIR is made, and is there only once it is whole. A PostgreSQL is backed up by its own programs.
    """
    become("server.backup", ["make", str(directory), *flag("--data-dir", data_dir), *_json(as_json)])


def restore(
    directory: Backup,
    data_dir: DataDir = None,
    check: Annotated[bool, typer.Option("--check", help="Read all of the backup, and restore nothing.")] = False,
    former: Annotated[
        Path | None,
        typer.Option("--former", metavar="DIR", help="Data directory before: list what was erased since the backup."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put a backup into a data directory that is empty, while no server runs there."""
    options = [*flag("--data-dir", data_dir), *flag("--former", former), *(["--check"] if check else [])]
    become("server.backup", ["restore", str(directory), *options, *_json(as_json)])


def _json(as_json: bool) -> list[str]:
    return ["--json"] if as_json else []
