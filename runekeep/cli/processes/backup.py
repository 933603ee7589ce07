"""Commands that back up an embedded store and restore it. Both run in a process of their own, not in the server."""

from pathlib import Path
from typing import Annotated

import typer

from runekeep.cli.common.options import AsJson
from runekeep.cli.processes.commands import DataDir, exec_module, flag, option
from runekeep.cli.processes.extras import require_extras

Backup = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the backup.", show_default=False)]


def backup(directory: Backup, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Back up the embedded store, also while its server runs.

    The command creates DIR, which appears once it is complete. Back up PostgreSQL with its own programs.
    """
    require_extras("runekeep backup", "server")
    exec_module(
        "runekeep_server.backup", ["make", str(directory), *option("--data-dir", data_dir), *flag("--json", as_json)]
    )


def restore(
    directory: Backup,
    data_dir: DataDir = None,
    check: Annotated[bool, typer.Option("--check", help="Read the whole backup, and restore nothing.")] = False,
    former: Annotated[
        Path | None,
        typer.Option("--former", metavar="DIR", help="Former data directory: list what was erased since the backup."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into an empty data directory. No server may run there."""
    require_extras("runekeep restore", "server")
    options = [*option("--data-dir", data_dir), *option("--former", former), *flag("--check", check)]
    exec_module("runekeep_server.backup", ["restore", str(directory), *options, *flag("--json", as_json)])
