"""A language is data: a file with words and patterns, read strictly."""

import pytest

from runekeep_extractor.offline import language as module
from runekeep_extractor.offline.language import Language, LanguageError, language_of
from runekeep_extractor.offline.sentences import sentences_of
from runekeep_extractor.offline.statements import classify
from tests.doubles.fixed_job import message

GERMAN = {
    "code": "de",
    "function_words": "ich in der die das mit und am",
    "written_out": {r"\bich's\b": "ich es"},
    "calendar": {"month": ["Januar", "Februar", "März"]},
    "macros": {"ich": "(?:ich|wir)"},
    "dates": [{"pattern": "gestern", "unit": "day", "count": -1}],
    "cues": {"question": r"\?$", "clause": r"\s+und\s+(?=<ich>\b)"},
    "statements": [
        {"kind": "fact", "slot": "home", "single": True, "pattern": "<ich> (?:wohne|wohnen) in (?P<object>.+)"},
        {"kind": "event", "dated": True, "pattern": "habe <ich> (?P<object>.+)"},
    ],
}


def parsed(**changes):
    return Language.parse({**GERMAN, **changes})


@pytest.fixture
def with_german(monkeypatch):
    known = (*module.languages(), parsed())
    for name in ("language", "words", "turns", "turn_jobs"):
        monkeypatch.setattr(f"runekeep_extractor.offline.{name}.languages", lambda: known)


def test_a_file_adds_a_language(with_german):
    text = "Ich wohne in Leipzig. Wohnst du mit ihr? Gestern habe ich ein Boot gekauft. I live in Porto."
    sentences, _ = sentences_of([(message(1, text), "")])
    assert [one.language.code for one in sentences] == ["de", "de", "de", "en"]
    found = classify(sentences)
    assert [(one.kind, one.slot, one.text) for one in found] == [
        ("fact", "home", "Ich wohne in Leipzig."),
        ("event", "", "Gestern (2026-03-04) habe ich ein Boot gekauft."),
        ("fact", "home", "I live in Porto."),
    ]
    assert found[1].when == "2026-03-04"


def test_a_sentence_without_a_known_word_is_in_no_language():
    assert language_of(["przepraszam", "bardzo"]) is None


def test_what_a_file_leaves_out_never_matches():
    language = parsed()
    assert not language.has("joke", "haha") and language.wishes == () and language.tables["deeds"] == {}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"function_words": ""}, "`function_words` are required"),
        ({"cues": {"question": "(?"}}, "'de', question: "),
        ({"cues": {"question": "<nobody>"}}, "'de', question: no macro 'nobody'"),
        ({"statements": [{"kind": "wish", "pattern": "x"}]}, r"statements\[0\]: no kind 'wish'"),
        ({"dates": [{"pattern": "x", "amount": 1}]}, r"dates\[0\]: .*amount"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(changes, says):
    with pytest.raises(LanguageError, match=says):
        parsed(**changes)
