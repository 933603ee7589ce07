"""The interface of a relational driver: transactions over one set of SQL that both engines understand.

A transaction is an async function over `Tx`, written once for both drivers. PostgreSQL awaits the server in it. SQLite
steps it through in its writer thread, where it may wait for nothing but the database: a transaction that awaits a
model, an embedder or a socket fails at once instead of blocking the store.

Either driver may run a transaction again. Waiting transactions run as one group. If one of them fails after it changed
something, the group is rolled back and runs once more. PostgreSQL may also refuse a group. So such a function must set
values outside the store, never add to them.

SQL uses `$1 ...` placeholders, BIGINT microseconds since 1970 (UTC) for times, 0/1 for booleans, JSON as text.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from runekeep_storage.damage import Damage

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")

Row = Any
"""A row, accessed by column name: `row["name"]`."""


@dataclass(frozen=True, slots=True)
class Space:
    """One user's data. Every statement and every index query is confined to one space."""

    account: str
    user: str


class Topic(StrEnum):
    """Topics of the notices between servers on one store. Notices only save time: polling finds the same."""

    JOBS = "jobs"
    """A job was queued or ended, so that a worker may claim one."""
    TASK = "task"
    """A task has a new event; the subject is the task id and the event's number."""
    INDEX = "index"
    """The index has new input: outbox entries or archived messages. Subjects: see
    `runekeep_storage.spaces.watermarks`."""


Heard = Callable[[Topic, str], None]
"""A callback on the event loop that takes a topic and its subject."""


class Tx(Protocol):
    """One transaction."""

    async def fetch(self, sql: str, *args: Any) -> list[Row]: ...

    async def fetchrow(self, sql: str, *args: Any) -> Row | None: ...

    async def execute(self, sql: str, *args: Any) -> int:
        """Returns the number of changed rows."""
        ...

    async def compute(self, work: "Callable[[Tx], Coroutine[Any, Any, T]]") -> T:
        """Runs `work`, a CPU-heavy part of this transaction, outside the event loop, and returns its result. `work`
        must use the `Tx` that it gets, and may await nothing else. Only for transactions that read: one that writes
        would hold its locks meanwhile."""
        ...

    def now(self) -> int:
        """Returns the time of the store's clock in microseconds. Every decision uses this clock and no other."""
        ...

    def is_shut(self, space: Space) -> bool:
        """Returns whether an earlier transaction locked the space, see `runekeep_storage.spaces.space_locks`."""
        ...

    def tell_shut(self, space: Space) -> None:
        """Announces to later transactions that this transaction locks the space."""
        ...

    def tell_open(self, space: Space) -> None:
        """Announces to later transactions that this transaction unlocks the space."""
        ...

    async def ensure_durable(self) -> None:
        """Makes the commit of this transaction, and of all before it, wait for the disk, even if the engine is
        configured not to (PostgreSQL's synchronous_commit = off)."""
        ...

    def notify(self, topic: Topic, subject: str = "") -> None:
        """Notifies the listening servers if and when the transaction commits."""
        ...


JointWork = Callable[[Tx, Sequence[tuple[Space, Item]]], Awaitable[Sequence[T | Exception]]]
"""A transaction over items of several callers of one account, in their order. Returns a result or an error for each
item. It has changed nothing for an item with an error. If it raises, all items are rolled back and it runs again for
each item by itself. Pass the same function object every time: only items with the same function are batched."""


class SpaceDatabase(Protocol):
    """Transactions that write in one space, and reads. Every transaction may raise DatabaseDamaged.

    Callers get `runekeep_storage.spaces.space_locks.OpenSpaces`, which refuses locked spaces.
    """

    async def write(
        self,
        work: Callable[Concatenate[Tx, Space, P], Awaitable[T]],
        space: Space,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs `work` in a transaction that is durable when this returns. An exception changes nothing.

        Transactions are serializable. This one changes only rows of the space's account, and may run at the same time
        as those of other accounts.
        """
        ...

    async def write_jointly(self, work: JointWork[Item, T], space: Space, item: Item) -> T:
        """Same as `write`, for frequent calls: `work` gets the items of all calls that wait at the same time. Returns
        the result for this item, or raises its error."""
        ...

    async def read(
        self,
        work: Callable[Concatenate[Tx, Space, P], Awaitable[T]],
        space: Space,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs `work` on one snapshot."""
        ...

    async def read_global(
        self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Same as `read`, for work on several spaces, or on a space that it must find first. Locks are not checked."""
        ...


class Database(SpaceDatabase, Protocol):
    """A relational engine. It does not check whether a space is locked. Code that serves callers gets a SpaceDatabase
    instead, so that mypy rejects writes outside of one space there."""

    @property
    def damage(self) -> "Damage":
        """The damage found in this database."""
        ...

    async def write_in_account(
        self,
        work: Callable[Concatenate[Tx, str, P], Awaitable[T]],
        account: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Same as `write`, for rows of one account that belong to no space, or to several."""
        ...

    async def write_global(
        self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Same as `write`, for rows of any account. No other write runs at the same time."""
        ...

    async def open(self) -> None:
        """Connects and migrates. Raises StoreUnavailable, and DatabaseInUse for a store that only one process may
        own."""
        ...

    async def probe(self) -> None:
        """Returns when the store answers a read and takes writes. Raises StoreUnavailable, StoreReadOnly."""
        ...

    async def listen(self, heard: Heard) -> None:
        """Calls `heard` for each notice of the servers on this store. A store that only one server uses sends none."""
        ...

    async def hold_index(self, *, alone: bool) -> None:
        """Declares, until `close`, that this server writes the store's data to an index: its own, which no other server
        on this store sees (`alone`), or a shared one. Raises IndexHeld."""
        ...

    async def purge(self) -> None:
        """Removes deleted rows from the engine's files, as far as the engine can; when this returns they are on no
        disk. Writers wait meanwhile. Raises StoreUnavailable."""
        ...

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        """Sentences that tell the operator what to do by hand to remove deleted rows for good; see `purge`."""
        ...

    @property
    def changes(self) -> int:
        """How many transactions of this server have changed rows since `open`. Transactions committed together count as
        one."""
        ...

    async def close(self) -> None: ...


async def answers(tx: Tx) -> None:
    """Reads a constant, to check that the store can be read. The statement touches no account."""
    await tx.fetch("SELECT 1 AS one")
