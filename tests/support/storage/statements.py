"""What transactions do: one that notes its statements, and a database of which every transaction is noted."""

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.spaces.space_locks import OpenSpaces

P = ParamSpec("P")
T = TypeVar("T")


class Statements:
    """A transaction that notes its statements, how many rows they changed, and the length of the longest text that they
    read."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.made: list[str] = []
        self.changed = 0
        self.longest = 0

    @property
    def number(self) -> int:
        return len(self.made)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._tx, name)
        if name not in ("fetch", "fetchrow", "execute"):
            return call

        async def noted(sql: str, *args: Any) -> Any:
            self.made.append(sql)
            answer = await call(sql, *args)
            if name == "execute":
                self.changed += answer
                return answer
            rows = answer if name == "fetch" else [answer] if answer is not None else []
            texts = (value for row in rows for value in dict(row).values() if isinstance(value, str))
            self.longest = max(self.longest, *map(len, texts), 0)
            return answer

        return noted


class Noted(OpenSpaces):
    """`reads` and `writes` of it, one after the other, with those that fail."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.reads: list[Statements] = []
        self.writes: list[Statements] = []
        self.before_write: Callable[[], None] = lambda: None

    @property
    def changed(self) -> list[int]:
        """Rows that each write changed, or would have changed."""
        return [one.changed for one in self.writes]

    async def read(
        self,
        work: Callable[Concatenate[Tx, Space, P], Awaitable[T]],
        space: Space,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await super().read(_noted(work, self.reads), space, *args, **kwargs)

    async def write(
        self,
        work: Callable[Concatenate[Tx, Space, P], Awaitable[T]],
        space: Space,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        self.before_write()
        return await super().write(_noted(work, self.writes), space, *args, **kwargs)


def _noted(
    work: Callable[Concatenate[Tx, Space, P], Awaitable[T]], noted: list[Statements]
) -> Callable[Concatenate[Tx, Space, P], Awaitable[T]]:
    async def run(tx: Tx, space: Space, /, *args: P.args, **kwargs: P.kwargs) -> T:
        noted.append(Statements(tx))
        return await work(cast(Tx, noted[-1]), space, *args, **kwargs)

    return run
