"""What a memory came from, when the worker does not say: of every message that may have led to it."""

from collections.abc import AsyncIterator

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import history_service_pb2, session_service_pb2
from tests.support.callers import Caller, said
from tests.support.worker import Worker, write

MESSAGES = 300
"""More than a memory shows as its sources."""


@pytest.fixture
async def caller(caller: Caller, channel: grpc.aio.Channel) -> AsyncIterator[Caller]:
    """Somebody whose one commit made a memory of which no message is named, and one of which the second is."""
    session = await caller.session(session_id="talk")
    for start in range(1, MESSAGES + 1, 100):
        await caller.add(
            session, *(said(f"tea, for the {number}th time", id=f"m{number}") for number in range(start, start + 100))
        )
    await caller.sessions.CommitSession(session_service_pb2.CommitSessionRequest(session=session))
    async with Worker(channel) as worker:
        verdict = await worker.deliver(
            (await worker.take()).lease,
            write("preferences", topic="Tea", content="Likes tea."),
            write("preferences", topic="Coffee", content="Dislikes coffee.", ranges=[(2, 2)]),
        )
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    yield caller


async def named_by(caller: Caller, message_id: str) -> list[str]:
    request = history_service_pb2.ListMessageMemoriesRequest(session="talk", message_id=message_id)
    return [one.uri.rpartition("/")[2] for one in (await caller.history.ListMessageMemories(request)).memories]


async def test_what_names_no_message_comes_from_all_of_them(caller: Caller) -> None:
    tea = await caller.memory("viking://user/memories/preferences/Tea.md")
    coffee = await caller.memory("viking://user/memories/preferences/Coffee.md")

    assert [source.message_id for source in coffee.sources] == ["m2"]
    # The newest of them are shown, and every one knows of it.
    assert [source.message_id for source in tea.sources] == [f"m{number}" for number in range(45, MESSAGES + 1)]
    assert await named_by(caller, "m1") == ["Tea.md"]
    assert await named_by(caller, "m2") == ["Coffee.md", "Tea.md"]
    assert await named_by(caller, f"m{MESSAGES}") == ["Tea.md"]
