"""Which operations wait for review: those that ask for it, and those on the same memories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_schemas.memory_types.merge_rules import MergeOp
from runekeep_schemas.memory_types.model import Field, FieldType, MemoryType, Review
from runekeep_server.merging.effects import Effect, Fields, held_operations

NOTES = MemoryType(
    "notes",
    description="",
    directory="viking://user/{user_space}/memories/notes",
    filename_template="{name}.md",
    fields=(
        Field("name", merge_op=MergeOp.IMMUTABLE),
        Field("content"),
        Field("calls", FieldType.INT64, merge_op=MergeOp.SUM),
    ),
)
TEXTS = st.lists(st.sampled_from(["tea", "green", "tea.", "No", "sugar", "3", "茶"]), max_size=6)
EFFECTS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from("abcdef"), st.booleans(), st.booleans()), max_size=20
)  # fmt: skip


def effect(before: Fields | None, after: Fields | None, **more: bool) -> Effect:
    return Effect(0, "a", NOTES, before, after, **more)


@given(TEXTS, TEXTS)
def test_a_text_that_keeps_each_word_loses_nothing_and_any_other_does(before: list[str], added: list[str]) -> None:
    grown = {"content": " ".join([*added, *reversed(before)])}
    assert not effect({"content": " ".join(before)}, grown).removes
    for place in range(len(before)):
        less = {"content": " ".join(before[:place] + before[place + 1 :])}
        assert effect({"content": " ".join(before)}, less).removes


@pytest.mark.parametrize(
    ("changed", "removes"),
    [
        (effect(None, {"content": "tea"}), False),
        (effect({"content": "tea"}, None), True),
        (effect({"content": "tea"}, None, is_move=True), False),
        (effect(None, None, is_blocked=True), True),
        (effect({"calls": 4}, {"calls": 7}), False),
        (effect({"content": "tea", "abstract": "Likes tea."}, {"content": "tea", "abstract": "A drink."}), False),
        (effect({"name": "may"}, {"name": "june"}), True),
    ],
)
def test_what_takes_something_away(changed: Effect, removes: bool) -> None:
    assert changed.removes == removes


@given(EFFECTS)
def test_what_waits_shares_no_memory_with_what_does_not(drawn: list[tuple[int, str, bool, bool]]) -> None:
    before, after = {"content": "green tea"}, {"content": "tea"}
    effects = [
        Effect(index, uri, NOTES, before, before if same else after if less else {"content": "green tea 3"})
        for index, uri, less, same in sorted(drawn)
    ]
    for review in Review:
        held = held_operations(effects, review)
        asked = {
            one.operation_index
            for one in effects
            if (review is Review.ALL and one.changed) or (review is Review.DESTRUCTIVE and one.removes)
        }
        assert asked <= held.keys() and (asked or not held), "nothing waits that nobody asked for"
        waiting = {one.uri for one in effects if one.operation_index in held}
        assert waiting.isdisjoint(one.uri for one in effects if one.operation_index not in held)
        assert [*held] == sorted(held)
