"""The placeholder syntax that file names and rendered contents share: `{name}`.

A pair of braces around anything but a newline or a brace is a placeholder; a lone brace is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_PLACEHOLDER = re.compile(r"\{([^{}\n]*)\}")


def placeholders(template: str) -> tuple[str, ...]:
    """Names in the order of their first use, each once."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(template)))


def split(template: str) -> list[str]:
    """Literals and names in turn: even positions hold literals (perhaps empty), odd positions names."""
    return _PLACEHOLDER.split(template)


def substitute(template: str, value_of: Callable[[str], str]) -> str:
    """Replaces every placeholder in one pass, so that a value is never read as a template itself."""
    return _PLACEHOLDER.sub(lambda match: value_of(match.group(1)), template)
