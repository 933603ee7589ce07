"""How a model's answer to a question is read: tolerantly, and with whatever it names as a source."""

import json

import pytest

from runekeep_extractor.answers.parse import Unreadable
from runekeep_extractor.pipeline.answering import read_answer

TEA = "viking://user/ann/memories/preferences/Tea.md"
CHAT = "viking://user/ann/sessions/chat"


def test_sources_are_memories_or_messages_of_sessions() -> None:
    """A number sign may be a part of a memory's name."""
    named = [TEA, f"{CHAT}#12", f"{CHAT}#0", "viking://user/ann/memories/events/Race#2.md", " ", "x" * 3000]
    told = {"statements": [{"text": "Ann drinks tea.", "sources": named}], "unknown": "Since when."}
    read = read_answer(json.dumps(told))
    assert [(one.uri, one.sequence) for one in read.answer.statements[0].sources] == [
        (TEA, 0),
        (CHAT, 12),
        (f"{CHAT}#0", 0),
        ("viking://user/ann/memories/events/Race#2.md", 0),
    ]
    assert list(read.answer.unknown) == ["Since when."]


def test_a_statement_without_a_text_is_dropped_and_counted() -> None:
    told = {"Statements": [{"Text": "Ann drinks tea.", "sources": TEA}, {"text": " ", "sources": [TEA]}, "tea"]}
    read = read_answer(f"Here it is: {json.dumps(told)}")
    assert ([one.text for one in read.answer.statements], read.dropped) == (["Ann drinks tea."], 2)


def test_what_is_too_long_or_too_much_is_dropped_and_counted() -> None:
    """A text that is cut may claim something else."""
    told = {
        "statements": [{"text": "x" * 4001, "sources": [TEA]}, {"text": "Ann drinks tea.", "sources": [TEA] * 65}],
        "unknown": ["y" * 201, *("Since when.",) * 6],
    }
    read = read_answer(json.dumps(told))
    assert ([len(one.sources) for one in read.answer.statements], len(read.answer.unknown)) == ([64], 5)
    assert read.dropped == 1 + 1 + 2


@pytest.mark.parametrize(
    "text",
    [
        "I would rather not answer in JSON",
        json.dumps({"statements": [f"Ann drinks tea ({TEA})"]}),
        json.dumps({"reasoning": "Ann drinks tea."}),
        '{"reasoning": "Memory says so.", "statements": [{"text": "Ann dri',
    ],
)
def test_a_text_without_an_answer_is_unreadable(text: str) -> None:
    """It does not say that memory says nothing."""
    with pytest.raises(Unreadable):
        read_answer(text)


def test_an_answer_may_be_empty() -> None:
    read = read_answer(json.dumps({"reasoning": "Nothing is there.", "statements": [], "unknown": []}))
    assert (len(read.answer.statements), read.dropped) == (0, 0)
