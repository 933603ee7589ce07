"""Finds out which extras are installed. The package alone brings the client and the command line."""

import re
import sys
from typing import Final

from runekeep.cli.common.errors import fail

NOT_INSTALLED = 2
"""Exit status of a command whose extra is not installed."""
_PLATFORM: Final = re.compile(r"""sys_platform (==|!=) ['"](\w+)['"]""")


def missing_packages(extra: str) -> list[str]:
    """Returns the packages of an extra that are not installed, by name; none if Runekeep runs from its sources."""
    from importlib.metadata import PackageNotFoundError, requires, version

    def is_installed(name: str) -> bool:
        try:
            version(name)
        except PackageNotFoundError:
            return False
        return True

    try:
        requirements = requires("runekeep") or []
    except PackageNotFoundError:
        return []
    marker = re.compile(rf"""extra == ['"]{extra}['"]""")
    names = [
        re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in requirements if marker.search(one) and _is_for_platform(one)
    ]
    return [name for name in names if not is_installed(name)]


def _is_for_platform(requirement: str) -> bool:
    """Returns whether the marker of a requirement holds on this platform. Beside the extra it names only that."""
    named = _PLATFORM.findall(requirement)
    return all((sys.platform == name) == (operator == "==") for operator, name in named)


def require_extras(command: str, *extras: str) -> None:
    """Ends the command with status 2 and the line that installs what is missing, unless all of these extras are
    installed. `command`: what the user called."""
    missing = {extra: names for extra in extras if (names := missing_packages(extra))}
    if not missing:
        return
    named = " and ".join(f"`{extra}`" for extra in missing)
    first = next(iter(missing.values()))[0]
    fail(
        f"`{command}` needs the {'extra' if len(missing) == 1 else 'extras'} {named}: {first} is not installed",
        f"Install it: pip install 'runekeep[{','.join(missing)}]'",
        status=NOT_INSTALLED,
    )
