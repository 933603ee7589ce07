"""Reads secrets from files: `RUNEKEEP_ADMIN_KEY_FILE=/run/secrets/admin` instead of `RUNEKEEP_ADMIN_KEY=...`.

A secret in a file is not in the environment, which every child process inherits and `/proc` shows.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SUFFIX: Final = "_FILE"


class SecretFileError(ValueError):
    """A secret file cannot be used. The message names the variable and never the secret."""


def read_secret_files(variables: Iterable[str]) -> dict[str, str]:
    """Returns the contents of the files that the environment names for `variables`, by variable, without the line end.

    As for settings, names are not case-sensitive and an empty variable counts as unset. Raises SecretFileError for a
    secret that is given both ways, and for a file that is empty or cannot be read.
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
    return read_secret(named, path)


def read_secret(named: str, path: Path) -> str:
    """Returns the contents of a file without the line end. `named`: the setting that names it, for messages. Raises
    SecretFileError for a file that is empty or cannot be read."""
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretFileError(f"{named}: {path} is no UTF-8 text") from None
    except OSError as error:
        raise SecretFileError(f"{named}: {path} cannot be read: {error.strerror}") from None
    if not text:
        raise SecretFileError(f"{named}: {path} is empty")
    return text
