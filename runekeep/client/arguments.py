"""What callers give as lists."""

from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def listed(given: Sequence[_Item], name: str) -> Sequence[_Item]:
    """What was given. Raises ValueError for a text: Python takes one for a list of its letters."""
    if isinstance(given, str | bytes):
        raise ValueError(f"{name} is a list; put brackets around the one there is")
    return given
