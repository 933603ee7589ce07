"""Whatever several streams of one user send, and wherever they break: each message is stored once, and in order."""

import asyncio
import random

import grpc
import pytest

from runekeep.v1 import session_service_pb2 as pb
from tests.integration.conftest import Callers
from tests.support.append_streams import OpenStream, append, texts
from tests.support.callers import Caller

SEEDS = range(8)
SESSIONS = 3
APPENDS = 120


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    # On a busy machine a stream must not end because an append takes long.
    return {**either_store, "RUNEKEEP_DEADLINES__CALL_SECONDS": "60"}


class Agent:
    """Sends the appends of its own sessions over stream after stream, each of which it breaks at a place that `chance`
    decides."""

    def __init__(self, caller: Caller, sessions: list[str], chance: random.Random) -> None:
        self._caller = caller
        self._chance = chance
        self._left = [
            append(session, f"{session}: {n}", request_id=f"{session}-{n}")
            for n in range(APPENDS // len(sessions))
            for session in chance.sample(sessions, len(sessions))
        ]
        self.streams = 0

    async def run(self) -> None:
        while self._left:
            self.streams += 1
            async with OpenStream.of(self._caller) as stream:
                most = self._chance.choice((1, 5, 40, len(self._left)))
                sending = asyncio.create_task(self._send(stream, self._left[:most]))
                try:
                    until = self._chance.randint(1, most)
                    while len(stream.acknowledged) < min(until, len(self._left)):
                        assert await stream.read(), "the stream ended"
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
            self._left = [one for n, one in enumerate(self._left, 1) if n not in stream.acknowledged]

    async def _send(self, stream: OpenStream, appends: list[pb.AddMessagesRequest]) -> None:
        at = 0
        while at < len(appends):
            some = self._chance.choice((1, 1, 2, 7))
            await stream.send(*appends[at : at + some])
            at += some


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_message_once_and_in_order(seed: int, callers: Callers, channel: grpc.aio.Channel) -> None:
    chance = random.Random(seed)
    caller = callers()
    names = [await caller.session() for _ in range(2 * SESSIONS)]
    agents = [Agent(caller, names[:SESSIONS], chance), Agent(caller, names[SESSIONS:], chance)]
    await asyncio.gather(*(agent.run() for agent in agents))
    for name in names:
        assert await texts(caller, name) == [f"{name}: {n}" for n in range(APPENDS // SESSIONS)]
    assert sum(agent.streams for agent in agents) > 2, "streams were broken"
