"""The command `runekeep`."""


def main() -> None:
    """Runs the command line and ends the process: 0 done, 1 failed, 2 wrong usage."""
    from runekeep.cli.app import app

    app(prog_name="runekeep")
