"""Whatever is said in a turn, its memory keeps to the contract and to the words that were said."""

import re

import protovalidate
from google.protobuf import json_format
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.extractor.turn_reading import memory_of

PIECES = (
    "Find me a hotel",
    "under 200 euros per night",
    "I prefer trains over buses",
    "don't use tables",
    "no nuts, eggs or dairy",
    "never",
    "between 3 and",
    "my wife is allergic to",
    "instead of",
    "it must be",
    "always",
    "without",
    "is fine",
    "as we discussed",
    "the earlier draft",
    "from now on",
    "if it rains",
    "not before 7:30 pm",
    "$1,5.00,0",
    "1e9 k",
    "I have 3",
    "the red one",
    "Ich mag keine Tabellen",
    "我不喜欢辣的食物",
    "“quoted words of somebody”",
    "```code",
    ">",
    "😀",
    "\u202e",
    "x" * 90,
    "and",
    ",",
    ".",
    "?",
    ":",
    "\n",
)
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=25).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=3), TEXTS, TEXTS)
@example(["never if it rains " + 90 * "x"], "", "")
def test_any_turn_gives_a_memory_that_the_contract_takes(texts, answer, spec):
    memory = memory_of(*texts, answers=[answer], spec=spec, opens=True)
    protovalidate.validate(memory)
    said = _plain(" ".join(texts))
    fingerprint = memory.fingerprint
    for signal in (*fingerprint.assertions, *fingerprint.exceptions, *fingerprint.facts):
        for value in _strings(json_format.MessageToDict(signal.value)):
            # A rule may join a deed and its object over the article between them.
            # What was cut may end within a word.
            *words, last = value.split(" ")
            whole = " ".join(words) if last.endswith("…") else value
            assert set(_plain(whole).split()) <= set(said.split()), (value, said)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=400), st.text(max_size=200))
def test_so_does_any_text_at_all(text, spec):
    protovalidate.validate(memory_of(text, answers=[text], spec=spec, opens=True))


def test_a_turn_without_words_has_a_memory_without_them():
    memory = memory_of("", answers=[""])
    assert memory.fingerprint.objective == ""
    assert not memory.summary.ListFields()
    assert memory_of("   ", opens=True).fingerprint == type(memory.fingerprint)()
    protovalidate.validate(memory)


def _strings(value) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _strings(one)]
    return [text for one in value for text in _strings(one)] if isinstance(value, list) else []


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text.replace("’", "'").lower()))
