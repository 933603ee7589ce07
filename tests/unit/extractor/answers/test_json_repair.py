"""Where an object ends in what is no JSON, and how one that ends too early is closed."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runekeep_extractor.answers.json_repair import mended
from runekeep_extractor.answers.json_scan import Extent, extent


def test_the_end_of_an_object_is_found_in_what_is_no_json():
    for text in ("{'a': 'it's {here'}", '{"a": "she said "no" to } it"}', "{a: [1, {b: '}'}]}", '{"a": "\\""}'):
        assert extent(f"{text} and {{more}}", 0) == Extent(text, len(text))


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('{"a": "', "{}"),
        ("{'a': [1, 2", "{'a': [1]}"),
        ('{"a": 1, "b": "x', '{"a": 1}'),
        ('{"a": [{"x": 1}, {"x": [2', '{"a": [{"x": 1}]}'),
        ('{"a": {"b": 1, "c": 2', "{}"),
        ('{"s": {"b": 1, "c": 2', '{"s": {"b": 1}}'),
        ('{"s": {"b": [1], "c": [2, 3', '{"s": {"b": [1]}}'),
    ],
)
def test_what_ends_too_early_is_closed_where_it_last_was_whole(text, whole):
    assert extent(text, 0, open_ended=("s",)) == Extent(whole, None)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
@settings(max_examples=60, deadline=None)
def test_good_json_is_mended_into_itself(value):
    text = json.dumps({"a": value}, ensure_ascii=False)
    try:
        again = mended(text)
    except ValueError:
        # A text that ends in something like a structure looks to the walk as if it went on.
        return
    assert json.loads(again, strict=False) == {"a": value} or extent(text, 0).whole != text
