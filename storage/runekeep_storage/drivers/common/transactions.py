"""The ways to write and read of `runekeep_storage.database`, for both drivers: binds the arguments of a transaction and
says whose rows it changes."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from runekeep_storage.database import Item, JointWork, Space, Tx
from runekeep_storage.drivers.common.write_requests import Joint

P = ParamSpec("P")
T = TypeVar("T")


class Transactions(ABC):
    """A driver runs transactions in `_write` and `_read`."""

    @abstractmethod
    async def _write(
        self, work: Callable[[Tx], Awaitable[T]], account: str | None, joint: Joint[Any, T] | None = None
    ) -> T:
        """Runs a transaction that changes rows of one account; of any account if that is None. `joint`: it may run
        together with others of the same work."""

    @abstractmethod
    async def _read(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        """Runs `work` on one snapshot."""

    async def write(
        self,
        work: Callable[Concatenate[Tx, Space, P], Awaitable[T]],
        space: Space,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._write(lambda tx: work(tx, space, *args, **kwargs), space.account)

    async def write_in_account(
        self,
        work: Callable[Concatenate[Tx, str, P], Awaitable[T]],
        account: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._write(lambda tx: work(tx, account, *args, **kwargs), account)

    async def write_global(
        self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._write(lambda tx: work(tx, *args, **kwargs), None)

    async def write_jointly(self, work: JointWork[Item, T], space: Space, item: Item) -> T:
        joint = Joint(work, space, item)
        return await self._write(joint.alone, space.account, joint)

    async def read(
        self,
        work: Callable[Concatenate[Tx, Space, P], Awaitable[T]],
        space: Space,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._read(lambda tx: work(tx, space, *args, **kwargs))

    async def read_global(
        self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._read(lambda tx: work(tx, *args, **kwargs))
