"""Turn memory of a session: what single turns said, and what agents see of it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any

from runekeep.client.blocking import blocking, blocking_iter
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.turns.feedback import list_feedback
from runekeep.client.turns.requests import (
    Query,
    audience_number,
    fingerprint_to_wire,
    origin_number,
    queries_to_wire,
    reaction_number,
    summary_to_wire,
)
from runekeep.client.turns.results import (
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
    TurnContext,
)
from runekeep.client.wire.arguments import require_list
from runekeep.client.wire.proto_json import to_json
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
        """Returns what an agent sees before it acts. The current turn need not have messages yet.

        `audience` is gate, reconciler, downstream or final_answer. `last_turns`: number of earlier turns, up to 20 (0:
        3). `queries`, at most 2, find more turns: key phrases, or dictionaries with `query`, `target` (user, assistant,
        assistant_artifact) and `reason`. Without `render` the text is left out. Raises NotFoundError for an unknown
        session.

        ```python
        context = session.turn_context("turn_7", "final_answer")
        print(context.text)
        ```
        """
        request = wire.LoadTurnContextRequest(
            session=self.session_id,
            current_turn_id=current_turn_id,
            audience=audience_number(audience),
            last_turns=last_turns,
            ctx_retrieval_queries=queries_to_wire(queries),
            render=render,
        )
        response = await self._connection.call(self._connection.stubs.turns.LoadTurnContext, request)
        return TurnContext(to_json(response))

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
        """Stores a fingerprint and a summary of a turn, merged with the stored ones. `extract` also queues a task that
        extracts what is missing.

        `fingerprint` and `summary` hold any of the keys of TurnFingerprint and TurnSummary; `assistant_signal_spec`
        says in words which promotions the task is to look for. With `extract_selection` the task also stores a
        selection, as `select_turns` does, from what a reconciler is offered; `queries` (see `turn_context`) add turns
        to that offer. With `extract_feedback` it also stores the user's reactions to earlier answers. Raises
        NotFoundError for a turn without messages.

        ```python
        submitted = session.submit_turn("turn_7", summary={"user_inquiry": "Where to eat?"}, extract=True)
        client.wait_task(submitted.task_id)
        ```
        """
        request = wire.SubmitTurnRequest(
            session=self.session_id,
            turn_id=turn_id,
            fingerprint=None if fingerprint is None else fingerprint_to_wire(fingerprint),
            summary=None if summary is None else summary_to_wire(summary),
            extract=extract,
            assistant_signal_spec=assistant_signal_spec,
            extract_selection=extract_selection,
            extract_feedback=extract_feedback,
            ctx_retrieval_queries=queries_to_wire(queries),
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.turns.SubmitTurn, request)
        return SubmittedTurn(to_json(response))

    async def get_turn(self, turn_id: str) -> Turn:
        """Returns a turn. Raises NotFoundError for a turn without messages.

        ```python
        turn = session.get_turn("turn_7")
        if turn.fingerprint:
            print(turn.fingerprint.objective)
        ```
        """
        request = wire.GetTurnRequest(session=self.session_id, turn_id=turn_id)
        response = await self._connection.call(self._connection.stubs.turns.GetTurn, request)
        return Turn(to_json(response.turn))

    async def turns(self, *, fingerprinted_only: bool = False) -> AsyncGenerator[Turn, None]:
        """Lists the turns of the session, newest first.

        ```python
        for turn in session.turns():
            print(turn.turn_id, turn.start_time)
        ```
        """
        request = wire.ListTurnsRequest(session=self.session_id, fingerprinted_only=fingerprinted_only, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.turns.ListTurns, request):
            for turn in page.turns:
                yield Turn(to_json(turn))

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

        ```python
        context = session.turn_context("turn_7", "reconciler")
        print(session.select_turns(context, turn_ids=["turn_3"]).dropped)
        ```
        """
        current = context.current.turn if context and context.current else None
        selection = wire.TurnSelection(
            local_memories_turn_ids=require_list(local_memories_turn_ids, "local_memories_turn_ids"),
            turn_ids=require_list(turn_ids, "turn_ids"),
            memory_bucket_ids=require_list(memory_bucket_ids, "memory_bucket_ids"),
            current_turn_id=current.turn_id if current else "",
        )
        request = wire.SetTurnSelectionRequest(
            session=self.session_id,
            selection=selection,
            offer=context.offer if context else "",
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.turns.SetTurnSelection, request)
        return SelectedTurns(to_json(response))

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

        The user's reaction replaces the earlier one. A reaction that an agent read from the user's words has the
        origin `machine`, a `confidence` of at least 0.7, a text, and `from_turn_id`, the turn in which the user said
        it; a turn keeps up to 100 of them. With an empty `turn_id` it is about the turn that `match_queries` find,
        else about the turn before `from_turn_id`.

        ```python
        session.feedback("turn_7", "not_ok", "Too expensive.")
        ```
        """
        given = wire.Feedback(
            turn_id=turn_id,
            reaction=reaction_number(reaction),
            text=text,
            origin=origin_number(origin),
            confidence=confidence,
            from_turn_id=from_turn_id,
        )
        request = wire.SubmitFeedbackRequest(
            session=self.session_id,
            feedback=given,
            match_queries=queries_to_wire(match_queries, "match_queries"),
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.turns.SubmitFeedback, request)
        return Feedback(to_json(response.feedback))

    async def clear_feedback(self, turn_id: str, *, request_id: str | None = None) -> bool:
        """Removes the user's reaction to a turn. Returns whether there was one.

        ```python
        was_there = session.clear_feedback("turn_7")
        ```
        """
        request = wire.ClearFeedbackRequest(
            session=self.session_id, turn_id=turn_id, request_id=request_id or new_request_id()
        )
        return (await self._connection.call(self._connection.stubs.turns.ClearFeedback, request)).cleared

    async def list_feedback(
        self,
        turn_ids: Sequence[str] = (),
        *,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        limit: int = 200,
    ) -> FeedbackList:
        """Returns the newest `limit` reactions to some turns or all, and the counts of all that match.

        Both are from `start_time` on and before `end_time`.

        ```python
        print(session.list_feedback(["turn_7"]).counts.ok)
        ```
        """
        return await list_feedback(self._connection, self.session_id, turn_ids, start_time, end_time, limit)

    async def buckets(self, *, show_disabled: bool = False) -> MemoryBuckets:
        """Returns the themes of the session as timelines, latest change first.

        ```python
        for bucket in session.buckets().buckets:
            print(bucket.name, bucket.objective_text)
        ```
        """
        request = wire.ListMemoryBucketsRequest(session=self.session_id, show_disabled=show_disabled)
        call, method = self._connection.call, self._connection.stubs.turns.ListMemoryBuckets
        found = page = await call(method, request)
        by_id = {bucket.bucket_id: bucket for bucket in found.buckets}
        while page.next_page_token:
            request.page_token = page.next_page_token
            page = await call(method, request)
            for bucket in page.buckets:
                if (there := by_id.get(bucket.bucket_id)) is not None:
                    # The next page has older slices.
                    newer = list(there.timeline)
                    del there.timeline[:]
                    there.timeline.extend([*bucket.timeline, *newer])
        answer = to_json(found)
        del answer["next_page_token"]
        return MemoryBuckets(answer)

    async def update_bucket(
        self,
        bucket_id: str,
        *,
        name: str | None = None,
        short_desc: str | None = None,
        enabled: bool | None = None,
        request_id: str | None = None,
    ) -> MemoryBucket:
        """Renames, describes, enables or disables a bucket; None: unchanged. Returns its card.

        Raises NotFoundError.

        ```python
        for bucket in session.buckets().buckets:
            session.update_bucket(bucket.bucket_id, enabled=False)
        ```
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
        response = await self._connection.call(self._connection.stubs.turns.UpdateMemoryBucket, request)
        return MemoryBucket(to_json(response.bucket))

    async def reconcile_buckets(self, *, request_id: str | None = None) -> str:
        """Queues a task that folds new fingerprints into the buckets. Returns its id, or that of a waiting one; empty
        if nothing is new. Raises FailedPreconditionError (`BUCKETS_DISABLED`) if buckets are switched off.

        ```python
        if task_id := session.reconcile_buckets():
            client.wait_task(task_id)
        ```
        """
        request = wire.ReconcileMemoryBucketsRequest(session=self.session_id, request_id=request_id or new_request_id())
        return (await self._connection.call(self._connection.stubs.turns.ReconcileMemoryBuckets, request)).task_id


class BlockingSessionTurns:
    """Blocking versions of the methods of SessionTurns; a base of Session."""

    turn_context = blocking(SessionTurns.turn_context)
    submit_turn = blocking(SessionTurns.submit_turn)
    get_turn = blocking(SessionTurns.get_turn)
    turns = blocking_iter(SessionTurns.turns)
    select_turns = blocking(SessionTurns.select_turns)
    feedback = blocking(SessionTurns.feedback)
    clear_feedback = blocking(SessionTurns.clear_feedback)
    list_feedback = blocking(SessionTurns.list_feedback)
    buckets = blocking(SessionTurns.buckets)
    update_bucket = blocking(SessionTurns.update_bucket)
    reconcile_buckets = blocking(SessionTurns.reconcile_buckets)
