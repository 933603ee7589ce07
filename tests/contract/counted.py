"""What transactions do: a database that counts the rows which writes change, and one that notes its statements."""

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from storage.database import Database, Row, Space, Topic, Tx
from storage.shut_spaces import OpenSpaces

P = ParamSpec("P")
T = TypeVar("T")


class _CountedTx:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.changed = 0

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        return await self._tx.fetch(sql, *args)

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        return await self._tx.fetchrow(sql, *args)

    async def execute(self, sql: str, *args: Any) -> int:
        changed = await self._tx.execute(sql, *args)
        self.changed += changed
        return changed

    def now(self) -> int:
        return self._tx.now()

    def is_shut(self, space: Space) -> bool:
        return self._tx.is_shut(space)

    def tell_shut(self, space: Space) -> None:
        self._tx.tell_shut(space)

    def tell_open(self, space: Space) -> None:
        self._tx.tell_open(space)

    def notify(self, topic: Topic, subject: str = "") -> None:
        self._tx.notify(topic, subject)


class Counted(OpenSpaces):
    """`writes`: rows that each write changed, or would have changed, one after the other."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.writes: list[int] = []
        self.before_write: Callable[[], None] = lambda: None

    async def write(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        self.before_write()

        async def counted(tx: Tx, /, *args: P.args, **kwargs: P.kwargs) -> T:
            counting = _CountedTx(tx)
            try:
                return await work(counting, *args, **kwargs)
            finally:
                self.writes.append(counting.changed)

        return await super().write(counted, *args, **kwargs)


class Statements:
    """A transaction that notes its statements."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.made: list[str] = []

    @property
    def number(self) -> int:
        return len(self.made)

    def __getattr__(self, name: str) -> Any:
        if name not in ("fetch", "fetchrow", "execute"):
            return getattr(self._tx, name)

        async def noted(sql: str, *args: Any) -> Any:
            self.made.append(sql)
            return await getattr(self._tx, name)(sql, *args)

        return noted
