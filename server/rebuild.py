"""Makes the index anew from the store: `python -m server.rebuild [--config FILE] [--data-dir DIR]`."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from server.app import StartError
from server.services import load_registry, store_options
from server.settings import SettingsError, load_settings
from storage.errors import StoreError
from storage.index.base import IndexUnavailable
from storage.store import rebuild_index


def _progress(table: str, count: int) -> None:
    print(json.dumps({"event": "progress", "table": table, "points": count}), flush=True)


def main() -> int:
    """Prints a JSON line for each batch and one with the counts at the end. The server must not run."""
    parser = argparse.ArgumentParser(prog="python -m server.rebuild", description=__doc__)
    parser.add_argument("--config", type=Path, metavar="FILE")
    parser.add_argument("--data-dir", type=Path, metavar="DIR")
    flags = parser.parse_args()
    try:
        settings = load_settings(flags.config, {"data_dir": flags.data_dir} if flags.data_dir else {})
        counts = asyncio.run(rebuild_index(store_options(settings), load_registry(settings), _progress))
    except (SettingsError, StartError, StoreError, IndexUnavailable) as error:
        print(f"The index cannot be rebuilt: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"event": "rebuilt", **counts}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
