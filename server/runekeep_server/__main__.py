"""Runs the server: `python -m runekeep_server [--config FILE] [--address HOST:PORT] [--data-dir DIR]`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

EXIT_CANNOT_START = 2
"""Exit code if an operator must change something first: a setting, a file, another process."""
EXIT_TRY_LATER = 75
"""EX_TEMPFAIL of sysexits.h: a dependency is unavailable, and the same start may succeed later."""
SWITCH_SECONDS = 0.0005
"""Switch interval of Python's threads. Each step of a call may wait this long for a busy thread, so it is shorter than
Python's default of 5 ms."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the server. Returns the exit code: 0 after a drain, EXIT_CANNOT_START if it cannot start or go on, or
    EXIT_TRY_LATER."""
    parser = argparse.ArgumentParser(prog="runekeep serve", description="The Runekeep server.")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="YAML file with settings; see docs/reference/settings.md"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="address to listen on")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="directory of everything that is kept")
    parser.add_argument(
        "--accept-data-loss", metavar="CODE", help="go on without what a start that was refused says is lost"
    )
    flags = parser.parse_args(arguments)
    given = {name: getattr(flags, name) for name in ("address", "data_dir", "accept_data_loss")}
    overrides = {name: value for name, value in given.items() if value is not None}

    # Set before grpc is imported. Children are executed, never only forked. gRPC's core logs in another format and logs
    # each refused compressed request, so callers without credentials could fill the log.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

    from runekeep_server.settings import SettingsError, load_settings

    try:
        settings = load_settings(flags.config, overrides)
    except SettingsError as error:
        print(f"The settings are wrong:\n{error}", file=sys.stderr)
        return EXIT_CANNOT_START

    import uvloop

    from runekeep_server.app import ServerFailed, StartError, serve
    from runekeep_server.services import build_services
    from runekeep_server.telemetry import logs
    from runekeep_storage.drivers.common.private_files import set_private_umask

    set_private_umask()
    sys.setswitchinterval(SWITCH_SECONDS)
    logs.configure(settings)
    try:
        uvloop.run(serve(settings, build_services))
    except StartError as error:
        print(f"The server cannot start: {error}", file=sys.stderr)
        return EXIT_TRY_LATER if error.temporary else EXIT_CANNOT_START
    except ServerFailed as error:
        print(f"The server cannot go on: {error}", file=sys.stderr)
        return EXIT_CANNOT_START
    return 0


if __name__ == "__main__":
    from runekeep_common import process_startup

    process_startup.begin()
    status = main()
    process_startup.end()
    sys.exit(status)
