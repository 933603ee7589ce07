"""Appends by stream, beside a bare stream echo and beside calls of AddMessages.

Each of 16 clients keeps one stream of a user of its own, or of one session that all append to, and has one append under
way, or 16. The bare stream echo is another gRPC server that reads each message of a stream and sends it back; its
clients have as many messages under way, each in a request of its own. In a stream of appends those that may be sent at
the same moment share a request, and so do their acknowledgements. AddMessages is called by as many clients, who each
wait for their answer. All three go by turns, in four slices of about a second, and a repetition counts all slices of
one together.

Who waits for each acknowledgement before the next append asks for a short time: its p50 is held against that of a call.
Who has 16 under way asks for a high rate: that is held against the echo. Both are held against the rate of calls.

Every append has a request id. Processor time is that of the server's own process, without PostgreSQL's.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.bench.figures import Figure, Floor, Target
from tests.bench.load import streams
from tests.bench.load.client import Order, Taken
from tests.bench.load.echo import STREAM
from tests.bench.load.process import Echo, Load, Streams
from tests.bench.parts.appends import APPEND, REQUEST_ID, TURNS, Requests, Series, append, caller, make_sessions
from tests.bench.resources import processor_seconds
from tests.bench.setting import Bar, Running, Setting

PART = "streams"
STREAM_MESSAGES = "/runekeep.v1.SessionService/StreamMessages"
CLIENTS = 16
WAYS = {
    "to one session, one under way": (False, 1),
    "to many sessions, one under way": (True, 1),
    "to one session, 16 under way": (False, 16),
    "to many sessions, 16 under way": (True, 16),
}
"""Whether to many sessions, and how many of each client are under way."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one measurement: so many that each of the three takes about as long."""

    echo: int
    stream: int
    call: int = 8000


COUNTS = {1: Counts(32_000, 12_000), 16: Counts(40_000, 28_000)}
"""By how many of each client are under way."""
OF_THE_ECHO = 0.60
TIMES_A_CALL = 2.0


@dataclass(slots=True)
class Found:
    """What was measured in turns."""

    stream: Series = field(default_factory=Series)
    echo: Series = field(default_factory=Series)
    call: Series = field(default_factory=Series)


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured side by side, on one store."""

    setting: Setting
    store: str
    running: Running
    load: Load
    streams: Streams
    echo: Echo

    async def in_turns(self, found: Found, under_way: int, requests: Requests) -> None:
        counts = COUNTS[under_way]
        count = {name: self.setting.count(getattr(counts, name)) // TURNS for name in ("echo", "stream", "call")}

        def streamed(address: str, method: str, name: str) -> streams.Order:
            is_echo = name == "echo"
            return streams.Order(address, method, CLIENTS, count[name], under_way, requests, REQUEST_ID, is_echo)

        echo = streamed(self.echo.address, STREAM, "echo")
        ours = streamed(self.running.address, STREAM_MESSAGES, "stream")
        call = Order(self.running.address, APPEND, CLIENTS, count["call"], requests, REQUEST_ID)
        pid = self.running.server.pid
        measured: list[tuple[Series, int, Callable[[], Coroutine[Any, Any, Taken]]]] = [
            (found.echo, self.echo.pid, lambda: self.streams.run(echo)),
            (found.stream, pid, lambda: self.streams.run(ours)),
            (found.call, pid, lambda: self.load.run(call)),
        ]
        slices: list[list[tuple[Taken, float]]] = [[] for _ in measured]
        for _ in range(TURNS):
            for some, (_, process, run) in zip(slices, measured, strict=True):
                before = processor_seconds(process)
                taken = await run()
                some.append((taken, processor_seconds(process) - before))
        for some, (series, _, _) in zip(slices, measured, strict=True):
            series.add(Taken.together([taken for taken, _ in some]), sum(spent for _, spent in some))


async def measure(setting: Setting) -> list[Figure]:
    figures: list[Figure] = []
    for store in setting.stores:
        async with (
            setting.server(store) as running,
            setting.load() as load,
            setting.append_streams() as client,
            setting.echo() as echo,
        ):
            bench = Bench(setting, store, running, load, client, echo)
            with setting.bar(f"{store}: appends by stream", (setting.repeats + 1) * len(WAYS)) as bar:
                # Once to warm up.
                await _once(bench, "warm", defaultdict(Found), bar)
                found: defaultdict[str, Found] = defaultdict(Found)
                for repetition in range(setting.repeats):
                    await _once(bench, str(repetition), found, bar)
            figures += [figure for way in WAYS for figure in _figures(store, way, found[way])]
    return figures


async def _once(bench: Bench, name: str, found: defaultdict[str, Found], bar: Bar) -> None:
    await make_sessions(bench.load, bench.running.address, [f"one-{name}"])
    await make_sessions(bench.load, bench.running.address, [f"many-{name}"], CLIENTS)
    one = [(append(f"one-{name}"), caller())]
    many = [(append(f"many-{name}"), caller(user)) for user in range(CLIENTS)]
    for way, (to_many, under_way) in WAYS.items():
        await bench.in_turns(found[way], under_way, many if to_many else one)
        bar.step()


def _figures(store: str, way: str, found: Found) -> list[Figure]:
    stream, echo, call = found.stream, found.echo, found.call
    name = f"append by stream {way}, {CLIENTS} clients"
    is_single = WAYS[way][1] == 1
    notes = {**stream.notes, "server CPU of the echo, ms": statistics.median(echo.server)}
    return [
        Figure(
            PART,
            name,
            "appends/s",
            stream.rates,
            store,
            (),
            Floor("bare stream echo", echo.rates),
            None if is_single else Target("share", "at least", OF_THE_ECHO),
            notes,
        ),
        Figure(
            PART,
            f"{name}, beside a call",
            "appends/s",
            stream.rates,
            store,
            (),
            Floor("AddMessages", call.rates),
            Target("share", "at least", TIMES_A_CALL),
        ),
        Figure(
            PART,
            f"{name}, beside a call",
            "ms",
            stream.p50,
            store,
            stream.p95,
            Floor("AddMessages", call.p50),
            Target("share", "at most", 1.0) if is_single else None,
        ),
    ]
