"""Rules of automatic commits, and the tokens that they count."""

import pytest

from runekeep_common.tokens import count, stored_parts, tokens_of_stored
from runekeep_schemas.auto_commit_rules import (
    MAX_IDLE,
    MAX_KEPT,
    MAX_MESSAGES,
    MAX_TOKENS,
    SECOND,
    AutoCommit,
    AutoCommitError,
)

FULL = AutoCommit(MAX_TOKENS, MAX_MESSAGES, MAX_IDLE, MAX_KEPT)


@pytest.mark.parametrize("rules", [AutoCommit(), AutoCommit(idle=SECOND), AutoCommit(5, 10, SECOND, 9), FULL])
def test_rules_are_read_as_they_were_written(rules: AutoCommit) -> None:
    assert AutoCommit.from_json(rules.to_json()) == rules


def test_what_plays_no_part_is_not_written() -> None:
    assert AutoCommit().to_json() == ""
    assert AutoCommit(message_count=3).to_json() == '{"message_count":3}'


@pytest.mark.parametrize(
    ("field", "rules"),
    [
        ("pending_tokens", {"pending_tokens": -1}),
        ("pending_tokens", {"pending_tokens": MAX_TOKENS + 1}),
        ("message_count", {"message_count": MAX_MESSAGES + 1}),
        ("idle", {"idle": MAX_IDLE + 1}),
        ("idle", {"idle": SECOND - 1}),
        ("idle", {"idle": 1}),
        ("keep_recent_count", {"keep_recent_count": MAX_KEPT + 1}),
        ("keep_recent_count", {"message_count": 5, "keep_recent_count": 5}),
    ],
)
def test_rules_that_cannot_be_followed_are_named(field: str, rules: dict[str, int]) -> None:
    with pytest.raises(AutoCommitError) as refused:
        AutoCommit(**rules)
    assert refused.value.field == field
    assert refused.value.todo.startswith(
        "Let fewer" if "message_count" in rules and len(rules) == 2 else "Leave it out"
    )


@pytest.mark.parametrize(
    "text", ["{", "[]", '"idle"', '{"idles":1}', '{"idle":1.5e6}', '{"idle":true}', '{"idle":"1"}', '{"idle":null}']
)
def test_what_is_no_rules_is_refused(text: str) -> None:
    with pytest.raises(AutoCommitError):
        AutoCommit.from_json(text)


def test_one_bound_that_is_reached_is_enough() -> None:
    rules = AutoCommit(pending_tokens=100, message_count=10)
    assert [rules.due(*live) for live in ((99, 9), (100, 1), (0, 10), (100, 10))] == [False, True, True, True]
    assert not AutoCommit().due(10**9, 10**9)
    assert not AutoCommit(idle=SECOND).due(10**9, 10**9)


def test_nothing_is_due_when_all_of_it_stays() -> None:
    rules = AutoCommit(pending_tokens=100, idle=5 * SECOND, keep_recent_count=3)
    assert not rules.due(1000, 3) and rules.due(1000, 4)
    assert (rules.idle_at(SECOND, 0), rules.idle_at(SECOND, 1)) == (0, 6 * SECOND), "an idle session keeps none"
    assert AutoCommit(message_count=2).idle_at(SECOND, 9) == 0


def test_a_message_has_the_tokens_of_its_stored_parts() -> None:
    parts = ({"type": "text", "text": "naïve 你好"}, {"type": "tool", "tool_name": "grep", "input": {"q": [1]}})
    stored = '[{"type":"text","text":"naïve 你好"},{"type":"tool","tool_name":"grep","input":{"q":[1]}}]'
    assert stored_parts(parts) == stored
    assert tokens_of_stored(stored) == count(stored) + 4
