"""Answers AskMemory.

A question is a job while its call lasts. The call watches the job and sends the answer once it is applied, which is
after the check of its sources: so a worker that dies leaves nothing to take back. When the call ends, however it ends,
the job is cancelled and deleted. If no model answers, the statements are those of a recall, and the result says why.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import structlog

from runekeep.v1 import common_pb2
from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.secrets import withhold
from runekeep_server.identity import current_trace
from runekeep_server.memories.recalled_statements import RecalledStatements, recalled_statements
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.errors import invalid, unavailable
from runekeep_server.protocol.idempotency import run_to_completion
from runekeep_server.protocol.secret_scan import scan_for_secrets
from runekeep_server.settings import Settings
from runekeep_server.tasks.prices import Price, set_cost
from runekeep_server.tasks.watchers import Watchers
from runekeep_server.wire import tasks as wire
from runekeep_storage.database import Space
from runekeep_storage.errors import NotFound, StoreUnavailable, TooManyQuestions
from runekeep_storage.jobs import asks, tasks
from runekeep_storage.records import Task
from runekeep_storage.store import POSTGRES_SCHEMES, Store

RECALL_SHARE = 0.2
MAX_RECALL_SECONDS = 5.0
"""The model has this much less time than the call, or for a short call RECALL_SHARE of it less, so that a recall still
fits."""
OTHER_SERVER_SECONDS = 5.0
"""How long a question waits for a worker of another server, if none of this server answers questions."""
DELETION_DELAYS_SECONDS = (0.2, 1.0, 5.0)
"""Delays before a question is deleted again, if the store is unavailable. After these, a sweep deletes it."""
CALLER_GONE = "its caller no longer waits"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of a question at the extractors. `answer`: the result of its task, None without one; then `fallback`
    and `message` say why, as in AskResult."""

    task: Task | None = None
    answer: Mapping[str, Any] | None = None
    fallback: pb.AskFallback.ValueType = pb.ASK_FALLBACK_UNSPECIFIED
    message: str = ""


_NO_EXTRACTOR = _Outcome(
    fallback=pb.ASK_FALLBACK_NO_EXTRACTOR, message="no extractor that answers questions is connected"
)
_NOTHING_STORED = _Outcome(fallback=pb.ASK_FALLBACK_NOTHING_STORED, message="nothing is stored for this user")


