"""`python -m extractor`: one extractor process."""

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Work until SIGTERM or SIGINT. Gives the exit status: 0 stopped, 1 refused by the server, 2 wrong settings."""
    options = {name: value for name, value in vars(_parser().parse_args(arguments)).items() if value is not None}
    # Here, since `light_process.begin` comes first.
    from extractor.running import run

    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="runekeep extractor",
        description="Turns committed conversations into memory. Further settings: docs/extractor-settings.md.",
    )
    parser.add_argument("--server", metavar="ADDRESS", help="host:port of the server, or https://host:port")
    parser.add_argument("--concurrency", type=int, metavar="N", help="jobs side by side")
    parser.add_argument("--engine", choices=["offline", "anthropic"], help="default: by the environment")
    parser.add_argument("--worker-id", metavar="ID", help="stable name of this worker")
    return parser


if __name__ == "__main__":
    from schemas import light_process

    light_process.begin()
    status = main()
    light_process.end()
    sys.exit(status)
