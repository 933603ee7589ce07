"""Answers AskMemory.

A question is a job while its call lasts. The call watches the job and sends the answer once it is applied, which is
after the check of its sources: so a worker that dies leaves nothing to take back. When the call ends, however it ends,
the job is cancelled and deleted. If no model answers, the statements are those of a recall, and the result says why.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc
import structlog

from runekeep.v1 import common_pb2
from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.secrets import withhold
from runekeep_server.identity import current_trace
from runekeep_server.memories.recalled_statements import recalled_statements
from runekeep_server.protocol.errors import ApiError, unavailable
from runekeep_server.protocol.idempotency import run_to_completion
from runekeep_server.protocol.secret_scan import scan_for_secrets
from runekeep_server.settings import Settings
from runekeep_server.tasks.prices import Price, set_cost
from runekeep_server.tasks.watchers import Watchers
from runekeep_server.wire import tasks as wire
from runekeep_storage.database import Space
from runekeep_storage.errors import NotFound, SpaceShut, StoreUnavailable
from runekeep_storage.jobs import asks, tasks
from runekeep_storage.records import Job, Task
from runekeep_storage.store import POSTGRES_SCHEMES, Store

RECALL_SHARE = 0.2
MAX_RECALL_SECONDS = 5.0
"""The model has this much less time than the call, or for a short call RECALL_SHARE of it less, so that a recall still
fits."""
OTHER_SERVER_SECONDS = 5.0
"""How long a question waits for a worker of another server, if none of this server answers questions."""
CALLER_GONE = "its caller no longer waits"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Ended:
    """What became of a question at the extractors. `answer`: the result of its task, None without one; then `fallback`
    and `message` say why, as in AskResult."""

    task: Task | None = None
    answer: Mapping[str, Any] | None = None
    fallback: pb.AskFallback.ValueType = pb.ASK_FALLBACK_UNSPECIFIED
    message: str = ""


class Asking:
    """One per server. `answered_for`: returns whether a worker of this server takes questions of an account; `queued`
    wakes the dispatcher; `cancelled` notifies the worker (best effort)."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        watchers: Watchers,
        prices: Mapping[str, Price],
        *,
        answered_for: Callable[[str], bool],
        queued: Callable[[], None],
        cancelled: Callable[[Job, str], None],
    ) -> None:
        self._store = store
        self._watchers = watchers
        self._prices = prices
        self._withhold_secrets = settings.withhold_secrets
        self._max_open = settings.max_open_questions_per_user
        self._has_other_servers = settings.store_url.startswith(POSTGRES_SCHEMES)
        self._default_seconds = settings.deadlines.ask_seconds
        self._answered_for = answered_for
        self._queued = queued
        self._cancelled = cancelled

    async def ask(
        self, space: Space, request: pb.AskMemoryRequest, remaining: float | None
    ) -> AsyncGenerator[pb.AskMemoryResponse]:
        """Yields progress, statements and the result. `remaining`: seconds until the caller's deadline; None: it sets
        none. Raises BacklogFull, IndexUnavailable, StoreUnavailable, and ApiError if only a model's answer is wanted
        and there is none."""
        question, withheld = request.question, 0
        if self._withhold_secrets:
            question, secrets = await scan_for_secrets(withhold, question)
            withheld = len(secrets)
        seconds = min(self._default_seconds if remaining is None else remaining, asks.MAX_SECONDS)
        seconds -= min(MAX_RECALL_SECONDS, RECALL_SHARE * seconds)
        ended = _Ended()
        async with aclosing(self._by_model(space, question, seconds)) as events:
            async for event in events:
                if isinstance(event, _Ended):
                    ended = event
                else:
                    yield pb.AskMemoryResponse(progress=event)
        if ended.answer is not None:
            statements = [
                pb.AnswerStatement(text=one["text"], sources=[pb.AnswerSource(**source) for source in one["sources"]])
                for one in ended.answer["statements"]
            ]
        elif request.model_only:
            raise _no_answer(ended)
        else:
            statements = await recalled_statements(self._store, space, question)
        for statement in statements:
            yield pb.AskMemoryResponse(statement=statement)
        yield pb.AskMemoryResponse(result=self._result(ended, len(statements), withheld))

    async def _by_model(self, space: Space, question: str, seconds: float) -> AsyncGenerator[pb.AskProgress | _Ended]:
        """Yields progress, then what became of the question. `seconds`: for all of it."""
        database, clock = self._store.database, asyncio.get_running_loop().time
        has_worker = self._answered_for(space.account)
        if not has_worker and not self._has_other_servers:
            yield _NO_EXTRACTOR
            return
        give_up_at = clock() + seconds
        claim_by = give_up_at if has_worker else min(give_up_at, clock() + OTHER_SERVER_SECONDS)
        trace = current_trace().traceparent
        queued = asyncio.create_task(self._queue(space, question, round(seconds * 1e6), trace))
        try:
            # Queued to the end even if the call ends now, so that there is something to delete.
            job_id = await asyncio.shield(queued)
            with self._watchers.watching(space, job_id) as watch:
                seen = 0
                while True:
                    watch.look()
                    try:
                        task, events = await database.read(tasks.events_after, space, job_id, seen)
                    except NotFound:
                        # The user was deleted, or an erasure removed the answer.
                        yield _Ended(fallback=pb.ASK_FALLBACK_FAILED, message="the user's data was deleted or erased")
                        return
                    watch.found(task.last_event)
                    for event in events:
                        seen = event.sequence
                        if event.kind == "progress":
                            progress = wire.progress(json.loads(event.body))
                            yield pb.AskProgress(attempt=event.attempt, progress=progress)
                    if task.ended:
                        yield _of_task(task)
                        return
                    if self._watchers.draining:
                        raise unavailable("server", "This server is going down")
                    if clock() >= give_up_at:
                        yield _Ended(task, None, pb.ASK_FALLBACK_OUT_OF_TIME, _waited_for(task))
                        return
                    if not task.attempt and clock() >= claim_by:
                        yield _NO_EXTRACTOR
                        return
                    await self._watchers.wait(watch, (give_up_at if task.attempt else claim_by) - clock())
        finally:
            await run_to_completion(self._forget(space, queued))

    async def _queue(self, space: Space, question: str, time: int, trace: str) -> str:
        job_id = await self._store.database.write(asks.queue, space, question, time, trace, self._max_open)
        self._queued()
        return job_id

    async def _forget(self, space: Space, queued: "asyncio.Task[str]") -> None:
        try:
            job_id = await queued
        except Exception:
            # The call fails with this error. Nothing was queued.
            return
        try:
            job = await self._store.database.write(asks.forget, space, job_id, CALLER_GONE)
        except (StoreUnavailable, SpaceShut) as error:
            # The answer is still good. The question is deleted later, as one that a killed server left behind.
            log.warning("question_not_deleted", job=job_id, error=type(error).__name__)
            return
        if job is not None:
            self._cancelled(job, CALLER_GONE)

    def _result(self, ended: _Ended, statements: int, withheld: int) -> pb.AskResult:
        answer = ended.answer or {}
        result = pb.AskResult(
            statements=statements,
            unknown=answer.get("unknown", ()),
            fallback=ended.fallback,
            fallback_message=ended.message,
            sources_removed=answer.get("sources_removed", 0),
            statements_removed=answer.get("statements_removed", 0),
            secrets_withheld=withheld + answer.get("secrets_withheld", 0),
            extractor=wire.extractor(dict(answer)),
        )
        if ended.task is not None:
            result.attempts = ended.task.attempt
            result.usage.extend(wire.usage(json.loads(ended.task.usage)))
            for entry in result.usage:
                set_cost(entry, self._prices)
        log.info(
            "question_ended",
            fallback=pb.AskFallback.Name(ended.fallback),
            statements=statements,
            sources_removed=result.sources_removed,
            statements_removed=result.statements_removed,
        )
        return result