class Asking:
    """One per server. `has_worker`: returns whether a worker of this server takes questions of an account; `on_queued`
    wakes the dispatcher; `cancel` tells the worker of a job to stop (best effort)."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        watchers: Watchers,
        prices: Mapping[str, Price],
        *,
        has_worker: Callable[[str], bool],
        on_queued: Callable[[], None],
        cancel: Callable[[str, str], None],
    ) -> None:
        self._store = store
        self._watchers = watchers
        self._prices = prices
        self._withhold_secrets = settings.withhold_secrets
        self._max_open = settings.max_open_questions_per_user
        self._has_other_servers = settings.store_url.startswith(POSTGRES_SCHEMES)
        self._default_seconds = settings.deadlines.ask_seconds
        self._has_worker = has_worker
        self._on_queued = on_queued
        self._cancel = cancel
        self._under_way: Counter[Space] = Counter()

    async def ask(
        self, space: Space, request: pb.AskMemoryRequest, remaining: float | None
    ) -> AsyncGenerator[pb.AskMemoryResponse]:
        """Yields progress, statements and the result. `remaining`: seconds until the caller's deadline; None: it sets
        none. Raises TooManyQuestions, IndexUnavailable, StoreUnavailable, and ApiError for a blank question, or if only
        a model's answer is wanted and there is none."""
        if not request.question.strip():
            raise invalid("question", "is blank", "Ask in plain words")
        with self._counted(space):
            question, withheld = request.question, 0
            if self._withhold_secrets:
                question, secrets = await scan_for_secrets(withhold, question)
                withheld = len(secrets)
            seconds = min(self._default_seconds if remaining is None else remaining, asks.MAX_SECONDS)
            seconds -= min(MAX_RECALL_SECONDS, RECALL_SHARE * seconds)
            if not (self._has_worker(space.account) or self._has_other_servers):
                for response in await self._responses(space, request, question, _NO_EXTRACTOR, withheld):
                    yield response
                return
            trace = current_trace().traceparent
            queueing = asyncio.create_task(self._queue(space, question, round(seconds * 1e6), trace))
            try:
                outcome = _NO_EXTRACTOR
                async with aclosing(self._watch(space, queueing, seconds)) as events:
                    async for event in events:
                        if isinstance(event, _Outcome):
                            outcome = event
                        else:
                            yield pb.AskMemoryResponse(progress=event)
                for response in await self._responses(space, request, question, outcome, withheld):
                    yield response
            finally:
                # After the answer was sent, which thus does not wait for a slow store.
                await run_to_completion(self._delete(space, queueing))

    @contextmanager
    def _counted(self, space: Space) -> Iterator[None]:
        """Counts a question of the user on this server. Raises TooManyQuestions. The store limits those that are queued
        on all servers, but a recall in place of an answer costs this server alone."""
        if self._under_way[space] >= self._max_open:
            raise TooManyQuestions(self._max_open)
        self._under_way[space] += 1
        try:
            yield
        finally:
            self._under_way[space] -= 1
            if not self._under_way[space]:
                del self._under_way[space]

    async def _watch(
        self, space: Space, queueing: "asyncio.Task[str]", seconds: float
    ) -> AsyncGenerator[pb.AskProgress | _Outcome]:
        """Yields progress, then what became of the question. `seconds`: for all of it."""
        database, clock = self._store.database, asyncio.get_running_loop().time
        give_up_at = clock() + seconds
        has_worker = self._has_worker(space.account)
        claim_by = give_up_at if has_worker else min(give_up_at, clock() + OTHER_SERVER_SECONDS)
        try:
            # Queued to the end even if the call ends now, so that there is something to delete.
            job_id = await asyncio.shield(queueing)
        except NotFound:
            yield _NOTHING_STORED
            return
        with self._watchers.watching(space, job_id) as watch:
            seen = 0
            while True:
                watch.look()
                try:
                    task, events = await database.read(tasks.events_after, space, job_id, seen)
                except NotFound:
                    # The user was deleted, or an erasure removed the answer.
                    yield _Outcome(fallback=pb.ASK_FALLBACK_FAILED, message="the user's data was deleted or erased")
                    return
                watch.found(task.last_event)
                for event in events:
                    seen = event.sequence
                    if event.kind == "progress":
                        yield pb.AskProgress(attempt=event.attempt, progress=wire.progress(json.loads(event.body)))
                if task.ended:
                    yield _outcome_of(task)
                    return
                if self._watchers.draining:
                    raise unavailable("server", "This server is going down")
                if clock() >= give_up_at:
                    yield _Outcome(task, None, pb.ASK_FALLBACK_OUT_OF_TIME, _delay_reason(task))
                    return
                if not task.attempt and clock() >= claim_by:
                    yield _NO_EXTRACTOR
                    return
                await self._watchers.wait(watch, (give_up_at if task.attempt else claim_by) - clock())

    async def _queue(self, space: Space, question: str, time: int, trace: str) -> str:
        job_id = await self._store.database.write(asks.queue, space, question, time, trace, self._max_open)
        self._on_queued()
        return job_id

    async def _delete(self, space: Space, queueing: "asyncio.Task[str]") -> None:
        """Deletes the question, in a locked space too, and stops its worker, even if the store is unavailable."""
        try:
            job_id = await queueing
        except Exception:
            # The call fails with this error. Nothing was queued.
            return
        for delay in (*DELETION_DELAYS_SECONDS, None):
            try:
                await self._store.all_spaces.write(asks.forget, space, job_id, CALLER_GONE)
                return
            except StoreUnavailable as error:
                unavailable_now = type(error).__name__
            finally:
                self._cancel(job_id, CALLER_GONE)
            if delay is not None:
                await asyncio.sleep(delay)
        log.warning("question_not_deleted", job=job_id, error=unavailable_now)

    async def _responses(
        self, space: Space, request: pb.AskMemoryRequest, question: str, outcome: _Outcome, withheld: int
    ) -> list[pb.AskMemoryResponse]:
        """Returns the statements and the result. `withheld`: number of secrets in the question."""
        recalled = RecalledStatements([], pb.RecallResponse())
        if outcome.answer is not None:
            statements = [
                pb.AnswerStatement(text=one["text"], sources=[pb.AnswerSource(**source) for source in one["sources"]])
                for one in outcome.answer["statements"]
            ]
        elif outcome is _NOTHING_STORED:
            statements = []
        elif request.model_only:
            raise _no_answer(outcome)
        else:
            recalled = await recalled_statements(self._store, space, question, withhold_secrets=self._withhold_secrets)
            statements = list(recalled.statements)
        result = self._result(outcome, len(statements), withheld + recalled.secrets_withheld, recalled.response)
        return [*(pb.AskMemoryResponse(statement=one) for one in statements), pb.AskMemoryResponse(result=result)]

    def _result(self, outcome: _Outcome, statements: int, withheld: int, recalled: pb.RecallResponse) -> pb.AskResult:
        answer = outcome.answer or {}
        result = pb.AskResult(
            statements=statements,
            unknown=answer.get("unknown", ()),
            fallback=outcome.fallback,
            fallback_message=outcome.message,
            sources_removed=answer.get("sources_removed", 0),
            statements_removed=answer.get("statements_removed", 0),
            secrets_withheld=withheld + answer.get("secrets_withheld", 0),
            extractor=wire.extractor(dict(answer)),
            dropped_items=answer.get("dropped_items", 0),
            omitted=recalled.omitted,
            degraded=recalled.degraded,
            pending_memories=recalled.pending_memories,
            pending_passages=recalled.pending_passages,
        )
        if outcome.task is not None:
            result.attempts = outcome.task.attempt
            result.usage.extend(wire.usage(json.loads(outcome.task.usage)))
            for entry in result.usage:
                set_cost(entry, self._prices)
        log.info(
            "question_ended",
            fallback=pb.AskFallback.Name(outcome.fallback),
            statements=statements,
            sources_removed=result.sources_removed,
            statements_removed=result.statements_removed,
        )
        return result


