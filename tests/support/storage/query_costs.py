"""Counts what the statements of a transaction touch, on every driver."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from runekeep_storage.database import Row, Space, Topic


@dataclass
class Cost:
    """What was touched: SQLite's steps, PostgreSQL's pages and rows."""

    steps: int = 0
    rows: int = 0
    plans: list[str] = field(default_factory=list)


class Measured:
    """A transaction that counts what its statements touch, and keeps their plans."""

    def __init__(self, tx: Any, cost: Cost) -> None:
        self._tx = tx
        self._connection = tx._connection
        self._cost = cost

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        await self._explain(sql, args)
        with self._counted():
            rows: list[Row] = await self._tx.fetch(sql, *args)
            return rows

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        await self._explain(sql, args)
        with self._counted():
            return await self._tx.fetchrow(sql, *args)

    async def execute(self, sql: str, *args: Any) -> int:
        await self._explain(sql, args)
        with self._counted():
            changed: int = await self._tx.execute(sql, *args)
            return changed

    def now(self) -> int:
        now: int = self._tx.now()
        return now

    def is_shut(self, space: Space) -> bool:
        shut: bool = self._tx.is_shut(space)
        return shut

    def tell_shut(self, space: Space) -> None:
        self._tx.tell_shut(space)

    def tell_open(self, space: Space) -> None:
        self._tx.tell_open(space)

    def notify(self, topic: Topic, subject: str = "") -> None:
        self._tx.notify(topic, subject)

    async def _explain(self, sql: str, args: tuple[Any, ...]) -> None:
        if hasattr(self._connection, "set_progress_handler"):
            rows = await self._tx.fetch(f"EXPLAIN QUERY PLAN {sql}", *args)
            self._cost.plans += [row["detail"] for row in rows]
            return
        await self._connection.execute("SAVEPOINT explained")
        (row,) = await self._tx.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *args)
        await self._connection.execute("ROLLBACK TO explained")
        plan = json.loads(row[0])[0]["Plan"]
        self._cost.steps += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        self._take(plan)

    def _take(self, plan: dict[str, Any]) -> None:
        unwanted = sum(plan.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Index Recheck"))
        self._cost.rows += (plan["Actual Rows"] + unwanted) * plan["Actual Loops"]
        self._cost.plans.append(f"{plan['Node Type']} {plan.get('Relation Name', '')} {plan.get('Index Name', '')}")
        for part in plan.get("Plans", []):
            self._take(part)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """SQLite says how many steps its machine took: each row that a statement visits takes several."""
        if not hasattr(self._connection, "set_progress_handler"):
            yield
            return

        def step() -> int:
            self._cost.steps += 1
            return 0

        self._connection.set_progress_handler(step, 1)
        try:
            yield
        finally:
            self._connection.set_progress_handler(None, 0)


def assert_as_cheap(few: Cost, many: Cost) -> None:
    """The same work, but for the one or two levels that indexes have gained."""
    assert few.steps > 0
    assert many.steps <= 2 * few.steps, (few, many)
    assert many.rows <= few.rows, (few, many)
