"""How a setting is declared, and what it is called in the environment."""

import os
from typing import Any

from pydantic import Field

ENV_PREFIX = "RUNEKEEP_"


def setting(section: str, default: Any, description: str, **constraints: Any) -> Any:
    """A field with its place on the page about every setting."""
    return Field(default, description=description, json_schema_extra={"section": section}, **constraints)


def variable(name: str) -> str:
    """The variable of the setting with this dotted name."""
    return ENV_PREFIX + name.replace(".", "__").upper()


def named(name: str) -> str:
    """How messages to the operator begin that are about a setting."""
    return f"{name} ({variable(name)})"


def split_paths(value: object) -> object:
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


def none_if_empty(value: object) -> object:
    return None if value == "" else value
