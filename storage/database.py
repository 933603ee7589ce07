"""What a relational driver is: transactions over one set of SQL that both engines understand.

A transaction is an async function over `Tx`, written once for both drivers. PostgreSQL awaits the server in it;
SQLite steps it through in its writer thread, where it may wait for nothing but the database: a transaction that
awaits a model, an embedder or a socket fails at once instead of holding the store.

Either driver may run a transaction anew: those that wait run as one group, which is rolled back and run once more where
one of them failed after it had changed something, and PostgreSQL may refuse a group besides. So what such a function
keeps outside of the store it must set, not add to.

SQL uses `$1 ...` placeholders, BIGINT microseconds since 1970 (UTC) for times, 0/1 for truth, JSON as text.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from storage.damage import Damage

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")

Row = Any
"""A row, by column name: `row["name"]`."""


@dataclass(frozen=True, slots=True)
class Space:
    """One user's memories: what every statement and every index query is confined to."""

    account: str
    user: str


class Topic(StrEnum):
    """What servers on one store tell each other. Only ever a saving of time: polling finds the same."""

    JOBS = "jobs"
    """A job was queued or ended, so that one may be claimed."""
    TASK = "task"
    """A task has a new event; the subject is its id and the event's number."""
    INDEX = "index"
    """There is something for the index: outbox entries or archived messages. Subjects: see `storage.watermarks`."""


Heard = Callable[[Topic, str], None]
"""Takes a topic and its subject, on the event loop."""


class Tx(Protocol):
    """One transaction."""

    async def fetch(self, sql: str, *args: Any) -> list[Row]: ...

    async def fetchrow(self, sql: str, *args: Any) -> Row | None: ...

    async def execute(self, sql: str, *args: Any) -> int:
        """Number of rows changed."""
        ...

    def now(self) -> int:
        """The store's clock, the only one that decides, in microseconds."""
        ...

    def is_shut(self, space: Space) -> bool:
        """Whether a transaction before this one shut the space, see `storage.shut_spaces`."""
        ...

    def tell_shut(self, space: Space) -> None:
        """Says that this transaction shuts the space, to those that follow."""
        ...

    def tell_open(self, space: Space) -> None:
        """Says that this transaction opens the space again, to those that follow."""
        ...

    async def ensure_durable(self) -> None:
        """Makes the commit of this transaction, and of all before it, wait for the disk, even if the engine is
        configured not to (PostgreSQL's synchronous_commit = off)."""
        ...

    def notify(self, topic: Topic, subject: str = "") -> None:
        """Tells the servers that listen, when and only when the transaction is committed."""
        ...


JointWork = Callable[[Tx, Sequence[tuple[Space, Item]]], Awaitable[Sequence[T | Exception]]]
"""A transaction over items of several callers, all of one account, in their order: an answer or an error for each. What
it gives an error for it has not changed. What it raises is of all of them: they are rolled back, and it is called again
for each item by itself. A function that stays the same, since only what has the same one is done at once."""


class Database(Protocol):
    """A relational engine. Every transaction may raise DatabaseDamaged."""

    @property
    def damage(self) -> "Damage":
        """The damage found in this database."""
        ...

    async def open(self) -> None:
        """Connects and migrates. Raises StoreUnavailable, and DatabaseInUse for a store that only one process may
        own."""
        ...

    async def probe(self) -> None:
        """Returns when the store answers a read and takes writes. Raises StoreUnavailable, StoreReadOnly."""
        ...

    async def write(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work` in a transaction that is durable when this returns; an exception changes nothing.

        Transactions come out as if they ran one after another. One whose first argument is a Space changes rows of
        that space's account alone, and may run beside those of other accounts; any other has the store for itself.
        Spaces that are arguments, by position or by name, are seen by `storage.shut_spaces.OpenSpaces`; such as are
        inside of other arguments, or become known in the transaction, are not.
        """
        ...

    async def write_jointly(self, work: JointWork[Item, T], space: Space, item: Item) -> T:
        """As `write`, for calls that come often: `work` is given the items of those that wait at once. The answer to
        this one's; its error is raised."""
        ...

    async def read(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work` on one snapshot."""
        ...

    async def listen(self, heard: Heard) -> None:
        """Has `heard` called for what servers on this store tell; a store of one server alone tells nothing."""
        ...

    async def hold_index(self, *, alone: bool) -> None:
        """Says, until `close`, that this server brings what is in the store into an index: its own, which no other
        server on this store sees (`alone`), or one that they share. Raises IndexHeld.
        """
        ...

    async def purge(self) -> None:
        """Lets go of what the engine keeps of deleted rows, as far as that is in reach; when this returns it is on no
        disk. Writers wait meanwhile. Raises StoreUnavailable."""
        ...

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        """What has to be done by hand for deleted rows to be gone for good, as sentences; see `purge`."""
        ...

    @property
    def changes(self) -> int:
        """How many transactions of this server have changed rows since `open`; transactions committed together count as
        one."""
        ...

    async def close(self) -> None: ...


async def answers(tx: Tx) -> None:
    """A read that ends when the store can be read. Its statement is of no account."""
    await tx.fetch("SELECT 1 AS one")
