"""Turn memory: what single turns of a conversation said, and what agents are shown of it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from runekeep.client import turn_wire
from runekeep.client.arguments import listed
from runekeep.client.connection import Connection, new_request_id
from runekeep.client.plain import plain
from runekeep.client.turn_results import (
    AssistantSignals,
    AudienceName,
    Feedback,
    FeedbackList,
    MemoryBucket,
    MemoryBuckets,
    OriginName,
    ReactionName,
    SelectedTurns,
    SubmittedTurn,
    Turn,
    TurnArtifact,
    TurnContext,
)
from runekeep.client.turn_wire import Query
from runekeep.v1 import turn_memory_service_pb2 as wire

_PAGE = 200


class SessionTurns:
    """The turns of one session; every AsyncSession is this too."""

    def __init__(self, connection: Connection, session_id: str) -> None:
        self.session_id = session_id
        """Last segment of its URI, or the URI that the caller named it by."""
        self._connection = connection

    async def turn_context(
        self,
        current_turn_id: str,
        audience: AudienceName,
        *,
        last_turns: int = 0,
        queries: Sequence[Query] = (),
        render: bool = True,
    ) -> TurnContext:
        """What one agent is shown before it acts; the turn under way need not have messages yet.

        `audience` is gate, reconciler, downstream or final_answer; `last_turns`, up to 20, are those before the current
        one (0: 3). `queries`, at most 2, look for more: key phrases, or dicts with `query`, `target` (user, assistant,
        assistant_artifact) and `reason`. Without `render` the text is left out. Raises NotFoundError for a session that
        is not there.
        """
        request = wire.LoadTurnContextRequest(
            session=self.session_id,
            current_turn_id=current_turn_id,
            audience=turn_wire.audience_number(audience),
            last_turns=last_turns,
            ctx_retrieval_queries=turn_wire.queries_to_wire(queries),
            render=render,
        )
        response = await self._connection.call(self._connection.stubs.turns.LoadTurnContext, request, 10)
        return cast(TurnContext, plain(response))

    async def submit_turn(
        self,
        turn_id: str,
        *,
        fingerprint: Mapping[str, Any] | None = None,
        summary: Mapping[str, Any] | None = None,
        extract: bool = False,
        assistant_signal_spec: str = "",
        extract_selection: bool = False,
        extract_feedback: bool = False,
        queries: Sequence[Query] = (),
        request_id: str | None = None,
    ) -> SubmittedTurn:
        """Stores what the caller's own agents found out about a turn, merged with what is there; with `extract` also
        queues a task that finds out what is missing.

        `fingerprint` and `summary` hold any of the keys of TurnFingerprint and TurnSummary; `assistant_signal_spec`
        says in words which promotions the task is to look for. With `extract_selection` the task also stores a
        selection, as `select_turns` does, from what a reconciler is offered; `queries` (see `turn_context`) add turns
        to that offer. With `extract_feedback` it also stores the user's reactions to earlier answers. Raises
        NotFoundError for a turn without messages.
        """
        request = wire.SubmitTurnRequest(
            session=self.session_id,
            turn_id=turn_id,
            fingerprint=None if fingerprint is None else turn_wire.fingerprint_to_wire(fingerprint),
            summary=None if summary is None else turn_wire.summary_to_wire(summary),
            extract=extract,
            assistant_signal_spec=assistant_signal_spec,
            extract_selection=extract_selection,
            extract_feedback=extract_feedback,
            ctx_retrieval_queries=turn_wire.queries_to_wire(queries),
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.turns.SubmitTurn, request, 5)
        return cast(SubmittedTurn, plain(response))

    async def get_turn(self, turn_id: str) -> Turn:
        """One turn. Raises NotFoundError for one without messages."""
        request = wire.GetTurnRequest(session=self.session_id, turn_id=turn_id)
        response = await self._connection.call(self._connection.stubs.turns.GetTurn, request, 5)
        return cast(Turn, plain(response.turn))

    async def turns(self, *, fingerprinted_only: bool = False) -> AsyncGenerator[Turn, None]:
        """Its turns, newest first."""
        request = wire.ListTurnsRequest(session=self.session_id, fingerprinted_only=fingerprinted_only, page_size=_PAGE)
        while True:
            page = await self._connection.call(self._connection.stubs.turns.ListTurns, request, 5)
            for turn in page.turns:
                yield cast(Turn, plain(turn))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def select_turns(
        self,
        context: TurnContext | None,
        local_memories_turn_ids: Sequence[str] = (),
        turn_ids: Sequence[str] = (),
        memory_bucket_ids: Sequence[str] = (),
        *,
        request_id: str | None = None,
    ) -> SelectedTurns:
        """Stores a selection from `context`, in place of the stored one. All lists may be empty.

        `local_memories_turn_ids` selects turn memories only, `turn_ids` prior turns only. Ids may be prefixes of ids
        that the context offered. Without a context the server uses what a reconciler would be offered now.
        """
        current = context and context["current"] and context["current"]["turn"]
        selection = wire.TurnSelection(
            local_memories_turn_ids=listed(local_memories_turn_ids, "local_memories_turn_ids"),
            turn_ids=listed(turn_ids, "turn_ids"),
            memory_bucket_ids=listed(memory_bucket_ids, "memory_bucket_ids"),
            current_turn_id=current["turn_id"] if current else "",
        )
        request = wire.SetTurnSelectionRequest(
            session=self.session_id,
            selection=selection,
            offer=context["offer"] if context else "",
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.turns.SetTurnSelection, request, 5)
        return cast(SelectedTurns, plain(response))

    async def feedback(
        self,
        turn_id: str = "",
        reaction: ReactionName | None = None,
        text: str = "",
        *,
        origin: OriginName = "user",
        confidence: float = 1.0,
        from_turn_id: str = "",
        match_queries: Sequence[Query] = (),
        request_id: str | None = None,
    ) -> Feedback:
        """Adds a reaction to a turn: ok, not_ok, neutral, or None for text alone.

        The user's own replaces the one before. What an agent read out of the user's words has the origin `machine`, a
        `confidence` of at least 0.7, a text, and `from_turn_id`, the turn in which it was said; it adds up, to 100 a
        turn. It may leave `turn_id` empty: then it is about the turn that `match_queries` find, else about the one
        before `from_turn_id`.
        """
        given = wire.Feedback(
            turn_id=turn_id,
            reaction=turn_wire.reaction_number(reaction),
            text=text,
            origin=turn_wire.origin_number(origin),
            confidence=confidence,
            from_turn_id=from_turn_id,
        )
        request = wire.SubmitFeedbackRequest(
            session=self.session_id,
            feedback=given,
            match_queries=turn_wire.queries_to_wire(match_queries, "match_queries"),
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.turns.SubmitFeedback, request, 10)
        return cast(Feedback, plain(response.feedback))

    async def clear_feedback(self, turn_id: str, *, request_id: str | None = None) -> bool:
        """Removes the user's reaction to a turn. Answers whether there was one."""
        request = wire.ClearFeedbackRequest(
            session=self.session_id, turn_id=turn_id, request_id=request_id or new_request_id()
        )
        return (await self._connection.call(self._connection.stubs.turns.ClearFeedback, request, 5)).cleared

    async def list_feedback(
        self,
        turn_ids: Sequence[str] = (),
        *,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        limit: int = 200,
    ) -> FeedbackList:
        """The newest `limit` reactions, about some turns or all, and the counts of all that match.

        `start_time`: not before; `end_time`: before.
        """
        return await _feedback(self._connection, self.session_id, turn_ids, start_time, end_time, limit)

    async def buckets(self, *, show_disabled: bool = False) -> MemoryBuckets:
        """Its themes as timelines, latest change first."""
        request = wire.ListMemoryBucketsRequest(session=self.session_id, show_disabled=show_disabled)
        call, method = self._connection.call, self._connection.stubs.turns.ListMemoryBuckets
        found = page = await call(method, request, 10)
        by_id = {bucket.bucket_id: bucket for bucket in found.buckets}
        while page.next_page_token:
            request.page_token = page.next_page_token
            page = await call(method, request, 10)
            for bucket in page.buckets:
                if (there := by_id.get(bucket.bucket_id)) is not None:
                    # The next page has older slices.
                    newer = list(there.timeline)
                    del there.timeline[:]
                    there.timeline.extend([*bucket.timeline, *newer])
        answer = plain(found)
        del answer["next_page_token"]
        return cast(MemoryBuckets, answer)

    async def update_bucket(
        self,
        bucket_id: str,
        *,
        name: str | None = None,
        short_desc: str | None = None,
        enabled: bool | None = None,
        request_id: str | None = None,
    ) -> MemoryBucket:
        """Renames, describes, enables or disables a bucket; what is None stays. Answers its card.

        Raises NotFoundError.
        """
        bucket = wire.MemoryBucket(session=self.session_id, bucket_id=bucket_id)
        request = wire.UpdateMemoryBucketRequest(request_id=request_id or new_request_id())
        if name is not None:
            bucket.name = name
            request.update_mask.paths.append("name")
        if short_desc is not None:
            bucket.short_desc = short_desc
            request.update_mask.paths.append("short_desc")
        if enabled is not None:
            bucket.state = wire.BUCKET_STATE_ENABLED if enabled else wire.BUCKET_STATE_DISABLED
            request.update_mask.paths.append("state")
        if not request.update_mask.paths:
            raise ValueError("nothing to change: give name, short_desc or enabled")
        request.bucket.CopyFrom(bucket)
        response = await self._connection.call(self._connection.stubs.turns.UpdateMemoryBucket, request, 5)
        return cast(MemoryBucket, plain(response.bucket))

    async def reconcile_buckets(self, *, request_id: str | None = None) -> str:
        """Queues a task that folds new fingerprints into the buckets. Its id, or that of one that waits already; empty
        when nothing is new. Raises FailedPreconditionError (`BUCKETS_DISABLED`) where buckets are switched off.
        """
        request = wire.ReconcileMemoryBucketsRequest(session=self.session_id, request_id=request_id or new_request_id())
        return (await self._connection.call(self._connection.stubs.turns.ReconcileMemoryBuckets, request, 5)).task_id


