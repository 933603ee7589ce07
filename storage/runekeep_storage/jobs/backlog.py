"""The backlog over all accounts: queued jobs, and data that the index lacks. Also the store's version.

Every statement runs over all accounts, returns only numbers, and reads at most LIMIT rows, so its cost does not grow
with the backlog.
"""

from dataclasses import dataclass

from runekeep_storage.database import Tx
from runekeep_storage.jobs import jobs, statements
from runekeep_storage.spaces import index_backlog
from runekeep_storage.spaces.index_backlog import IndexBacklog

LIMIT = 100_000
"""Maximum number of rows that are counted of each kind; a larger backlog shows this number."""
SPACES = 1000
"""Maximum number of spaces whose oldest revision is looked up."""

_OPEN = ("pending", "leased")


@dataclass(frozen=True, slots=True)
class Queue:
    """Jobs of a kind in a state, `pending` or `leased`. `oldest_at`: when the oldest of them was queued; 0: there are
    none."""

    kind: str
    state: str
    jobs: int
    oldest_at: int


@dataclass(frozen=True, slots=True)
class BacklogStats:
    """Backlog figures. `now` in microseconds of the store's clock."""

    now: int
    queues: tuple[Queue, ...]
    index: IndexBacklog


@dataclass(frozen=True, slots=True)
class About:
    """Version of the engine, revision of the schema, and `now` in microseconds of the store's clock."""

    version: str
    revision: str
    now: int


async def about(tx: Tx, *, on_postgres: bool) -> About:
    """Returns the store's versions. Reads no user data; each engine has its own expression for its version."""
    version = "current_setting('server_version')" if on_postgres else "sqlite_version()"
    row = await tx.fetchrow(statements.versions(version))
    assert row is not None
    # Distributions of PostgreSQL append a word of their own.
    return About(row["version"].split(" ")[0], row["revision"], tx.now())


async def read(tx: Tx) -> BacklogStats:
    """Returns the figures as of this transaction."""
    kinds = (jobs.COMMIT, jobs.TURN_FINGERPRINT, jobs.BUCKET_RECONCILE, jobs.ASK)
    queues = [await _queue(tx, kind, state) for kind in kinds for state in _OPEN]
    return BacklogStats(tx.now(), tuple(queues), await index_backlog.read(tx, LIMIT, SPACES))


async def _queue(tx: Tx, kind: str, state: str) -> Queue:
    row = await tx.fetchrow(statements.QUEUE, kind, state, LIMIT)
    assert row is not None
    return Queue(kind, state, row["n"], row["oldest"])
