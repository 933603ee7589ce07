"""The backlog over all accounts: queued jobs, and data that the index lacks. Also the store's version.

Every statement runs over all accounts, returns only numbers, and reads at most LIMIT rows, so its cost does not grow
with the backlog.
"""

from dataclasses import dataclass

from runekeep_storage.database import Tx
from runekeep_storage.jobs import jobs, statements
from runekeep_storage.spaces import watermarks

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
    """Backlog figures. Times in microseconds of the store's clock; 0 if nothing waits.

    `archives` and `messages`: those without passages in the index. `revisions`: missing in the index, over all users.
    `users`: those of whom the index, being new, holds nothing.
    """

    now: int
    queues: tuple[Queue, ...]
    archives: int
    messages: int
    archives_oldest_at: int
    revisions: int
    revisions_oldest_at: int
    users: int


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
    archives = await tx.fetchrow(statements.ARCHIVES_NOT_INDEXED, LIMIT)
    behind = await tx.fetchrow(statements.REVISIONS_NOT_INDEXED, LIMIT)
    oldest = await tx.fetchrow(statements.OLDEST_REVISION_NOT_INDEXED, SPACES)
    index_id = await watermarks.index_of_store(tx)
    lacking = await watermarks.elsewhere(tx, index_id, watermarks.FIRST_IN_AN_INDEX, SPACES)
    assert archives is not None and behind is not None and oldest is not None
    return BacklogStats(
        now=tx.now(),
        queues=tuple(queues),
        archives=archives["n"],
        # PostgreSQL returns a SUM as a decimal.
        messages=int(archives["messages"]),
        archives_oldest_at=archives["oldest"],
        revisions=int(behind["n"]),
        revisions_oldest_at=oldest["oldest"],
        users=len(lacking),
    )


async def _queue(tx: Tx, kind: str, state: str) -> Queue:
    row = await tx.fetchrow(statements.QUEUE, kind, state, LIMIT)
    assert row is not None
    return Queue(kind, state, row["n"], row["oldest"])
