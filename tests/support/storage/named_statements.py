"""The named SQL statements of the store."""

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import runekeep_storage
from runekeep_storage.tables import TABLES, Table

STORAGE: Final = Path(runekeep_storage.__file__).parent
MODULES: Final = sorted(
    path.relative_to(STORAGE).with_suffix("").as_posix() for path in STORAGE.rglob("*statements.py")
)
_STATEMENT: Final = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s")
COUNTS: Final[dict[Any, Any]] = {int: 2, bool: True}
"""Arguments of functions that build statements, by type: those that name nothing."""
NAMES: Final[dict[Any, Any]] = {
    str: "x",
    Iterable[str]: ("x",),
    Table: next(table for table in TABLES if table.task),
}
"""Those that name a column or a table."""


def module_of(path: str) -> ModuleType:
    return importlib.import_module(f"runekeep_storage.{path.replace('/', '.')}")


def statements(module: ModuleType, arguments: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yields names and texts of the statements that the module defines, without functions that take something else than
    `arguments`."""
    defined = {node.id for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Name)}
    for name, value in vars(module).items():
        if inspect.isfunction(inspect.unwrap(value)) and value.__module__ == module.__name__:
            value = _built(value, arguments)
        elif name not in defined:
            continue
        if not name.startswith("_") and isinstance(value, str) and _STATEMENT.match(value):
            yield name, value


def _built(build: Callable[..., str], arguments: Mapping[Any, Any]) -> str | None:
    types = [one.annotation for one in inspect.signature(build).parameters.values()]
    return build(*(arguments[one] for one in types)) if arguments.keys() >= set(types) else None
