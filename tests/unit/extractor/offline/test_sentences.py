import pytest

from runekeep.v1 import common_pb2
from runekeep_extractor.offline.sentences import (
    MAX_JOB_SENTENCES,
    MAX_MESSAGE_SENTENCES,
    sentences_of,
    split_text,
)
from tests.doubles.fixed_job import message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I moved to Porto. Now I work from home!", ["I moved to Porto.", "Now I work from home!"]),
        ("We meet at 5 p.m. in the office.", ["We meet at 5 p.m. in the office."]),
        ("Dr. Silva called me. J. Doe did not.", ["Dr. Silva called me.", "J. Doe did not."]),
        ("Version 1.5 is out. It runs.", ["Version 1.5 is out.", "It runs."]),
        ('She said "go away." Then she left.', ['She said "go away."', "Then she left."]),
        ("我喜欢喝绿茶。昨天我去了上海！", ["我喜欢喝绿茶。", "昨天我去了上海！"]),
        ("One line\nanother line here", ["One line", "another line here"]),
        ("- first item here\n2. second item here", ["first item here", "second item here"]),
    ],
)
def test_texts_are_cut_where_sentences_end(text, expected):
    assert list(split_text(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "```python\nI am no speech. I am code.\n```",
        "~~~\nan open block goes to the end. Yes it does.",
        "> This was said by somebody else.",
        "https://example.org/a?b=c",
        "| a table | has cells |",
        "Ok.",
        "...",
        "",
        "x" * 50 + " y" * 400,
    ],
)
def test_what_is_no_speech_gives_no_sentence(text):
    assert list(split_text(text)) == []


def test_sentences_keep_who_said_them_and_where():
    said = [
        (message(3, "I like tea. I hate coffee.", speaker="Ana"), ""),
        (message(4, "Noted, I will remember.", role=common_pb2.ROLE_ASSISTANT), None),
        (message(5, "My cat is called Ada.", peer_id="bo"), "bo"),
    ]
    found, left_out = sentences_of(said)
    assert left_out == 0
    assert [(s.sequence, s.position, s.speaker, s.owner, s.assistant) for s in found] == [
        (3, 0, "Ana", "", False),
        (3, 1, "Ana", "", False),
        (4, 2, "Assistant", None, True),
        (5, 3, "bo", "bo", False),
    ]
    assert str(found[0].day) == "2026-03-05"


def test_only_texts_are_speech():
    told = common_pb2.Message(sequence=1, role=common_pb2.ROLE_USER)
    told.parts.add().tool.output = "I am the output of a tool."
    told.parts.add().context.abstract = "I am a context that was shown."
    assert sentences_of([(told, "")]) == ([], 0)


@pytest.mark.parametrize(
    "unit",
    [
        "A. ",
        ". b",
        "„",
        "“",
        "«",
        "e.g. ",
        '"',
        "| ",
        " ",
        "\u00a0",
        ". ",
        "! A",
        ".)",
        "。",
        "x",
        "```",
        "> ",
        "Ab c. ",
    ],
)
@pytest.mark.timeout(60)
def test_hostile_texts_are_split_before_anybody_waits(unit):
    text = unit * (400_000 // len(unit))
    assert all(len(sentence) <= 600 for sentence in split_text(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We ate fish approx. Ten of us came. The end came.", ["We ate fish approx. Ten of us came.", "The end came."]),
    ],
)
def test_abbreviations_hold_sentences_together(text, expected):
    assert list(split_text(text)) == expected


def test_a_long_paste_does_not_crowd_out_what_is_said_behind_it():
    paste = (message(1, "This is a line. " * (MAX_MESSAGE_SENTENCES + 7)), "")
    found, left_out = sentences_of([paste, (message(2, "I like tea."), "")])
    assert [sentence.sequence for sentence in found].count(1) == MAX_MESSAGE_SENTENCES
    assert (found[-1].text, found[-1].position, left_out) == ("I like tea.", MAX_MESSAGE_SENTENCES, 7)
    many = [(message(n, "This is a line. " * MAX_MESSAGE_SENTENCES), "") for n in range(1, 8)]
    found, left_out = sentences_of(many)
    assert len(found) == MAX_JOB_SENTENCES
    assert left_out == 7 * MAX_MESSAGE_SENTENCES - MAX_JOB_SENTENCES
