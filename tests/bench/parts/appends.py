"""Messages of some 150 characters are appended through the API by a client process, in which each client has a
connection of its own and makes one call at a time.

Beside them stands a bare gRPC server in the same style that is sent the same requests and gives them back: what it
reaches is the floor. Each way has an echo of its own: a measurement is four slices of up to a second, of the
echo and of the way by turns, and counts all calls of one together, so that both had the same slow seconds of the
machine.

"With a request id" is as our client sends every append: the server remembers it, so that the call can be repeated
harmlessly. One session is one that all clients append to; many sessions are one for each client, each of a user of its
own. A bare insert is a transaction of one INSERT of as many characters by the store's own driver, with as many writers,
in a process of its own.

The client is Python too, and what it takes of the processor stands beside each figure: where client and server together
use all processors, the rate is the machine's. Processor time, unlike the time by the clock, depends little on what else
the machine does; the server's is that of its own process, without PostgreSQL's.
"""

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from runekeep.v1 import common_pb2, session_service_pb2
from tests.bench.figures import Figure, Floor, Target, p95, ratio
from tests.bench.load import inserts
from tests.bench.load.client import Order, Taken
from tests.bench.load.echo import SAY
from tests.bench.load.process import Echo, Inserts, Load
from tests.bench.resources import processor_seconds
from tests.bench.setting import Bar, Running, Setting

PART = "appends"
APPEND = "/runekeep.v1.SessionService/AddMessages"
CREATE = "/runekeep.v1.SessionService/CreateSession"
REQUEST_ID = 3
"""Number of the field in AddMessagesRequest."""
TEXT = "One more thing, said in a sentence of a usual length. And that is all of it. " * 2


@dataclass(frozen=True, slots=True)
class Calls:
    """Of one measurement: so many that echo and appends take about as long, 4 s each at 16 clients, 1 s otherwise."""

    echo: int
    append: int


TURNS = 4
"""Slices of one measurement. An echo by itself differs by a tenth and more from one half second to the next; in slices
that are much shorter than a second it is slower, for its connections are new and caches are full of others' work."""

CALLS = {1: Calls(1600, 560), 16: Calls(19_200, 7168), 64: Calls(5120, 2048)}
"""By clients, each of whom makes as many in a slice. There are as many inserts as echoes."""
MANY = max(CALLS)
WAYS = {
    "append to one session, with a request id": (False, REQUEST_ID),
    "append to one session, without a request id": (False, 0),
    "append to many sessions, with a request id": (True, REQUEST_ID),
}
"""Whether to many sessions, and the field of the request id."""
TARGET_CLIENTS = 16
OF_THE_ECHO = 0.60

BATCHES = {1: Calls(7680, 2560), 10: Calls(6400, 1536), 100: Calls(3840, 384)}
"""By messages in a call."""
BATCH_CLIENTS = 16

LENGTHS = (100, 1_000, 10_000, 100_000)
APPENDS_A_LENGTH = 100
"""Of one measurement. The shortest session is made anew for each, so that it stays short."""
FILL_BATCH = 100
FILL_CLIENTS = 4
FLAT = 1.10


def caller(number: int = 0) -> list[tuple[str, str]]:
    """Metadata of a user."""
    return [("x-runekeep-account", "bench"), ("x-runekeep-user", f"user-{number:03}")]


def append(session: str, count: int = 1) -> bytes:
    """A request that appends so many messages."""
    part = common_pb2.Part(text=common_pb2.TextPart(text=TEXT))
    message = common_pb2.Message(role=common_pb2.ROLE_USER, parts=[part])
    return session_service_pb2.AddMessagesRequest(session=session, messages=[message] * count).SerializeToString()


async def make_sessions(load: Load, address: str, names: Sequence[str], users: int = 1) -> None:
    """Each name for every user."""
    made = [
        (session_service_pb2.CreateSessionRequest(session_id=name).SerializeToString(), caller(user))
        for name in names
        for user in range(users)
    ]
    await load.run(Order(address, CREATE, min(len(made), FILL_CLIENTS), len(made), made))


@dataclass(slots=True)
class Series:
    """What was measured of one thing, a repetition each. `server`, `client`: milliseconds of processor time a call."""

    rates: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p95: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)

    def add(self, taken: Taken, server_seconds: float, units: int = 1) -> None:
        """`units`: what each call counts for."""
        calls = len(taken.each)
        self.rates.append(taken.rate * units)
        self.p50.append(taken.p50)
        self.p95.append(taken.p95)
        self.server.append(server_seconds / calls * 1000)
        self.client.append(taken.processor / calls * 1000)

    @property
    def notes(self) -> dict[str, float]:
        return {
            "server CPU a call, ms": statistics.median(self.server),
            "client CPU a call, ms": statistics.median(self.client),
        }


