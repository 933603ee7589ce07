"""`python -m runekeep_extractor`: one extractor process."""

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until SIGTERM or SIGINT. Returns the exit status: 0 stopped, 1 refused by the server, 2 invalid settings."""
    options = {name: value for name, value in vars(_parser().parse_args(arguments)).items() if value is not None}
    # Imported here, because `process_startup.begin` must run first.
    from runekeep_extractor.running import run

    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="runekeep extractor",
        description="Turns committed conversations into memory. All settings: docs/reference/extractor-settings.md.",
    )
    parser.add_argument("--server", metavar="ADDRESS", help="host:port of the server, or https://host:port")
    parser.add_argument("--concurrency", type=int, metavar="N", help="jobs side by side")
    parser.add_argument("--engine", choices=["offline", "anthropic", "openai"], help="default: by the environment")
    parser.add_argument("--worker-id", metavar="ID", help="stable name of this worker")
    return parser


if __name__ == "__main__":
    from runekeep_common import process_startup

    process_startup.begin()
    status = main()
    process_startup.end()
    sys.exit(status)
