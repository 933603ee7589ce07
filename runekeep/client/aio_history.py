"""History: the revisions of a user's memories, what differs between them, and taking one back."""

from collections.abc import AsyncGenerator
from typing import Any, cast

from google.protobuf.message import Message as WireMessage

from runekeep.client import reading
from runekeep.client.arguments import Moment, ViewName, as_of
from runekeep.client.connection import Connection, new_request_id
from runekeep.client.history_results import ChangedMemory, Revision, RevisionDiff, RolledBack
from runekeep.client.plain import plain
from runekeep.client.results import Memory
from runekeep.v1 import history_service_pb2 as wire

_PAGE = 200


class UserHistory:
    """History of a user's memories; every AsyncClient is this too."""

    _connection: Connection

    async def revisions(self, uri: str = "") -> AsyncGenerator[Revision, None]:
        """The user's revisions, newest first; with `uri` those that changed that memory."""
        request = wire.ListRevisionsRequest(uri=uri, page_size=_PAGE)
        while True:
            page = await self._connection.call(self._connection.stubs.history.ListRevisions, request, 5)
            for revision in page.revisions:
                yield cast(Revision, plain(revision))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def diff_revisions(
        self, earlier: Moment | None = None, later: Moment | None = None, uri: str = ""
    ) -> RevisionDiff:
        """What is different in the later state, by URI; with `uri` of that memory, or of those below.

        A state is named by a revision, or a time: what was there then. None is before the first revision, and now.
        """
        # `from` is a word of Python.
        request = wire.DiffRevisionsRequest(to=as_of(later), uri=uri, page_size=_PAGE, **{"from": as_of(earlier)})  # type: ignore[arg-type]  # no name in Python
        changes: list[ChangedMemory] = []
        while True:
            page = await self._connection.call(self._connection.stubs.history.DiffRevisions, request, 10)
            changes += map(_change, page.changes)
            if not page.next_page_token:
                return RevisionDiff(changes=changes, from_revision=page.from_revision, to_revision=page.to_revision)
            request.page_token = page.next_page_token

    async def rollback(
        self,
        target: int | str,
        *,
        preview: bool = False,
        force: bool = False,
        expected_revision: int = 0,
        request_id: str | None = None,
    ) -> RolledBack:
        """Takes back what a revision, by its number or the archive of its commit, changed; as a new revision.

        Raises FailedPreconditionError (`ROLLBACK_CONFLICT`) when later revisions changed the same memories, unless
        `force` has what these changed lost; `preview` names them, and changes nothing. `expected_revision`: the
        `newest_revision` of a preview; AbortedError (`VERSION_MISMATCH`) when there is a newer one.
        """
        request = wire.RollbackRevisionRequest(
            preview=preview,
            force=force,
            expected_revision=expected_revision,
            request_id=request_id or new_request_id(),
        )
        if isinstance(target, int):
            request.revision = target
        else:
            request.archive_uri = target
        response = await self._connection.call(self._connection.stubs.history.RollbackRevision, request, 10)
        answer = plain(response)
        return cast(RolledBack, {**answer, "changes": [_change(change) for change in response.changes]})

    async def message_memories(
        self, session: str, message_id: str, view: ViewName = "abstract"
    ) -> AsyncGenerator[Memory, None]:
        """Memories that came from a message: of each the newest version that names it, current or not.

        Raises NotFoundError when there is no such session, or no such message in it.
        """
        request = wire.ListMessageMemoriesRequest(
            session=session, message_id=message_id, view=reading.view_number(view), page_size=_PAGE
        )
        while True:
            page = await self._connection.call(self._connection.stubs.history.ListMessageMemories, request, 5)
            for memory in page.memories:
                yield cast(Memory, plain(memory))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def _change(change: WireMessage) -> ChangedMemory:
    """Without what is said of the changes of a commit alone."""
    found: dict[str, Any] = plain(change)
    return cast(ChangedMemory, {name: found[name] for name in ChangedMemory.__annotations__})
