"""HistoryService: the history of a space's memories, and rollback of a revision."""

import asyncio
from typing import Any

import grpc

from runekeep.v1 import history_service_pb2 as pb
from runekeep.v1 import history_service_pb2_grpc, session_service_pb2
from runekeep.v1 import memory_service_pb2 as memories_pb
from runekeep_schemas.documents.uris import archive_uri
from runekeep_server.history.memory_states import says_the_same, text_of
from runekeep_server.history.rollback import roll_back
from runekeep_server.history.session_rollback import roll_back_session
from runekeep_server.identity import caller_space
from runekeep_server.protocol.answer_sizes import AnswerSizes
from runekeep_server.protocol.errors import invalid
from runekeep_server.protocol.pagination import cut_page, fitting, next_token, open_page, refused_token
from runekeep_server.protocol.truncation import shorten
from runekeep_server.settings import Settings
from runekeep_server.wire import memories as wire
from runekeep_server.wire.as_of import resolve
from runekeep_server.wire.basics import canonical, session_id, timestamp
from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common.byte_limits import count_within
from runekeep_storage.history import activity, history
from runekeep_storage.history.history import Revision
from runekeep_storage.memories import memories
from runekeep_storage.records import Memory
from runekeep_storage.spaces import spaces
from runekeep_storage.store import Store

Context = grpc.aio.ServicerContext[Any, Any]

_ORIGINS = {
    "commit": pb.REVISION_ORIGIN_COMMIT,
    "caller": pb.REVISION_ORIGIN_CALLER,
    "rollback": pb.REVISION_ORIGIN_ROLLBACK,
    "erasure": pb.REVISION_ORIGIN_ERASURE,
    "proposal": pb.REVISION_ORIGIN_PROPOSAL,
}
BATCH = 200
"""Memories whose two states one transaction compares."""
ACTIVITY_DAYS = 30
"""Days that GetActivity counts if the request names no number."""
BATCHES = 10
"""Batches of one call. If much was changed and changed back, a page may contain no difference."""


