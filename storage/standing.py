"""What the store is, and what waits in it, all accounts together: jobs, and what search does not know yet.

Every statement here runs over all accounts, gives numbers alone, and looks at LIMIT rows at most, so that it costs the
same however much waits.
"""

from dataclasses import dataclass

from storage import jobs, watermarks
from storage.database import Tx

LIMIT = 100_000
"""Most rows that are counted of a kind; where there are more this number stands."""
SPACES = 1000
"""Most spaces of which the oldest revision is looked up."""

_OPEN = ("pending", "leased")


@dataclass(frozen=True, slots=True)
class Queue:
    """Jobs of a kind in a state, `pending` or `leased`. `oldest_at`: when the oldest of them was queued; 0: none."""

    kind: str
    state: str
    jobs: int
    oldest_at: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Times in microseconds by the store's clock, 0 where nothing waits.

    Archives and their messages without passages in the index; revisions that the index lacks, over all users; users of
    whom it holds nothing, for it is new.
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
    """What the store says of itself: the engine's version, the revision of the schema, and `now` in microseconds by its
    own clock."""

    version: str
    revision: str
    now: int


async def about(tx: Tx, *, on_postgres: bool) -> About:
    """Of the engine alone, which says its version in words of its own."""
    version = "current_setting('server_version')" if on_postgres else "sqlite_version()"
    row = await tx.fetchrow(f"SELECT {version} AS version, (SELECT version_num FROM alembic_version) AS revision")
    assert row is not None
    # PostgreSQL's packages add a word of their own.
    return About(row["version"].split(" ")[0], row["revision"], tx.now())


async def read(tx: Tx) -> Standing:
    """How things stand in this transaction."""
    kinds = (jobs.COMMIT, jobs.TURN_FINGERPRINT, jobs.BUCKET_RECONCILE)
    queues = [await _queue(tx, kind, state) for kind in kinds for state in _OPEN]
    archives = await tx.fetchrow(
        "SELECT COUNT(*) AS n, COALESCE(SUM(messages), 0) AS messages,"
        f" COALESCE(MIN({_waiting_since('waiting')}), 0) AS oldest"
        " FROM (SELECT account, user_id, last_sequence - first_sequence + 1 AS messages, created_at FROM archives"
        "  WHERE passages_indexed = 0 ORDER BY created_at LIMIT $1) waiting"
        " LEFT JOIN spaces s ON s.account = waiting.account AND s.user_id = waiting.user_id",
        LIMIT,
    )
    behind = await tx.fetchrow(
        "SELECT COALESCE(SUM(lacking), 0) AS n FROM"
        " (SELECT revision - indexed_revision AS lacking FROM spaces"
        "  WHERE indexed_revision < revision LIMIT $1) behind",
        LIMIT,
    )
    oldest = await tx.fetchrow(
        f"SELECT COALESCE(MIN({_waiting_since('c')}), 0) AS oldest FROM"
        " (SELECT account, user_id, indexed_revision, imported_at FROM spaces"
        "  WHERE indexed_revision < revision LIMIT $1) s"
        " JOIN commits c ON c.account = s.account AND c.user_id = s.user_id AND c.revision = s.indexed_revision + 1",
        SPACES,
    )
    index_id = await watermarks.index_of_store(tx)
    lacking = await watermarks.elsewhere(tx, index_id, watermarks.FIRST_IN_AN_INDEX, SPACES)
    assert archives is not None and behind is not None and oldest is not None
    return Standing(
        now=tx.now(),
        queues=tuple(queues),
        archives=archives["n"],
        # A SUM of PostgreSQL is a decimal.
        messages=int(archives["messages"]),
        archives_oldest_at=archives["oldest"],
        revisions=int(behind["n"]),
        revisions_oldest_at=oldest["oldest"],
        users=len(lacking),
    )


def _waiting_since(table: str) -> str:
    """When a row of the table began to wait. Imported rows were made long before they arrived here."""
    return f"CASE WHEN s.imported_at > {table}.created_at THEN s.imported_at ELSE {table}.created_at END"


async def _queue(tx: Tx, kind: str, state: str) -> Queue:
    row = await tx.fetchrow(
        "SELECT COUNT(*) AS n, COALESCE(MIN(created_at), 0) AS oldest FROM (SELECT created_at FROM jobs"
        # The words of the index, for SQLite to know it by.
        " WHERE state IN ('pending', 'leased') AND kind = $1 AND state = $2 ORDER BY created_at LIMIT $3) waiting",
        kind,
        state,
        LIMIT,
    )
    assert row is not None
    return Queue(kind, state, row["n"], row["oldest"])
