"""Two calls that others depend on.

The first phase of a commit archives the live messages and queues their extraction; it is measured at one client,
against appends of one message in the same run, in turns: 20 messages for each commit, each session of a user of its
own. No extractor runs. A repetition is BLOCKS of echoes, appends and commits by turns.

Then streams are opened that all follow one task, which is cancelled. The time is from the call that cancels it, the
transaction that it takes included, until the last stream has told its client; a repetition is the median of WATCHES of
them. Beside it, by turns, stands a bare gRPC server whose streams wait for one call. Memory is the server's own, for
each stream, connections included.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from runekeep.v1 import session_service_pb2, session_service_pb2_grpc, task_service_pb2, task_service_pb2_grpc
from tests.bench.figures import Figure, Floor, Target, p95
from tests.bench.load.client import DEADLINE, Order
from tests.bench.load.echo import END, SAY, WATCH
from tests.bench.load.process import Echo, Load, Watchers
from tests.bench.load.watchers import Order as Streams
from tests.bench.parts.appends import APPEND, CREATE, REQUEST_ID, append, caller
from tests.bench.resources import Standing, processor_seconds
from tests.bench.setting import Running, Setting

PART = "calls"
COMMIT = "/runekeep.v1.SessionService/CommitSession"
WATCH_TASK = "/runekeep.v1.TaskService/WatchTask"
COMMIT_REQUEST_ID = 2
COMMITTED = 20
"""Messages of each commit."""
COMMITS = 40
"""Of one block, and the number of sessions that are made for it."""
APPENDS = 80
ECHOES = 240
"""Of one block."""
BLOCKS = 5
TIMES_AN_APPEND = 3.0
WATCHERS = 1000
WATCHES = 3
CONNECTIONS = 50
KILOBYTES = 1000.0
"""Of a megabyte."""


async def measure(setting: Setting) -> list[Figure]:
    figures: list[Figure] = []
    for store in setting.stores:
        settings = {"RUNEKEEP_LIMITS__ACCOUNT_STREAMS": str(2 * WATCHERS)}
        async with (
            setting.server(store, settings=settings) as running,
            setting.load() as load,
            setting.echo() as echo,
            setting.watchers() as watchers,
        ):
            figures += await commits(setting, store, running, load, echo)
            figures += await watches(setting, store, running, echo, watchers)
    return figures


# The first phase of a commit


async def commits(setting: Setting, store: str, running: Running, load: Load, echo: Echo) -> list[Figure]:
    appended: list[list[float]] = []
    committed: list[list[float]] = []
    echoed: list[list[float]] = []
    spent: list[float] = []
    count = setting.count(COMMITS)
    with setting.bar(f"{store}: commits", setting.repeats + 1) as bar:
        for repetition in range(setting.repeats + 1):
            each: tuple[list[float], list[float], list[float]] = ([], [], [])
            milliseconds = []
            for block in range(BLOCKS):
                name = f"commit-{repetition}-{block}"
                await _said(load, running.address, name, count)
                one = [(append(name), caller())]
                each[0].extend((await load.run(Order(echo.address, SAY, 1, setting.count(ECHOES), one))).each)
                # The session of the last user, which is committed with the others.
                last = [(append(name), caller(count))]
                appends = setting.count(APPENDS)
                each[1].extend((await load.run(Order(running.address, APPEND, 1, appends, last, REQUEST_ID))).each)
                before = processor_seconds(running.server.pid)
                body = session_service_pb2.CommitSessionRequest(session=name).SerializeToString()
                requests = [(body, caller(user)) for user in range(count)]
                order = Order(running.address, COMMIT, 1, count, requests, COMMIT_REQUEST_ID)
                each[2].extend((await load.run(order)).each)
                milliseconds.append((processor_seconds(running.server.pid) - before) / count * 1000)
            if repetition:  # the first one warms up
                for series, times in zip((echoed, appended, committed), each, strict=True):
                    series.append(times)
                spent.append(statistics.mean(milliseconds))
            bar.step()
    bare = _p50(appended)
    return [
        Figure(PART, "append, 1 client", "ms", bare, store, _p95(appended), Floor("bare echo", _p50(echoed))),
        Figure(
            PART,
            f"commit of {COMMITTED} messages, its first phase, 1 client",
            "ms",
            _p50(committed),
            store,
            _p95(committed),
            Floor("append, 1 client", bare),
            Target("share", "at most", TIMES_AN_APPEND),
            {"server CPU a call, ms": statistics.median(spent)},
        ),
    ]


async def _said(load: Load, address: str, name: str, users: int) -> None:
    """A session of that name for each user, with what is to be committed, and an empty one of one more user."""
    create = session_service_pb2.CreateSessionRequest(session_id=name).SerializeToString()
    everybody = [(create, caller(user)) for user in range(users + 1)]
    await load.run(Order(address, CREATE, 4, len(everybody), everybody))
    said = [(append(name, COMMITTED), caller(user)) for user in range(users)]
    await load.run(Order(address, APPEND, 4, len(said), said, REQUEST_ID))


def _p50(each: list[list[float]]) -> list[float]:
    return [statistics.median(times) * 1000 for times in each]


def _p95(each: list[list[float]]) -> list[float]:
    return [p95(times) * 1000 for times in each]


# Watchers


@dataclass(slots=True)
class _Watched:
    """A repetition each: milliseconds until the last stream, and until half of them, had news; milliseconds of
    processor time of the server and of the client meanwhile."""

    last: list[float] = field(default_factory=list)
    median: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)

    def add(self, watches: "_Watched") -> None:
        """One more repetition: the median of some watches."""
        self.last.append(statistics.median(watches.last))
        self.median.append(statistics.median(watches.median))
        self.server.append(statistics.median(watches.server))
        self.client.append(statistics.median(watches.client))


async def watches(setting: Setting, store: str, running: Running, echo: Echo, watchers: Watchers) -> list[Figure]:
    streams = setting.count(WATCHERS)
    bare_call = append("watched"), caller()
    async with (
        grpc.aio.insecure_channel(running.address) as channel,
        grpc.aio.insecure_channel(echo.address) as bare_channel,
    ):

        async def once(name: str, ours: _Watched, bare: _Watched) -> tuple[float, float]:
            task = await _task(channel, name)
            order = Streams(running.address, WATCH_TASK, streams, CONNECTIONS, *task.watch)
            kilobytes = await _watched(ours, watchers, order, running.server.pid, task.end)
            order = Streams(echo.address, WATCH, streams, CONNECTIONS, *bare_call)
            return kilobytes, await _watched(bare, watchers, order, echo.pid, lambda: _end(bare_channel))

        with setting.bar(f"{store}: watchers", setting.repeats + 1) as bar:
            # Once to warm up. What memory it takes is told by these alone: the next find it taken, and free.
            kilobytes, bare_kilobytes = await once("warm", _Watched(), _Watched())
            bar.step()
            ours, bare = _Watched(), _Watched()
            for repetition in range(setting.repeats):
                some, some_bare = _Watched(), _Watched()
                for watch in range(setting.count(WATCHES)):
                    await once(f"watched-{repetition}-{watch}", some, some_bare)
                ours.add(some)
                bare.add(some_bare)
                bar.step()
    name = f"{streams:,} watchers of a task"
    return [
        Figure(
            PART, f"{name}, until the last has seen its end", "ms", ours.last, store, (),
            Floor("bare streams", bare.last), None,
            {
                "until half of them have, ms": statistics.median(ours.median),
                "server CPU, ms": statistics.median(ours.server),
                "client CPU, ms": statistics.median(ours.client),
            },
        ),
        Figure(
            PART, f"{name}, memory of the server for each", "kB", [kilobytes], store, (),
            Floor("bare streams", [bare_kilobytes]),
        ),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Task:
    """`watch`: the request that follows it, with its metadata. `end`: ends it."""

    watch: tuple[bytes, list[tuple[str, str]]]
    end: Callable[[], Any]


async def _task(channel: grpc.aio.Channel, name: str) -> _Task:
    """Of a commit that waits for an extractor."""
    sessions: Any = session_service_pb2_grpc.SessionServiceStub(channel)
    tasks: Any = task_service_pb2_grpc.TaskServiceStub(channel)
    metadata = caller()
    with_deadline = {"metadata": metadata, "timeout": DEADLINE}
    await sessions.CreateSession(session_service_pb2.CreateSessionRequest(session_id=name), **with_deadline)
    await sessions.AddMessages(session_service_pb2.AddMessagesRequest.FromString(append(name)), **with_deadline)
    made = await sessions.CommitSession(session_service_pb2.CommitSessionRequest(session=name), **with_deadline)

    def end() -> Any:
        return tasks.CancelTask(task_service_pb2.CancelTaskRequest(task_id=made.task_id), **with_deadline)

    return _Task((task_service_pb2.WatchTaskRequest(task_id=made.task_id).SerializeToString(), metadata), end)


def _end(channel: grpc.aio.Channel) -> Any:
    call: Any = channel.unary_unary(END)
    return call(append("watched"), timeout=DEADLINE)


async def _watched(found: _Watched, watchers: Watchers, order: Streams, pid: int, end: Callable[[], Any]) -> float:
    """Opens the streams, ends what they follow, and adds what was seen; how many kilobytes of the process each took."""
    before = Standing.of(pid).megabytes
    await watchers.open(order)
    opened = Standing.of(pid).megabytes
    spent = processor_seconds(pid)
    began = time.monotonic()
    await end()
    seen = await watchers.seen()
    found.server.append((processor_seconds(pid) - spent) * 1000)
    found.client.append(seen.processor * 1000)
    kilobytes = (opened - before) * KILOBYTES / order.streams
    after = sorted(at - began for at in seen.at)
    found.last.append(after[-1] * 1000)
    found.median.append(statistics.median(after) * 1000)
    return kilobytes
