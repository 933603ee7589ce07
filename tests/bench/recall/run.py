"""One real server, its callers, and what they ask of it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from runekeep.v1 import memory_service_pb2 as pb
from runekeep.v1 import memory_service_pb2_grpc, session_service_pb2, session_service_pb2_grpc
from tests.bench.recall.locomo import Conversation, Question
from tests.bench.recall.score import Asked
from tests.support.server_process import ServerProcess

ACCOUNT = "bench"
DEADLINE = 60.0
MESSAGES_A_CALL = 100
TIMED = 10
"""Results that a caller asks for whose wait is measured: what `find` gives unless told otherwise."""
_INHERITED = ("RUNEKEEP_EMBEDD", "RUNEKEEP_RERANK", "RUNEKEEP_SEARCH__")
RANKED = 100
"""Results that recall is counted in: of fewer, not every session would be named that has some."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one Recall gave: its tokens, and the messages among its entries that it tells in whole."""

    question: Question
    tokens: int
    messages: frozenset[str]


def model_settings() -> dict[str, str]:
    """Returns the settings of the environment that describe embedder, reranker and ranking."""
    return {name: value for name, value in os.environ.items() if name.startswith(_INHERITED)}


@asynccontextmanager
async def serving(
    data_dir: Path, embedder: str, reranker: str, search: Mapping[str, str], datatype: str = "float32"
) -> AsyncIterator["Callers"]:
    """A server with the embedder and the reranker on the directory; their other settings are those of the environment.
    `search`: settings of the ranking, by name. `datatype`: of the index."""
    ranking = {f"RUNEKEEP_SEARCH__{name.upper()}": value for name, value in search.items()}
    models = {"RUNEKEEP_EMBEDDER": embedder, "RUNEKEEP_RERANKER": reranker, "RUNEKEEP_INDEX_DATATYPE": datatype}
    settings = {**model_settings(), **models, **ranking}
    server = await asyncio.to_thread(ServerProcess(data_dir, settings, quick=False).start)
    try:
        async with grpc.aio.insecure_channel(server.address) as channel:
            yield Callers(channel)
    finally:
        await asyncio.to_thread(server.stop)


class Callers:
    """Stubs on one channel; each call names its user."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._sessions: Any = session_service_pb2_grpc.SessionServiceStub(channel)
        self._memories: Any = memory_service_pb2_grpc.MemoryServiceStub(channel)

    async def take_in(self, conversation: Conversation) -> None:
        """Every session with one commit. Nobody extracts: what is found is what was said."""
        for session, messages in conversation.sessions.items():
            made = session_service_pb2.CreateSessionRequest(session_id=session)
            await self._sessions.CreateSession(made, metadata=_caller(conversation.user), timeout=DEADLINE)
            for start in range(0, len(messages), MESSAGES_A_CALL):
                added = session_service_pb2.AddMessagesRequest(
                    session=session, messages=messages[start : start + MESSAGES_A_CALL]
                )
                await self._sessions.AddMessages(added, metadata=_caller(conversation.user), timeout=DEADLINE)
            commit = session_service_pb2.CommitSessionRequest(session=session)
            await self._sessions.CommitSession(commit, metadata=_caller(conversation.user), timeout=DEADLINE)

    async def waiting(self, conversation: Conversation) -> int:
        """Messages that cannot be found yet."""
        found = await self._find(conversation.user, "anything", 1)
        return int(found.pending_passages)

    async def ready(self, user: str, question: Question) -> None:
        """Waits until the embedder and the reranker are loaded."""
        async with asyncio.timeout(DEADLINE):
            while True:
                found = await self._find(user, question.text, TIMED)
                if not found.degraded:
                    return
                await asyncio.sleep(0.5)

    async def ask(self, user: str, questions: Sequence[Question]) -> list[Asked]:
        """One after the other, as one caller does."""
        asked = []
        for question in questions:
            started = time.perf_counter()
            timed = await self._find(user, question.text, TIMED)
            milliseconds = (time.perf_counter() - started) * 1000
            found = await self._find(user, question.text, RANKED)
            assert not timed.degraded and not found.degraded, (timed.degraded, found.degraded)
            asked.append(Asked(question, tuple(one.passage.message_id for one in found.results), milliseconds))
        return asked

    async def tell(self, user: str, questions: Sequence[Question], budget: int) -> list[Told]:
        """What Recall tells of each question within so many tokens."""
        told = []
        for question in questions:
            request = pb.RecallRequest(query=question.text, token_budget=budget, limit=50)
            answer = await self._memories.Recall(request, metadata=_caller(user), timeout=DEADLINE)
            assert not answer.degraded, answer.degraded
            whole = {one.message_id for one in answer.entries if one.level == pb.RECALL_LEVEL_FULL}
            told.append(Told(question, answer.tokens, frozenset(whole)))
        return told

    async def _find(self, user: str, query: str, limit: int) -> pb.FindMemoriesResponse:
        request = pb.FindMemoriesRequest(query=query, kinds=[pb.FOUND_KIND_PASSAGE], limit=limit)
        found: pb.FindMemoriesResponse = await self._memories.FindMemories(
            request, metadata=_caller(user), timeout=DEADLINE
        )
        return found


def _caller(user: str) -> tuple[tuple[str, str], ...]:
    return (("x-runekeep-account", ACCOUNT), ("x-runekeep-user", user))
