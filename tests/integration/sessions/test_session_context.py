"""GetSessionContext over the wire: what is told before, between and after commits."""

from typing import Any

import pytest

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import session_service_pb2 as pb
from runekeep_common import tokens
from tests.support.callers import Caller, failure, said, used_tool
from tests.support.worker import Worker


async def context(caller: Caller, session: str, budget: int = 0) -> pb.GetSessionContextResponse:
    request = pb.GetSessionContextRequest(session=session, token_budget=budget)
    answer: pb.GetSessionContextResponse = await caller.sessions.GetSessionContext(request)
    assert answer.tokens <= (budget or 8000)
    return answer


def words(messages: Any) -> list[str]:
    return [message.parts[0].text.text for message in messages]


def told(answer: pb.GetSessionContextResponse) -> tuple[list[str], list[str]]:
    return words(answer.pending_messages), words(answer.live_messages)


async def test_messages_stay_in_the_context_until_they_are_extracted(caller: Caller, channel: Any) -> None:
    session = await caller.session()
    await caller.add(session, said("one"), said("two"))
    assert told(await context(caller, session)) == ([], ["one", "two"])
    first = await caller.commit(session, keep_recent_count=1)
    await caller.add(session, said("three"))
    assert told(await context(caller, session)) == (["one"], ["two", "three"])
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert told(await context(caller, session)) == (["one"], ["two", "three"])
        await worker.deliver(lease, summary="About one")
    answer = await context(caller, caller.uri(f"sessions/{session}"))
    assert told(answer) == ([], ["two", "three"])
    assert "About one" in answer.overview and answer.overview_uri == first.archive_uri

    cancelled = await caller.commit(session)
    await caller.tasks.CancelTask(task_service_pb2.CancelTaskRequest(task_id=cancelled.task_id))
    answer = await context(caller, session)
    assert told(answer) == (["two", "three"], []) and "About one" in answer.overview


async def test_messages_come_whole_and_are_counted_as_they_are_stored(caller: Caller) -> None:
    session = await caller.session()
    message = said("Ünïcode tea", peer="anna", turn="t1", id="m1")
    message.speaker = "Anna"
    message.parts.add().image.CopyFrom(common_pb2.ImagePart(url="https://a.test/x.png", caption="a cat"))
    await caller.add(session, message, used_tool("call-1", "x" * 30_000))
    answer = await context(caller, session, 20_000)
    stored = (await caller.sessions.ListMessages(pb.ListMessagesRequest(session=session))).messages
    assert list(answer.live_messages) == list(stored)
    # What is kept apart takes what its beginning does.
    assert len(stored[1].parts[0].tool.output) < 30_000 and answer.tokens < 30_000 / tokens.BYTES_A_TOKEN
    live = (await caller.sessions.GetSession(pb.GetSessionRequest(session=session))).session.live_tokens
    assert answer.tokens == live > 0
    one = await context(caller, session, answer.tokens - 1)
    assert len(one.live_messages) == 1 and one.omitted_messages == 1


async def test_an_answer_that_would_be_too_large_ends_before_its_budget(caller: Caller) -> None:
    """Ids and names have no tokens, and half of the largest answer has no room for all of them."""
    session = await caller.session()
    for batch in range(350):
        messages = []
        for number in range(100):
            message = said("a", peer="p" * 128, id=f"{batch * 100 + number:0>120}")
            message.speaker = "s" * 128
            messages.append(message)
        await caller.add(session, *messages)
    answer = await caller.sessions.GetSessionContext(
        pb.GetSessionContextRequest(session=session, token_budget=1_000_000), timeout=60
    )
    shown = len(answer.live_messages)
    assert answer.ByteSize() <= 8 * 1024 * 1024 and 0 < answer.omitted_messages == 35_000 - shown
    assert answer.live_messages[-1].sequence == 35_000 and answer.tokens < 1_000_000 * shown / 35_000


@pytest.mark.parametrize("name", ["nobody", "viking://user/sessions/nobody"])
async def test_a_session_that_is_not_there_has_no_context(caller: Caller, name: str) -> None:
    failed = await failure(caller.sessions.GetSessionContext(pb.GetSessionContextRequest(session=name)))
    assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    failed = await failure(caller.sessions.GetSessionContext(pb.GetSessionContextRequest(session="a/b")))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["session"]