class HistoryService(history_service_pb2_grpc.HistoryServiceServicer):
    """Every call is confined to the caller's space."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._database = store.database
        self._sizes = AnswerSizes.of(settings.max_message_bytes)

    async def ListRevisions(self, request: pb.ListRevisionsRequest, context: Context) -> pb.ListRevisionsResponse:
        space = caller_space()
        uri = canonical("uri", request.uri, space.user) if request.uri else ""
        page = open_page(request, (int,))
        below = int(page.after[0]) if page.after else memories.LATEST
        found = await self._database.read(history.page, space, below, page.size + 1, uri)
        token = next_token(request, (found[page.size - 1].number,)) if len(found) > page.size else ""
        shown = [_revision(space.user, one) for one in found[: page.size]]
        return pb.ListRevisionsResponse(revisions=shown, next_page_token=token)

    async def DiffRevisions(self, request: pb.DiffRevisionsRequest, context: Context) -> pb.DiffRevisionsResponse:
        space = caller_space()
        below = canonical("uri", request.uri, space.user) if request.uri else ""
        page = open_page(request, (str, int, int))
        # All pages of a diff compare the same two revisions, whatever is written between the calls.
        after, *given = page.after if page.after else ("",)
        earlier, later = await self._database.read(_between, space, request, tuple(given))
        rows: list[session_service_pb2.MemoryChange] = []
        room, more = self._sizes.page, True
        for _ in range(BATCHES):
            batch, after, more = await self._changes(space, earlier, later, below, str(after))
            rows += batch
            room -= sum(row.ByteSize() for row in batch)
            if not more or room < 0 or len(rows) > page.size:
                break
        count = fitting(rows[: page.size], self._sizes.page)
        last = rows[count - 1].uri if count < len(rows) else after if more else ""
        token = next_token(request, (last, earlier, later)) if last else ""
        return pb.DiffRevisionsResponse(
            changes=rows[:count], next_page_token=token, from_revision=earlier, to_revision=later
        )

    async def _changes(
        self, space: Space, earlier: int, later: int, below: str, after: str
    ) -> tuple[list[session_service_pb2.MemoryChange], str, bool]:
        """Returns the changes of the memories after `after`, the last URI that was compared, and whether there may be
        more."""
        most_bytes = 2 * self._sizes.record
        compared, more = await self._database.read(_compared, space, earlier, later, below, after, most_bytes)

        def differing() -> list[session_service_pb2.MemoryChange]:
            changes = [self._change(*one) for one in compared if not says_the_same(*one[1:3])]
            for change in changes:
                shorten(change, self._sizes.record)
            return changes

        # In a thread, because megabytes would block other calls.
        changes = await asyncio.to_thread(differing)
        return changes, compared[-1][0] if compared else after, more

    def _change(
        self, uri: str, before: Memory | None, now: Memory | None, version: int
    ) -> session_service_pb2.MemoryChange:
        there = now or before
        assert there is not None, "they are not the same"
        return session_service_pb2.MemoryChange(
            uri=uri,
            memory_type=there.memory_type,
            before=text_of(before, self._store.registry),
            after=text_of(now, self._store.registry),
            version=version,
        )

    async def RollbackRevision(
        self, request: pb.RollbackRevisionRequest, context: Context
    ) -> pb.RollbackRevisionResponse:
        return await roll_back(self._store, caller_space(), request, self._sizes.page)

    async def RollbackSession(self, request: pb.RollbackSessionRequest, context: Context) -> pb.RollbackSessionResponse:
        return await roll_back_session(self._store, caller_space(), request, self._sizes.page)

    async def GetActivity(self, request: pb.GetActivityRequest, context: Context) -> pb.GetActivityResponse:
        days, incomplete = await self._database.read(activity.of_days, caller_space(), request.days or ACTIVITY_DAYS)
        found = [
            pb.DayOfActivity(day=timestamp(one.start), messages=one.messages, memory_versions=one.versions)
            for one in days
        ]
        return pb.GetActivityResponse(days=found, incomplete=incomplete)

    async def ListMessageMemories(
        self, request: pb.ListMessageMemoriesRequest, context: Context
    ) -> pb.ListMessageMemoriesResponse:
        space = caller_space()
        session = session_id("session", request.session, space.user)
        page = open_page(request, (str,))
        after = str(page.after[0]) if page.after else ""
        most_bytes = self._sizes.page
        found, more = await self._database.read(
            history.of_message, space, session, request.message_id, after, page.size, most_bytes
        )
        view = request.view or memories_pb.MEMORY_VIEW_ABSTRACT

        def answer() -> pb.ListMessageMemoriesResponse:
            rows = [wire.memory(space.user, one, self._store.registry, view) for one in found]
            for row in rows:
                shorten(row, self._sizes.record)
            keys = [(one.uri,) for one in found]
            shown, token = cut_page(request, rows, keys, page.size, most_bytes, more=more)
            return pb.ListMessageMemoriesResponse(memories=shown, next_page_token=token)

        return await asyncio.to_thread(answer) if more else answer()


async def _between(tx: Tx, space: Space, request: pb.DiffRevisionsRequest, given: tuple[Any, ...]) -> tuple[int, int]:
    """Returns the two revisions: `given` by a page token, or named by the request. Raises ApiError."""
    newest, _ = await spaces.revisions(tx, space)
    if given:
        earlier, later = given
        if not 0 <= earlier <= later <= newest:
            raise refused_token()
        return earlier, later
    # An unset AsOf names no point in time.
    earlier = await resolve(tx, space, getattr(request, "from"), "from") if request.HasField("from") else 0
    later = await resolve(tx, space, request.to, "to")
    earlier, later = min(earlier, newest), min(later, newest)
    if later < earlier:
        raise invalid("to", f"is revision {later}, before {earlier}, which `from` is", "Exchange the two")
    return earlier, later


async def _compared(
    tx: Tx, space: Space, earlier: int, later: int, below: str, after: str, most_bytes: int
) -> tuple[list[tuple[str, Memory | None, Memory | None, int]], bool]:
    """Returns memories that may differ, by URI: both states, and the version of the later state or of its deletion; 0
    for an erased memory. At most BATCH, or as many as take about `most_bytes`. Also returns whether there may be
    more."""
    touched = await history.touched_between(tx, space, earlier, later, below, after, BATCH)
    sizes = await history.stored_bytes(tx, space, touched, (earlier, later))
    uris = touched[: count_within([sizes.get(uri, 0) for uri in touched], most_bytes)]
    before = await history.states(tx, space, uris, earlier) if earlier else {}
    now = await history.states(tx, space, uris, later)
    gone = await history.last_deletes(tx, space, [uri for uri in uris if uri not in now], later)
    versions = gone | {uri: memory.version for uri, memory in now.items()}
    more = len(touched) == BATCH or len(uris) < len(touched)
    return [(uri, before.get(uri), now.get(uri), versions.get(uri, 0)) for uri in uris], more


def _revision(user: str, record: Revision) -> pb.Revision:
    return pb.Revision(
        number=record.number,
        origin=_ORIGINS[record.origin],
        archive_uri=archive_uri(user, record.session_id, record.archive_index) if record.archive_index else "",
        task_id=record.job_id,
        rolled_back=record.rolled_back,
        adds=record.adds,
        updates=record.updates,
        deletes=record.deletes,
        create_time=timestamp(record.created_at),
        rolled_back_by=record.rolled_back_by,
    )
