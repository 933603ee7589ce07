"""What tests of automatic commits say and look at."""

from runekeep_schemas.auto_commit_rules import AutoCommit
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.records import Message
from runekeep_storage.sessions import archives, sessions
from tests.support.storage.databases import ANN, SECOND, text

HOUR = 3600
IDLE = AutoCommit(idle=HOUR * SECOND)


async def with_rules(database: Database, space: Space, session_id: str, rules: AutoCommit) -> None:
    await database.write(sessions.create, space, session_id, "", "{}", rules.to_json())


async def idle_at(database: Database, session_id: str, space: Space = ANN) -> int:
    async def work(tx: Tx) -> int:
        row = await tx.fetchrow(
            "SELECT idle_at FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3",
            space.account,
            space.user,
            session_id,
        )
        assert row is not None
        return int(row["idle_at"])

    return await database.read_global(work)


async def ranges(database: Database, session_id: str, space: Space = ANN) -> list[tuple[int, int]]:
    """First and last message of each archive, oldest first."""
    found = await database.read(archives.page, space, session_id, 2**31, 1000)
    return [(one.first_sequence, one.last_sequence) for one in reversed(found)]


async def erase(database: Database, session_id: str, *sequences: int) -> None:
    async def work(tx: Tx, space: Space) -> None:
        for sequence in sequences:
            await tx.execute(
                "UPDATE messages SET erased = 1, parts = '[]', tokens = 0 WHERE account = $1 AND user_id = $2"
                " AND session_id = $3 AND sequence = $4",
                space.account,
                space.user,
                session_id,
                sequence,
            )

    await database.write(work, ANN)


def words(*said: str) -> list[Message]:
    return [text(f"id-{word}", word) for word in said]


async def update(tx: Tx, space: Space, session_id: str, rules: AutoCommit) -> None:
    await sessions.update(tx, space, session_id, auto_commit=rules)
