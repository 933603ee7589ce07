"""What one account may still do, and that nobody else feels it."""

import random

import grpc
import pytest

from runekeep.v1 import common_pb2
from runekeep_server.protocol.api_error import ApiError, to_status
from runekeep_server.rpc.limits import ADDING, STREAMS, Limits
from runekeep_server.settings import LimitSettings
from runekeep_storage.accounts.accounts import OwnLimits

READ = "SessionService/GetSession"
ADD = "SessionService/AddMessages"
WATCH = "TaskService/WatchTask"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def refused(limits: Limits, account: str | None, method: str = READ) -> ApiError:
    with pytest.raises(ApiError) as caught:
        limits.admit(account, method)
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    return caught.value


def test_an_account_has_its_rate_and_is_told_when_to_come_again(clock: Clock) -> None:
    limits = Limits(LimitSettings(account_calls_per_second=2, account_burst_seconds=2), clock)
    for _ in range(4):
        with limits.admit("a", READ):
            pass
    error = refused(limits, "a")
    assert error.reason == common_pb2.ERROR_REASON_RATE_LIMITED and error.metadata == {
        "limit": "account_calls_per_second"
    }
    assert error.retry_after == pytest.approx(0.5)
    with limits.admit("b", READ):
        pass
    clock.now += 0.49
    refused(limits, "a")
    clock.now += 0.02
    with limits.admit("a", READ):
        pass


def test_whoever_comes_when_told_is_let_in(clock: Clock) -> None:
    limits = Limits(LimitSettings(account_calls_per_second=0.1, account_burst_seconds=1), clock)
    for _ in range(5):
        with limits.admit("a", READ):
            pass
        error = refused(limits, "a")
        assert error.retry_after is not None
        clock.now += error.retry_after + 1e-6


def test_what_comes_by_stream_waits_for_the_rate_of_calls(clock: Clock) -> None:
    limits = Limits(LimitSettings(account_calls_per_second=2, account_burst_seconds=2), clock)
    with limits.admit("a", "SessionService/StreamMessages"):
        assert [limits.count_in_stream("a", ADD) for _ in range(3)] == [0.0] * 3, "beside the stream itself"
        waits = [limits.count_in_stream("a", ADD) for _ in range(12)]
        assert waits[:3] == pytest.approx([0.5, 1.0, 1.5]), "each waits behind those before it"
        assert waits[9:] == pytest.approx([5.0, 5.5, 5.5]), "what would wait too long is not counted"
        refused(limits, "a")
        clock.now += 5.5
        assert limits.count_in_stream("a", ADD) == 0.0
        assert limits.count_in_stream("a", ADD) == pytest.approx(0.5)
        limits.set_accounts({}, {"a"})
        with pytest.raises(ApiError) as caught:
            limits.count_in_stream("a", ADD)
        assert caught.value.reason == common_pb2.ERROR_REASON_QUOTA_EXCEEDED


def test_nobody_is_sent_away_for_ever(clock: Clock) -> None:
    limits = Limits(LimitSettings(), clock)
    limits.set_accounts({"a": OwnLimits(calls_per_second=1e-300)}, frozenset())
    with limits.admit("a", READ):
        pass
    error = refused(limits, "a")
    assert error.retry_after == 3600
    assert to_status(error).details


def test_no_more_calls_than_the_bucket_gives_in_any_span(clock: Clock) -> None:
    limits = Limits(LimitSettings(account_calls_per_second=10, account_burst_seconds=0.5), clock)
    rng = random.Random(7)
    let_in: list[float] = []
    for _ in range(3000):
        clock.now += rng.expovariate(40)
        try:
            with limits.admit("a", READ):
                let_in.append(clock.now)
        except ApiError:
            continue
    for first in range(0, len(let_in), 17):
        for last in range(first, len(let_in), 31):
            assert last - first + 1 <= 5 + 10 * (let_in[last] - let_in[first]) + 1e-6
    assert len(let_in) > 0.99 * 10 * (clock.now - 100)


def test_calls_and_streams_of_an_account_at_a_time(clock: Clock) -> None:
    limits = Limits(LimitSettings(account_concurrent_calls=1, account_streams=1), clock)
    with limits.admit("a", READ), limits.admit("a", WATCH):
        assert refused(limits, "a").metadata == {"limit": "account_concurrent_calls"}
        error = refused(limits, "a", WATCH)
        assert error.metadata == {"limit": "account_streams"} and error.retry_after
        with limits.admit("b", READ), limits.admit("b", WATCH):
            pass
    with limits.admit("a", READ), limits.admit("a", WATCH):
        pass
    assert limits.accounts == 0


