"""A room of the store, a folder of its package, names its SQL statements in modules of their own, where they can be
audited."""

import ast
import inspect
import re
from collections.abc import Iterator

import pytest

from runekeep_storage.tables import BY_NAME
from tests.support.storage.named_statements import COUNTS, MODULES, NAMES, STORAGE, module_of, statements

WITHOUT_MODULE = {
    # Migrations change the schema, and read its version on a connection of their own.
    "migrations",
    # Its process has the standard library only.
    "drivers/sqlite/integrity_process.py",
}
"""Folders and files with SQL and without a module of statements."""
SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|WHERE|RETURNING|ORDER BY|GROUP BY)\b")
IN_ACCOUNT = re.compile(r"\baccount = \$\d|INTO \w+ \(account\b[^)]*\) VALUES \(\$1\b")


def texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that are not docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def is_sql(text: str) -> bool:
    # A keyword alone is not: the driver looks for some in statements.
    return SQL.search(text) is not None and not text.isalpha()


def test_sql_is_in_the_statements_of_its_room() -> None:
    found: dict[str, list[str]] = {}
    for path in STORAGE.glob("*/**/*.py"):
        name = path.relative_to(STORAGE).as_posix()
        place = next((one for one in WITHOUT_MODULE if name == one or name.startswith(f"{one}/")), name)
        sql = [text for text in texts(ast.parse(path.read_text("utf-8"))) if is_sql(text)]
        if sql and not path.stem.endswith("statements"):
            found.setdefault(place, []).extend(sql)

    assert found.keys() == WITHOUT_MODULE, {place: found[place] for place in found.keys() - WITHOUT_MODULE}


@pytest.mark.parametrize("path", MODULES)
def test_each_statement_has_a_sentence_and_a_caller(path: str) -> None:
    module = module_of(path)
    tree = ast.parse(inspect.getsource(module))
    explained = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)}
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(following, ast.Expr):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            explained.add(ast.unparse(target))
    room, _, own_name = path.rpartition("/")
    imported = re.compile(rf"from runekeep_storage\.{room.replace('/', '.')} import [^\n]*\b{own_name}\b")
    code = "\n".join(text for file in STORAGE.rglob("*.py") if imported.search(text := file.read_text("utf-8")))
    used = set(re.findall(rf"\b{own_name}\.(\w+)", code))
    named = {name for name, _ in statements(module, COUNTS | NAMES)}

    assert named
    assert named - explained == set(), "a statement has no sentence"
    assert named - used == set(), "nobody uses a statement"


@pytest.mark.parametrize("path", MODULES)
def test_a_statement_keeps_to_one_account_or_is_listed(path: str) -> None:
    """A statement on tables of accounts takes the account as a parameter."""
    module = module_of(path)
    over_all = set()
    for name, text in statements(module, COUNTS | NAMES):
        tables = set(re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE) ([a-z_]+)", text)) & BY_NAME.keys()
        if any(BY_NAME[table].owner for table in tables) and not IN_ACCOUNT.search(text):
            over_all.add(name)

    assert over_all == set(module.OVER_ALL_ACCOUNTS)
