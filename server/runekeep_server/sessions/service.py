"""SessionService: conversations and their commits."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import grpc

from runekeep.v1 import session_service_pb2 as pb
from runekeep.v1 import session_service_pb2_grpc
from runekeep_schemas import policy as policies
from runekeep_schemas.documents.uris import UriError, parse_archive
from runekeep_schemas.policy import MemoryPolicy
from runekeep_server.identity import caller_space, current_trace
from runekeep_server.protocol.answer_sizes import AnswerSizes
from runekeep_server.protocol.errors import commit_not_finished, invalid
from runekeep_server.protocol.idempotency import mutate
from runekeep_server.protocol.pagination import cut_page, open_page
from runekeep_server.protocol.truncation import shorten
from runekeep_server.rpc.request_bodies import size_of
from runekeep_server.sessions import context as session_context
from runekeep_server.sessions.accepted_sizes import check_skills
from runekeep_server.sessions.append_streams import AppendStreams
from runekeep_server.sessions.appending import Appending, convert_wire
from runekeep_server.sessions.commits import Commits
from runekeep_server.sessions.diffs import diff_page
from runekeep_server.settings import Settings
from runekeep_server.wire import messages as wire_messages
from runekeep_server.wire import sessions as wire
from runekeep_server.wire.basics import canonical, session_id
from runekeep_storage.database import Space, Tx
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.records import Job, Usage
from runekeep_storage.sessions import archives, commits, image_descriptions, sessions
from runekeep_storage.spaces.pending_deletions import retry_after_cleanup
from runekeep_storage.store import Store

Context = grpc.aio.ServicerContext[Any, Any]


class SessionService(session_service_pb2_grpc.SessionServiceServicer):
    """`cancelled` is called for each job that ended because its session was deleted."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        commits: Commits,
        appending: Appending,
        streams: AppendStreams,
        *,
        cancelled: Callable[[Job, str], None],
    ) -> None:
        self._store = store
        self._database = store.database
        self._settings = settings
        self._sizes = AnswerSizes.of(settings.max_message_bytes)
        self._commits = commits
        self._appending = appending
        self._streams = streams
        self._cancelled = cancelled

    async def CreateSession(self, request: pb.CreateSessionRequest, context: Context) -> pb.CreateSessionResponse:
        space = caller_space()
        policy = json.dumps(self._policy(request).to_json())
        rules = wire.auto_commit_from_wire(request.auto_commit).to_json()
        name = request.session_id or f"s_{uuid4()}"

        async def work(tx: Tx) -> pb.CreateSessionResponse:
            made = await sessions.create(tx, space, name, request.title, policy, rules)
            return pb.CreateSessionResponse(session=wire.session(space.user, made))

        return await retry_after_cleanup(
            self._database,
            space,
            lambda: mutate(self._database, space, request, pb.CreateSessionResponse, work, session_id=name),
        )

    async def GetSession(self, request: pb.GetSessionRequest, context: Context) -> pb.GetSessionResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        if request.auto_create:
            found, created = await retry_after_cleanup(
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
        # Half of a record, so that nothing besides the messages has to be counted to the byte.
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
        return await self._appending.append(caller_space(), request, size_of(request))

    async def StreamMessages(
        self, request_iterator: AsyncIterator[pb.StreamMessagesRequest], context: Context
    ) -> AsyncIterator[pb.StreamMessagesResponse]:
        async with aclosing(self._streams.serve(caller_space(), request_iterator)) as responses:
            async for response in responses:
                yield response

    async def ListMessages(self, request: pb.ListMessagesRequest, context: Context) -> pb.ListMessagesResponse:
        space = caller_space()
        page = open_page(request, (int,))
        name, first, last = await self._database.read(self._range, space, request)
        first = max(first, request.start_sequence)
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

        # In a thread, because megabytes of messages or captions would block other calls.
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

        request_bytes = size_of(request)
        skills = await convert_wire(request_bytes, convert_skills)
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
            made = await commits.create(
                tx,
                space,
                name,
                self._commits.rules,
                keep_recent=request.keep_recent_count,
                traceparent=traceparent,
                own_policy=own_policy,
                priority=request.priority,
            )
            return (
                wire.commit_response(made)
                if made is not None
                else pb.CommitSessionResponse(status=pb.COMMIT_STATUS_SKIPPED)
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
        """Returns the session, and the first and last sequence, that a request to list messages asks for."""
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