def _outcome_of(task: Task) -> _Outcome:
    if task.state == "completed":
        return _Outcome(task, json.loads(task.result))
    error = json.loads(task.error)
    if error["class"] == "out_of_budget":
        return _Outcome(task, None, pb.ASK_FALLBACK_OUT_OF_BUDGET, error["message"])
    if task.state == "cancelled" or error["class"] == "time_budget":
        return _Outcome(task, None, pb.ASK_FALLBACK_OUT_OF_TIME, error["message"])
    return _Outcome(task, None, pb.ASK_FALLBACK_FAILED, f"{error['class']}: {error['message']}")


def _delay_reason(task: Task) -> str:
    if not task.attempt:
        return "no extractor was free in time"
    error = json.loads(task.error) if task.error else None
    return f"the last attempt failed: {error['class']}" if error else "no extractor had answered in time"


def _no_answer(outcome: _Outcome) -> ApiError:
    """UNAVAILABLE: a model alone was to answer, and none did."""
    return ApiError(
        grpc.StatusCode.UNAVAILABLE,
        common_pb2.ERROR_REASON_NO_MODEL_ANSWER,
        f"No model answered the question: {outcome.message}. Repeat it later, or take a recall with model_only=false.",
        metadata={"fallback": pb.AskFallback.Name(outcome.fallback).removeprefix("ASK_FALLBACK_").lower()},
    )
