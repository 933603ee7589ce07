"""A user copied to another one of the account: everything that the API says of the one holds of the other, and neither
knows of the other afterwards; on both stores."""

import asyncio

import grpc
import pytest

from runekeep.v1 import session_service_pb2
from runekeep.v1 import space_service_pb2 as pb
from tests.integration.conftest import Callers
from tests.support.callers import Caller, Failure, failure, said, unique
from tests.support.changes import put, written
from tests.support.exports import differences, everything, lived
from tests.support.keys import Operator


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return either_store


async def copied(caller: Caller, to: str, request_id: str = "") -> pb.CopyUserResponse:
    answer: pb.CopyUserResponse = await caller.spaces.CopyUser(pb.CopyUserRequest(to_user=to, request_id=request_id))
    return answer


async def sessions(caller: Caller) -> set[str]:
    found = await caller.sessions.ListSessions(session_service_pb2.ListSessionsRequest(page_size=200))
    return {one.session_id for one in found.sessions}


async def test_the_copy_is_the_same_space(callers: Callers, channel: grpc.aio.Channel) -> None:
    first = callers()
    second = callers(account=first.account)
    one = await lived(first)
    before = await everything(first)

    answer = await copied(first, second.user)

    assert (answer.revision_offset, answer.revision) == (0, max(one.revisions) + 4)
    assert answer.contents.memories and answer.contents.blobs
    assert not (found := differences(before, await everything(second))), "\n".join(found)
    assert not (found := differences(before, await everything(first))), "\n".join(found)
    # What follows is each one's own.
    await second.session(session_id="only-there")
    await written(first, put("preferences", topic="Milk", content="Oat."))
    assert "only-there" not in await sessions(first)
    assert (await failure(second.memory(second.uri("memories/preferences/Milk.md")))).reason == "RESOURCE_NOT_FOUND"

    events = (await Operator(channel).events(account=first.account)).events
    assert [(event.user, event.subject, event.code) for event in events if event.method == "SpaceService/CopyUser"] == [
        (first.user, second.user, "OK")
    ]


async def test_only_a_user_who_has_nothing_is_copied_to(callers: Callers) -> None:
    first = callers()
    second = callers(account=first.account)
    await first.session(session_id="s")
    await second.session(session_id="t")
    assert (await failure(copied(first, second.user))).seen == ("FAILED_PRECONDITION", "SPACE_NOT_EMPTY")
    assert await sessions(second) == {"t"}
    for name in (first.user, "memories", "../x", ""):
        failed = await failure(copied(first, name))
        assert failed.code is grpc.StatusCode.INVALID_ARGUMENT and "to_user" in failed.fields, name


async def test_a_user_of_the_same_name_in_another_account_is_left_alone(callers: Callers) -> None:
    first = callers()
    namesake = callers(user="twin")
    await first.session(session_id="s")
    await namesake.session(session_id="t")
    await copied(first, "twin")
    assert await sessions(namesake) == {"t"}
    assert await sessions(callers(user="twin", account=first.account)) == {"s"}


async def test_the_answer_to_a_finished_copy_is_given_again(callers: Callers) -> None:
    first = callers()
    second, third = callers(account=first.account), callers(account=first.account)
    await first.add(await first.session(session_id="s"), said("hello"))
    await third.session(session_id="u")
    answer = await copied(first, second.user, "once")
    await second.add("s", said("more"))
    assert await copied(first, second.user, "once") == answer
    assert answer.contents.messages == 1
    assert (await failure(copied(first, second.user, "twice"))).reason == "SPACE_NOT_EMPTY"
    assert (await failure(copied(third, second.user, "once"))).reason == "REQUEST_ID_REUSED"
    assert await sessions(second) == {"s"}


async def test_of_several_copies_to_one_user_at_once_one_is_made(callers: Callers) -> None:
    account, target = unique("account"), unique("user")
    several = [callers(account=account) for _ in range(4)]
    for caller in several:
        await caller.add(await caller.session(session_id=caller.user), *(said(f"m{number}") for number in range(50)))
    outcomes = await asyncio.gather(*(copied(caller, target) for caller in several), return_exceptions=True)
    done = [caller for caller, outcome in zip(several, outcomes, strict=True) if not isinstance(outcome, Exception)]
    refused = [Failure(outcome).reason for outcome in outcomes if isinstance(outcome, grpc.aio.AioRpcError)]
    assert len(done) == 1 and len(refused) == 3 and set(refused) <= {"SPACE_BUSY", "SPACE_NOT_EMPTY"}, outcomes
    assert await sessions(callers(user=target, account=account)) == {done[0].user}
