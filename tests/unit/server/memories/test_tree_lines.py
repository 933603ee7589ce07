"""Lines that are found, beside a search of each line by itself, and how they are shown."""

import re
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from runekeep_server.memories.tree import lines
from runekeep_server.memories.tree.lines import SHOWN, Found, PatternError, pattern_of, search, shown

TEXTS = st.text(alphabet="abAk\u212a\u2028\u0085 .\n", max_size=30)
PIECES = [
    "a", "b", "k", "^", "$", ".", "\\s", "\\b", "\\B", "[^a]", "\\A", "\\z", "a*", "(?i)k", "(?-m)^", "(?s).", "|",
    "\\n", "\\pZ", "\\W+", "(a|b)",
]  # fmt: skip
EXPRESSIONS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)


def lines_with(pattern: Any, text: str) -> list[int]:
    found: list[int] = []

    def take(one: Found) -> bool:
        found.append(one.number)
        return True

    parts = text.split("\n")
    if pattern.anywhere(text):
        assert search(pattern, parts, 0, len(parts), context=0, take=take) == len(parts)
    return found


@given(EXPRESSIONS, TEXTS, st.booleans())
def test_an_expression_is_looked_for_in_each_line_alone(text: str, document: str, ignore_case: bool) -> None:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        single = re2.compile(text, options)
    except re2.error:
        with pytest.raises(PatternError):
            pattern_of(text, regex=True, ignore_case=ignore_case)
        return
    expected = [number for number, line in enumerate(document.split("\n")) if single.search(line)]
    assert lines_with(pattern_of(text, regex=True, ignore_case=ignore_case), document) == expected


@given(st.text(alphabet="abA.k\u212a*\u2028", min_size=1, max_size=3), TEXTS)
def test_plain_text_is_itself_whatever_signs_it_holds(text: str, document: str) -> None:
    lines = document.split("\n")
    assert lines_with(pattern_of(text, regex=False, ignore_case=False), document) == [
        number for number, line in enumerate(lines) if text in line
    ]
    folded = re.compile(re.escape(text.replace("\u212a", "k")), re.IGNORECASE)
    assert lines_with(pattern_of(text, regex=False, ignore_case=True), document) == [
        number for number, line in enumerate(lines) if folded.search(line.replace("\u212a", "k"))
    ]


@pytest.mark.parametrize(("text", "line"), [("STRASSE", "strasse"), ("привет", "ПРИВЕТ"), ("é", "É"), ("ς", "Σ")])
def test_letters_of_any_script_are_taken_as_one(text: str, line: str) -> None:
    assert lines_with(pattern_of(text, regex=False, ignore_case=True), line) == [0]
    assert lines_with(pattern_of(text, regex=False, ignore_case=False), line) == []


@pytest.mark.parametrize("text", ["(", "a{2000}", "(?=a)", "\\1", "(((((a{99}){99}){99}){99}){99})"])
def test_what_is_no_expression_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(PatternError) as refused:
        pattern_of(text, regex=True, ignore_case=False)
    assert str(refused.value)
    assert lines_with(pattern_of(text, regex=False, ignore_case=False), f"x {text} y") == [0]


@pytest.mark.parametrize("text", ["\\Aa", "x\\z", "(?-m)^a", "(?-m:x$)"])
def test_the_ends_of_a_text_are_those_of_a_line(text: str) -> None:
    assert lines_with(pattern_of(text, regex=True, ignore_case=False), "b\nax\nb") == [1]


def test_a_pattern_of_two_lines_is_refused() -> None:
    with pytest.raises(PatternError):
        pattern_of("a\nb", regex=False, ignore_case=False)


def test_lines_around_and_where_to_go_on() -> None:
    lines = [f"line {number}" for number in range(10)]
    taken: list[Found] = []

    def take_two(found: Found) -> bool:
        if len(taken) == 2:
            return False
        taken.append(found)
        return True

    pattern = pattern_of("line [0469]", regex=True, ignore_case=False)
    assert search(pattern, lines, 0, 10, context=2, take=take_two) == 6
    assert [(one.number, one.before, one.after) for one in taken] == [
        (0, (), ("line 1", "line 2")),
        (4, ("line 2", "line 3"), ("line 5", "line 6")),
    ]
    taken.clear()
    # Lines of a part of a document have the numbers that they have in all of it.
    assert search(pattern, lines[5:], 1, 5, context=1, take=take_two, number=5) == 5
    assert [(one.number, one.before, one.after) for one in taken] == [
        (6, ("line 5",), ("line 7",)),
        (9, ("line 8",), ()),
    ]


@given(st.integers(0, 5000), st.integers(0, 4999))
def test_of_a_long_line_the_place_is_shown(length: int, place: int) -> None:
    line = "".join(chr(0x4E00 + number) for number in range(length))
    place = min(place, max(length - 1, 0))
    cut = shown(line, place)
    assert len(cut) <= SHOWN + 6
    inner = cut.removeprefix("...").removesuffix("...")
    assert inner in line and line[place : place + 1] in inner
    assert (cut == line) == (length <= SHOWN)


@pytest.mark.parametrize("text", ["a{0,1000}", "(a|b)*a(a|b){1000}", "\\pL{10}"])
def test_an_expression_that_is_too_large_is_refused_and_its_text_is_not(text: str) -> None:
    large = text * 40
    with pytest.raises(PatternError, match="2000 instructions"):
        pattern_of(large, regex=True, ignore_case=False)
    assert lines_with(pattern_of(large, regex=False, ignore_case=True), f"x {large.upper()} y") == [0]


def test_usual_expressions_are_small_enough() -> None:
    for text in (
        "\\pL+",
        "(tea|water|coffee|[A-Z][a-z]+ (said|told)){1,3}.{0,50}green",
        "\\d{4}-\\d{2}-\\d{2}.*\\btea\\b",
    ):
        pattern_of(text, regex=True, ignore_case=True)


@pytest.mark.parametrize(
    ("expression", "filler", "places"),
    [
        ("needle", "é", {0, 5, 12, 13, 14, 17, 19, 20, 33, 994}),
        ("^needle", "é", {0}),
        ("needle$", "é", {994}),
        ("\\bneedle\\b", "x", set()),
        ("\\Bneedle", "x", {5, 12, 13, 14, 17, 19, 20, 33, 994}),
        ("q", "x", set()),
    ],
)
def test_a_long_line_is_looked_through_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch, expression: str, filler: str, places: set[int]
) -> None:
    monkeypatch.setattr(lines, "PIECE", 20)
    monkeypatch.setattr(lines, "OVERLAP", 8)
    pattern = pattern_of(expression, regex=True, ignore_case=False)
    for place in (0, 5, 12, 13, 14, 17, 19, 20, 33, 994):
        line = filler * place + "needle" + filler * (994 - place)
        assert pattern.place(line, lambda: None) == (place if place in places else -1)


def test_a_search_ends_within_a_line_when_the_check_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PIECE", 20)
    monkeypatch.setattr(lines, "OVERLAP", 8)
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        search(
            pattern_of("q", regex=True, ignore_case=False),
            ["x" * 1000],
            0,
            1,
            context=0,
            take=lambda _: True,
            check=check,
        )
    assert calls == 5
