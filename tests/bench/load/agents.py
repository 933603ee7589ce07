"""A client process of agents that live: each is a user who appends, commits, searches, takes turns, and is deleted.

Reads a line from stdin (`Order` as JSON) and answers each with a line of JSON (`Told`): about what has ended since the
one before. An agent does one thing at a time and then rests, so that a server that becomes slow is asked less; its
commits go on meanwhile, and each is watched to its end. Who takes a deleted user's place has a connection of its own.
"""

import asyncio
import contextlib
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import grpc
import uvloop

from runekeep.v1 import memory_service_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as turns
from tests.bench.conversations import long
from tests.bench.turns import fingerprint, messages, name
from tests.support.callers import Caller, Failure

ACCOUNT = "bench"
REST_SECONDS = 1.0
"""From one thing to the next, on average."""
COMMIT_SECONDS = 300.0
BUDGET = 2000
"""Tokens of a recall."""
QUESTIONS = ("When does the dew-point sensor drift?", "Who types up the notes?", "What helped in the cryostat lab?")


@dataclass(frozen=True, slots=True)
class Order:
    """`begin`: `agents` of them, none of whom lives longer than `life` seconds. `tell`: what has ended. `end`: the
    last of it, once all have deleted themselves."""

    step: Literal["begin", "tell", "end"]
    address: str = ""
    agents: int = 0
    life: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class Told:
    """`seconds` of every call that was answered, by its kind; `failed`: how many calls and tasks ended otherwise than
    well, by kind and how."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> "Told":
        return cls(**json.loads(text))


class Book:
    """Where agents write down how what they did ended."""

    def __init__(self) -> None:
        self._told = Told()

    def told(self) -> Told:
        """Since the last time."""
        told, self._told = self._told, Told()
        return told

    @contextlib.contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        except grpc.aio.AioRpcError as error:
            self.failed(kind, repr(Failure(error)))
        else:
            self._told.seconds.setdefault(kind, []).append(time.perf_counter() - began)

    def failed(self, kind: str, how: str) -> None:
        said = f"{kind}: {how}"
        self._told.failed[said] = self._told.failed.get(said, 0) + 1


class Agent:
    """One user. `lot`: decides what it does next."""

    def __init__(self, caller: Caller, book: Book, lot: random.Random) -> None:
        self._caller = caller
        self._book = book
        self._lot = lot
        self._talk = itertools.cycle(long(200))
        self._names = (f"session-{number}" for number in itertools.count())
        self._session = ""
        self._turns = 0
        self._live = 0
        """Messages since the last commit."""
        self._task = ""
        self._watches: set[asyncio.Task[None]] = set()
        self._does = {
            self._append: 34,
            self._find: 14,
            self._recall: 8,
            self._context: 10,
            self._take_a_turn: 10,
            self._load_turns: 10,
            self._commit: 5,
            self._glance: 7,
            self._begin_anew: 2,
        }

    async def live(self, until: float, ending: asyncio.Event) -> None:
        """Until that time of the loop, or until all end; then nothing of it is left."""
        await self._begin_anew()
        while not ending.is_set() and asyncio.get_running_loop().time() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lot.expovariate(1 / REST_SECONDS)):
                    await ending.wait()
            await self._lot.choices(list(self._does), list(self._does.values()))[0]()
        await self._watched()
        with self._book.timed("delete a user"):
            await self._caller.memories.DeleteUser(memory_service_pb2.DeleteUserRequest(user=self._caller.user))

    async def _begin_anew(self) -> None:
        """A session in place of the last one, which is deleted."""
        await self._watched()
        if self._session:
            with self._book.timed("delete a session"):
                request = session_service_pb2.DeleteSessionRequest(session=self._session)
                await self._caller.sessions.DeleteSession(request)
        self._session, self._turns, self._live, self._task = next(self._names), 0, 0, ""
        with self._book.timed("create a session"):
            await self._caller.session(session_id=self._session)

    async def _append(self) -> None:
        with self._book.timed("append"):
            await self._caller.add(self._session, next(self._talk))
            self._live += 1

    async def _commit(self) -> None:
        if not self._live:
            await self._append()
        with self._book.timed("commit"):
            made = await self._caller.commit(self._session)
            self._live, self._task = 0, made.task_id
            watch = asyncio.create_task(self._watch(made.task_id))
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)

    async def _watch(self, task_id: str) -> None:
        with self._book.timed("commit to its end"):
            request = task_service_pb2.WatchTaskRequest(task_id=task_id)
            async for update in self._caller.tasks.WatchTask(request, timeout=COMMIT_SECONDS):
                if update.HasField("ended") and update.ended.state != task_service_pb2.TASK_STATE_COMPLETED:
                    self._book.failed("commit to its end", task_service_pb2.TaskState.Name(update.ended.state))

    async def _watched(self) -> None:
        await asyncio.gather(*self._watches)

    async def _glance(self) -> None:
        """A watcher that goes as soon as it has seen something."""
        if not self._task:
            return
        with self._book.timed("watch"):
            watch = self._caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=self._task))
            await watch.read()
            watch.cancel()

    async def _find(self) -> None:
        with self._book.timed("find"):
            self._checked("find", await self._caller.find(self._question(), limit=10))

    async def _recall(self) -> None:
        with self._book.timed("recall"):
            request = memory_service_pb2.RecallRequest(query=self._question(), token_budget=BUDGET)
            self._checked("recall", await self._caller.memories.Recall(request))

    async def _context(self) -> None:
        with self._book.timed("session context"):
            request = session_service_pb2.GetSessionContextRequest(session=self._session, token_budget=BUDGET)
            await self._caller.sessions.GetSessionContext(request)

    async def _take_a_turn(self) -> None:
        self._turns += 1
        with self._book.timed("append"):
            await self._caller.add(self._session, *messages(self._turns))
            self._live += 2
        with self._book.timed("submit a turn"):
            noted = fingerprint(self._turns)
            request = turns.SubmitTurnRequest(session=self._session, turn_id=name(self._turns), fingerprint=noted)
            await self._caller.turns.SubmitTurn(request)

    async def _load_turns(self) -> None:
        if not self._turns:
            return
        with self._book.timed("turn context"):
            request = turns.LoadTurnContextRequest(
                session=self._session, current_turn_id=name(self._turns + 1), audience=turns.CONTEXT_AUDIENCE_GATE
            )
            await self._caller.turns.LoadTurnContext(request)

    def _question(self) -> str:
        return f"{self._lot.choice(QUESTIONS)} ({self._lot.randrange(1000)})"

    def _checked(self, kind: str, answer: Any) -> None:
        for reason in answer.degraded:
            self._book.failed(kind, f"degraded, {reason}")


class Agents:
    """All of them, in tasks of their own."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._book = Book()
        self._ending = asyncio.Event()
        self._tasks = [asyncio.create_task(self._place(number)) for number in range(order.agents)]

    def told(self) -> Told:
        for task in self._tasks:
            if task.done():
                # Raises what ended it before its time.
                task.result()
        return self._book.told()

    async def end(self) -> Told:
        self._ending.set()
        await asyncio.gather(*self._tasks)
        return self.told()

    async def _place(self, number: int) -> None:
        """One user after another."""
        lot = random.Random(number)
        # They come and go one by one from the start.
        life = self._order.life * (number + 1) / self._order.agents
        for place in itertools.count():
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(self._order.address, options=options) as channel:
                caller = Caller(channel, f"agent-{number}-{place}", ACCOUNT)
                until = asyncio.get_running_loop().time() + life
                await Agent(caller, self._book, lot).live(until, self._ending)
            if self._ending.is_set():
                return
            life = self._order.life


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    agents: Agents | None = None
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = Order(**json.loads(line))
        if order.step == "begin":
            agents = Agents(order)
        assert agents is not None
        told = await agents.end() if order.step == "end" else agents.told()
        print(json.dumps(asdict(told)), flush=True)


if __name__ == "__main__":
    uvloop.run(_serve())
