"""The samples that docstrings of the Python client show."""

import inspect
import re
from collections.abc import Iterator
from textwrap import indent
from typing import Any

from runekeep import AsyncClient, AsyncSession, Client, Session
from runekeep.client.admin import AsyncAdmin
from runekeep.client.sessions.writer import Append, AsyncAppend, AsyncWriter, Writer

_SAMPLE = re.compile(r"```python\n(.*?)\n```", re.DOTALL)
_HEAD = "from runekeep import Client, Session\n"


def public_methods() -> Iterator[tuple[str, Any]]:
    """Yields methods and properties by their names, such as `AsyncClient.find`. The other methods of blocking classes
    have the same docstrings."""
    for owner in (AsyncClient, AsyncSession, AsyncAdmin, AsyncWriter, AsyncAppend, Client, Session, Writer, Append):
        for name, member in inspect.getmembers(owner):
            if not name.startswith("_") and (isinstance(member, property) or inspect.isfunction(member)):
                yield f"{owner.__name__}.{name}", member


def samples(method: Any) -> list[str]:
    """Returns the samples in the docstring of a method."""
    return _SAMPLE.findall(inspect.getdoc(method) or "")


def as_module() -> str:
    """Returns a module with a function for each sample. `client` and `session` are its arguments."""
    functions = [_HEAD]
    for name, method in public_methods():
        for number, sample in enumerate(samples(method)):
            head = f"def {name.replace('.', '_')}_{number}(client: Client, session: Session) -> None:"
            functions.append(f"{head}\n{indent(sample, '    ')}\n")
    return "\n\n".join(functions)
