"""What a memory came from, when the worker does not say: of every message that may have led to it."""

from collections.abc import AsyncIterator

import grpc
import pytest

from runekeep.v1 import common_pb2, history_service_pb2, session_service_pb2, space_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.merging.operations import MAX_ORIGIN_RUNS
from runekeep_server.merging.workspace import MAX_ADDED_SOURCES, MIN_ADDED_SOURCES, SOURCES_KEPT
from tests.support.callers import Caller, policy, said
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


async def told(caller: Caller, session_id: str) -> str:
    """Commits as many messages as MESSAGES, said by the user and by Anna in turn; the task."""
    session = await caller.session(session_id=session_id)
    for start in range(1, MESSAGES + 1, 100):
        some = range(start, start + 100)
        await caller.add(session, *(said("rice", id=f"l{at}", peer="" if at % 2 else "anna") for at in some))
    request = session_service_pb2.CommitSessionRequest(session=session)
    return (await caller.sessions.CommitSession(request)).task_id


async def of_message(caller: Caller, session_id: str, message_id: str) -> list[str]:
    request = history_service_pb2.ListMessageMemoriesRequest(session=session_id, message_id=message_id, page_size=200)
    named = (await caller.history.ListMessageMemories(request)).memories
    return sorted(one.uri.rpartition("/")[2].removesuffix(".md") for one in named)


async def test_memories_of_too_many_runs_of_messages_come_from_those_between_them_too(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """Each run is a row that the commit writes while it holds up the writes of others. None is refused for them."""
    fitting = MAX_ORIGIN_RUNS // len(GAPS)
    task = await told(caller, "long")
    writes = [
        write("preferences", topic=f"Gaps{number:02}", content="Rice.", ranges=GAPS) for number in range(fitting + 2)
    ]
    async with Worker(channel) as worker:
        assert (await worker.deliver((await worker.take()).lease, *writes)).outcome == pb.JOB_OUTCOME_APPLIED

    result = (await caller.task(task)).result
    assert (result.total_adds, list(result.rejected)) == (len(writes), [])
    names = [f"Gaps{number:02}" for number in range(fitting + 2)]
    assert await of_message(caller, "long", "l1") == await of_message(caller, "long", "l299") == names
    assert await of_message(caller, "long", "l2") == names[fitting:]
    assert await of_message(caller, "long", "l300") == []
    sources = (await caller.memory(f"viking://user/memories/preferences/{names[-1]}.md")).sources
    assert [one.message_id for one in sources] == [f"l{first}" for first, _ in GAPS], "as they were named"
    messages = space_service_pb2.MessageSet(session="long", message_ids=["l2"])
    await caller.spaces.EraseData(space_service_pb2.EraseDataRequest(messages=messages))
    assert await of_message(caller, "long", "l1") == names[:fitting]


async def test_memories_of_which_one_output_makes_very_many_name_fewer_messages(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """What they name is written while the commit holds up the writes of others. They come from all messages still."""
    task = await told(caller, "many")
    names = [f"Many{number:02}" for number in range(MAX_ADDED_SOURCES // SOURCES_KEPT + 1)]
    writes = [write("preferences", topic=name, content="Rice.") for name in names]
    async with Worker(channel) as worker:
        assert (await worker.deliver((await worker.take()).lease, *writes)).outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.task(task)).result.total_adds == len(names)
    for name, count in ((names[0], SOURCES_KEPT), (names[-2], SOURCES_KEPT), (names[-1], MIN_ADDED_SOURCES)):
        sources = (await caller.memory(f"viking://user/memories/preferences/{name}.md")).sources
        assert [one.message_id for one in sources] == [f"l{at}" for at in range(MESSAGES - count + 1, MESSAGES + 1)]
    assert await of_message(caller, "many", "l1") == names


async def test_counts_of_tools_called_in_turn_come_from_no_more_runs_than_one_output_may_have(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    names = [f"tool{number:02}" for number in range(MAX_ORIGIN_RUNS // len(GAPS) + 2)]
    calls = [common_pb2.ToolPart(tool_name=name, status=common_pb2.TOOL_STATUS_COMPLETED) for name in names]
    record = [common_pb2.Part(tool=call) for call in calls]
    session = await caller.session(policy(types=["tools"]), session_id="turns")
    for start in range(1, MESSAGES + 1, 100):
        some = [said("rice", id=f"l{at}") for at in range(start, start + 100)]
        for message in some[::2]:
            message.parts.extend(record)
        await caller.add(session, *some)
    request = session_service_pb2.CommitSessionRequest(session=session)
    task = (await caller.sessions.CommitSession(request)).task_id
    async with Worker(channel) as worker:
        assert (await worker.deliver((await worker.take()).lease)).outcome == pb.JOB_OUTCOME_APPLIED
    assert dict((await caller.task(task)).result.memories_extracted) == {"tools": len(names)}
    assert await of_message(caller, "turns", "l1") == names
    assert await of_message(caller, "turns", "l2") == names[-2:], "from all between the first and the last call"


async def test_messages_that_were_erased_before_make_no_runs(caller: Caller, channel: grpc.aio.Channel) -> None:
    """Memories of messages with any number of gaps are found, exported and erased as if there were none."""
    task = await told(caller, "gappy")
    gone = [f"l{number}" for number in range(2, MESSAGES + 1, 2)]
    messages = space_service_pb2.MessageSet(session="gappy", message_ids=gone)
    await caller.spaces.EraseData(space_service_pb2.EraseDataRequest(messages=messages))
    number = MAX_ORIGIN_RUNS // len(gone) + 2
    writes = [write("preferences", topic=f"Whole{at}", content="Rice.") for at in range(number)]
    writes.append(write("preferences", topic="Own", content="Rice.", ranges=[(1, 1), (5, 5)]))
    async with Worker(channel) as worker:
        assert (await worker.deliver((await worker.take()).lease, *writes)).outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.task(task)).result.total_adds == len(writes)
    whole = sorted(f"Whole{at}" for at in range(number))
    assert await of_message(caller, "gappy", "l3") == await of_message(caller, "gappy", "l299") == whole

    messages = space_service_pb2.MessageSet(session="gappy", message_ids=["l3"])
    request = space_service_pb2.EraseDataRequest(messages=messages)
    erasure = (await caller.spaces.EraseData(request)).erasure
    assert erasure.erased.memories == number
    assert await of_message(caller, "gappy", "l5") == ["Own"]
