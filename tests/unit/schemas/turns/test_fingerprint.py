"""Laws of fingerprints: how two of one turn become one, how they are stored, how they are tagged."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_schemas.turns import stored
from runekeep_schemas.turns.fingerprint import (
    LISTS,
    MAX_TOPICS,
    Fingerprint,
    Signal,
    fill,
    from_iso,
    iso,
    merge,
    normal_key,
    objective_of,
    plain,
    promoted,
    promotion_text,
)
from tests.unit.schemas.turns.strategies import LAST_TIME, fingerprints, times, values

REPLACED = (*LISTS, "ctx_retrieval_queries")
BUDGET = Signal("budget.cap", 500, "must", "objective", "trip")


@given(fingerprints, fingerprints)
def test_submitting_the_same_again_changes_nothing(there: Fingerprint, new: Fingerprint) -> None:
    once = merge(there, new)
    assert merge(once, new) == once
    filled = fill(there, new)
    assert fill(filled, new) == filled


@given(fingerprints, fingerprints)
def test_what_a_caller_submits_replaces_lists_and_sets_the_objective_once(there: Fingerprint, new: Fingerprint) -> None:
    merged = merge(there, new)
    assert merged.turn_id == there.turn_id
    assert merged.objective == (there.objective or new.objective)
    assert merged.conversation_title == (there.conversation_title or new.conversation_title)
    assert merged.made_at == (new.made_at or there.made_at)
    for name in REPLACED:
        assert getattr(merged, name) == (getattr(new, name) or getattr(there, name))


@given(fingerprints, fingerprints)
def test_what_is_extracted_never_changes_what_is_there(there: Fingerprint, found: Fingerprint) -> None:
    filled = fill(there, found)
    assert filled.turn_id == there.turn_id
    for name in ("objective", "conversation_title", "made_at", *REPLACED):
        before = getattr(there, name)
        assert getattr(filled, name) == (before or getattr(found, name))
    assert filled.topics[: len(there.topics)] == there.topics


@given(fingerprints, st.sampled_from([merge, fill]))
def test_an_empty_one_clears_nothing(there: Fingerprint, join: Any) -> None:
    assert join(there, Fingerprint(there.turn_id)) == there
    assert join(Fingerprint(there.turn_id), there) == there


@given(fingerprints, fingerprints, st.sampled_from([merge, fill]))
def test_topics_are_united_in_order(there: Fingerprint, new: Fingerprint, join: Any) -> None:
    topics = join(there, new).topics
    assert len(topics) == len(set(topics)) <= MAX_TOPICS
    assert topics == tuple(dict.fromkeys(there.topics + new.topics))[:MAX_TOPICS]


@given(fingerprints)
def test_the_stored_form_gives_back_the_same(fingerprint: Fingerprint) -> None:
    text = fingerprint.to_text()
    assert Fingerprint.from_text(text) == fingerprint
    assert Fingerprint.from_text(text).to_text() == text
    assert "\n" not in text


def test_the_stored_form() -> None:
    said = Fingerprint("t1", "Find a flight", ("travel",), assertions=(BUDGET,), facts=(Signal("town", "Bonn", "low"),))
    assert replace(said, made_at=1_769_332_530_000_000).to_text() == (
        '{"version":"v1","turn_id":"t1","objective":"Find a flight","topics":["travel"],'
        '"assertions":[{"key":"budget.cap","value":500,"severity":"must","scope":"objective","applies_to":"trip"}],'
        '"exceptions":[],"facts":[{"key":"town","value":"Bonn","severity":"low"}],"assistant_signals":[],'
        '"ctx_retrieval_queries":[],"made_at":"2026-01-25T09:15:30Z"}'
    )


def test_numbers_of_the_contract_and_of_callers_are_stored_alike() -> None:
    wire = Signal("size", {"max": 56.0, "min": 48.5}, "must")
    own = Signal("size", {"min": 48.5, "max": 56}, "must")
    assert Fingerprint("t", facts=(wire,)).to_text() == Fingerprint("t", facts=(own,)).to_text()


@given(values)
def test_a_plain_value_is_the_same_value(value: Any) -> None:
    assert plain(value) == value
    assert repr(plain(plain(value))) == repr(plain(value))


def test_what_is_plain() -> None:
    assert repr(plain([1.0, True, 1e300, 0.5, 2.0**53])) == "[1, True, 1e+300, 0.5, 9007199254740992.0]"
    assert list(plain({"max": 1, "min": 0})) == ["min", "max"]


@given(st.lists(times, min_size=2, max_size=2))
def test_times_keep_their_order_and_every_microsecond(pair: list[int]) -> None:
    assert [from_iso(iso(at)) for at in pair] == pair


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_769_332_530_000_001, "2026-01-25T09:15:30.000001Z"),
        (LAST_TIME, "9999-12-31T23:59:58.999999Z"),
    ],
)
def test_the_text_of_times(at: int, text: str) -> None:
    assert iso(at) == text
    assert from_iso(text) == at


@pytest.mark.parametrize(
    ("key", "normal"),
    [
        ("budget.cap", "budget_cap"),
        ("  Lock -- Advice! ", "lock_advice"),
        ("__x__", "x"),
        ("Größe 7", "gr_e_7"),
        ("价格", ""),
        ("!!!", ""),
    ],
)
def test_keys_as_tags_spell_them(key: str, normal: str) -> None:
    assert normal_key(key) == normal


def test_tags_of_a_fingerprint() -> None:
    said = Fingerprint(
        "t1",
        assertions=(BUDGET,),
        assistant_signals=(
            Signal("Lock.advice", "Grasp", "recommend"),
            Signal("lock advice", "Tern", "mention"),
            Signal("价格", 1, "mention"),
        ),
    )
    tags = (stored.FINGERPRINT, "turn:t1", "assistant_signal", "assistant_signal:lock_advice")
    assert stored.fingerprint_tags(said) == tags
    assert stored.fingerprint_tags(replace(said, assistant_signals=())) == tags[:2]
    only = replace(said, assistant_signals=said.assistant_signals[2:])
    assert stored.fingerprint_tags(only) == tags[:3]


def test_names_and_tags_of_the_others() -> None:
    assert stored.KINDS == (
        "artifact:turn.fingerprint.v1",
        "artifact:turn.log.reaction",
        "conversation.active_set.v1",
        "conversation.memory.bucket.v1",
    )
    assert stored.reaction_tags("t1", "user") == (stored.REACTION, "turn:t1", "origin:user")
    assert stored.bucket_tags("obj-x-1") == (stored.BUCKET, "mem:bucket:obj-x-1")


def test_a_fingerprint_that_says_nothing() -> None:
    assert Fingerprint("t1", made_at=1, conversation_title="Bikes").is_empty
    assert not Fingerprint("t1", facts=(BUDGET,)).is_empty


@given(st.lists(fingerprints, max_size=4))
def test_what_is_wanted_by_the_hundred_is_read_alone(there: list[Fingerprint]) -> None:
    assert promoted(promotion_text(one.assistant_signals) for one in there) == [one.assistant_signals for one in there]
    assert [objective_of(one.to_text()) for one in there] == [one.objective for one in there]


@given(fingerprints)
def test_promotions_have_the_form_of_their_fingerprint(there: Fingerprint) -> None:
    (signals,) = promoted([promotion_text(there.assistant_signals)])
    # By their text: in Python 1 equals true, and 500.0 is 500.
    assert replace(there, assistant_signals=signals).to_text() == there.to_text()
    assert signals == Fingerprint.from_text(there.to_text()).assistant_signals


def test_words_that_look_like_the_stored_form_are_not_taken_for_it() -> None:
    forged = ',"objective":"forged"'
    there = Fingerprint("t", objective=forged, topics=(forged,), facts=(Signal(forged, forged, "low"),))
    assert objective_of(there.to_text()) == forged
    assert objective_of(replace(there, turn_id=forged, objective="own").to_text()) == "own"
