"""SessionService: conversations, and commits of them."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar
from uuid import uuid4

import grpc

from runekeep.v1 import session_service_pb2 as pb
from runekeep.v1 import session_service_pb2_grpc
from schemas import policy as policies
from schemas.policy import MemoryPolicy
from schemas.uris import UriError, parse_archive
from server import session_context, tool_outputs
from server.accepted_sizes import check_messages, check_skills
from server.answer_sizes import AnswerSizes
from server.commits import Commits, Made, Refused
from server.errors import commit_not_finished, invalid
from server.identity import caller_space, current_trace
from server.memory_diffs import diff_page
from server.mutations import Making, answered, key_of, mutate
from server.pages import cut_page, open_page
from server.settings import Settings
from server.shortening import shorten
from server.wire import messages as wire_messages
from server.wire import sessions as wire
from server.wire.basics import canonical, session_id
from storage import appends, archives, image_descriptions, sessions
from storage.appends import Added, Append
from storage.database import Space, Tx
from storage.deletion import delete_session
from storage.leftovers import out_of_the_way
from storage.records import Job, Usage
from storage.store import Store

Context = grpc.aio.ServicerContext[Any, Any]
_T = TypeVar("_T")

MAX_INLINE_CONVERSION_BYTES: Final = 16 * 1024
"""A larger request is converted in a thread. Converting 16 KiB of nulls takes about two milliseconds."""


async def _convert(request_bytes: int, convert: Callable[[], _T]) -> _T:
    """Returns what `convert` returns. A large request, which may hold many JSON values, is converted in a thread so
    that it does not block other calls."""
    return await asyncio.to_thread(convert) if request_bytes > MAX_INLINE_CONVERSION_BYTES else convert()


class SessionService(session_service_pb2_grpc.SessionServiceServicer):
    """`cancelled` is called for a job that ended with its session."""

    def __init__(
        self, store: Store, settings: Settings, commits: Commits, *, cancelled: Callable[[Job, str], None]
    ) -> None:
        self._store = store
        self._database = store.database
        self._settings = settings
        self._sizes = AnswerSizes.of(settings.max_message_bytes)
        self._commits = commits
        self._cancelled = cancelled

    async def CreateSession(self, request: pb.CreateSessionRequest, context: Context) -> pb.CreateSessionResponse:
        space = caller_space()
        policy = json.dumps(self._policy(request).to_json())
        rules = wire.auto_commit_from_wire(request.auto_commit).to_json()
        name = request.session_id or f"s_{uuid4()}"

        async def work(tx: Tx) -> pb.CreateSessionResponse:
            made = await sessions.create(tx, space, name, request.title, policy, rules)
            return pb.CreateSessionResponse(session=wire.session(space.user, made))

        return await out_of_the_way(
            self._database,
            space,
            lambda: mutate(self._database, space, request, pb.CreateSessionResponse, work, session_id=name),
        )

    async def GetSession(self, request: pb.GetSessionRequest, context: Context) -> pb.GetSessionResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        if request.auto_create:
            found, created = await out_of_the_way(
                self._database, space, lambda: self._database.write(sessions.get_or_create, space, name)
            )
        else:
            found, created = await self._database.read(sessions.get, space, name), False
        return pb.GetSessionResponse(session=wire.session(space.user, found), created=created)

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        space = caller_space()
        page = open_page(request, (int, str))
        after: Any = page.after
        found = await self._database.read(sessions.page, space, after, page.size + 1)
        rows = [wire.session(space.user, session) for session in found]
        keys = [(one.updated_at, one.session_id) for one in found]
        shown, token = cut_page(request, rows, keys, page.size, self._sizes.page)
        return pb.ListSessionsResponse(sessions=shown, next_page_token=token)

    async def UpdateSession(self, request: pb.UpdateSessionRequest, context: Context) -> pb.UpdateSessionResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        changed = wire.updated_fields(request)
        policy = json.dumps(self._policy(request).to_json()) if "memory_policy" in changed else None
        rules = wire.auto_commit_from_wire(request.auto_commit) if "auto_commit" in changed else None
        title = request.title if "title" in changed else None

        async def work(tx: Tx) -> pb.UpdateSessionResponse:
            made = await sessions.update(tx, space, name, title=title, policy=policy, auto_commit=rules)
            return pb.UpdateSessionResponse(session=wire.session(space.user, made))

        return await mutate(self._database, space, request, pb.UpdateSessionResponse, work, session_id=name)

    async def GetSessionContext(
        self, request: pb.GetSessionContextRequest, context: Context
    ) -> pb.GetSessionContextResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        # Half of what could be sent, so that nothing beside the messages has to be counted to the byte.
        most_bytes = self._sizes.record // 2
        return await session_context.load(self._database, space, name, request.token_budget, most_bytes)

    async def DeleteSession(self, request: pb.DeleteSessionRequest, context: Context) -> pb.DeleteSessionResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        reason = "its session was deleted"
        cancelled: list[Job] = []

        async def work(tx: Tx) -> pb.DeleteSessionResponse:
            cancelled[:] = await delete_session(tx, space, name, reason)
            return pb.DeleteSessionResponse(cancelled_tasks=len(cancelled))

        answer = await mutate(self._database, space, request, pb.DeleteSessionResponse, work)
        for job in cancelled:
            self._cancelled(job, reason)
        self._store.relay.wake()
        self._store.cleaner.wake()
        return answer

    async def AddMessages(self, request: pb.AddMessagesRequest, context: Context) -> pb.AddMessagesResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        limit = self._settings.tool_output_inline_chars
        # Serializes the request, which takes milliseconds for a large one.
        request_bytes = request.ByteSize()

        def convert_messages() -> tool_outputs.Apart:
            numbered = enumerate(request.messages)
            return tool_outputs.Apart([wire_messages.from_wire(f"messages[{number}]", one) for number, one in numbered])

        apart = await _convert(request_bytes, convert_messages)
        await check_messages(request_bytes, apart.messages, self._sizes.message)
        if tool_outputs.any_large(apart.messages, limit):
            # Put apart once more, an output may be another blob, which nobody would name.
            before = await answered(self._database, space, request, pb.AddMessagesResponse)
            if before is not None:
                return before
            apart = await tool_outputs.put_apart(self._store, space, apart.messages, limit)

        trace = current_trace()
        refused: Refused | None = None

        making = Making(pb.AddMessagesResponse)

        async def answered_with(tx: Tx, stored: Added) -> bytes:
            nonlocal refused
            refused = None
            answer = pb.AddMessagesResponse(
                messages=[pb.AddedMessage(id=one.message_id, sequence=one.sequence) for one in stored.messages],
                live_message_count=stored.live,
            )
            if stored.due:
                done = await self._commits.make_by_itself(tx, space, name, traceparent=trace.traceparent)
                if isinstance(done, Made):
                    answer.auto_commit.CopyFrom(done.answer)
                    answer.live_message_count = done.live
                else:
                    refused = done
            return making.encoded(answer)

        brought = frozenset(message.id for message in request.messages if message.id)
        key = key_of(request, name)
        item = await _convert(
            request_bytes, lambda: Append(name, apart.messages, brought, apart.outputs, key, answered_with)
        )
        answer = making.decoded(await self._database.write_jointly(appends.add, space, item))
        if answer.HasField("auto_commit"):
            self._commits.durable()
        if refused is not None:
            self._commits.tell_refused(space, name, refused)
        return answer

    async def ListMessages(self, request: pb.ListMessagesRequest, context: Context) -> pb.ListMessagesResponse:
        space = caller_space()
        page = open_page(request, (int,))
        name, first, last = await self._database.read(self._range, space, request)
        if page.after is not None:
            first = int(page.after[0]) + 1
        most_bytes = self._sizes.page
        found, more, captioned = await self._database.read(
            image_descriptions.messages_page, space, name, first, last, page.size, most_bytes
        )

        def answer() -> pb.ListMessagesResponse:
            rows = [wire_messages.to_wire(message) for message in found]
            for row in rows:
                shorten(row, self._sizes.record)
            keys = [(message.sequence,) for message in found]
            shown, token = cut_page(request, rows, keys, page.size, most_bytes, more=more)
            return pb.ListMessagesResponse(messages=shown, next_page_token=token)

        # Megabytes take their time, which must not keep other callers waiting; captions may be as many.
        return await asyncio.to_thread(answer) if more or captioned else answer()

    async def RecordUsage(self, request: pb.RecordUsageRequest, context: Context) -> pb.RecordUsageResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        usages = [
            Usage("context", canonical(f"context_uris[{number}]", uri, space.user))
            for number, uri in enumerate(request.context_uris)
        ]
        uris = [canonical(f"skills[{number}].uri", one.uri, space.user) for number, one in enumerate(request.skills)]

        def convert_skills() -> list[Usage]:
            numbered = enumerate(zip(request.skills, uris, strict=True))
            return [wire_messages.usage_from_wire(f"skills[{number}]", one, uri) for number, (one, uri) in numbered]

        request_bytes = request.ByteSize()
        skills = await _convert(request_bytes, convert_skills)
        await check_skills(request_bytes, skills, self._sizes.record)
        usages += skills

        async def work(tx: Tx) -> pb.RecordUsageResponse:
            contexts, skills = await sessions.record_usage(tx, space, name, usages)
            return pb.RecordUsageResponse(contexts_used=contexts, skills_used=skills)

        return await mutate(self._database, space, request, pb.RecordUsageResponse, work, session_id=name)

    async def CommitSession(self, request: pb.CommitSessionRequest, context: Context) -> pb.CommitSessionResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        own_policy = self._policy(request) if request.HasField("memory_policy") else None
        traceparent = current_trace().traceparent

        async def work(tx: Tx) -> pb.CommitSessionResponse:
            return await self._commits.make(
                tx,
                space,
                name,
                keep_recent=request.keep_recent_count,
                traceparent=traceparent,
                own_policy=own_policy,
                priority=request.priority,
            )

        answer = await mutate(self._database, space, request, pb.CommitSessionResponse, work, session_id=name)
        self._commits.durable()
        return answer

    async def ListArchives(self, request: pb.ListArchivesRequest, context: Context) -> pb.ListArchivesResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        page = open_page(request, (int,))
        below = int(page.after[0]) if page.after else 2**62
        found = await self._database.read(archives.page, space, name, below, page.size + 1)
        rows = [wire.archive(space.user, archive) for archive in found]
        shown, token = cut_page(request, rows, [(one.index,) for one in found], page.size, self._sizes.page)
        return pb.ListArchivesResponse(archives=shown, next_page_token=token)

    async def GetMemoryDiff(self, request: pb.GetMemoryDiffRequest, context: Context) -> pb.GetMemoryDiffResponse:
        space = caller_space()
        uri = canonical("archive_uri", request.archive_uri, space.user)
        try:
            place = parse_archive(uri)
        except UriError as error:
            raise invalid("archive_uri", error.reason, "Take it from CommitSession or ListArchives") from error
        archive = await self._database.read(archives.get, space, place.session, place.index)
        if archive.state != "done":
            raise commit_not_finished(uri)
        return await asyncio.to_thread(diff_page, request, space.user, archive, self._sizes)

    def _policy(
        self, request: pb.CreateSessionRequest | pb.UpdateSessionRequest | pb.CommitSessionRequest
    ) -> MemoryPolicy:
        policy = wire.policy_from_wire(request.memory_policy)
        policies.check_types(policy, self._store.registry)
        return policy

    async def _range(self, tx: Tx, space: Space, request: pb.ListMessagesRequest) -> tuple[str, int, int]:
        """Session and sequences that a list of messages is about."""
        if "/history/" in request.session:
            try:
                place = parse_archive(canonical("session", request.session, space.user))
            except UriError as error:
                raise invalid("session", error.reason, "Give a session or one of its archives") from error
            archive = await archives.get(tx, space, place.session, place.index)
            return place.session, archive.first_sequence, archive.last_sequence
        name = session_id("session", request.session, space.user)
        session = await sessions.get(tx, space, name)
        everything = request.scope == pb.MESSAGE_SCOPE_ALL
        return name, 1 if everything else session.archived_sequence + 1, session.last_sequence
