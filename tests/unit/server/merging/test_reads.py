"""How often the store is asked while operations are merged."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from runekeep_schemas.policy import Plan
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.merging.commit_merge import CommitContext, merge_operations
from runekeep_server.merging.counts import BatchCounts
from runekeep_server.merging.operations import Rules
from runekeep_storage.database import Space, Tx
from tests.support.worker import write

T = TypeVar("T")

PLAN = Plan(True, (), ("profile", "preferences", "events"), (), False)


class EmptyTx:
    """Answers as a space does in which no memory ever was. `statements`: how many it was asked."""

    def __init__(self) -> None:
        self.statements = 0

    async def fetchrow(self, sql: str, *args: Any) -> dict[str, Any]:
        self.statements += 1
        return {"newest": 0, "uri": None}

    async def fetch(self, sql: str, account: str, user: str, *uris: str) -> list[dict[str, Any]]:
        self.statements += 1
        return [{"uri": uri, "version": None, "newest": None} for uri in uris]

    async def compute(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        return await work(cast(Tx, self))


async def test_named_memories_are_read_once_and_together() -> None:
    tx = EmptyTx()
    context = CommitContext(Registry.load(), Rules(1_000_000), "s", [], PLAN, BatchCounts())
    operations = [write("preferences", topic=f"Tea {number % 20}", content="Likes it.") for number in range(40)]

    drafts, outcome = await merge_operations(cast(Tx, tx), Space("acme", "anna"), context, operations)

    assert not outcome.rejected
    assert len(drafts) == 21, "the profile too"
    assert tx.statements == 3, "one for the profile, one for 16 named memories, one for the other four"
