"""What a server has for commits, over any store and without its calls."""

from typing import Any

from runekeep_schemas.type_files.registry import Registry
from runekeep_server.sessions.auto_commit import IdleCommits
from runekeep_server.sessions.commits import Commits
from runekeep_server.settings import Settings
from runekeep_storage.database import Database, Space
from runekeep_storage.records import Message
from runekeep_storage.sessions.appends import AppendResult
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

    async def append(self, space: Space, session_id: str, *messages: Message) -> AppendResult:
        """As AddMessages does."""
        return await self.database.write(add_messages, space, session_id, list(messages), {}, self.commits.rules)
