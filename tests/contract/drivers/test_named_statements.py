"""Each driver understands the named statements: their words, tables, columns and types."""

import re

import pytest

from runekeep_storage.database import Database, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from tests.support.storage.named_statements import COUNTS, MODULES, module_of, statements

OF_SQLITE = {"transfer/statements.HAS_AUDIT_LOG"}
"""Statements of a room that a SQLite file alone gets."""
OF_POSTGRES = {f"transfer/statements.{name}" for name in ("CLOCK", "SERVER_FACTS", "LACKING_PRIVILEGES")}
"""Those that PostgreSQL alone gets."""


async def explain(tx: Tx, sql: str) -> None:
    """Has the engine plan a statement, without running it."""
    count = max((int(number) for number in re.findall(r"\$(\d+)", sql)), default=0)
    await tx.fetch(f"EXPLAIN {sql}", *[None] * count)


@pytest.mark.parametrize("path", MODULES)
async def test_the_engine_plans_each_statement(database: Database, path: str) -> None:
    other, of_other = ("postgres", OF_POSTGRES) if isinstance(database, SqliteDatabase) else ("sqlite", OF_SQLITE)
    if path == f"drivers/{other}/statements":
        pytest.skip("statements of the other driver")
    for name, sql in statements(module_of(path), COUNTS):
        if f"{path}.{name}" in of_other:
            continue
        try:
            await database.write_global(explain, sql)
        except Exception as error:
            raise AssertionError(f"{path}.{name}: {error}") from error
