"""Large requests of one account come one after the other, with rests while other accounts call."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from runekeep_server.rpc.request_bodies import LARGE_BYTES, Context, RequestBodies
from runekeep_server.settings import Settings
from runekeep_storage.drivers.common import fair_turns
from runekeep_storage.drivers.common.fair_turns import HEAVY_REST

WORK_SECONDS = 0.1


class Body:
    """A call whose request has arrived."""

    def __init__(self, size: int) -> None:
        self._data = b"x" * size

    async def read(self) -> bytes:
        return self._data


@pytest.fixture(autouse=True)
def callers() -> Iterator[None]:
    fair_turns._latest.clear()
    yield
    fair_turns._latest.clear()


async def handled(bodies: RequestBodies, size: int) -> tuple[float, float]:
    """Handles a request of the current account. Returns when that began and ended."""

    async def parse(data: bytes) -> int:
        return len(data)

    async with bodies.read(cast(Context, Body(size)), parse) as request:
        assert request == size
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(WORK_SECONDS)
        return began, asyncio.get_running_loop().time()


def called(account: str) -> None:
    fair_turns.begin(account)
    fair_turns.note_call()


async def test_large_requests_rest_while_others_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_turns, "_FREE_REST_SECONDS", 0.0)
    bodies = RequestBodies(Settings(data_dir=Path("unused")))
    large = Settings(data_dir=Path("unused")).max_message_bytes
    called("modest")
    called("greedy")
    _, ended = await handled(bodies, large)
    again = asyncio.create_task(handled(bodies, large))
    small = asyncio.create_task(handled(bodies, LARGE_BYTES - 1))
    called("modest")
    others = asyncio.create_task(handled(bodies, large))
    assert (await again)[0] - ended >= 0.9 * HEAVY_REST * WORK_SECONDS
    assert (await small)[0] < (await again)[0], "small ones do not rest"
    assert (await others)[0] < (await again)[0], "no account rests for another"


async def test_who_calls_alone_never_rests() -> None:
    bodies = RequestBodies(Settings(data_dir=Path("unused")))
    called("alone")
    for _ in range(2):
        await handled(bodies, LARGE_BYTES)
    assert not bodies._large._rested_at
