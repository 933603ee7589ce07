"""What a memory came from, when the worker does not say: of every message that may have led to it."""

from collections.abc import AsyncIterator

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import history_service_pb2, session_service_pb2
from server.apply.operations import MAX_ORIGIN_RUNS
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


GAPS = [(number, number) for number in range(1, MESSAGES, 2)]
"""As many runs as ranges."""


async def test_an_output_that_rests_on_too_many_runs_of_messages_is_refused_in_part(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """Each run is a row that the commit writes while it holds up the writes of others. Joined ranges count once."""
    fitting = MAX_ORIGIN_RUNS // len(GAPS)
    session = await caller.session(session_id="long")
    for start in range(1, MESSAGES + 1, 100):
        await caller.add(session, *(said("rice", id=f"l{number}") for number in range(start, start + 100)))
    request = session_service_pb2.CommitSessionRequest(session=session)
    task = (await caller.sessions.CommitSession(request)).task_id
    whole = [write("preferences", topic=f"Whole{number}", content="Rice.", ranges=[(1, 150), (151, MESSAGES)])
             for number in range(3)]  # fmt: skip
    gaps = [write("preferences", topic=f"Gaps{number}", content="Rice.", ranges=GAPS) for number in range(fitting + 1)]
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.deliver(lease, *whole, *gaps)
        assert verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
        (refused,) = verdict.refused
        assert (refused.reason, refused.operation_index) == ("too_many_ranges", len(whole) + fitting)
        assert str(MAX_ORIGIN_RUNS) in refused.message
        assert (await worker.deliver(lease, *whole, *gaps)).outcome == pb.JOB_OUTCOME_APPLIED

    result = (await caller.task(task)).result
    assert [one.reason for one in result.rejected] == ["too_many_ranges"]
    request_of = history_service_pb2.ListMessageMemoriesRequest(session="long", message_id="l2", page_size=200)
    named = (await caller.history.ListMessageMemories(request_of)).memories
    assert sorted(one.uri.rpartition("/")[2] for one in named) == [f"Whole{number}.md" for number in range(3)]
