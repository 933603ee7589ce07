"""Turn memory in long conversations: what a turn costs to submit and to load, in sessions of few and of many turns.

    python -m tests.bench.turns [--turns 100 1000 10000] [--calls 200] [--json]

One real server on SQLite (synchronous=FULL), one caller, one call at a time. The sessions are filled through the API,
then measured in turns, call by call, so that ratios between them hold on a machine that is not quiet. Beside them
stand two floors of the same run: a read of one row (GetSession) and a durable append of one message (AddMessages).
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from runekeep.v1 import (
    common_pb2,
    session_service_pb2,
    session_service_pb2_grpc,
    turn_memory_service_pb2_grpc,
)
from runekeep.v1 import turn_memory_service_pb2 as pb
from tests.bench.figures import p95
from tests.support.server_process import ServerProcess

METADATA = (("x-runekeep-account", "bench"), ("x-runekeep-user", "bench"))
DEADLINE = 60.0
TURNS_A_CALL = 50
"""Whose messages are added by one call while a session is filled."""
CALLERS = 16
"""Side by side, while it is filled."""
RATED = 3
"""Every so many turns the user reacts to one."""

READ, APPEND = "floor: read a row", "floor: append a message"
SUBMIT = "submit"
AUDIENCES = {
    "load: gate": pb.CONTEXT_AUDIENCE_GATE,
    "load: downstream": pb.CONTEXT_AUDIENCE_DOWNSTREAM,
    "load: final answer": pb.CONTEXT_AUDIENCE_FINAL_ANSWER,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """Milliseconds of one kind of call in a session of so many turns; 0 turns: a floor."""

    call: str
    turns: int
    p50: float
    p95: float


class Calls:
    """The stubs of one caller, and the next turn of each session."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._sessions: Any = session_service_pb2_grpc.SessionServiceStub(channel)
        self._turns: Any = turn_memory_service_pb2_grpc.TurnMemoryServiceStub(channel)
        self._next: dict[str, int] = {}

    async def fill(self, session: str, turns: int, progress: Callable[[int], None]) -> None:
        """A conversation of so many turns, every one with a fingerprint, the middle one chosen by a reconciler."""
        await self._sessions.CreateSession(
            session_service_pb2.CreateSessionRequest(session_id=session), metadata=METADATA, timeout=DEADLINE
        )
        for start in range(1, turns + 1, TURNS_A_CALL):
            some = range(start, min(start + TURNS_A_CALL, turns + 1))
            await self._add(session, [message for number in some for message in messages(number)])
        waiting = asyncio.Semaphore(CALLERS)

        async def submit(number: int) -> None:
            async with waiting:
                await self._submit(session, number)
                if number % RATED == 0:
                    await self._react(session, number)
                progress(1)

        await asyncio.gather(*(submit(number) for number in range(1, turns + 1)))
        self._next[session] = turns + 1
        chosen = pb.TurnSelection(local_memories_turn_ids=[name(turns // 2)], current_turn_id=name(turns))
        offered = await self.load(session, pb.CONTEXT_AUDIENCE_RECONCILER)
        await self._turns.SetTurnSelection(
            pb.SetTurnSelectionRequest(session=session, selection=chosen, offer=offered.offer),
            metadata=METADATA,
            timeout=DEADLINE,
        )

    async def one_more(self, session: str) -> Callable[[], Awaitable[Any]]:
        """A turn with its messages, and the call that submits it."""
        number = self._next[session]
        self._next[session] += 1
        await self._add(session, messages(number))
        return lambda: self._submit(session, number)

    async def load(self, session: str, audience: Any) -> pb.LoadTurnContextResponse:
        current = name(self._next.get(session, 1))
        request = pb.LoadTurnContextRequest(session=session, current_turn_id=current, audience=audience, render=True)
        response: pb.LoadTurnContextResponse = await self._turns.LoadTurnContext(
            request, metadata=METADATA, timeout=DEADLINE
        )
        return response

    async def read_a_row(self, session: str) -> None:
        request = session_service_pb2.GetSessionRequest(session=session)
        await self._sessions.GetSession(request, metadata=METADATA, timeout=DEADLINE)

    async def append(self, session: str) -> None:
        text = common_pb2.Part(text=common_pb2.TextPart(text="One more thing, in a sentence of usual length."))
        await self._add(session, [common_pb2.Message(role=common_pb2.ROLE_USER, parts=[text])])

    async def _add(self, session: str, added: Sequence[common_pb2.Message]) -> None:
        request = session_service_pb2.AddMessagesRequest(session=session, messages=added)
        await self._sessions.AddMessages(request, metadata=METADATA, timeout=DEADLINE)

    async def _submit(self, session: str, number: int) -> None:
        request = pb.SubmitTurnRequest(session=session, turn_id=name(number), fingerprint=fingerprint(number))
        await self._turns.SubmitTurn(request, metadata=METADATA, timeout=DEADLINE)

    async def _react(self, session: str, number: int) -> None:
        feedback = pb.Feedback(
            turn_id=name(number), origin=pb.FEEDBACK_ORIGIN_USER, reaction=pb.REACTION_OK, text="That was it."
        )
        request = pb.SubmitFeedbackRequest(session=session, feedback=feedback)
        await self._turns.SubmitFeedback(request, metadata=METADATA, timeout=DEADLINE)


def name(number: int) -> str:
    return f"turn-{number:06d}"


def messages(number: int) -> list[common_pb2.Message]:
    """What is said in one turn."""
    asked = f"For part {number}, list the valves that need a new seal, with the date of their last inspection."
    told = f"Part {number} has three: the two at the inlet, inspected in spring, and the bypass, never inspected. " * 3
    return [
        common_pb2.Message(
            role=role, turn_id=name(number), parts=[common_pb2.Part(text=common_pb2.TextPart(text=text))]
        )
        for role, text in ((common_pb2.ROLE_USER, asked), (common_pb2.ROLE_ASSISTANT, told))
    ]


def fingerprint(number: int) -> pb.TurnFingerprint:
    """Of usual size: some 700 bytes."""

    def signal(key: str, value: str, severity: Any) -> pb.TurnSignal:
        made = pb.TurnSignal(key=key, severity=severity, scope=pb.SIGNAL_SCOPE_OBJECTIVE)
        made.value.string_value = value
        return made

    return pb.TurnFingerprint(
        objective=f"List the valves of part {number} that need a new seal.",
        topics=["valves", "seals", f"part {number}"],
        assertions=[
            signal("format", "list with dates", pb.SIGNAL_SEVERITY_MUST),
            signal("units", "millimetres", pb.SIGNAL_SEVERITY_PREFER),
        ],
        exceptions=[signal("valves", "those that were replaced already", pb.SIGNAL_SEVERITY_AVOID)],
        facts=[signal("inspection", "the bypass was never inspected", pb.SIGNAL_SEVERITY_HIGH)],
        assistant_signals=[signal("product", "graphite seals", pb.SIGNAL_SEVERITY_RECOMMEND)],
    )


async def times(
    address: str, sizes: Sequence[int], calls: int, progress: Progress
) -> dict[tuple[str, int], list[float]]:
    """Milliseconds of each call, by its kind and the turns of its session, in the order in which they were made."""
    taken: dict[tuple[str, int], list[float]] = {}

    async def timed(call: str, turns: int, work: Callable[[], Awaitable[Any]]) -> None:
        begun = time.perf_counter()
        await work()
        taken.setdefault((call, turns), []).append((time.perf_counter() - begun) * 1000)

    async with grpc.aio.insecure_channel(address) as channel:
        subject = Calls(channel)
        for turns in sizes:
            filling = progress.add_task(f"a session of {turns:,} turns", total=turns)
            await subject.fill(f"s{turns}", turns, lambda done, bar=filling: progress.advance(bar, done))  # type: ignore[misc]
            progress.remove_task(filling)
        measuring = progress.add_task("calls", total=calls)
        for _ in range(calls):
            await timed(READ, 0, lambda: subject.read_a_row(f"s{sizes[0]}"))
            await timed(APPEND, 0, lambda: subject.append(f"s{sizes[0]}"))
            for turns in sizes:
                session = f"s{turns}"
                await timed(SUBMIT, turns, await subject.one_more(session))
                for call, audience in AUDIENCES.items():
                    await timed(call, turns, lambda s=session, a=audience: subject.load(s, a))  # type: ignore[misc]
            progress.advance(measuring)
        progress.remove_task(measuring)
    return taken


async def measure(sizes: Sequence[int], calls: int, console: Console) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="runekeep-bench-") as folder:
        server = ServerProcess(Path(folder) / "data", quick=False).start()
        try:
            with Progress(console=console, transient=True) as progress:
                taken = await times(server.address, sizes, calls, progress)
        finally:
            server.kill()
    return [Figure(call, turns, statistics.median(each), p95(each)) for (call, turns), each in taken.items()]


def table(figures: Sequence[Figure], least: int) -> Table:
    """One row a figure; the last column compares with the session of `least` turns."""
    first = {figure.call: figure.p50 for figure in figures if figure.turns == least}
    made = Table("call", "turns", "p50 ms", "p95 ms", f"p50 to that of {least:,} turns", title="Turn memory")
    for figure in sorted(figures, key=lambda one: (one.turns > 0, one.call, one.turns)):
        ratio = f"{figure.p50 / first[figure.call]:.2f}" if figure.turns > least else ""
        turns = f"{figure.turns:,}" if figure.turns else ""
        made.add_row(figure.call, turns, f"{figure.p50:.2f}", f"{figure.p95:.2f}", ratio)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, nargs="+", default=[100, 1000, 10_000], help="of the sessions")
    parser.add_argument("--calls", type=int, default=200, help="of each kind in each session")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args()
    sizes = sorted(options.turns)
    figures = asyncio.run(measure(sizes, options.calls, Console(stderr=True)))
    if options.json:
        rows = [{"call": one.call, "turns": one.turns, "p50_ms": one.p50, "p95_ms": one.p95} for one in figures]
        print(json.dumps({"bench": "turns", "calls": options.calls, "figures": rows}))
    else:
        Console().print(table(figures, sizes[0]))


if __name__ == "__main__":
    main()
