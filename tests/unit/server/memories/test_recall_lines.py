"""Lines that stand for a memory: which there are, and which answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_schemas.recall_lines import MAX_LINE_CHARACTERS, MAX_LINES, split_lines
from runekeep_server.memories.recall_lines import Item, LineScores


def test_lines_come_without_markdown_and_each_once() -> None:
    lines = split_lines(["Likes tea.", "# Tea\n\n- Green\n- Likes tea.\n> quoted"])
    assert lines == ["Likes tea.", "Tea", "Green", "quoted"]


def test_the_minus_of_a_number_stays_and_lines_without_words_go() -> None:
    assert split_lines(["- -5 degrees\n-5 more\n-----\n+---+---+\n* * *"]) == ["-5 degrees", "-5 more"]


@pytest.mark.parametrize(
    "text", ["a" + " " * 12_700 + "b", "- " * 6_000 + "b", "-" * 12_000, "> " + " " * 12_000 + "b"]
)
def test_hostile_whitespace_and_signs_take_linear_time(text: str) -> None:
    # A quadratic expression takes seconds for one of them, and pytest's timeout ends the test.
    for _ in range(200):
        split_lines([text])


def test_a_recall_scores_a_bounded_number_of_lines_by_words() -> None:
    last = Item("", ["nothing", "tea"], 0.0)
    crowd = [Item("", ["filler"] * 60, 0.0)] * 40
    assert LineScores([*crowd, last]).of("tea")[-1] == [0.1, 0.0]
    first, second = LineScores([last]).of("tea")[-1]
    assert second > first


def test_a_long_line_becomes_pieces_of_whole_sentences() -> None:
    sentences = [f"Sentence number {number} says something of its own." for number in range(12)]
    pieces = split_lines([" ".join(sentences)])
    assert len(pieces) > 1 and " ".join(pieces) == " ".join(sentences)
    assert all(piece.endswith(".") for piece in pieces)


@given(st.lists(st.text(st.sampled_from("ab .\u3002\u56fd\n-"), max_size=900), max_size=4))
def test_no_line_is_longer_or_lost(texts: list[str]) -> None:
    lines = split_lines(texts)
    assert all(0 < len(line) <= MAX_LINE_CHARACTERS for line in lines) and len(lines) <= MAX_LINES
    assert all(len(line.splitlines()) == 1 for line in lines)
    said = "".join(lines)
    assert len(lines) == MAX_LINES or all(letter in said for letter in "ab\u56fd" if letter in "".join(texts))


def test_the_line_with_the_rarest_words_of_the_query_is_best() -> None:
    lines = ["Her notes", "Tea on Monday", "Coffee on Monday", "Tea on Friday with Ann"]
    (scores,) = LineScores([Item("Plans", lines, 1.0)]).of("tea on friday")
    assert max(scores) == scores[3] > 1.0


def test_without_a_word_of_the_query_the_results_keep_their_scores_and_first_lines_are_best() -> None:
    items = [Item("Ann", ["one", "two"], 1.0), Item("", [], 0.9), Item("Bob", ["three"], 0.5)]
    assert LineScores(items).of("Wo wohnt sie?") == [[1.1, 1.0], [], [0.6]]


def test_a_line_repeats_a_line_that_has_most_of_its_words() -> None:
    said = Item("", ["I drink green tea from Uji", "The shop closes at noon, and green tea is sold out"], 0.5)
    scores = LineScores([Item("Tea", ["Likes tea", "She drinks green tea from Uji"], 1.0), said])
    assert scores.repeats({0}) == [[False, False], [True, False]]
    assert scores.repeats(set()) == [[False, False], [False, False]]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (
            ["Anna's dental check-up is on 2026-06-10 at 14:00 with Dr Moe"],
            "Anna's dental check-up with Dr Moe is on 2026-06-17 at 14:00",
        ),
        (
            [
                "Anna is allergic to cats",
                "Tom's sister Anna eats peanuts",
                "Tom lives in Oslo with two cats",
                "Mia moved to Berlin",
                "Tom's firm has an office in Bergen",
            ],
            "Tom moved to Bergen",
        ),
    ],
    ids=["date", "words of several lines"],
)
def test_a_line_that_says_something_else_repeats_nothing(known: list[str], said: str) -> None:
    repeats = LineScores([Item("Family", known, 1.0), Item("", [said], 0.5)]).repeats({0})
    assert repeats[1] == [False]
