"""The placeholder syntax of file names and rendered contents: `{name}`.

A pair of braces around anything but a newline or a brace is a placeholder; a lone brace is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_PLACEHOLDER = re.compile(r"\{([^{}\n]*)\}")


def placeholders(template: str) -> tuple[str, ...]:
    """Returns the names in the order of their first use, each once."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(template)))


def split(template: str) -> list[str]:
    """Returns literals and names alternately: even positions hold literals (possibly empty), odd positions names."""
    return _PLACEHOLDER.split(template)


def substitute(template: str, value_of: Callable[[str], str]) -> str:
    """Replaces every placeholder in one pass, so that a value is never read as a template itself."""
    return _PLACEHOLDER.sub(lambda match: value_of(match.group(1)), template)