@dataclass(slots=True)
class Beside:
    """What was measured in turns with an echo, and that echo."""

    append: Series = field(default_factory=Series)
    echo: Series = field(default_factory=Series)


@dataclass(slots=True)
class Found:
    """By clients: each way, and inserts."""

    ways: defaultdict[tuple[int, str], Beside] = field(default_factory=lambda: defaultdict(Beside))
    inserts: defaultdict[int, Series] = field(default_factory=lambda: defaultdict(Series))


Slice = tuple[Taken, float]
"""With the seconds of the server's processor."""
Requests = list[tuple[bytes, list[tuple[str, str]]]]


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured side by side, on one store."""

    setting: Setting
    store: str
    running: Running
    load: Load
    echo: Echo
    inserts: Inserts

    async def in_turns(
        self, found: Beside, clients: int, calls: Calls, requests: Requests, id_field: int, units: int = 1
    ) -> None:
        """One measurement: slices of the echo and of the append, which are sent the same requests."""
        turns = self.setting.count(TURNS)
        echo = Order(self.echo.address, SAY, clients, self.setting.count(calls.echo // TURNS), requests)
        count = self.setting.count(calls.append // TURNS)
        ours = Order(self.running.address, APPEND, clients, count, requests, id_field)
        slices: tuple[list[Slice], list[Slice]] = ([], [])
        for _ in range(turns):
            for order, pid, some in zip((echo, ours), (self.echo.pid, self.running.server.pid), slices, strict=True):
                before = processor_seconds(pid)
                taken = await self.load.run(order)
                some.append((taken, processor_seconds(pid) - before))
        for series, some in zip((found.echo, found.append), slices, strict=True):
            series.add(Taken.together([taken for taken, _ in some]), sum(spent for _, spent in some), units)


async def measure(setting: Setting) -> list[Figure]:
    figures: list[Figure] = []
    for store in setting.stores:
        async with contextlib.AsyncExitStack() as stack:
            bench = Bench(
                setting,
                store,
                await stack.enter_async_context(setting.server(store)),
                await stack.enter_async_context(setting.load()),
                await stack.enter_async_context(setting.echo()),
                await stack.enter_async_context(setting.inserts(store)),
            )
            figures += [*await by_clients(bench), *await by_batch(bench), *await by_length(bench)]
    return figures


# By clients


async def by_clients(bench: Bench) -> list[Figure]:
    setting = bench.setting
    with setting.bar(f"{bench.store}: appends by clients", (setting.repeats + 1) * len(CALLS)) as bar:
        # Once to warm up.
        await _clients_once(bench, "warm", Found(), bar)
        found = Found()
        for repetition in range(setting.repeats):
            await _clients_once(bench, str(repetition), found, bar)
    return [figure for clients in CALLS for figure in client_figures(bench.store, clients, found)]


async def _clients_once(bench: Bench, name: str, found: Found, bar: Bar) -> None:
    """All ways in turns, with each number of clients."""
    await make_sessions(bench.load, bench.running.address, [f"one-{name}"])
    await make_sessions(bench.load, bench.running.address, [f"many-{name}"], MANY)
    one = [(append(f"one-{name}"), caller())]
    for clients, calls in CALLS.items():
        many = [(append(f"many-{name}"), caller(user)) for user in range(clients)]
        for way, (to_many, id_field) in WAYS.items():
            await bench.in_turns(found.ways[clients, way], clients, calls, many if to_many else one, id_field)
        count = bench.setting.count(calls.echo)
        inserted = await bench.inserts.run(inserts.Order(clients, count, len(TEXT)))
        found.inserts[clients].add(inserted, inserted.processor)
        bar.step()


def ratio_of_medians(each: Sequence[float], floor: Sequence[float]) -> float:
    """Of the medians: processor time is counted in hundredths of a second, and in a short run there may be none."""
    least = statistics.median(floor)
    return statistics.median(each) / least if least else 0.0


def client_figures(store: str, clients: int, found: Found) -> list[Figure]:
    by = "1 client" if clients == 1 else f"{clients} clients"
    insert = found.inserts[clients]
    target = Target("share", "at least", OF_THE_ECHO) if clients == TARGET_CLIENTS else None
    made = [
        bare_echo(f"bare echo, {by}", store, [found.ways[clients, way].echo for way in WAYS]),
        Figure(PART, f"bare insert, {by}", "inserts/s", insert.rates, store),
    ]
    for way in WAYS:
        series, echo = found.ways[clients, way].append, found.ways[clients, way].echo
        notes = {
            **series.notes,
            "server CPU, times the bare echo's": ratio_of_medians(series.server, echo.server),
            "rate, of the bare insert's": ratio(series.rates, insert.rates),
        }
        floor = Floor("bare echo", echo.rates)
        made.append(Figure(PART, f"{way}, {by}", "calls/s", series.rates, store, (), floor, target, notes))
        slowest = Floor("bare echo", echo.p50)
        made.append(Figure(PART, f"{way}, {by}", "ms", series.p50, store, series.p95, slowest))
    return made


def bare_echo(name: str, store: str, beside: Sequence[Series]) -> Figure:
    """Of all echoes of a repetition: those that stood beside each of the ways."""
    rates = [statistics.mean(each) for each in zip(*(echo.rates for echo in beside), strict=True)]
    notes = {note: statistics.mean(echo.notes[note] for echo in beside) for note in beside[0].notes}
    return Figure(PART, name, "calls/s", rates, store, notes=notes)


# By messages in a call


async def by_batch(bench: Bench) -> list[Figure]:
    setting = bench.setting
    with setting.bar(f"{bench.store}: appends of several messages", (setting.repeats + 1) * len(BATCHES)) as bar:
        await _batches_once(bench, "warm", defaultdict(Beside), bar)
        found: defaultdict[int, Beside] = defaultdict(Beside)
        for repetition in range(setting.repeats):
            await _batches_once(bench, str(repetition), found, bar)
    return [
        Figure(
            PART,
            f"append of {count} message{'s' if count > 1 else ''} a call to many sessions, {BATCH_CLIENTS} clients",
            "messages/s",
            found[count].append.rates,
            bench.store,
            (),
            Floor("bare echo", found[count].echo.rates),
            None,
            {"a call, p50, ms": statistics.median(found[count].append.p50), **found[count].append.notes},
        )
        for count in BATCHES
    ]


async def _batches_once(bench: Bench, name: str, found: dict[int, Beside], bar: Bar) -> None:
    name = f"batches-{name}"
    await make_sessions(bench.load, bench.running.address, [name], BATCH_CLIENTS)
    for count, calls in BATCHES.items():
        requests = [(append(name, count), caller(user)) for user in range(BATCH_CLIENTS)]
        await bench.in_turns(found[count], BATCH_CLIENTS, calls, requests, REQUEST_ID, count)
        bar.step()


# By messages in the session


async def by_length(bench: Bench) -> list[Figure]:
    setting = bench.setting
    lengths = [setting.count(length) for length in LENGTHS]
    for length in lengths[1:]:
        await fill(bench, f"filled-{length}", length)
    found: defaultdict[int, list[list[float]]] = defaultdict(list)
    with setting.bar(f"{bench.store}: appends to long sessions", setting.repeats + 1) as bar:
        for repetition in range(setting.repeats + 1):
            short = f"short-{repetition}"
            await fill(bench, short, lengths[0])
            names = [short, *(f"filled-{length}" for length in lengths[1:])]
            requests = [(append(name), caller()) for name in names]
            # One client, a call to each session in turns: whatever else the machine does is the same for all.
            calls = setting.count(APPENDS_A_LENGTH) * len(names)
            taken = await bench.load.run(Order(bench.running.address, APPEND, 1, calls, requests, REQUEST_ID))
            if repetition:  # the first one warms up
                for number, length in enumerate(lengths):
                    found[length].append(taken.each[number :: len(names)])
            bar.step()
    return [length_figure(bench.store, length, found[length], found[lengths[0]]) for length in lengths]


async def fill(bench: Bench, session: str, messages: int) -> None:
    """A new session with so many messages."""
    await make_sessions(bench.load, bench.running.address, [session])
    batch = min(messages, FILL_BATCH)
    calls = messages // batch
    clients = min(calls, FILL_CLIENTS)
    with bench.setting.bar(f"{bench.store}: a session of {messages:,} messages", calls) as bar:
        # In pieces, to see that it goes on.
        while calls:
            some = min(calls, 50)
            requests = [(append(session, batch), caller())]
            await bench.load.run(Order(bench.running.address, APPEND, min(clients, some), some, requests, REQUEST_ID))
            calls -= some
            bar.step(some)


def length_figure(store: str, length: int, each: list[list[float]], shortest: list[list[float]]) -> Figure:
    """Against the same repetition of the shortest session."""

    def p50(some: list[list[float]]) -> list[float]:
        return [statistics.median(one) * 1000 for one in some]

    slow = [p95(one) * 1000 for one in each]
    is_floor = each is shortest
    return Figure(
        PART,
        f"append to a session of {length:,} messages, 1 client",
        "ms",
        p50(each),
        store,
        slow,
        None if is_floor else Floor("the shortest session", p50(shortest)),
        None if is_floor else Target("share", "at most", FLAT),
    )
