"""Takes the cases in, asks their questions, and judges the answers. Everything paid for is in the state."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from google.protobuf import json_format

from runekeep import AsyncClient, RunekeepError
from runekeep.v1 import common_pb2
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.providers.errors import OUTAGES
from tests.bench.ingesting import await_commit, await_index, commit_session
from tests.bench.public.cases import Benchmark, Case, Prompt, Question, Score, Unreadable
from tests.bench.public.models import Model
from tests.bench.public.state import Key, State

T = TypeVar("T")

CALL_SECONDS: Final = 60.0


class Interrupted(Exception):
    """Something that the run needs is away, or refuses the credentials. What was paid for is stored."""


@dataclass(slots=True)
class Run:
    """One run over the cases. `budget`: tokens that Recall may return. `concurrency`: cases, and questions of all
    cases, that are under way at once. `scores`: by id of a question. `open`: why a question has no score, by its
    id."""

    benchmark: Benchmark
    state: State
    address: str
    answerer: Model
    judge: Model
    budget: int
    concurrency: int
    on_commit: Callable[[], None]
    on_question: Callable[[], None]
    scores: dict[str, Score] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)

    def recall_key(self, question: Question) -> Key:
        return "recall", str(self.budget), question.id

    def answer_key(self, question: Question) -> Key:
        return "answer", str(self.budget), str(self.answerer.name), question.id

    def judge_key(self, question: Question) -> Key:
        return "judge", str(self.budget), str(self.answerer.name), str(self.judge.name), question.id

    async def play(self, cases: Sequence[Case]) -> None:
        """Takes all cases in and asks their questions. Raises Interrupted."""
        some_cases, some_questions = asyncio.Semaphore(self.concurrency), asyncio.Semaphore(self.concurrency)

        async def play_one(case: Case) -> None:
            async with some_cases, AsyncClient(self.address, user=case.user, timeout=CALL_SECONDS) as client:
                await self._play(case, client, some_questions)

        reason = ""
        try:
            async with asyncio.TaskGroup() as group:
                for case in cases:
                    group.create_task(play_one(case))
        except* (Interrupted, RunekeepError, TimeoutError) as errors:
            reason = _first_text(errors)
        if reason:
            raise Interrupted(reason)

    async def _play(self, case: Case, client: AsyncClient, some_questions: asyncio.Semaphore) -> None:
        for session, messages in case.sessions.items():
            if self.state.get(commit_key(case), session) is None:
                task = await await_commit(client, await commit_session(client, session, messages, policy=case.policy))
                result: Mapping[str, Any] = task["result"] or {}
                usage = [_usage(one) for one in result.get("usage", ())]
                self.state.put(commit_key(case), session, task["status"], usage)
            self.on_commit()
        await await_index(client)

        async def ask(question: Question) -> None:
            async with some_questions:
                await self._ask(question, client)

        async with asyncio.TaskGroup() as group:
            for question in case.questions:
                group.create_task(ask(question))

    async def _ask(self, question: Question, client: AsyncClient) -> None:
        try:
            self.scores[question.id] = await self._score(question, client)
        except Unreadable as error:
            self.open[question.id] = str(error)
        except JobFailed as failed:
            if failed.failure_class in OUTAGES:
                raise Interrupted(failed.message) from failed
            self.open[question.id] = failed.message
        self.on_question()

    async def _score(self, question: Question, client: AsyncClient) -> Score:
        recalled = self.state.get(self.recall_key(question))
        if recalled is None:
            told = await client.recall(question.text, token_budget=self.budget)
            if told["degraded"]:
                raise Interrupted(f"Recall answered without {', '.join(told['degraded'])}")
            recalled = {"text": told["text"], "tokens": told["tokens"]}
            self.state.put(self.recall_key(question), "", recalled)
        prompt = self.benchmark.answer_prompt(question, recalled["text"])
        answer = await self.answerer.ask(self.state, self.answer_key(question), "", prompt, _answer)

        async def judged(item: str, prompt: Prompt, name: str, allowed: Sequence[T]) -> T:
            def read(said: Mapping[str, Any]) -> T:
                return _one_of(said[name], allowed)

            return await self.judge.ask(self.state, self.judge_key(question), item, prompt, read)

        return await self.benchmark.score(question, answer, judged)


def _first_text(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


def commit_key(case: Case) -> Key:
    return "commit", case.user


def _answer(said: Mapping[str, Any]) -> str:
    return str(said["answer"])


def _one_of(said: object, allowed: Sequence[T]) -> T:
    """Returns the allowed value that was meant. Texts match in upper and lower case, with a full stop or without."""
    for one in allowed:
        if isinstance(one, str):
            if isinstance(said, str) and said.strip().rstrip(".").casefold() == one.casefold():
                return one
        elif not isinstance(said, bool) and said == one:
            return one
    raise Unreadable(f"none of the verdicts {', '.join(map(str, allowed))}")


def _usage(entry: Mapping[str, Any]) -> common_pb2.TokenUsage:
    return json_format.ParseDict(dict(entry), common_pb2.TokenUsage())
