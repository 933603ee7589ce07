"""Makes the index anew from the store: `python -m runekeep_server.rebuild [--config FILE] [--data-dir DIR]
[--json]`."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn

from runekeep_server.app import StartError
from runekeep_server.services import load_registry, store_options
from runekeep_server.settings import Settings, SettingsError, load_settings
from runekeep_server.telemetry import logs
from runekeep_storage.drivers.common.private_files import set_private_umask
from runekeep_storage.errors import StoreError
from runekeep_storage.index.base import IndexMismatch, IndexUnavailable
from runekeep_storage.store import rebuild_index


def main() -> int:
    """Rebuilds the index. It needs no embedder, and the server must not run. Returns 2 if the index cannot be
    rebuilt."""
    parser = argparse.ArgumentParser(prog="python -m runekeep_server.rebuild", description=__doc__)
    parser.add_argument("--config", type=Path, metavar="FILE")
    parser.add_argument("--data-dir", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    flags = parser.parse_args()
    set_private_umask()
    try:
        settings = load_settings(flags.config, {"data_dir": flags.data_dir} if flags.data_dir else {})
        logs.configure(settings)
        counts = asyncio.run(_rebuild(settings))
    except (SettingsError, StartError, StoreError, IndexMismatch, IndexUnavailable) as error:
        print(f"The index cannot be rebuilt: {error}", file=sys.stderr)
        return 2
    if flags.json:
        print(json.dumps(counts))
    else:
        print("The index holds " + " and ".join(f"{count} {table}" for table, count in counts.items()) + ".")
    return 0


async def _rebuild(settings: Settings) -> dict[str, int]:
    # On standard error, so that scripts can parse standard output.
    columns = (SpinnerColumn(), TextColumn("{task.description}: {task.completed} points"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bars: dict[str, TaskID] = {}

        def moved(table: str, count: int) -> None:
            if table not in bars:
                bars[table] = progress.add_task(table, total=None)
            progress.update(bars[table], completed=count)

        return await rebuild_index(store_options(settings), load_registry(settings), moved)


if __name__ == "__main__":
    sys.exit(main())