class UserTurns:
    """The turns of all sessions of a user; every AsyncClient is this too."""

    _connection: Connection

    async def assistant_signals(
        self, keys: Sequence[str] = (), *, session: str = ""
    ) -> AsyncGenerator[AssistantSignals, None]:
        """What the assistant promoted, newest first: in all sessions or in one, of the last 365 days, at most 512
        turns. `keys`: only these, as tags spell them (`a.b` is `a_b`).
        """
        request = wire.ListAssistantSignalsRequest(keys=listed(keys, "keys"), session=session, page_size=_PAGE)
        while True:
            page = await self._connection.call(self._connection.stubs.turns.ListAssistantSignals, request, 5)
            for turn in page.turns:
                yield cast(AssistantSignals, plain(turn))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def list_feedback(
        self, *, start_time: datetime | None = None, end_time: datetime | None = None, limit: int = 200
    ) -> FeedbackList:
        """The newest `limit` reactions in all sessions, and the counts of all that match.

        `start_time`: not before; `end_time`: before.
        """
        return await _feedback(self._connection, "", (), start_time, end_time, limit)

    async def turn_artifacts(self, tags: Sequence[str], *, session: str = "") -> AsyncGenerator[TurnArtifact, None]:
        """Turn memory in its stored form, newest first: what carries all of `tags`, in all sessions or in one.

        For example `artifact:turn.fingerprint.v1`, `turn:{turn_id}`, `assistant_signal:{key}`, `origin:user`.
        """
        request = wire.ListTurnArtifactsRequest(tags=listed(tags, "tags"), session=session, page_size=_PAGE)
        while True:
            page = await self._connection.call(self._connection.stubs.turns.ListTurnArtifacts, request, 5)
            for artifact in page.artifacts:
                yield cast(TurnArtifact, plain(artifact))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


async def _feedback(
    connection: Connection,
    session: str,
    turn_ids: Sequence[str],
    start_time: datetime | None,
    end_time: datetime | None,
    limit: int,
) -> FeedbackList:
    if limit < 1:
        raise ValueError(f"limit is at least 1, not {limit}")
    request = wire.ListFeedbackRequest(
        session=session,
        turn_ids=listed(turn_ids, "turn_ids"),
        start_time=turn_wire.time_to_wire(start_time),
        end_time=turn_wire.time_to_wire(end_time),
        page_size=min(limit, _PAGE),
    )
    found: list[Feedback] = []
    while True:
        page = await connection.call(connection.stubs.turns.ListFeedback, request, 5)
        found += [cast(Feedback, plain(one)) for one in page.feedback]
        if not page.next_page_token or len(found) >= limit:
            return cast(FeedbackList, {"feedback": found[:limit], "counts": plain(page.counts)})
        request.page_token = page.next_page_token
