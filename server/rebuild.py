"""Makes the index anew from the store: `python -m server.rebuild [--config FILE] [--data-dir DIR] [--json]`."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn

from server import logs
from server.app import StartError
from server.services import load_registry, store_options
from server.settings import Settings, SettingsError, load_settings
from storage.errors import StoreError
from storage.index.base import IndexMismatch, IndexUnavailable
from storage.private_files import set_private_umask
from storage.store import rebuild_index


def main() -> int:
    """Needs no embedder; the server must not run. Exit code 2 when the index cannot be rebuilt."""
    parser = argparse.ArgumentParser(prog="python -m server.rebuild", description=__doc__)
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
    # On standard error, so that what a script reads stays clean.
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
