"""What a server has for commits, over any store and without its calls."""

from typing import Any

from schemas.registry import Registry
from server.auto_commit import IdleCommits
from server.commits import Commits, Made
from server.settings import Settings
from storage.appends import Added
from storage.database import Database, Space, Tx
from storage.records import Message
from tests.support.appending import add_messages

REGISTRY = Registry.load()
POLL = 1.0


class Server:
    """`told` counts the commits that its workers hear of."""

    def __init__(self, database: Database, **settings: Any) -> None:
        self.told = 0
        self.database = database
        self.commits = Commits(REGISTRY, Settings(**settings), self._count)
        self.idle = IdleCommits(database, self.commits, POLL)

    def _count(self) -> None:
        self.told += 1

    async def append(self, space: Space, session_id: str, *messages: Message) -> tuple[Added, Made | None]:
        """As AddMessages does."""

        async def work(tx: Tx, space: Space) -> tuple[Added, Made | None]:
            added = await add_messages(tx, space, session_id, list(messages), {})
            done = None
            if added.due:
                done = await self.commits.make_by_itself(tx, space, session_id, traceparent="")
            return added, done if isinstance(done, Made) else None

        return await self.database.write(work, space)
