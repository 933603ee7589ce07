"""The load of one space: writers that commit, searchers and readers that look on, until they are told to stop."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import grpc

from runekeep.v1 import memory_service_pb2 as memory_pb
from runekeep.v1 import session_service_pb2 as session_pb
from runekeep.v1 import task_service_pb2 as task_pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from tests.crash.clients import AGAIN, CALL_SECONDS, PATIENCE_SECONDS, Client, Doors
from tests.crash.history import LEDGERS, Commit, History, Reading, Sight, Space, Turn, Way, digest, ids_of, own_words
from tests.crash.model import said
from tests.support.append_streams import OpenStream
from tests.support.callers import Caller, policy, used_tool
from tests.support.callers import said as message
from tests.support.turn_calls import in_turn, signal

TYPES = (*LEDGERS, "mark")
WRITERS = 2
"""Who commit when they are done with something; beside them one whose session commits by itself."""
OF_ITSELF = 4
"""Messages by which it does."""
READERS = 1
WAYS = tuple(Way)
RECONCILE_EVERY = 2
"""After so many commits a writer has its turns folded into buckets."""
AHEAD = 2
"""Commits that a writer leaves open before it waits for the oldest of them."""
BIG_EVERY = 2
"""One commit in so many has an output of several chunks, and a message with a large tool output."""
BY_STREAM = 0.5
"""Share of the talks that are appended by stream, both appends before the first is acknowledged."""
TOOL_CHARACTERS = 30_000
TARGETS = 10
"""Searches look for one of so many newest commits: some are open, some were just applied."""
WATCH_SECONDS = 10.0
PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of a load: clients that search, and how many results they ask for; seconds between two commits of a
    writer; and how long a call is repeated before a missing answer is a fault."""

    searchers: int = 3
    limit: int = 20
    pause: float = 0.0
    patience: float = PATIENCE_SECONDS


FULL_PACE = Pace()


