"""A client process that commits: sessions are filled, then committed and watched until their tasks end, then counted.

Reads one order a line from stdin (`Order` as JSON), answers each with one line on stdout (`Taken` as JSON). Each user
has a connection of its own and makes one commit after another; users work side by side.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import grpc
import uvloop

from runekeep.v1 import memory_service_pb2, session_service_pb2, task_service_pb2
from tests.bench.conversations import long
from tests.support.callers import Caller, Failure

ACCOUNT = "bench"
MESSAGES_A_CALL = 100
COMMIT_SECONDS = 300.0
"""After which a commit counts as lost."""
LOOK_SECONDS = 0.2
MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Order:
    """`prepare`: `commits` sessions of each user, of `messages` messages each. `commit`: all of them. `find`: until all
    messages can be found. `count`: the memories. `users` by name."""

    step: Literal["prepare", "commit", "find", "count"]
    address: str
    users: list[str]
    commits: int
    messages: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class Taken:
    """Of `commit`: seconds of all together, and of each from its call until its task was seen to have ended. `ends`:
    how many calls and tasks ended how; `extracted`: memories that the tasks' results tell of. Of `find`: messages that
    could not be found at first, and seconds that the first of them had waited. Of `count`: memories that there are."""

    seconds: float = 0.0
    each: list[float] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    extracted: int = 0
    pending: int = 0
    lag: float = 0.0
    memories: int = 0

    @classmethod
    def from_json(cls, text: str) -> "Taken":
        return cls(**json.loads(text))


class _Run:
    """One order being carried out."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._ends: Counter[str] = Counter()
        self._looking = asyncio.Lock()
        self.taken = Taken()

    async def carry_out(self) -> Taken:
        channels = [
            grpc.aio.insecure_channel(self._order.address, options=[("grpc.use_local_subchannel_pool", 1)])
            for _ in self._order.users
        ]
        try:
            await asyncio.gather(*(channel.channel_ready() for channel in channels))
            callers = [
                Caller(channel, user, ACCOUNT) for channel, user in zip(channels, self._order.users, strict=True)
            ]
            steps: dict[str, Callable[[Caller], Awaitable[None]]] = {
                "prepare": self._prepare,
                "commit": self._commit,
                "find": self._find,
                "count": self._count,
            }
            began = time.perf_counter()
            await asyncio.gather(*map(steps[self._order.step], callers))
            self.taken.seconds = time.perf_counter() - began
            self.taken.ends = dict(self._ends)
            return self.taken
        finally:
            await asyncio.gather(*(channel.close() for channel in channels))

    async def _prepare(self, caller: Caller) -> None:
        talk = long(self._order.commits * self._order.messages)
        for number in range(self._order.commits):
            session = await caller.session(session_id=_session(number))
            own = talk[number * self._order.messages : (number + 1) * self._order.messages]
            for start in range(0, len(own), MESSAGES_A_CALL):
                await caller.add(session, *own[start : start + MESSAGES_A_CALL])

    async def _commit(self, caller: Caller) -> None:
        for number in range(self._order.commits):
            began = time.perf_counter()
            try:
                task = await self._committed(caller, _session(number))
            except grpc.aio.AioRpcError as error:
                self._ends[repr(Failure(error))] += 1
                continue
            self.taken.each.append(time.perf_counter() - began)
            self._ends[task_service_pb2.TaskState.Name(task.state)] += 1
            self.taken.extracted += sum(task.result.memories_extracted.values())

    async def _committed(self, caller: Caller, session: str) -> Any:
        """The task, once it has ended."""
        made = await caller.sessions.CommitSession(session_service_pb2.CommitSessionRequest(session=session))
        watch = task_service_pb2.WatchTaskRequest(task_id=made.task_id)
        async for update in caller.tasks.WatchTask(watch, timeout=COMMIT_SECONDS):
            for kind in ("ended", "snapshot"):
                if update.HasField(kind) and getattr(update, kind).HasField("end_time"):
                    return getattr(update, kind)
        raise AssertionError("a watch ended before its task")

    async def _find(self, caller: Caller) -> None:
        found = await caller.find("anything", limit=1)
        self.taken.pending += found.pending_passages
        self.taken.lag = max(self.taken.lag, found.passage_lag.ToMicroseconds() / 1e6)
        # One user after another: each look takes of the embedder that the messages wait for.
        async with self._looking:
            while found.pending_passages:
                await asyncio.sleep(LOOK_SECONDS)
                found = await caller.find("anything", limit=1)

    async def _count(self, caller: Caller) -> None:
        everything = memory_service_pb2.GlobDocumentsRequest(
            pattern="**/*.md", uri=caller.uri("memories"), node_limit=MAX_ENTRIES
        )
        listed = await caller.memories.GlobDocuments(everything)
        assert not listed.truncated
        self.taken.memories += len(listed.entries)


def _session(number: int) -> str:
    return f"session-{number:05}"


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(asdict(await _Run(Order(**json.loads(line))).carry_out())), flush=True)


if __name__ == "__main__":
    uvloop.run(_serve())
