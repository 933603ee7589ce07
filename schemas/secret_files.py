"""Secrets given by file: `RUNEKEEP_ADMIN_KEY_FILE=/run/secrets/admin` in place of `RUNEKEEP_ADMIN_KEY=...`.

A file stays out of the environment, which every child process inherits and `/proc` shows.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SUFFIX: Final = "_FILE"


class SecretFileError(ValueError):
    """A file with a secret cannot be used. The message names the variable and never the secret."""


def read_secret_files(variables: Iterable[str]) -> dict[str, str]:
    """The contents of the files that the environment names for `variables`, without the line's end, by variable.

    As for settings, capitals do not matter and an empty variable counts as one that is not set. Raises SecretFileError
    for a secret that is given both ways, and for a file that cannot be read or holds nothing.
    """
    given = {name.upper(): value for name, value in os.environ.items() if value}
    return {
        variable: _read(variable, Path(given[variable + SUFFIX]), given)
        for variable in variables
        if variable + SUFFIX in given
    }


def _read(variable: str, path: Path, given: dict[str, str]) -> str:
    named = variable + SUFFIX
    if variable in given:
        raise SecretFileError(f"{named}: {variable} is set too; leave one of them out")
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretFileError(f"{named}: {path} is no UTF-8 text") from None
    except OSError as error:
        raise SecretFileError(f"{named}: {path} cannot be read: {error.strerror}") from None
    if not text:
        raise SecretFileError(f"{named}: {path} is empty")
    return text
