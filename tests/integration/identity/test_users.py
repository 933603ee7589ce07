"""Which users an account has: told to those who may act for all of them, and to nobody else; on both stores."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from runekeep.v1 import admin_service_pb2, memory_service_pb2
from runekeep.v1 import space_service_pb2 as pb
from tests.support.callers import Caller, failure, unique
from tests.support.changes import put, remove, written
from tests.support.keys import KEYED, Operator, sending
from tests.support.server_process import ServerProcess

OfAccount = Callable[..., Any]


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return {**KEYED, **either_store}


@pytest.fixture
def with_key(channel: grpc.aio.Channel, server: ServerProcess) -> OfAccount:
    """Callers with a new key of the account, or of the user alone."""

    @asynccontextmanager
    async def made(account: str, user: str = "") -> AsyncIterator[Callable[[str], Caller]]:
        scope = admin_service_pb2.SCOPE_USER if user else admin_service_pb2.SCOPE_ACCOUNT
        key = (await Operator(channel).make(scope, account, user)).secret
        async with sending(server.address, key) as own:
            yield lambda name: Caller(own, name, account)

    return made


async def users(caller: Caller, **fields: Any) -> list[str]:
    answer = await caller.spaces.ListUsers(pb.ListUsersRequest(**fields))
    assert all(one.HasField("create_time") for one in answer.users)
    return [one.user for one in answer.users]


async def test_users_who_have_something_are_listed_by_name(with_key: OfAccount) -> None:
    async with with_key(unique("acme")) as of, with_key(unique("other")) as elsewhere:
        for name in ("bob", "anna", "ann"):
            await of(name).session()
        await elsewhere("anton").session()
        await written(of("zoe"), put("preferences", topic="Tea", content="Green."))
        caller = of("nobody")
        assert await users(caller) == ["ann", "anna", "bob", "zoe"]
        assert await users(caller, prefix="ann") == ["ann", "anna"]
        assert await users(caller, prefix="anna") == ["anna"]
        assert await users(caller, prefix="x") == []
        assert await users(elsewhere("nobody")) == ["anton"]
        # An own session is something, and what was deleted is nothing.
        await caller.session()
        await of("bob").memories.DeleteUser(memory_service_pb2.DeleteUserRequest(user="bob"))
        zoe = of("zoe")
        await written(zoe, remove(zoe.uri("memories/preferences/Tea.md"), 1))
        assert await users(caller) == ["ann", "anna", "nobody"]
        refused = await failure(users(caller, prefix="a\0"))
        assert refused.code is grpc.StatusCode.INVALID_ARGUMENT and "prefix" in refused.fields


async def test_pages_go_on_where_the_one_before_ended_and_in_the_own_account(with_key: OfAccount) -> None:
    async with with_key(unique("acme")) as of, with_key(unique("other")) as elsewhere:
        names = [f"u{number}" for number in range(5)]
        for name in names:
            await of(name).session()
        for name in ("u1", "u4", "v"):
            await elsewhere(name).session()
        found, token = [], ""
        while True:
            answer = await of("u1").spaces.ListUsers(pb.ListUsersRequest(page_size=2, page_token=token))
            found.append([one.user for one in answer.users])
            token = answer.next_page_token
            if not token:
                break
            last = token
        assert found == [["u0", "u1"], ["u2", "u3"], ["u4"]]
        # A token of another account names a place in the alphabet, and nobody.
        assert await users(elsewhere("v"), page_size=2, page_token=last) == ["u4", "v"]
        wrong = await failure(users(of("u1"), prefix="u", page_token=last))
        assert wrong.code is grpc.StatusCode.INVALID_ARGUMENT and "page_token" in wrong.fields


async def test_credentials_of_one_user_neither_list_nor_copy(with_key: OfAccount) -> None:
    account = unique("acme")
    async with with_key(account) as of, with_key(account, "ann") as alone:
        ann = alone("ann")
        await ann.session()
        await of("bob").session()
        for call in (users(ann), ann.spaces.CopyUser(pb.CopyUserRequest(to_user="eve"))):
            refused = await failure(call)
            assert refused.seen == ("PERMISSION_DENIED", "ACCESS_DENIED")
        assert await users(of("bob")) == ["ann", "bob"]
        # An account's key copies for a user that the call names.
        await of("ann").spaces.CopyUser(pb.CopyUserRequest(to_user="eve"))
        assert await users(of("bob")) == ["ann", "bob", "eve"]