class Load:
    """Clients of one space. Its ids start with `letter`, which no other space uses. `seed` decides everything
    random."""

    def __init__(
        self, doors: Doors, space: Space, letter: str, history: History, seed: str, pace: Pace = FULL_PACE
    ) -> None:
        self.space = space
        self.history = history
        self._doors = doors
        self._seed = f"{seed} {letter}"
        self._pace = pace
        self._ids = (f"c{letter}{number:05}" for number in itertools.count(1))
        self._recent: deque[str] = deque(["c0"], maxlen=TARGETS)
        self._known = 0
        """Newest revision that a client of this space was told of."""
        self._ledgers: dict[str, tuple[str, ...]] = {}
        self._stopping = asyncio.Event()
        self._writers: list[asyncio.Task[None]] = []
        self._lookers: list[asyncio.Task[None]] = []
        self.clients: list[Client] = []

    def start(self) -> None:
        self._writers = [
            asyncio.create_task(self._write(self._client(), by_itself=number == WRITERS))
            for number in range(WRITERS + 1)
        ]
        self.look_on()

    def look_on(self, ids: Sequence[str] = ()) -> None:
        """Starts the clients that search and read. Searches look for these commits, and for those that are made
        meanwhile."""
        self._recent.extend(ids)
        lookers = [self._search(self._client(), f"searcher-{n}", follows=n == 0) for n in range(self._pace.searchers)]
        lookers += [self._read(self._client(), f"reader-{n}") for n in range(READERS)]
        self._lookers = [asyncio.create_task(looker) for looker in lookers]

    @property
    def failed(self) -> BaseException | None:
        """What ended a loop that should go on; its reason is among the history's faults, or it is a fault of ours."""
        ended = [task for task in (*self._writers, *self._lookers) if task.done() and not task.cancelled()]
        return next((error for task in ended if (error := task.exception()) is not None), None)

    async def stop(self) -> None:
        """Lets writers see their commits through, then ends those who look on."""
        self._stopping.set()
        await asyncio.gather(*self._writers, return_exceptions=True)
        await self.end()

    async def end(self) -> None:
        """Ends all at once."""
        for task in (*self._writers, *self._lookers):
            task.cancel()
        await asyncio.gather(*self._writers, *self._lookers, return_exceptions=True)

    def _client(self) -> Client:
        seed = f"{self._seed} {len(self.clients)}"
        self.clients.append(Client(self._doors, self.space, self.history, seed, self._pace.patience))
        return self.clients[-1]

    # Writers

    async def _write(self, client: Client, *, by_itself: bool) -> None:
        create = session_pb.CreateSessionRequest(memory_policy=policy(types=TYPES), request_id=str(uuid4()))
        if by_itself:
            create.auto_commit.message_count = OF_ITSELF
        session = (await client.send("sessions", "CreateSession", create)).session.session_id
        waiting: deque[tuple[str, str]] = deque()
        others: deque[str] = deque()
        for turn in itertools.count(client.chance.randrange(BIG_EVERY * len(WAYS))):
            if self._stopping.is_set():
                break
            id = next(self._ids)
            big = turn % BIG_EVERY == 0
            if by_itself:
                # Its last message takes all of them along: nobody can submit the turn before.
                await self._submit(client, session, id, Way.COMMITTED)
                waiting.append((id, await self._talk_to_the_bound(client, session, id, big=big)))
                self._recent.append(id)
            else:
                await self._talk(client, session, id, client.chance.randint(2, 5), big=big)
                self._recent.append(id)
                others.append(await self._submit(client, session, id, WAYS[turn % len(WAYS)]))
                waiting.append((id, await self._commit(client, session, id, big=big)))
            if turn % RECONCILE_EVERY == 0:
                others.append(await self._reconcile(client, session))
            while len(waiting) > AHEAD:
                await self._see_through(client, *waiting.popleft())
            while len(others) > AHEAD:
                await self._follow(client, others.popleft())
            await asyncio.sleep(self._pace.pause)
        for id, task_id in waiting:
            await self._see_through(client, id, task_id)
        for task_id in others:
            await self._follow(client, task_id)
        while task_id := await self._reconcile(client, session):
            await self._follow(client, task_id)

    async def _talk(self, client: Client, session: str, id: str, count: int, *, big: bool) -> tuple[float, Any]:
        """So many messages, and a tool's where it is big, in two appends; when the last began, and its answer."""
        ids = [f"{id}-{number}" for number in range(count)]
        # Of the user only the first, so that the extractor has one query to make of it.
        messages = [
            message(said(id, number, big=big), id=name, role=1 if number == 0 else 2) for number, name in enumerate(ids)
        ]
        if big:
            # Its output is kept apart from the message, and put together again by whichever server is asked.
            messages.append(used_tool(f"tool-{id}", f"{id} {'output ' * (TOOL_CHARACTERS // 7)}", id=f"{id}-tool"))
        cut = client.chance.randint(0, len(messages) - 1)
        if client.chance.random() < BY_STREAM:
            groups = [[in_turn(id, one) for one in some] for some in (messages[:cut], messages[cut:]) if some]
            return time.monotonic(), await append_by_stream(client, session, groups)
        if cut:
            await append(client, session, [in_turn(id, one) for one in messages[:cut]])
        return time.monotonic(), await append(client, session, [in_turn(id, one) for one in messages[cut:]])

    async def _talk_to_the_bound(self, client: Client, session: str, id: str, *, big: bool) -> str:
        """Id of the task of the commit that the last append made."""
        invoked, answer = await self._talk(client, session, id, OF_ITSELF - big, big=big)
        if not answer.auto_commit.archived or answer.live_message_count:
            self.history.faults.append(f"what was said of {id} reached its bound, and was not committed")
        commit = Commit(self.space, id, big, answer.auto_commit.task_id, invoked, time.monotonic())
        self.history.commits.append(commit)
        return commit.task_id

    async def _submit(self, client: Client, session: str, id: str, way: Way) -> str:
        """Id of the turn's task, empty where it is left to the commit."""
        task_id = ""
        if way is not Way.COMMITTED:
            request = turn_pb.SubmitTurnRequest(session=session, turn_id=id, extract=True, request_id=str(uuid4()))
            if way is Way.OWN:
                own = own_words(id)
                request.fingerprint.objective = own.objective
                request.fingerprint.assertions.extend(signal(*pair) for pair in own.assertions)
            task_id = (await client.send("turns", "SubmitTurn", request)).task_id
        self.history.turns.append(Turn(self.space, session, id, way, task_id))
        return task_id

    async def _reconcile(self, client: Client, session: str) -> str:
        """Id of a task that folds what is new into buckets; empty when nothing is."""
        request = turn_pb.ReconcileMemoryBucketsRequest(session=session, request_id=str(uuid4()))
        task_id: str = (await client.send("turns", "ReconcileMemoryBuckets", request)).task_id
        if task_id:
            self.history.reconciled.setdefault(self.space, set()).add(task_id)
        return task_id

    async def _commit(self, client: Client, session: str, id: str, *, big: bool) -> str:
        request = session_pb.CommitSessionRequest(session=session, request_id=str(uuid4()))
        invoked = time.monotonic()
        answer = await client.send("sessions", "CommitSession", request)
        commit = Commit(self.space, id, big, answer.task_id, invoked, time.monotonic())
        self.history.commits.append(commit)
        return commit.task_id

    async def _see_through(self, client: Client, id: str, task_id: str) -> None:
        """Follows a commit to its end, then searches for what it says it did."""
        ended = await self._follow(client, task_id)
        self._known = max(self._known, ended.result.revision)
        if ended.state == task_pb.TASK_STATE_COMPLETED:
            sight = await self._sight(client, f"writer of {id}", id, ended.result.revision, insist=True)
            if sight is not None:
                self.history.sights.append(sight)

    async def _follow(self, client: Client, task_id: str) -> Any:
        """The task as it ended, event by event; none for an empty id."""
        if not task_id:
            return None
        last = 0

        async def follow(caller: Caller) -> Any:
            nonlocal last
            request = task_pb.WatchTaskRequest(task_id=task_id, after_sequence=last)
            watch = caller.tasks.WatchTask(request, timeout=WATCH_SECONDS)
            async for update in watch:
                match update.WhichOneof("update"):
                    case "event":
                        if update.event.sequence != last + 1:
                            self.history.faults.append(
                                f"event {update.event.sequence} of task {task_id} came after {last}"
                            )
                        last = update.event.sequence
                    case "ended":
                        return update.ended
            # The stream of a server that goes down ends in order, before the task does.
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "the watch ended early"
            )

        return await client.insist("WatchTask", follow)

    # Those who look on

    async def _search(self, client: Client, reader: str, *, follows: bool) -> None:
        """`follows`: always asks for the newest revision that it has seen, so that time never goes back."""
        minimum = 0
        while True:
            sight = await self._sight(client, reader, client.chance.choice(self._recent), minimum, insist=False)
            if sight is not None:
                self.history.sights.append(sight)
                minimum = max(minimum, sight.revision) if follows else 0
            await asyncio.sleep(PAUSE_SECONDS)

    async def _sight(self, client: Client, reader: str, target: str, minimum: int, *, insist: bool) -> Sight | None:
        """One search; None when the server was away and `insist` is not asked for."""
        request = memory_pb.FindMemoriesRequest(
            query=f"{target} ledger",
            kinds=[memory_pb.FOUND_KIND_MEMORY],
            limit=self._pace.limit,
            view=memory_pb.MEMORY_VIEW_FULL,
            min_revision=minimum,
        )
        started = time.monotonic()
        try:
            if insist:
                answer = await client.send("memories", "FindMemories", request)
            else:
                answer = await client.once("memories", "FindMemories", request)
        except grpc.aio.AioRpcError as error:
            if error.code() not in AGAIN:
                raise
            return None
        ended = time.monotonic()
        memories = [item.memory for item in answer.results]
        # A result for which an answer has no room comes without its content.
        whole = [item.memory for item in answer.results if item.view == memory_pb.MEMORY_VIEW_FULL]
        ledgers = {one.memory_type: self._ids_in(one) for one in whole if one.memory_type in LEDGERS}
        marks = frozenset(_name(one) for one in memories if one.memory_type == "mark")
        own = f"viking://user/{self.space.user}/"
        foreign = frozenset(one.uri for one in memories if not one.uri.startswith(own))
        return Sight(
            self.space, reader, target, started, ended, minimum, answer.revision, ledgers, marks, foreign,
            is_full=len(whole) < len(memories) or len(memories) >= request.limit, latest=answer.latest_revision,
        )  # fmt: skip

    async def _read(self, client: Client, reader: str) -> None:
        for ledger in itertools.cycle(LEDGERS):
            request = memory_pb.GetMemoryRequest(uri=f"viking://user/memories/{ledger}.md")
            try:
                memory = (await client.once("memories", "GetMemory", request)).memory
            except grpc.aio.AioRpcError as error:
                if error.code() not in AGAIN | {grpc.StatusCode.NOT_FOUND}:
                    raise
            else:
                reading = Reading(self.space, reader, ledger, memory.revision, self._ids_in(memory))
                self.history.readings.append(reading)
            await asyncio.sleep(4 * PAUSE_SECONDS)

    def _ids_in(self, memory: Any) -> tuple[str, ...]:
        """Ids of a ledger. Equal contents give one and the same tuple, for a run sees each many times."""
        content = memory.fields["content"].string_value
        if content not in self._ledgers:
            self._ledgers[content] = ids_of(content)
        return self._ledgers[content]


