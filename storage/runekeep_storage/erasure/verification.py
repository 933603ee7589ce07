"""Verifies an erasure: looks for leftovers by the data in `Remains`, and for rows that must not exist in any case.

These are: a row of a session or memory that does not exist, an erased message with content, a diff entry whose version
is gone, a response to a request from before the erasure. Rows written after the erasure are no leftovers: the same peer
may speak again, and a session of the same name may be created.

The declaration of each table names the checks that look at it.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from runekeep_schemas.recall_budget import Level
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.erasure import deletion, statements
from runekeep_storage.erasure.derived_data import entries
from runekeep_storage.erasure.receipts import Erasure, Kind, Remains, digest
from runekeep_storage.spaces import space_locks
from runekeep_storage.tables import TABLES, Table
from runekeep_storage.turns.feedback import said_in

PAGE = 500


@dataclass(frozen=True, slots=True)
class LeftoverSearch:
    """A search for what an erasure left in one table."""

    tx: Tx
    space: Space
    table: Table
    erasure: Erasure

    @property
    def remains(self) -> Remains:
        return self.erasure.remains

    async def fetch(self, query: str, *args: object) -> list[Row]:
        """Returns rows of the space, which is $1 and $2."""
        return await self.tx.fetch(query, self.space.account, self.space.user, *args)

    async def count(self, only: str, *args: object) -> int:
        """Returns the number of rows that meet a condition, whose arguments begin with $3."""
        return await deletion.count(self.tx, self.space, self.table.name, only, *args)

    async def count_each(self, values: Iterable[str], only: str, *args: object) -> int:
        """Returns the number of rows that meet a condition, whose arguments are `args` and a list of the `values`."""
        return sum([await self.count(only, *args, *some) for some in filled(values)])

    async def count_in_sessions(self, values: Mapping[str, Iterable[str]], only: str) -> int:
        """Like `count_each`, with values by session. $3 is the time of the erasure, $4 the session."""
        before = self.erasure.created_at
        return sum([await self.count_each(some, only, before, session_id) for session_id, some in values.items()])

    async def fetch_all(self, columns: str, only: str, *args: object) -> list[Row]:
        """Returns all rows that meet a condition, whose arguments begin with $5. They are read in pages by the key,
        which must be a text and a number."""
        statement = statements.rows_after(self.table.name, self.table.key, columns, only, PAGE)
        found: list[Row] = []
        after = ("", -1)
        while True:
            rows = await self.fetch(statement, *after, *args)
            found += rows
            if len(rows) < PAGE:
                return found
            after = tuple(rows[-1][name] for name in self.table.key)


async def left(tx: Tx, space: Space, erasure: Erasure) -> dict[str, int]:
    """Returns the number of rows, by table, that must be gone; empty if there are none."""
    # Only a user without data can import. Imported rows have old times and names, and would look like leftovers.
    is_imported = await deletion.count(tx, space, "spaces", statements.IS_IMPORTED_SINCE, erasure.created_at)
    found: dict[str, int] = {}
    for table in TABLES:
        if table.is_checked_after_import or not is_imported:
            search = LeftoverSearch(tx, space, table, erasure)
            count = sum([await CHECKS[name](search) for name in table.checks])
            if count:
                found[table.name] = count
    return found


async def count_without_session(search: LeftoverSearch) -> int:
    """Counts rows of sessions that do not exist. Sessions whose deletion is still in progress are not counted."""
    return await search.count(statements.HAS_NO_SESSION)


async def count_without_task(search: LeftoverSearch) -> int:
    return await search.count(statements.has_no_task(search.table.task))


async def count_older_rows(search: LeftoverSearch) -> int:
    """Counts rows of the user, or of the session, that are older than the erasure."""
    match search.erasure.kind:
        case Kind.USER:
            return await search.count(statements.IS_OLDER, search.erasure.created_at)
        case Kind.SESSION:
            of_session = (search.erasure.created_at, search.remains.session_id)
            return await search.count(statements.IS_OLDER_IN_SESSION, *of_session)
    return 0


async def count_older_revisions(search: LeftoverSearch) -> int:
    if search.erasure.kind is not Kind.USER:
        return 0
    return await search.count(statements.IS_UP_TO_REVISION, search.remains.revision)


async def count_locks(search: LeftoverSearch) -> int:
    return int(search.tx.is_shut(search.space) and await space_locks.is_deleted(search.tx, search.space))


async def count_erased_with_content(search: LeftoverSearch) -> int:
    """Counts erased messages that have content."""
    return await search.count(statements.IS_ERASED_WITH_CONTENT)


async def count_passages_of_erased(search: LeftoverSearch) -> int:
    return await search.count(statements.IS_PASSAGE_OF_ERASED)


async def count_stale_sources(search: LeftoverSearch) -> int:
    """Counts sources of memories that do not exist, and runs of messages of which one was erased after the run was
    written."""
    return await search.count(statements.IS_STALE_SOURCE)


async def count_older_responses(search: LeftoverSearch) -> int:
    outlive = idempotent_requests.OUTLIVE
    return await search.count(statements.IS_OLDER_RESPONSE, search.erasure.created_at, *outlive)


async def count_stale_upserts(search: LeftoverSearch) -> int:
    """Counts entries that write versions that do not exist."""
    return await search.count(statements.IS_STALE_UPSERT)


async def count_stale_diffs(search: LeftoverSearch) -> int:
    """Counts diff entries whose version does not exist."""
    count = 0
    for row in await search.fetch_all("diff", statements.HAS_VERSIONS):
        for entry in entries(row["diff"]):
            count += not await search.fetch(statements.HAS_VERSION, entry["uri"], entry["version"])
    return count


async def count_older_summaries(search: LeftoverSearch) -> int:
    """Counts archives that held an erased message and were summarized before the erasure. Others are no leftovers:
    they may have been summarized between an earlier erasure and this one."""
    return await search.count_each(search.remains.tasks, statements.IS_OLDER_SUMMARY, search.erasure.created_at)


async def count_older_records(search: LeftoverSearch) -> int:
    """Counts records of attempts from before the erasure at archives that held an erased message."""
    return await search.count_each(search.remains.tasks, statements.IS_OLDER_RECORD, search.erasure.created_at)


async def count_older_proposals(search: LeftoverSearch) -> int:
    """Counts proposals from before the erasure by archives that held an erased message."""
    return await search.count_each(search.remains.tasks, statements.IS_OLDER_PROPOSAL, search.erasure.created_at)


async def count_older_versions(search: LeftoverSearch) -> int:
    """Counts versions from before the erasure that are in its scope."""
    erasure, remains, count = search.erasure, search.remains, 0
    gone, messages = set(remains.memories), set(remains.message_ids)
    columns = "peer_id, sources, deleted"
    for row in await search.fetch_all(columns, statements.WAS_WRITTEN_UP_TO, remains.revision):
        named = [source for source in json.loads(row["sources"]) if source["session"] == remains.session_id]
        count += (
            erasure.kind is Kind.USER
            or (erasure.kind is Kind.PEER and digest(row["peer_id"]) == remains.peer_id)
            or digest(row["uri"]) in gone
            or (erasure.kind is Kind.SESSION and bool(named))
            or any(source["message_id"] in messages for source in named)
        )
    return count


async def count_names_of_deleted(search: LeftoverSearch) -> int:
    """Counts rows that name a memory that is gone and was not created again."""
    gone = set(search.remains.memories)
    if not gone:
        return 0
    rows = await search.fetch(statements.missing_memories(search.table.name))
    return sum(digest(row["uri"]) in gone for row in rows)


async def count_older_images(search: LeftoverSearch) -> int:
    return await search.count_in_sessions(search.remains.images, statements.IS_OLDER_IMAGE)


async def count_older_artifacts(search: LeftoverSearch) -> int:
    return await search.count_in_sessions(search.remains.turns, statements.IS_OLDER_ARTIFACT)


async def count_older_reactions(search: LeftoverSearch) -> int:
    """Counts reactions to other turns, from before the erasure, that quote a turn that lost a message."""
    count = 0
    for session_id, turn_ids in search.remains.turns.items():
        rows = await said_in(search.tx, search.space, session_id, turn_ids)
        count += sum(row["updated_at"] < search.erasure.created_at for row in rows)
    return count


async def count_older_turn_records(search: LeftoverSearch) -> int:
    """Counts records of attempts from before the erasure whose workers were shown a turn that lost a message."""
    shown = (search.remains.turns, search.remains.later)
    return sum([await search.count_in_sessions(some, statements.IS_OLDER_TURN_RECORD) for some in shown])


async def count_older_contexts(search: LeftoverSearch) -> int:
    """Counts messages from before the erasure that show the text of a memory that lost versions, or name one that is
    gone."""
    cut, gone = set(search.remains.cut), set(search.remains.memories)
    if not cut:
        return 0
    rows = await search.fetch(statements.SHOWN_BEFORE, search.erasure.created_at)
    return sum(
        any(
            digest(uri) in gone or (level >= Level.ABSTRACT and digest(uri) in cut)
            for uri, level in json.loads(row["shown"]).items()
        )
        for row in rows
    )


async def count_messages_of_peer(search: LeftoverSearch) -> int:
    """Counts messages of the peer that existed at the erasure."""
    rows = await search.fetch(statements.PEERS)
    count = 0
    for peer_id in (row["peer_id"] for row in rows if digest(row["peer_id"]) == search.remains.peer_id):
        for session_id, last in search.remains.ends.items():
            count += await search.count(statements.IS_OF_PEER, search.erasure.created_at, session_id, peer_id, last)
    return count


async def count_unerased_messages(search: LeftoverSearch) -> int:
    """Counts messages that the erasure named and that were not erased."""
    remains = search.remains
    of_session = (search.erasure.created_at, remains.session_id)
    return await search.count_each(remains.message_ids, statements.IS_NOT_ERASED, *of_session)


Check = Callable[[LeftoverSearch], Awaitable[int]]

CHECKS: Final[dict[str, Check]] = {
    check.__name__: check
    for check in (
        count_without_session, count_without_task, count_older_rows, count_older_revisions, count_locks,
        count_erased_with_content, count_passages_of_erased, count_stale_sources, count_older_responses,
        count_stale_upserts, count_stale_diffs, count_older_summaries, count_older_records,
        count_older_proposals,
        count_older_turn_records, count_older_versions, count_names_of_deleted, count_older_images,
        count_older_artifacts, count_older_reactions, count_older_contexts, count_messages_of_peer,
        count_unerased_messages,
    )
}  # fmt: skip