def test_calls_of_all_at_a_time_leave_workers_and_admins_alone(clock: Clock) -> None:
    limits = Limits(LimitSettings(concurrent_calls=2), clock)
    with limits.admit("a", READ), limits.admit("b", READ):
        assert refused(limits, "c").metadata == {"limit": "concurrent_calls"}
        with limits.admit(None, "ExtractorService/FindForJob"), limits.admit("c", WATCH):
            pass
    with limits.admit("c", READ):
        pass


def test_by_default_one_account_leaves_room_for_others(clock: Clock) -> None:
    limits = Limits(LimitSettings(), clock)
    for _ in range(LimitSettings().concurrent_calls):
        try:
            limits.admit("a", READ)
        except ApiError as error:
            assert error.metadata == {"limit": "account_concurrent_calls"}
            break
    with limits.admit("b", READ):
        pass


def test_a_call_that_fails_is_over_too(clock: Clock) -> None:
    limits = Limits(LimitSettings(account_concurrent_calls=1), clock)
    with pytest.raises(KeyError), limits.admit("a", READ):
        raise KeyError
    with limits.admit("a", READ):
        pass


def test_a_refused_call_takes_nothing(clock: Clock) -> None:
    """Whoever goes on asking is let in as soon as whoever waits."""
    limits = Limits(
        LimitSettings(account_calls_per_second=1, account_burst_seconds=1, account_concurrent_calls=1), clock
    )
    with limits.admit("a", READ):
        for _ in range(10):
            assert refused(limits, "a").metadata == {"limit": "account_concurrent_calls"}
    for _ in range(10):
        clock.now += 0.09
        refused(limits, "a")
    clock.now += 0.11
    with limits.admit("a", READ):
        pass


def test_own_limits_go_before_those_of_the_settings(clock: Clock) -> None:
    limits = Limits(LimitSettings(account_concurrent_calls=1, account_streams=1), clock)
    limits.set_accounts({"a": OwnLimits(concurrent_calls=2), "b": OwnLimits(concurrent_calls=0)}, frozenset())
    with limits.admit("a", READ), limits.admit("a", READ), limits.admit("a", WATCH):
        refused(limits, "a")
        refused(limits, "a", WATCH)
    with limits.admit("b", READ), limits.admit("b", READ), limits.admit("b", READ):
        pass
    limits.set_accounts({}, frozenset())
    with limits.admit("a", READ):
        refused(limits, "a")


def test_a_full_account_may_do_all_but_add(clock: Clock) -> None:
    limits = Limits(LimitSettings(), clock)
    limits.set_accounts({}, frozenset({"a"}))
    for method in sorted(ADDING):
        assert refused(limits, "a", method).reason == common_pb2.ERROR_REASON_QUOTA_EXCEEDED
        with limits.admit("b", method):
            pass
    for method in (READ, WATCH, "SessionService/CommitSession", "MemoryService/DeleteUser", "SpaceService/EraseData"):
        with limits.admit("a", method):
            pass


def test_accounts_that_are_idle_are_forgotten(clock: Clock) -> None:
    limits = Limits(LimitSettings(account_calls_per_second=1, account_burst_seconds=10), clock)
    stream = limits.admit("long", WATCH)
    for number in range(100_000):
        clock.now += 0.01
        with limits.admit(f"account-{number}", READ):
            pass
    # One call is made up for in a second, in which a hundred others come.
    assert limits.accounts <= 220
    with stream:
        pass
    clock.now += 60
    for number in range(200):
        with limits.admit(f"other-{number}", READ):
            pass
    assert limits.accounts <= 210


def test_an_account_with_a_slow_rate_of_its_own_keeps_no_others_remembered(clock: Clock) -> None:
    limits = Limits(LimitSettings(account_calls_per_second=1, account_burst_seconds=2), clock)
    limits.set_accounts({"slow": OwnLimits(calls_per_second=1e-6)}, frozenset())
    for number in range(1000):
        clock.now += 0.1
        with limits.admit("slow" if number == 0 else f"account-{number}", READ):
            pass
    # One call is made up for in a second, in which ten others come.
    assert limits.accounts <= 25
    refused(limits, "slow")


def test_forgetting_gives_nobody_more_than_remembering(clock: Clock) -> None:
    limits = Limits(LimitSettings(account_calls_per_second=1, account_burst_seconds=3), clock)
    let_in = 0
    for number in range(1000):
        clock.now += 0.05
        with limits.admit(f"account-{number}", READ):
            pass
        try:
            with limits.admit("a", READ):
                let_in += 1
        except ApiError:
            pass
    assert let_in <= 3 + 1000 * 0.05 + 1


def test_the_methods_that_store_data_and_those_with_a_stream_are_told_apart_by_the_contract() -> None:
    assert {ADD, "SpaceService/ImportSpace"} < ADDING and {WATCH, "ExtractorService/Work"} < STREAMS
    assert READ not in ADDING | STREAMS