def _name(memory: Any) -> str:
    """Returns the name of a mark, from its URI."""
    name: str = memory.uri.rpartition("/")[2].removesuffix(".md")
    return name


async def append(client: Client, session: str, messages: list[Any]) -> Any:
    """Appends with a request id, however often it takes, notes what was answered, and gives it."""
    request = session_pb.AddMessagesRequest(session=session, messages=messages, request_id=str(uuid4()))
    answer = await client.send("sessions", "AddMessages", request)
    note(client, session, messages)
    return answer


async def append_by_stream(client: Client, session: str, groups: list[list[Any]]) -> Any:
    """Appends each group by a stream, and by further ones until all are acknowledged. Gives the last answer."""
    requests = [
        session_pb.AddMessagesRequest(session=session, messages=messages, request_id=str(uuid4()))
        for messages in groups
    ]
    answers: list[Any] = []

    async def call(caller: Caller) -> None:
        left = requests[len(answers) :]
        async with OpenStream.of(caller, CALL_SECONDS) as stream:
            for one in left:
                await stream.send(one)
            for number in range(1, len(left) + 1):
                answer = await stream.answer(number)
                if not answer.HasField("added"):
                    client.history.faults.append(f"an append by stream was answered {answer.error.message}")
                answers.append(answer.added)

    await client.insist("StreamMessages", call)
    for messages in groups:
        note(client, session, messages)
    return answers[-1]


def note(client: Client, session: str, messages: list[Any]) -> None:
    """Adds messages whose append was answered to the history."""
    added = client.history.added.setdefault((client.space, session), [])
    added += [one.id for one in messages]
    client.history.contents.update((one.id, digest(texts_of(one))) for one in messages)


def texts_of(message: Any) -> list[str]:
    """Returns the texts and tool outputs of a message's parts."""
    return [part.tool.output if part.HasField("tool") else part.text.text for part in message.parts]
