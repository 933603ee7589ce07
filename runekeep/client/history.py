"""History of a user's memories: revisions, differences, rollback."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any, Literal

from google.protobuf.message import Message as WireMessage

from runekeep.client.blocking import blocking, blocking_iter
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.memories.requests import view_number
from runekeep.client.memories.results import Memory
from runekeep.client.wire.arguments import Moment, ViewName, as_of_to_wire
from runekeep.client.wire.proto_json import to_json
from runekeep.client.wire.result import Result
from runekeep.v1 import history_service_pb2 as wire

_PAGE = 200

OriginName = Literal["commit", "caller", "rollback", "erasure", "proposal"]


class Revision(Result):
    """One revision of a user's memories.

    `archive_uri`: set if a commit or its proposal made it. `task_id`: set if a commit made it. `rolled_back`: set if a
    rollback made it, the revision that it undid. `rolled_back_by`: the newest revision that undid this one; 0: none.
    """

    number: int
    origin: OriginName
    archive_uri: str
    task_id: str
    rolled_back: int
    adds: int
    updates: int
    deletes: int
    create_time: datetime | None
    rolled_back_by: int


class ChangedMemory(Result):
    """A memory that a revision changed.

    `before` and `after`: its document before and after the change, empty if there was none. `version`: the version that
    the change made. `shortened`: both were too large for an answer and are cut.
    """

    uri: str
    memory_type: str
    before: str
    after: str
    version: int
    shortened: bool


class DayOfActivity(Result):
    """`day`: its beginning in UTC; `messages`: added on it and there still; `memory_versions`: written on it, deletions
    included."""

    day: datetime
    messages: int
    memory_versions: int


class Activity(Result):
    """Days, oldest first. `incomplete`: there are more messages or versions than were counted."""

    days: list[DayOfActivity]
    incomplete: bool


class RevisionDiff(Result):
    """The memories that differ between two revisions, ordered by URI. `from_revision` 0: before the first revision."""

    changes: list[ChangedMemory]
    from_revision: int
    to_revision: int


class RollbackConflict(Result):
    """A memory that later revisions changed."""

    uri: str
    revisions: list[int]


class RollbackResult(Result):
    """`revision` 0: nothing was changed. `newest_revision`: of a preview. `texts_omitted`: changes may lack both texts,
    which would be too long together; `diff_revisions` has them. `changes_omitted` and `conflicts_omitted`: how many had
    no room even for their names."""

    revision: int
    changes: list[ChangedMemory]
    conflicts: list[RollbackConflict]
    newest_revision: int
    texts_omitted: bool
    changes_omitted: int
    conflicts_omitted: int


class SessionRollback(Result):
    """`revisions`: those that the rollback made, oldest first; empty for a preview. `changes`: each memory as it was
    when the call began, and as it was before the session's first commit. `conflicts`: later revisions of others.
    `open_commits`: how many commits of the session are not finished; a rollback does not reach them. What was omitted
    is as in RollbackResult."""

    revisions: list[int]
    changes: list[ChangedMemory]
    conflicts: list[RollbackConflict]
    newest_revision: int
    open_commits: int
    texts_omitted: bool
    changes_omitted: int
    conflicts_omitted: int


class UserHistory:
    """History of a user's memories; every AsyncClient is this too."""

    _connection: Connection

    async def revisions(self, uri: str = "") -> AsyncGenerator[Revision, None]:
        """Lists the user's revisions, newest first; with `uri` only those that changed that memory.

        ```python
        for revision in client.revisions():
            print(revision.number, revision.origin, revision.create_time)
        ```
        """
        request = wire.ListRevisionsRequest(uri=uri, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.history.ListRevisions, request):
            for revision in page.revisions:
                yield Revision(to_json(revision))

    async def diff_revisions(
        self, earlier: Moment | None = None, later: Moment | None = None, uri: str = ""
    ) -> RevisionDiff:
        """Returns the differences between two states, by URI; with `uri` only of that memory, or below that URI.

        A state is a revision or a time. None: before the first revision for `earlier`, now for `later`.

        ```python
        for change in client.diff_revisions(3, 5).changes:
            print(change.uri, change.before, change.after)
        ```
        """
        request = wire.DiffRevisionsRequest(to=as_of_to_wire(later), uri=uri, page_size=_PAGE)
        if earlier is not None:
            # `from` is a word of Python.
            getattr(request, "from").CopyFrom(as_of_to_wire(earlier))
        changes: list[dict[str, Any]] = []
        while True:
            page = await self._connection.call(self._connection.stubs.history.DiffRevisions, request)
            changes += map(change_values, page.changes)
            if not page.next_page_token:
                ends = {"from_revision": page.from_revision, "to_revision": page.to_revision}
                return RevisionDiff({"changes": changes, **ends})
            request.page_token = page.next_page_token

    async def rollback(
        self,
        target: int | str,
        *,
        preview: bool = False,
        force: bool = False,
        expected_revision: int = 0,
        request_id: str | None = None,
    ) -> RollbackResult:
        """Undoes a revision, named by its number or the archive of its commit, with a new revision.

        Raises FailedPreconditionError (`ROLLBACK_CONFLICT`) if later revisions changed the same memories; `force`
        discards these changes. `preview` changes nothing and returns the conflicts. `expected_revision`: the
        `newest_revision` of a preview. Raises AbortedError (`VERSION_MISMATCH`) if there is a newer one.

        ```python
        plan = client.rollback(5, preview=True)
        if not plan.conflicts:
            client.rollback(5, expected_revision=plan.newest_revision)
        ```
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
        response = await self._connection.call(self._connection.stubs.history.RollbackRevision, request)
        answer = to_json(response)
        return RollbackResult({**answer, "changes": [change_values(change) for change in response.changes]})

    async def rollback_session(
        self,
        session: str,
        *,
        preview: bool = False,
        force: bool = False,
        expected_revision: int = 0,
        request_id: str | None = None,
    ) -> SessionRollback:
        """Undoes what the commits of a session and its accepted proposals changed, all of it or nothing: each revision
        by a new one, the newest first.

        Raises FailedPreconditionError (`ROLLBACK_CONFLICT`) if other revisions changed the same memories later; `force`
        discards these changes. `preview` changes nothing and returns the conflicts. `expected_revision`: the
        `newest_revision` of a preview. Raises AbortedError (`VERSION_MISMATCH`) if there is a newer one.

        ```python
        plan = client.rollback_session("chat_001", preview=True)
        print([change.uri for change in plan.changes], [conflict.uri for conflict in plan.conflicts])
        ```
        """
        request = wire.RollbackSessionRequest(
            session=session,
            preview=preview,
            force=force,
            expected_revision=expected_revision,
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.history.RollbackSession, request)
        answer = to_json(response)
        return SessionRollback({**answer, "changes": [change_values(change) for change in response.changes]})

    async def activity(self, days: int = 30) -> Activity:
        """Counts the messages and the changes of memories of each of the last `days` days in UTC, at most 366.

        ```python
        for day in client.activity(7).days:
            print(day.day.date(), day.messages, day.memory_versions)
        ```
        """
        request = wire.GetActivityRequest(days=days)
        response = await self._connection.call(self._connection.stubs.history.GetActivity, request)
        return Activity(to_json(response))

    async def message_memories(
        self, session: str, message_id: str, view: ViewName = "abstract"
    ) -> AsyncGenerator[Memory, None]:
        """Lists memories that came from a message: of each the newest version that names it, current or not.

        Raises NotFoundError for an unknown session or message.

        ```python
        for memory in client.message_memories("chat_001", "message_7"):
            print(memory.uri, memory.version)
        ```
        """
        request = wire.ListMessageMemoriesRequest(
            session=session, message_id=message_id, view=view_number(view), page_size=_PAGE
        )
        async for page in self._connection.pages(self._connection.stubs.history.ListMessageMemories, request):
            for memory in page.memories:
                yield Memory(to_json(memory))


class BlockingUserHistory:
    """Blocking versions of the methods of UserHistory; a base of Client."""

    revisions = blocking_iter(UserHistory.revisions)
    diff_revisions = blocking(UserHistory.diff_revisions)
    rollback = blocking(UserHistory.rollback)
    rollback_session = blocking(UserHistory.rollback_session)
    activity = blocking(UserHistory.activity)
    message_memories = blocking_iter(UserHistory.message_memories)


def change_values(change: WireMessage) -> dict[str, Any]:
    """Returns the values of a ChangedMemory, without the fields that only commits have."""
    found: dict[str, Any] = to_json(change)
    return {name: found[name] for name in ChangedMemory.__annotations__}
