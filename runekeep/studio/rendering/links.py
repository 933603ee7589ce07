"""Addresses of the studio's own pages."""

from urllib.parse import urlencode


def link(path: str, **parameters: str | int) -> str:
    """Returns an address of the studio; parameters that are empty or 0 are left out."""
    given = {name: value for name, value in parameters.items() if value not in ("", 0)}
    return f"{path}?{urlencode(given)}" if given else path
