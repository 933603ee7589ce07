"""The tokens of recalled texts, against the tokenizer that Anthropic published."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runekeep_schemas.recall_tokens import MAX_CHARACTERS_A_TOKEN, MAX_SPACES_A_TOKEN, UNITS, count, weigh
from tests.bench.quality import answers, lives
from tests.support import tokens

ROOT = Path(__file__).parents[3]


def _said(life: str, words: str) -> str:
    """The messages of a life that have one of the words."""
    messages = (one for some in lives.read(lives.DIRECTORY / f"{life}.jsonl").sessions.values() for one in some)
    return "\n".join(one.text for one in messages if re.search(words, one.text))


def _files(folder: str, pattern: str) -> str:
    return "\n".join(path.read_text() for path in sorted((ROOT / folder).glob(pattern)))


TEXTS: dict[str, Callable[[], str]] = {
    "English": lambda: _said("platform", r"\b(the|and)\b"),
    "German": lambda: _said("wohnung", r"\b(und|ich|nicht|der|die|das|ist|wir)\b"),
    "Chinese": lambda: _said("family", "[\u4e00-\u9fff]{4}"),
    "JSON": lambda: (answers.DIRECTORY / "family.jsonl").read_text()[:100_000],
    "code": lambda: _files("runekeep/client", "*.py"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_model_counts_at_most_a_tenth_less_and_not_more(kind: str) -> None:
    text = TEXTS[kind]()
    ratio = tokens.count(text) / count(text)
    assert 0.9 <= ratio <= 1.01, f"{kind}: {ratio:.3f}"


PARTS = st.lists(st.sampled_from([*"a A1 >\n\t\x01\u00e4", " " * 9]), max_size=40).map("".join)


@given(st.text(max_size=40) | PARTS, PARTS)
def test_joining_texts_adds_no_weight(first: str, second: str) -> None:
    assert weigh(first + second) <= weigh(first) + weigh(second)


@given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=200))
def test_a_token_has_a_limited_number_of_characters(text: str) -> None:
    assert len(text) * UNITS <= weigh(text) * MAX_CHARACTERS_A_TOKEN


@given(st.text(max_size=200).map(lambda text: text.replace("\n", " ")))
@example("a" + "\t" * 100_000 + "b")
@example("a" + " " * 100_000 + "b")
@example("\x00\x1b\x7f" * 1000)
def test_nothing_but_line_breaks_is_free(text: str) -> None:
    assert len(text) * UNITS <= weigh(text) * MAX_SPACES_A_TOKEN
