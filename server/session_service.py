"""SessionService: conversations, and commits of them."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import grpc

from runekeep.v1 import session_service_pb2 as pb
from runekeep.v1 import session_service_pb2_grpc
from schemas import policy as policies
from schemas.policy import MemoryPolicy
from schemas.uris import UriError, parse_archive
from server import session_context, tool_outputs
from server.commits import Commits, Made, Refused
from server.errors import commit_not_finished, invalid
from server.identity import caller_space, current_trace
from server.mutations import Making, answered, key_of, mutate
from server.pages import next_token, open_page
from server.settings import Settings
from server.wire import messages as wire_messages
from server.wire import sessions as wire
from server.wire.basics import canonical, session_id
from storage import appends, archives, sessions
from storage.appends import Added, Append
from storage.database import Space, Tx
from storage.deletion import delete_session
from storage.leftovers import out_of_the_way
from storage.records import Job, Usage
from storage.store import Store

Context = grpc.aio.ServicerContext[Any, Any]


class SessionService(session_service_pb2_grpc.SessionServiceServicer):
    """`cancelled` is called for a job that ended with its session."""

    def __init__(
        self, store: Store, settings: Settings, commits: Commits, *, cancelled: Callable[[Job, str], None]
    ) -> None:
        self._store = store
        self._database = store.database
        self._settings = settings
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
        token = ""
        if len(found) > page.size:
            last = found[page.size - 1]
            token = next_token(request, (last.updated_at, last.session_id))
        shown = [wire.session(space.user, session) for session in found[: page.size]]
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
        most_bytes = self._settings.max_message_bytes // 2
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
        apart = tool_outputs.Apart(
            [wire_messages.from_wire(f"messages[{number}]", message) for number, message in enumerate(request.messages)]
        )
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
        item = Append(name, apart.messages, brought, apart.outputs, key, answered_with)
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
        found = await self._database.read(sessions.messages_between, space, name, first, last, page.size + 1)
        token = next_token(request, (found[page.size - 1].sequence,)) if len(found) > page.size else ""
        shown = [wire_messages.to_wire(message) for message in found[: page.size]]
        return pb.ListMessagesResponse(messages=shown, next_page_token=token)

    async def RecordUsage(self, request: pb.RecordUsageRequest, context: Context) -> pb.RecordUsageResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        usages = [
            Usage("context", canonical(f"context_uris[{number}]", uri, space.user))
            for number, uri in enumerate(request.context_uris)
        ]
        for number, skill in enumerate(request.skills):
            uri = canonical(f"skills[{number}].uri", skill.uri, space.user)
            usages.append(wire_messages.usage_from_wire(f"skills[{number}]", skill, uri))

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
        token = next_token(request, (found[page.size - 1].index,)) if len(found) > page.size else ""
        shown = [wire.archive(space.user, archive) for archive in found[: page.size]]
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
        return pb.GetMemoryDiffResponse(diff=wire.memory_diff(space.user, archive))

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
