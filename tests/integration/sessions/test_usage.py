"""What models cost, as callers are told: of the user, of a session, of the account; each attempt once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.acceptance.processes import environment
from tests.support.callers import Caller, failure, said
from tests.support.fork_server import run_module
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, edit, write

TEA = write("preferences", topic="Tea", content="Drinks green tea.")
WRONG = edit("viking://user/memories/preferences/None.md", content=[("a", "b")])

Spent = dict[tuple[str, str], tuple[int, int, int]]


def used(phase: str, tokens: int = 10) -> common_pb2.TokenUsage:
    return common_pb2.TokenUsage(model="m", phase=phase, calls=1, input_tokens=tokens, output_tokens=tokens // 2)


async def asked(caller: Caller, session: str = "", account: bool = False, **fields: Any) -> Any:
    scope = task_service_pb2.USAGE_SCOPE_UNSPECIFIED
    if session:
        scope = task_service_pb2.USAGE_SCOPE_SESSION
    elif account:
        scope = task_service_pb2.USAGE_SCOPE_ACCOUNT
    request = task_service_pb2.GetUsageRequest(scope=scope, session_id=session, **fields)
    return await caller.tasks.GetUsage(request)


async def spent(caller: Caller, **asking: Any) -> Spent:
    entries = (await asked(caller, **asking)).usage
    return {(one.phase, one.model): (one.calls, one.input_tokens, one.output_tokens) for one in entries}


async def test_all_attempts_of_all_commits_are_in_the_sums(
    caller: Caller, callers: Callable[..., Caller], channel: grpc.aio.Channel
) -> None:
    other = callers(account=caller.account)
    first, second = await caller.session(), await caller.session()
    async with Worker(channel) as worker:
        await caller.committed(said("one"), session=first)
        lease = (await worker.take()).lease
        await worker.fail(lease, pb.FAILURE_CLASS_INVALID_OUTPUT, usage=[used("operations")])
        lease = (await worker.take()).lease
        await worker.deliver(lease, TEA, WRONG, usage=[used("operations")])
        await worker.deliver(lease, TEA, usage=[used("operations"), used("repair", 4)])
        await caller.committed(said("two"), session=second)
        await worker.deliver((await worker.take()).lease, TEA, usage=[used("operations")])
        await other.committed()
        await worker.deliver((await worker.take()).lease, TEA, usage=[used("operations")])

    of_first = {("operations", "m"): (2, 20, 10), ("repair", "m"): (1, 4, 2)}
    assert await spent(caller, session=first) == of_first
    assert await spent(caller, session=second) == {("operations", "m"): (1, 10, 5)}
    assert await spent(caller) == {("operations", "m"): (3, 30, 15), ("repair", "m"): (1, 4, 2)}
    whole = await asked(caller, account=True)
    assert whole == await asked(other, account=True)
    assert [(one.phase, one.calls) for one in whole.usage] == [("operations", 4), ("repair", 1)]
    assert (whole.HasField("daily_token_budget"), whole.spent_today) == (False, 66)


async def test_a_server_that_is_killed_counts_each_attempt_once(own_server: Callable[..., ServerProcess]) -> None:
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        await caller.committed()
        worker = Worker(channel)
        await worker.hello()
        lease = (await worker.take()).lease
        await worker.deliver(lease, TEA, WRONG, usage=[used("operations")])
        server.kill()
    server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        assert await spent(caller) == {("operations", "m"): (1, 10, 5)}
        async with Worker(channel, resume=[lease]) as worker:
            both = [used("operations"), used("repair")]
            await worker.deliver(lease, TEA, output_id="mended", usage=both)
            await worker.deliver(lease, TEA, output_id="mended", usage=both)
        assert await spent(caller) == {("operations", "m"): (1, 10, 5), ("repair", "m"): (1, 10, 5)}
    server.stop()


async def test_nobody_else_is_told(caller: Caller, callers: Callable[..., Caller], channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await caller.committed(said("one"), session=session)
    async with Worker(channel) as worker:
        await worker.deliver((await worker.take()).lease, TEA, usage=[used("operations")])
    same_account, same_name = callers(account=caller.account), callers(user=caller.user)
    for stranger in (same_account, same_name):
        assert await spent(stranger) == {}
        request = task_service_pb2.GetUsageRequest(scope=task_service_pb2.USAGE_SCOPE_SESSION, session_id=session)
        assert (await failure(stranger.tasks.GetUsage(request))).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    assert await spent(same_name, account=True) == {}
    assert (await asked(same_name, account=True)).spent_today == 0


async def test_a_session_goes_with_its_scope_and_the_other_way_round(caller: Caller) -> None:
    for request in (
        task_service_pb2.GetUsageRequest(scope=task_service_pb2.USAGE_SCOPE_SESSION),
        task_service_pb2.GetUsageRequest(session_id="s"),
        task_service_pb2.GetUsageRequest(scope=task_service_pb2.USAGE_SCOPE_ACCOUNT, session_id="s"),
    ):
        refused = await failure(caller.tasks.GetUsage(request))
        assert (refused.seen, refused.fields) == (("INVALID_ARGUMENT", "FIELD_INVALID"), ["session_id"])


async def test_money_stands_beside_tokens_where_the_price_is_known(
    own_server: Callable[[dict[str, str]], ServerProcess], tmp_path: Path
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("m: {input: 2, output: 10}\n")
    server = own_server({"RUNEKEEP_PRICES_FILE": str(prices)})
    unpriced = common_pb2.TokenUsage(model="other", phase="dedup", calls=1, input_tokens=5)
    async with grpc.aio.insecure_channel(server.address) as channel, Worker(channel) as worker:
        caller = Caller(channel, "ann", "acme")
        await caller.committed()
        await worker.deliver((await worker.take()).lease, TEA, usage=[used("operations", 1000), unpriced])
        entries = {one.model: one for one in (await asked(caller)).usage}
    assert entries["m"].cost_usd == pytest.approx((1000 * 2 + 500 * 10) / 1e6)
    assert not entries["other"].HasField("cost_usd")

    options = ("--address", server.address, "--account", "acme", "--user", "ann")
    shown = run_module("runekeep", "usage", *options, environment=environment({})).stdout
    assert "$0.0070" in shown and "without the models of unknown price" in shown
