"""TurnMemoryService: fingerprints and summaries of turns, and the context that agents see."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc

from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2_grpc
from runekeep_schemas.turns import checks
from runekeep_schemas.turns.fingerprint import Fingerprint, normal_key
from runekeep_schemas.turns.summary import Summary
from runekeep_schemas.turns.window import MAX_SIGNAL_TURNS
from runekeep_server.identity import caller_space, current_trace
from runekeep_server.protocol.answer_sizes import AnswerSizes
from runekeep_server.protocol.errors import buckets_disabled, invalid, invalid_fields, violation
from runekeep_server.protocol.idempotency import mutate
from runekeep_server.protocol.pagination import fitting, next_token, open_page, refused_token
from runekeep_server.protocol.secret_scan import scan_for_secrets
from runekeep_server.settings import Settings
from runekeep_server.turns import buckets, feedback, selection
from runekeep_server.turns import context as turn_context
from runekeep_server.turns.context import NEWEST
from runekeep_server.wire import turns as wire
from runekeep_server.wire.basics import session_id
from runekeep_storage.database import Space, Tx
from runekeep_storage.records import Turn
from runekeep_storage.sessions import sessions
from runekeep_storage.store import Store
from runekeep_storage.turns import artifacts, fingerprints, jobs, turns
from runekeep_storage.turns.jobs import Reconciliation

Context = grpc.aio.ServicerContext[Any, Any]


class TurnMemoryService(turn_memory_service_pb2_grpc.TurnMemoryServiceServicer):
    """Every call is confined to the caller's space. `queued` is called when a task is durable, so that a worker gets it
    at once."""

    def __init__(self, store: Store, settings: Settings, *, queued: Callable[[], None]) -> None:
        self._store = store
        self._database = store.database
        self._settings = settings
        self._sizes = AnswerSizes.of(settings.max_message_bytes)
        self._queued = queued

    async def SubmitTurn(self, request: pb.SubmitTurnRequest, context: Context) -> pb.SubmitTurnResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        # In a thread: a valid request may still contain thousands of numbers.
        fingerprint, summary = await scan_for_secrets(_submitted, request, self._settings.withhold_secrets)
        queries = tuple(map(wire.query_from_wire, request.ctx_retrieval_queries))
        if self._settings.withhold_secrets:
            queries = checks.withheld_queries(queries)
        reconciliation = Reconciliation(request.extract_selection, request.extract_feedback, queries)
        traceparent = current_trace().traceparent

        async def work(tx: Tx) -> pb.SubmitTurnResponse:
            await sessions.get(tx, space, name)
            turn = await turns.get(tx, space, name, request.turn_id)
            if fingerprint is not None:
                await fingerprints.submit(tx, space, turn, fingerprint)
            if summary is not None:
                await turns.set_summary(tx, space, name, turn.turn_id, summary.to_text())
            task_id = ""
            if request.extract:
                task_id = await jobs.queue_fingerprint(
                    tx,
                    space,
                    turn,
                    request.assistant_signal_spec,
                    traceparent,
                    self._settings.max_open_turn_tasks_per_user,
                    reconciliation,
                )
            return pb.SubmitTurnResponse(turn=await _turn(tx, space, name, turn.turn_id), task_id=task_id)

        answer = await mutate(self._database, space, request, pb.SubmitTurnResponse, work, session_id=name)
        if answer.task_id:
            self._queued()
        return answer

    async def GetTurn(self, request: pb.GetTurnRequest, context: Context) -> pb.GetTurnResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        return pb.GetTurnResponse(turn=await self._database.read(_turn, space, name, request.turn_id))

    async def ListTurns(self, request: pb.ListTurnsRequest, context: Context) -> pb.ListTurnsResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        page = open_page(request, (int,))
        before = int(page.after[0]) if page.after else NEWEST

        async def read(tx: Tx, space: Space) -> pb.ListTurnsResponse:
            await sessions.get(tx, space, name)
            found = await turns.before(tx, space, name, before, page.size + 1, request.fingerprinted_only)
            of = await fingerprints.of(tx, space, name, [turn.turn_id for turn in found[: page.size]])
            rows = [_turn_to_wire(space, turn, of.get(turn.turn_id)) for turn in found[: page.size]]
            shown = fitting(rows, self._sizes.page)
            token = next_token(request, (found[shown - 1].sequence,)) if len(found) > shown else ""
            return pb.ListTurnsResponse(turns=rows[:shown], next_page_token=token)

        return await self._database.read(read, space)

    async def LoadTurnContext(self, request: pb.LoadTurnContextRequest, context: Context) -> pb.LoadTurnContextResponse:
        return await turn_context.load(
            self._store,
            caller_space(),
            request,
            buckets_enabled=self._settings.buckets_enabled,
            most_bytes=self._sizes.record,
        )

    async def SetTurnSelection(
        self, request: pb.SetTurnSelectionRequest, context: Context
    ) -> pb.SetTurnSelectionResponse:
        return await selection.set_(
            self._store, caller_space(), request, buckets_enabled=self._settings.buckets_enabled
        )

    async def ListAssistantSignals(
        self, request: pb.ListAssistantSignalsRequest, context: Context
    ) -> pb.ListAssistantSignalsResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user) if request.session else ""
        keys = [normal_key(key) for key in request.keys]
        for number, key in enumerate(keys):
            if not key:
                raise invalid(f"keys[{number}]", "holds neither a letter of a-z nor a digit", "Leave it out")
        page = open_page(request, (int, str, str, int))
        # The number of turns on the previous pages.
        *after, counted = page.after or (0,)
        before = int(counted)
        if not 0 <= before < MAX_SIGNAL_TURNS:
            raise refused_token()
        size = min(page.size, MAX_SIGNAL_TURNS - before)

        async def read(tx: Tx, space: Space) -> pb.ListAssistantSignalsResponse:
            if name:
                await sessions.get(tx, space, name)
            key: Any = tuple(after) or None
            found = await fingerprints.signals(tx, space, session_id=name, keys=keys, after=key, limit=size + 1)
            answer = pb.ListAssistantSignalsResponse()
            wire.write_promotions(answer.turns, space.user, found[:size], keys)
            shown = fitting(answer.turns, self._sizes.page)
            del answer.turns[shown:]
            if len(found) > shown and before + shown < MAX_SIGNAL_TURNS:
                session, last = found[shown - 1]
                answer.next_page_token = next_token(request, (last.made_at, session, last.turn_id, before + shown))
            return answer

        return await self._database.read(read, space)

    async def SubmitFeedback(self, request: pb.SubmitFeedbackRequest, context: Context) -> pb.SubmitFeedbackResponse:
        return await feedback.submit(
            self._store, caller_space(), request, withhold_secrets=self._settings.withhold_secrets
        )

    async def ClearFeedback(self, request: pb.ClearFeedbackRequest, context: Context) -> pb.ClearFeedbackResponse:
        return await feedback.clear(self._store, caller_space(), request)

    async def ListFeedback(self, request: pb.ListFeedbackRequest, context: Context) -> pb.ListFeedbackResponse:
        return await feedback.list_(self._store, caller_space(), request)

    async def ListTurnArtifacts(
        self, request: pb.ListTurnArtifactsRequest, context: Context
    ) -> pb.ListTurnArtifactsResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user) if request.session else ""
        page = open_page(request, (int, str, str, str))
        after: Any = page.after

        async def read(tx: Tx, space: Space) -> pb.ListTurnArtifactsResponse:
            if name:
                await sessions.get(tx, space, name)
            found = await artifacts.by_tags(tx, space, list(request.tags), name, after, page.size + 1)
            rows = [wire.artifact_to_wire(space.user, one) for one in found[: page.size]]
            shown = fitting(rows, self._sizes.page)
            token = ""
            if len(found) > shown:
                last = found[shown - 1]
                token = next_token(request, (last.said_at, last.session_id, last.kind, last.name))
            return pb.ListTurnArtifactsResponse(artifacts=rows[:shown], next_page_token=token)

        return await self._database.read(read, space)

    async def ListMemoryBuckets(
        self, request: pb.ListMemoryBucketsRequest, context: Context
    ) -> pb.ListMemoryBucketsResponse:
        return await buckets.list_(self._store, caller_space(), request, self._sizes)

    async def UpdateMemoryBucket(
        self, request: pb.UpdateMemoryBucketRequest, context: Context
    ) -> pb.UpdateMemoryBucketResponse:
        return await buckets.update(
            self._store, caller_space(), request, withhold_secrets=self._settings.withhold_secrets
        )

    async def ReconcileMemoryBuckets(
        self, request: pb.ReconcileMemoryBucketsRequest, context: Context
    ) -> pb.ReconcileMemoryBucketsResponse:
        space = caller_space()
        name = session_id("session", request.session, space.user)
        if not self._settings.buckets_enabled:
            raise buckets_disabled()
        traceparent = current_trace().traceparent

        async def work(tx: Tx) -> pb.ReconcileMemoryBucketsResponse:
            task_id = await jobs.queue_reconcile(
                tx, space, name, traceparent, self._settings.max_open_turn_tasks_per_user
            )
            return pb.ReconcileMemoryBucketsResponse(task_id=task_id)

        answer = await mutate(self._database, space, request, pb.ReconcileMemoryBucketsResponse, work, session_id=name)
        if answer.task_id:
            self._queued()
        return answer


async def _turn(tx: Tx, space: Space, session_id: str, turn_id: str) -> pb.Turn:
    """Returns a turn. Raises NotFound."""
    await sessions.get(tx, space, session_id)
    turn = await turns.get(tx, space, session_id, turn_id)
    found = await fingerprints.of(tx, space, session_id, [turn_id])
    return _turn_to_wire(space, turn, found.get(turn_id))


def _turn_to_wire(space: Space, turn: Turn, fingerprint: Fingerprint | None) -> pb.Turn:
    return wire.turn_to_wire(space.user, turn, fingerprint, Summary.from_text(turn.summary))


def _submitted(request: pb.SubmitTurnRequest, withhold_secrets: bool) -> tuple[Fingerprint | None, Summary | None]:
    """Returns the fingerprint and the summary in a request. Raises ApiError."""
    if not (request.HasField("fingerprint") or request.HasField("summary") or request.extract):
        raise invalid("fingerprint", "is absent, and so are summary and extract", "Give at least one of them")
    if request.assistant_signal_spec and not request.extract:
        raise invalid("assistant_signal_spec", "needs extract", "Set extract, or leave the spec out")
    for name in ("extract_selection", "extract_feedback"):
        if getattr(request, name) and not request.extract:
            raise invalid(name, "needs extract", f"Set extract, or leave {name} out")
    if request.ctx_retrieval_queries and not request.extract_selection:
        raise invalid(
            "ctx_retrieval_queries", "need extract_selection", "Set extract_selection, or leave the queries out"
        )
    fingerprint = summary = None
    if request.HasField("fingerprint"):
        fingerprint = wire.fingerprint_from_wire("fingerprint", request.fingerprint)
        fingerprint = replace(fingerprint, turn_id=request.turn_id)
        if problems := checks.problems(fingerprint):
            raise invalid_fields(
                [violation(f"fingerprint.{path}" if path else "fingerprint", *told) for path, *told in problems]
            )
        if withhold_secrets:
            fingerprint, _ = checks.withheld(fingerprint)
    if request.HasField("summary"):
        summary = wire.summary_from_wire(request.summary)
        if withhold_secrets:
            summary, _ = checks.withheld_summary(summary)
    return fingerprint, summary
