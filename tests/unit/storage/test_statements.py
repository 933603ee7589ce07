"""A room of the store names its SQL statements in one module, where they can be audited."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import runekeep_storage
from runekeep_storage.tables import BY_NAME, TABLES, Table

STORAGE = Path(runekeep_storage.__file__).parent
ROOMS = sorted(path.parent.name for path in STORAGE.glob("*/statements.py"))
SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|WHERE|RETURNING|ORDER BY|GROUP BY)\b")
STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
IN_ACCOUNT = re.compile(r"\baccount = \$\d|INTO \w+ \(account\b[^)]*\) VALUES \(\$1\b")
ARGUMENTS = {int: 2, bool: True, str: "x", Iterable[str]: ("x",), Table: next(table for table in TABLES if table.task)}
"""Sample arguments of functions that build statements, by type."""


def module_of(room: str) -> ModuleType:
    return importlib.import_module(f"runekeep_storage.{room}.statements")


def statements(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Names and texts of the statements that the module defines."""
    defined = {node.id for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Name)}
    for name, value in vars(module).items():
        if inspect.isfunction(inspect.unwrap(value)) and value.__module__ == module.__name__:
            parameters = inspect.signature(value).parameters.values()
            value = value(*(ARGUMENTS[one.annotation] for one in parameters))
        elif name not in defined:
            continue
        if not name.startswith("_") and isinstance(value, str) and STATEMENT.match(value):
            yield name, value


def texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that are not docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize("room", ROOMS)
def test_sql_is_in_the_statements_of_its_room(room: str) -> None:
    found = {
        f"{path.name}: {text}"
        for path in (STORAGE / room).glob("*.py")
        if path.name != "statements.py"
        for text in texts(ast.parse(path.read_text("utf-8")))
        if SQL.search(text)
    }
    assert not found


@pytest.mark.parametrize("room", ROOMS)
def test_each_statement_has_a_sentence_and_a_caller(room: str) -> None:
    module = module_of(room)
    tree = ast.parse(inspect.getsource(module))
    explained = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)}
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(following, ast.Expr):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            explained.add(ast.unparse(target))
    code = "\n".join(path.read_text("utf-8") for path in (STORAGE / room).glob("*.py"))
    used = set(re.findall(r"statements\.(\w+)", code))
    named = {name for name, _ in statements(module)}

    assert named
    assert named - explained == set(), "a statement has no sentence"
    assert named - used == set(), "nobody uses a statement"


@pytest.mark.parametrize("room", ROOMS)
def test_a_statement_keeps_to_one_account_or_is_listed(room: str) -> None:
    """A statement on tables of accounts takes the account as a parameter."""
    module = module_of(room)
    over_all = set()
    for name, text in statements(module):
        tables = set(re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE) ([a-z_]+)", text)) & BY_NAME.keys()
        if any(BY_NAME[table].owner for table in tables) and not IN_ACCOUNT.search(text):
            over_all.add(name)

    assert over_all == set(module.OVER_ALL_ACCOUNTS)
