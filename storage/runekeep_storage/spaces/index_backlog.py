"""Counts what the index lacks, over all accounts. Every statement returns only numbers."""

from dataclasses import dataclass

from runekeep_storage.database import Tx
from runekeep_storage.spaces import statements, watermarks


@dataclass(frozen=True, slots=True)
class IndexBacklog:
    """Times in microseconds of the store's clock; 0 if nothing waits.

    `archives` and `messages`: those without passages in the index. `revisions`: missing in the index, over all users.
    `users`: those of whom the index, being new, holds nothing.
    """

    archives: int
    messages: int
    archives_oldest_at: int
    revisions: int
    revisions_oldest_at: int
    users: int


async def read(tx: Tx, most_rows: int, most_spaces: int) -> IndexBacklog:
    """Counts at most `most_rows` rows of each kind, and looks up the oldest revisions of at most `most_spaces`."""
    archives = await tx.fetchrow(statements.ARCHIVES_NOT_INDEXED, most_rows)
    behind = await tx.fetchrow(statements.REVISIONS_NOT_INDEXED, most_rows)
    oldest = await tx.fetchrow(statements.OLDEST_REVISION_NOT_INDEXED, most_spaces)
    index_id = await watermarks.index_of_store(tx)
    lacking = await watermarks.elsewhere(tx, index_id, watermarks.FIRST_IN_AN_INDEX, most_spaces)
    assert archives is not None and behind is not None and oldest is not None
    return IndexBacklog(
        archives=archives["n"],
        # PostgreSQL returns a SUM as a decimal.
        messages=int(archives["messages"]),
        archives_oldest_at=archives["oldest"],
        revisions=int(behind["n"]),
        revisions_oldest_at=oldest["oldest"],
        users=len(lacking),
    )
