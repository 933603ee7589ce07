"""Each driver understands the named statements: their words, tables, columns and types."""

import re
from pathlib import PurePath

import pytest

from runekeep_storage.database import Database, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from tests.support.storage.named_statements import COUNTS, MODULES, module_of, statements

OTHER_DRIVER = {True: "drivers/postgres", False: "drivers/sqlite"}


async def explain(tx: Tx, sql: str) -> None:
    """Has the engine plan a statement, without running it."""
    count = max((int(number) for number in re.findall(r"\$(\d+)", sql)), default=0)
    await tx.fetch(f"EXPLAIN {sql}", *[None] * count)


@pytest.mark.parametrize("path", MODULES)
async def test_the_engine_plans_each_statement(database: Database, path: str) -> None:
    if PurePath(path).is_relative_to(OTHER_DRIVER[isinstance(database, SqliteDatabase)]):
        pytest.skip("statements of the other driver")
    for name, sql in statements(module_of(path), COUNTS):
        try:
            await database.write_global(explain, sql)
        except Exception as error:
            raise AssertionError(f"{path}.{name}: {error}") from error
