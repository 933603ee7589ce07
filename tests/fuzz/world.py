"""Things that are there while requests come: sessions with turns, memories, tasks, and a worker that holds leases."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import grpc

from runekeep.v1 import (
    common_pb2,
    memory_service_pb2,
    memory_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
    turn_memory_service_pb2_grpc,
)
from runekeep.v1 import turn_memory_service_pb2 as turns
from tests.fuzz.hostile import Metadata
from tests.fuzz.names import Names
from tests.support.callers import said
from tests.support.changes import put
from tests.support.turns import fingerprint, signal
from tests.support.worker import StreamEnded, Worker, write

CALL_SECONDS = 20.0
HELD = 6
"""Leases that are kept for requests to name."""


async def furnish(channel: grpc.aio.Channel, metadata: Metadata, names: Names) -> None:
    """Gives a user a session with two turns, a memory and a commit; what is in the way of it is left out."""

    async def call(method: Callable[..., Any], request: Any) -> Any:
        answer = None
        # The user may be deleted meanwhile, or be full.
        with contextlib.suppress(grpc.aio.AioRpcError):
            answer = await method(request, metadata=metadata, timeout=CALL_SECONDS)
            names.learn(answer)
        return answer

    sessions = session_service_pb2_grpc.SessionServiceStub(channel)
    memories = memory_service_pb2_grpc.MemoryServiceStub(channel)
    turn_memory = turn_memory_service_pb2_grpc.TurnMemoryServiceStub(channel)
    made = await call(sessions.CreateSession, session_service_pb2.CreateSessionRequest(title="tea"))
    if made is None:
        return
    session = made.session.session_id
    names.add("session_id", session)
    for turn in ("t1", "t2"):
        names.add("turn_id", turn)
        message = common_pb2.Message(
            role=common_pb2.ROLE_USER, peer_id="anna", turn_id=turn, parts=said("tea, hello").parts
        )
        tool = common_pb2.ToolPart(tool_id="c", tool_name="grep", output="x" * 21_000)
        parts = [common_pb2.Part(tool=tool)]
        answer = common_pb2.Message(role=common_pb2.ROLE_ASSISTANT, turn_id=turn, parts=parts)
        await call(
            sessions.AddMessages, session_service_pb2.AddMessagesRequest(session=session, messages=[message, answer])
        )
        submitted = fingerprint("Find tea", topics=["tea"], assistant_signals=[signal("shop", 1)])
        await call(
            turn_memory.SubmitTurn, turns.SubmitTurnRequest(session=session, turn_id=turn, fingerprint=submitted)
        )
    content = memory_service_pb2.WriteMemoriesRequest(
        changes=[put("events", event_name=f"e-{uuid4().hex[:8]}", event_time="2026", content="tea")]
    )
    await call(memories.WriteMemories, content)
    await call(sessions.CommitSession, session_service_pb2.CommitSessionRequest(session=session, keep_recent_count=1))
    await call(turn_memory.ReconcileMemoryBuckets, turns.ReconcileMemoryBucketsRequest(session=session))


class Holder:
    """A worker that does every other job, and holds some leases for requests to name."""

    def __init__(self, channel: grpc.aio.Channel, names: Names, rng: random.Random) -> None:
        self._channel = channel
        self._names = names
        self._rng = rng
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Holder":
        self._task = asyncio.create_task(self._forever())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _forever(self) -> None:
        while True:
            # Requests that name its leases end them, and its stream has done nothing wrong then.
            with contextlib.suppress(StreamEnded, TimeoutError, grpc.aio.AioRpcError):
                async with Worker(self._channel, f"holder-{uuid4().hex[:8]}") as worker:
                    await self._work(worker)
            await asyncio.sleep(0.05)

    async def _work(self, worker: Worker) -> None:
        held: list[Any] = []
        number = 0
        while True:
            lease = (await worker.take()).lease
            self._names.add("task_id", lease.job_id)
            number += 1
            if number % 2:
                await worker.deliver(lease, write("preferences", topic=f"Tea {number % 7}", content="Likes tea."))
                continue
            held.append(lease)
            self._names.leases.append((lease.job_id, lease.fencing_token))
            await worker.heartbeat(*held, sequence=number)
            if len(held) > HELD:
                await worker.release(held.pop(0))
