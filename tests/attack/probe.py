"""The probe: a process in which another account makes ordinary calls at a fixed rate, whatever the server does.

Calls start at fixed times and do not wait for each other, so a server that stands still for a second shows in all calls
of that second. `python -m tests.attack.probe` reads one line of JSON with the address and the credentials, and ends
when its standard input ends.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc

from runekeep.v1 import session_service_pb2
from tests.attack.identities import PROBE, Credentials, caller
from tests.support.callers import CALL_SECONDS, Caller, said
from tests.support.server_process import ROOT

INTERVAL_SECONDS = 1 / 30
WORD = "kettle"


@dataclass(frozen=True, slots=True)
class Sample:
    """One call: what, when it was due on the monotonic clock, how long it took from then on, and its error."""

    method: str
    due: float
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class Delays:
    """Durations of the calls of a period. `failed`: their errors."""

    calls: int
    p50_ms: float
    p99_ms: float
    failed: Sequence[str]

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Delays":
        times = sorted(one.seconds * 1000 for one in samples)
        p50, p99 = (times[int(len(times) * share)] if times else 0.0 for share in (0.5, 0.99))
        return cls(len(times), p50, p99, [f"{one.method}: {one.error}" for one in samples if one.error])


class Probe:
    """The process, seen from the campaign. `start`, `between`, `stop`."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self._samples: dict[int, Sample] = {}
        self._first_due = 0.0
        self._leaks: list[str] | None = None
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.probe"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(f'{{"address": "{address}", "credentials": {credentials.to_json()}}}\n')
        self._process.stdin.flush()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self) -> "Probe":
        """Waits for its first answers."""
        with self._news:
            assert self._news.wait_for(lambda: len(self._samples) > 3, 60), "the probe does not start"
        return self

    def between(self, start: float, end: float) -> list[Sample]:
        """Returns the calls that were due between two times, which have passed. Waits until all of them have ended."""
        numbers = [number for number in range(self._number(start), self._number(end)) if number >= 0]
        with self._news:
            ended = self._news.wait_for(lambda: all(number in self._samples for number in numbers), CALL_SECONDS * 2)
            assert ended, "the probe stands still"
            return [self._samples[number] for number in numbers]

    def stop(self) -> list[str]:
        """Ends it. Returns what it read that it had not written, and what it wrote and could not read."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join(CALL_SECONDS * 2)
        self._process.wait(10)
        self.discard()
        return self._leaks if self._leaks is not None else ["the probe broke down"]

    def discard(self) -> None:
        """For the end of a campaign that failed half way."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            with suppress(BrokenPipeError):
                end.close()

    def _number(self, moment: float) -> int:
        return int((moment - self._first_due) / INTERVAL_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._news:
                if "leaks" in said:
                    self._leaks = said["leaks"]
                else:
                    number = said.pop("number")
                    self._samples[number] = sample = Sample(**said)
                    self._first_due = self._first_due or sample.due - number * INTERVAL_SECONDS
                self._news.notify_all()


class _Caller:
    """Makes the calls, in the process of the probe."""

    def __init__(self, probe: Caller) -> None:
        self._caller = probe
        self._sessions: list[str] = []
        self._added = 0
        self._found = 0
        self._leaks: set[str] = set()

    async def begin(self) -> None:
        """Commits a session whose words the probe then searches for."""
        await self._caller.committed(*[said(f"the {WORD} number {number} is on") for number in range(20)])
        await self.create()
        await self.append()

    async def create(self) -> None:
        self._sessions.append(await self._caller.session())

    async def append(self) -> None:
        answer = await self._caller.add(self._sessions[0], said(f"the {WORD} is on"))
        self._added += len(answer.messages)

    async def search(self) -> None:
        found = await self._caller.find(WORD, limit=5)
        self._found += len(found.results)
        self._leaks.update(one.passage.uri for one in found.results if not self._is_own(one.passage.uri))

    def _is_own(self, uri: str) -> bool:
        return uri.startswith(self._caller.uri(""))

    async def leaks(self) -> list[str]:
        """Returns what it read or what was written across accounts."""
        scope = session_service_pb2.MESSAGE_SCOPE_ALL
        texts: list[str] = []
        token = ""
        while True:
            request = session_service_pb2.ListMessagesRequest(
                session=self._sessions[0], scope=scope, page_size=200, page_token=token
            )
            page = await self._caller.sessions.ListMessages(request)
            texts += [one.parts[0].text.text for one in page.messages]
            token = page.next_page_token
            if not token:
                break
        if len(texts) < self._added or set(texts) != {f"the {WORD} is on"}:
            self._leaks.add(f"{len(texts)} messages of {len(set(texts))} texts, but it added {self._added}")
        if not self._found:
            self._leaks.add("no search found anything")
        return sorted(self._leaks)


async def _run(address: str, credentials: Credentials) -> None:
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ending.set)), daemon=True).start()
    async with credentials.channel(address) as channel:
        made = _Caller(caller(channel, PROBE))
        await made.begin()
        methods = (made.create, made.append, made.search)
        began = time.monotonic()
        open_calls: set[asyncio.Task[None]] = set()
        number = 0
        while not ending.is_set():
            due = began + number * INTERVAL_SECONDS
            await asyncio.sleep(due - time.monotonic())
            task = asyncio.create_task(_timed(number, methods[number % 3], due))
            open_calls.add(task)
            task.add_done_callback(open_calls.discard)
            number += 1
        await asyncio.gather(*open_calls)
        _say(leaks=await made.leaks())


async def _timed(number: int, method: Any, due: float) -> None:
    error = ""
    try:
        # It has a deadline of CALL_SECONDS.
        await method()
    except grpc.aio.AioRpcError as failed:
        error = f"{failed.code().name} {failed.details()}"[:200]
    _say(number=number, method=method.__name__, due=due, seconds=time.monotonic() - due, error=error)


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    given = json.loads(sys.stdin.readline())
    asyncio.run(_run(given["address"], Credentials(**given["credentials"])))