_NO_EXTRACTOR = _Ended(
    fallback=pb.ASK_FALLBACK_NO_EXTRACTOR, message="no extractor that answers questions is connected"
)


def _of_task(task: Task) -> _Ended:
    if task.state == "completed":
        return _Ended(task, json.loads(task.result))
    error = json.loads(task.error)
    if error["class"] == "out_of_budget":
        return _Ended(task, None, pb.ASK_FALLBACK_OUT_OF_BUDGET, error["message"])
    if task.state == "cancelled":
        return _Ended(task, None, pb.ASK_FALLBACK_OUT_OF_TIME, error["message"])
    return _Ended(task, None, pb.ASK_FALLBACK_FAILED, f"{error['class']}: {error['message']}")


def _waited_for(task: Task) -> str:
    if not task.attempt:
        return "no extractor was free in time"
    error = json.loads(task.error) if task.error else None
    return f"the last attempt failed: {error['class']}" if error else "no extractor had answered in time"


def _no_answer(ended: _Ended) -> ApiError:
    """UNAVAILABLE: a model alone was to answer, and none did."""
    return ApiError(
        grpc.StatusCode.UNAVAILABLE,
        common_pb2.ERROR_REASON_NO_MODEL_ANSWER,
        f"No model answered the question: {ended.message}. Repeat it later, or take a recall with model_only=false.",
        metadata={"fallback": pb.AskFallback.Name(ended.fallback).removeprefix("ASK_FALLBACK_").lower()},
    )
