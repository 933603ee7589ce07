"""Asks before a command changes or deletes data, and refuses a change that would not be the one that was shown."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from runekeep.cli.common.errors import fail

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def confirm(question: str, *, yes: bool) -> None:
    """Asks, unless `yes` is set. Any answer but yes ends the command with status 1."""
    if not yes:
        # On stderr, because --json reserves stdout for the result.
        typer.confirm(question, abort=True, err=True)


@contextmanager
def refuse_newer_revision() -> Generator[None, None, None]:
    """Ends the command if a call is refused because there is a newer revision than the one that was shown."""
    from runekeep.client.connection.errors import AbortedError

    try:
        yield
    except AbortedError as error:
        if error.reason != "VERSION_MISMATCH":
            raise
        fail(str(error), "There is a newer revision. Run the command again to see what would change now.")
