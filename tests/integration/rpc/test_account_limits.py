"""Limits and quotas of accounts, over the wire."""

import asyncio
from typing import Any

import grpc
import pytest

from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc, memory_service_pb2, session_service_pb2
from runekeep.v1 import task_service_pb2 as tasks
from tests.integration.conftest import Callers
from tests.support.callers import Caller, failure, said

SERVER_SETTINGS = {"RUNEKEEP_LIMITS__COUNT_SECONDS": "0.1"}


class Admin:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = admin_service_pb2_grpc.AdminServiceStub(channel)

    async def limit(self, account: str, **limits: Any) -> admin_service_pb2.Account:
        request = admin_service_pb2.UpdateAccountLimitsRequest(
            account=account, limits=admin_service_pb2.AccountLimits(**limits)
        )
        return (await self._stub.UpdateAccountLimits(request, timeout=20)).account

    async def accounts(self, page_size: int = 3) -> list[admin_service_pb2.Account]:
        request = admin_service_pb2.ListAccountsRequest(page_size=page_size)
        found: list[admin_service_pb2.Account] = []
        while True:
            answer = await self._stub.ListAccounts(request, timeout=20)
            assert len(answer.accounts) <= page_size
            found += answer.accounts
            request.page_token = answer.next_page_token
            if not answer.next_page_token:
                return found

    async def usage(self, account: str) -> admin_service_pb2.AccountUsage:
        return next(one.usage for one in await self.accounts() if one.account == account)

    async def counted(self, account: str, messages: int) -> admin_service_pb2.AccountUsage:
        """The account's usage once so many messages are counted."""
        async with asyncio.timeout(20):
            while (usage := await self.usage(account)).messages != messages:  # noqa: ASYNC110  # told to nobody
                await asyncio.sleep(0.02)
        return usage


@pytest.fixture
def admin(channel: grpc.aio.Channel) -> Admin:
    return Admin(channel)


async def listed(caller: Caller) -> Any:
    return await caller.sessions.ListSessions(session_service_pb2.ListSessionsRequest())


async def test_an_account_at_its_rate_is_told_when_to_come_again_and_no_other_is(
    callers: Callers, admin: Admin
) -> None:
    caller, other = callers(), callers()
    await admin.limit(caller.account, calls_per_second=0.01)
    await listed(caller)
    failed = await failure(listed(caller))
    assert failed.seen == ("RESOURCE_EXHAUSTED", "RATE_LIMITED")
    assert failed.retry_seconds is not None and 0 < failed.retry_seconds <= 100
    await listed(callers(account=other.account))
    assert (await failure(listed(callers(account=caller.account)))).seen[1] == "RATE_LIMITED", "another user of it"
    await admin.limit(caller.account)
    await listed(caller)


async def test_streams_of_an_account_at_a_time(callers: Callers, admin: Admin) -> None:
    caller = callers()
    committed = await caller.committed()
    await admin.limit(caller.account, streams=1)
    request = tasks.WatchTaskRequest(task_id=committed.task_id)
    first = caller.tasks.WatchTask(request)
    assert await first.read()
    refused = caller.tasks.WatchTask(request)
    assert (await failure(refused.read())).seen == ("RESOURCE_EXHAUSTED", "RATE_LIMITED")
    await listed(caller)
    first.cancel()
    async with asyncio.timeout(20):
        while True:
            again = caller.tasks.WatchTask(request)
            try:
                assert await again.read()
                break
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    again.cancel()
    await admin.limit(caller.account)


async def test_an_account_that_has_stored_too_much_adds_nothing_until_it_has_deleted(
    callers: Callers, admin: Admin
) -> None:
    caller = callers()
    session = await caller.session()
    await caller.add(session, said("x" * 5000), said("y"))
    usage = await admin.counted(caller.account, 2)
    assert (usage.users, usage.sessions) == (1, 1) and usage.stored_bytes > 5000
    await admin.limit(caller.account, stored_bytes=4000)

    full = ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")
    assert (await failure(caller.add(session, said("more")))).seen == full
    assert (await failure(caller.session())).seen == full
    await caller.sessions.ListMessages(session_service_pb2.ListMessagesRequest(session=session))
    committed = await caller.commit(session)
    await caller.tasks.CancelTask(tasks.CancelTaskRequest(task_id=committed.task_id))
    await caller.memories.DeleteUser(memory_service_pb2.DeleteUserRequest(user=caller.user))

    await admin.counted(caller.account, 0)
    async with asyncio.timeout(20):
        while True:
            try:
                await caller.session()
                break
            except grpc.aio.AioRpcError as error:
                # Counted already, and not read yet.
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                await asyncio.sleep(0.02)
    await admin.limit(caller.account)


async def test_limits_are_shown_as_they_were_set(callers: Callers, admin: Admin) -> None:
    caller = callers()
    account = await admin.limit(caller.account, streams=0, daily_tokens=77, calls_per_second=1000.5)
    assert account.account == caller.account and not account.usage.HasField("count_time")
    own = account.limits
    assert (own.streams, own.daily_tokens, own.calls_per_second) == (0, 77, 1000.5)
    assert own.HasField("streams") and not own.HasField("concurrent_calls") and not own.HasField("stored_bytes")
    names = [one.account for one in await admin.accounts()]
    assert names == sorted(set(names)) and caller.account in names

    spent = await caller.tasks.GetUsage(tasks.GetUsageRequest(scope=tasks.USAGE_SCOPE_ACCOUNT))
    assert spent.daily_token_budget == 77
    assert not (await admin.limit(caller.account)).limits.HasField("streams"), "all of its own are said each time"
