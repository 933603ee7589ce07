"""Who calls, in development mode."""

import re

import pytest

from runekeep_server.identity import (
    Caller,
    Metadata,
    Worker,
    current_caller,
    current_trace,
    enter_principal,
    new_trace,
    trace_of,
)
from runekeep_server.identity import development_caller as named_caller
from runekeep_server.protocol.api_error import ApiError

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def development_caller(metadata: Metadata) -> Caller:
    return named_caller(metadata, new_trace())


def test_default_account_and_user() -> None:
    caller = development_caller([("user-agent", "x")])
    assert (caller.account, caller.user) == ("default", "default")


@pytest.mark.parametrize("key", ["x-runekeep-account", "x-runekeep-user"])
@pytest.mark.parametrize("value", ["", ".", "..", "-a", "a/b", "a b", "a\n", "ä", "a" * 129])
def test_unsafe_ids_are_refused(key: str, value: str) -> None:
    with pytest.raises(ApiError) as refused:
        development_caller([(key, value)])
    assert refused.value.code.name == "UNAUTHENTICATED"
    assert key in refused.value.message


@pytest.mark.parametrize("word", ["memories", "sessions", "peers", "skills"])
def test_words_of_the_uri_are_no_users_but_may_be_accounts(word: str) -> None:
    with pytest.raises(ApiError, match="not memories, sessions, peers or skills"):
        development_caller([("x-runekeep-user", word)])
    assert development_caller([("x-runekeep-account", word)]).account == word


def test_two_users_in_one_call_are_refused() -> None:
    with pytest.raises(ApiError, match="twice"):
        development_caller([("x-runekeep-user", "ada"), ("x-runekeep-user", "eve")])


@pytest.mark.parametrize(
    "header",
    [
        "",
        "garbage",
        PARENT.upper(),
        PARENT + "-more",
        PARENT.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
    ],
)
def test_trace_is_made_when_the_header_is_unusable(header: str) -> None:
    made = trace_of([("traceparent", header)])
    assert made.traceparent != header
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", made.traceparent)
    assert made.trace_id != trace_of([]).trace_id


def test_later_versions_of_the_header_may_append() -> None:
    later = PARENT.replace("00-", "01-", 1) + "-more"
    assert trace_of([("traceparent", later)]).traceparent == PARENT


def test_worker_is_no_user() -> None:
    trace = new_trace()
    enter_principal(Worker(trace, "development"))
    assert current_trace() is trace
    with pytest.raises(LookupError, match="worker"):
        current_caller()
