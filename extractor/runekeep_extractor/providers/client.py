"""Asks models: finds out what a server supports, keeps within budgets, and counts and records every call."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor import telemetry
from runekeep_extractor.engine.interface import Job, JobFailed
from runekeep_extractor.prompts.reads import tool_definitions
from runekeep_extractor.prompts.static_prompt import answer_shape
from runekeep_extractor.providers.budget import answer_room, max_input_tokens, remaining_tokens
from runekeep_extractor.providers.errors import (
    FeatureRefused,
    NoAnswerInTime,
    ServerError,
    broke_off,
    failure_of,
    not_in_time,
    too_slow,
)
from runekeep_extractor.providers.features import Feature
from runekeep_extractor.providers.interface import (
    BOUNDS,
    JSON_MODE,
    STREAMING,
    STRUCTURED_OUTPUT,
    TOOLS,
    Image,
    Provider,
    Question,
    Reply,
    Stop,
    Turn,
    UserTurn,
)
from runekeep_extractor.providers.outage import Outage
from runekeep_extractor.providers.probe import THINKING_TOKENS, image_question, probe_of, tiny_question
from runekeep_extractor.providers.recording import BROKEN_OFF, TIMED_OUT, canonical, model_call
from runekeep_extractor.providers.usage import IMAGES, OPERATIONS, PROBE, REASONING, REPAIR, Ledger
from runekeep_extractor.settings import ModelSettings

LONG_ANSWER = 4096
"""Tokens. Calls whose answer may be as long are streamed."""

_COUNT_MARGIN = 1.02
"""Servers promise only an estimate of the tokens before a call."""


@dataclass(frozen=True, slots=True)
class _Priced:
    """A request that the job's budget allows. `features`: those that it uses; `written`: the result of `canonical`;
    `max_input_tokens`: upper bound of its input tokens.
    """

    request: Mapping[str, Any]
    features: frozenset[str]
    written: bytes
    max_input_tokens: int
    max_tokens: int


class ModelClient:
    """Asks the models of one server. Calls may run concurrently; those of one job run one after another."""

    def __init__(self, settings: ModelSettings, provider: Provider) -> None:
        self.outage = Outage(silence=settings.timeout)
        self._settings = settings
        self._provider = provider
        self._features: dict[str, Mapping[str, Feature]] = {}
        self._reads = tool_definitions()

    async def ask(
        self,
        system: Sequence[str],
        turns: Sequence[Turn],
        schema: Mapping[str, Any],
        *,
        job: Job,
        phase: str,
        max_tokens: int,
        may_read: bool | None,
        give_up_at: float,
        bounded: bool = False,
    ) -> Reply:
        """Returns the server's answer. Waits out an outage until `give_up_at`, a time of the loop.

        `phase` selects the model, and the call is counted under it in `job.spent`. Calls of a dialogue that ended in
        reads or ran out of room are counted as reasoning. Every answer is recorded in `job.calls`, and so is a call
        without an answer in time. `may_read` False keeps the tools in the prompt, for its cache, but forbids their use;
        None omits them. `schema` defines the form of the answer; if the server does not support schemas, words after
        `system` describe it. Its bounds of texts and lists are sent if `bounded`, to servers that keep to them. Raises
        JobFailed if the server gives no answer, and before the call if it might cost more than the job may spend.
        """
        question = Question(
            model=self._settings.model_for(phase),
            turns=turns,
            max_tokens=max_tokens,
            system=system,
            schema=self._provider.schema(schema, bounded=bounded),
            bounded=bounded,
            tools=() if may_read is None else self._reads,
            tool_choice="auto" if may_read else "none",
        )
        await self._find_out(question, job, give_up_at)
        return await self._call(question, job, phase, give_up_at)

    async def close(self) -> None:
        """Closes the connections."""
        await self._provider.close()

    async def takes_images(self, job: Job, give_up_at: float) -> bool:
        """Returns whether the model for images accepts any, tested with a neutral image. Raises JobFailed if the server
        cannot answer now.
        """
        try:
            await self._call(image_question(self._settings.model_for(IMAGES)), job, PROBE, give_up_at)
        except JobFailed as failed:
            if failed.failure_class not in (contract.FAILURE_CLASS_INTERNAL, contract.FAILURE_CLASS_UNSUPPORTED):
                raise
            return failed.failure_class != contract.FAILURE_CLASS_UNSUPPORTED
        return True

    def _features_of(self, model: str) -> Mapping[str, Feature]:
        """Returns the features of one model. A server may serve different kinds of models, so each is probed."""
        if model not in self._features:
            self._features[model] = self._provider.features()
        return self._features[model]

    async def _find_out(self, question: Question, job: Job, give_up_at: float) -> None:
        """Probes the features that the question needs and that are still unknown. Jobs that begin concurrently may both
        probe.
        """
        for name, feature in self._features_of(question.model).items():
            if feature.unsure and name in self._used(question):
                await self._probe(name, question.model, job, give_up_at)

    async def _probe(self, feature: str, model: str, job: Job, give_up_at: float) -> None:
        """Records whether the server has the feature. Raises JobFailed if it cannot answer now."""
        probe = probe_of(feature, model)
        question = probe.question
        try:
            reply = await self._call(question, job, PROBE, give_up_at)
            if reply.stop is Stop.TRUNCATED and not reply.text:
                question = replace(question, max_tokens=THINKING_TOKENS)
                reply = await self._call(question, job, PROBE, give_up_at)
            works = probe.shows(reply)
        except JobFailed as failed:
            if failed.failure_class != contract.FAILURE_CLASS_INTERNAL:
                raise
            works = False
        self._features_of(model)[feature].found(works)

    async def _call(self, question: Question, job: Job, phase: str, give_up_at: float) -> Reply:
        while True:
            try:
                return await self.outage.call(partial(self._attempt, question, job, phase), give_up_at)
            except FeatureRefused as refused:
                if refused.feature == question.probes:
                    raise
                # A probe decides whether other calls also do without it.
                if not self._features_of(question.model)[refused.feature].settled:
                    await self._probe(refused.feature, question.model, job, give_up_at)
                question = replace(question, without=question.without | {refused.feature})

    async def _attempt(self, question: Question, job: Job, phase: str) -> Reply:
        """Makes one call, which is counted unless it was refused or never reached the server. Raises JobFailed."""
        priced = await self._within_budget(question, job)
        with telemetry.model_call(self._provider.name, phase, question.model, priced.max_tokens) as call:
            return await self._answered(question, priced, job, phase, call)

    async def _answered(
        self, question: Question, priced: _Priced, job: Job, phase: str, call: telemetry.ModelCall
    ) -> Reply:
        model = question.model
        # 1 after the beginning of a streamed answer, and 1 more for each piece. A server may also begin one to refuse.
        heard = 0

        def hear() -> None:
            nonlocal heard
            heard += 1
            self.outage.heard()

        def give_up(stop_reason: str = TIMED_OUT) -> None:
            # The server may process the call to its end and charge for it, so it counts with its maximum cost.
            cost = common_pb2.TokenUsage(input_tokens=priced.max_input_tokens, output_tokens=priced.max_tokens)
            call.spent(phase, cost)
            Ledger(job.spent).add(phase, model, cost)
            job.calls.append(model_call(phase, model, priced.written, "", stop_reason))

        try:
            reply = await self._provider.send(priced.request, hear)
        except asyncio.CancelledError:
            # The attempt ran out of time during the answer.
            if heard:
                give_up()
            raise
        except NoAnswerInTime:
            give_up()
            raise (too_slow() if phase != PROBE and await self._answers(model, job) else not_in_time()) from None
        except ServerError as error:
            if heard > 1:
                give_up(BROKEN_OFF)
            failed = failure_of(error, images=any(_images(question)))
            feature = self._refused_feature(error, model, priced.features) if failed.retryable else None
            raise (failed if feature is None else FeatureRefused(feature, failed.message)) from error
        except JobFailed:
            if heard <= 1:
                raise
            give_up(BROKEN_OFF)
            # A connection that always breaks during this answer must not cost without end.
            if phase != PROBE and await self._answers(model, job):
                raise broke_off() from None
            raise
        usage = _counted(reply, priced.max_input_tokens)
        unfinished = reply.stop is Stop.TRUNCATED or bool(reply.tool_uses)
        counted_as = REASONING if unfinished and phase in (OPERATIONS, REPAIR) else phase
        call.answered(counted_as, model=reply.model, stop_reason=reply.stop_reason, usage=usage)
        Ledger(job.spent).add(counted_as, reply.model, usage)
        answer = json.dumps(reply.message, ensure_ascii=False) if reply.tool_uses else reply.text
        job.calls.append(model_call(counted_as, reply.model, priced.written, answer, reply.stop_reason))
        return reply

    async def _answers(self, model: str, job: Job) -> bool:
        """Returns whether the server answers a tiny question now. It is counted like any call. Raises JobFailed if the
        budget does not allow it.
        """
        try:
            await self._attempt(tiny_question(model), job, PROBE)
        except JobFailed as failed:
            if failed.failure_class == contract.FAILURE_CLASS_OUT_OF_BUDGET:
                raise
            # A server that refuses the question is there.
            return failed.failure_class == contract.FAILURE_CLASS_INTERNAL
        return True

    async def _within_budget(self, question: Question, job: Job) -> _Priced:
        """Returns the request with as much room for the answer as the budget allows. Raises JobFailed if that is too
        little.
        """
        features = self._used(question)
        request = self._provider.request(_in_words(question, features), features)
        written = canonical(request)
        input_tokens = max_input_tokens(written, [*_images(question)])
        room, remaining = question.max_tokens, remaining_tokens(job)
        if remaining is not None:
            if input_tokens + room > remaining:
                counted = await self._provider.count(request)
                if counted is not None:
                    input_tokens = min(input_tokens, int(counted * _COUNT_MARGIN) + 1)
            room = answer_room(question.max_tokens, input_tokens, remaining)
        if room < question.max_tokens:
            request = self._provider.with_max_tokens(request, room)
            written = canonical(request)
        return _Priced(request, features, written, input_tokens, room)

    def _used(self, question: Question) -> frozenset[str]:
        """Returns the features that a call uses: those that it needs and the server may have."""
        features = self._features_of(question.model)
        used = {name for name, feature in features.items() if feature.wanted} - question.without
        if question.schema is None:
            used -= {STRUCTURED_OUTPUT, JSON_MODE}
        if STRUCTURED_OUTPUT in used:
            used.discard(JSON_MODE)
        if STRUCTURED_OUTPUT not in used or not question.bounded:
            used.discard(BOUNDS)
        if question.max_tokens < LONG_ANSWER and question.probes != STREAMING:
            used.discard(STREAMING)
        return frozenset(used if question.tools else used - {TOOLS})

    def _refused_feature(self, error: ServerError, model: str, used: frozenset[str]) -> str | None:
        """Returns the feature of a refused request without which the call is worth repeating."""
        if not error.may_name_feature:
            return None
        for name, feature in self._features_of(model).items():
            # Another job may have learned it during this call.
            if name in used and (not feature.wanted or feature.is_probable_cause_of(error)):
                return name
        return None


def _in_words(question: Question, features: frozenset[str]) -> Question:
    """Returns the question with the form of the answer in words, if the call does without structured output."""
    if question.schema is None or STRUCTURED_OUTPUT in features or not question.system:
        return question
    return replace(question, system=[*question.system, answer_shape(question.schema)])


def _images(question: Question) -> Iterator[Image]:
    for turn in question.turns:
        if isinstance(turn, UserTurn):
            yield from (part for part in turn.parts if isinstance(part, Image))


def _counted(reply: Reply, max_input: int) -> common_pb2.TokenUsage:
    """Returns the server's counts, or upper bounds where it gives none: every prompt has tokens, and so does every
    answer.
    """
    usage = common_pb2.TokenUsage()
    usage.CopyFrom(reply.usage)
    if not usage.input_tokens + usage.cache_write_tokens + usage.cache_read_tokens:
        usage.input_tokens = max_input
    if not usage.output_tokens and reply.message:
        usage.output_tokens = len(canonical({"content": reply.message}))
    return usage
