"""The clients of `tests.bench` that are more than calls: what ends badly is counted, and is no measurement."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.bench.load import agents, commits
from tests.bench.load.process import Spoken, echo, spoken


@pytest.fixture
async def no_service() -> AsyncIterator[str]:
    """Address of a server that has none of our methods."""
    async with echo() as server:
        yield server.address


async def told(client: Spoken, order: agents.Order) -> agents.Told:
    return agents.Told.from_json(await client.ask(order.to_json()))


async def test_calls_of_agents_that_fail_are_counted_by_kind_and_status(no_service: str) -> None:
    async with spoken("tests.bench.load.agents") as client, asyncio.timeout(60):
        await told(client, agents.Order("begin", no_service, agents=2, life=1000.0))
        while not (first := await told(client, agents.Order("tell"))).failed:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        last = await told(client, agents.Order("end"))
    assert not first.seconds and not last.seconds
    assert any(said.startswith("create a session: UNIMPLEMENTED") for said in first.failed)
    assert sum(count for said, count in last.failed.items() if said.startswith("delete a user: UNIMPLEMENTED")) == 2


async def test_commits_that_fail_are_counted_and_not_timed(no_service: str) -> None:
    order = commits.Order("commit", no_service, ["one", "other"], commits=3, messages=1)
    async with spoken("tests.bench.load.commits") as client:
        taken = commits.Taken.from_json(await client.ask(order.to_json()))
    ((how, count),) = taken.ends.items()
    assert how.startswith("UNIMPLEMENTED") and count == 6
    assert not taken.each and not taken.extracted
