from datetime import date

import pytest

from runekeep_extractor.offline.dates import find_dates, lies_ahead
from runekeep_extractor.offline.language import languages

MONDAY = date(2023, 5, 8)
(ENGLISH,) = [one for one in languages() if one.code == "en"]


@pytest.mark.parametrize(
    ("text", "shown", "when"),
    [
        ("I went there yesterday and it rained.", "yesterday (2023-05-07)", "2023-05-07"),
        ("I ran a race last Saturday.", "last Saturday (2023-05-06)", "2023-05-06"),
        ("We go camping next month.", "next month (2023-06)", "2023-06"),
        ("Two weeks ago we met.", "Two weeks ago (2023-04)", "2023-04"),
        ("This morning I ran.", "This morning (2023-05-08)", "2023-05-08"),
        ("It is due in 3 days.", "in 3 days (2023-05-11)", "2023-05-11"),
        ("I painted it last year.", "last year (2022)", "2022"),
        ("I cooked on Friday.", "on Friday (2023-05-05)", "2023-05-05"),
        ("I will cook on Friday.", "on Friday (2023-05-12)", "2023-05-12"),
        ("The day before yesterday we met.", "The day before yesterday (2023-05-06)", "2023-05-06"),
        ("I came back last night.", "last night (2023-05-07)", "2023-05-07"),
        ("Last weekend we hiked.", "Last weekend (2023-05)", "2023-05"),
        ("I was there ten years ago.", "ten years ago (2013)", "2013"),
        ("Three months ago I quit.", "Three months ago (2023-02)", "2023-02"),
        ("Tomorrow evening I fly.", "Tomorrow evening (2023-05-09)", "2023-05-09"),
    ],
)
def test_relative_dates_are_followed_by_absolute_ones(text, shown, when):
    dated = find_dates(text, MONDAY, ENGLISH)
    assert shown in dated.text
    assert dated.when == when
    assert shown.rsplit(" (", 1)[0] not in dated.undated


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("We met on May 7, 2023.", "2023-05-07"),
        ("We met on 7 May 2023.", "2023-05-07"),
        ("We met on 2023-05-07.", "2023-05-07"),
        ("We meet in June 2024.", "2024-06"),
        ("We met on the 7th of May 2023.", "2023-05-07"),
        ("We met on Sunday, May 7th, 2023.", "2023-05-07"),
    ],
)
@pytest.mark.parametrize("said", [MONDAY, None])
def test_absolute_dates_are_read_and_left_as_they_are(text, when, said):
    dated = find_dates(text, said, ENGLISH)
    assert (dated.text, dated.when) == (text, when)


@pytest.mark.parametrize(
    "text",
    [
        "I work on Mondays.",
        "See you next Friday.",
        "The other day I saw her.",
        "I have been there for a few years.",
        "In 3 days of work we made it.",
        "It is on Friday, as every week.",
        "Recently I moved.",
        "有一天我去了上海。",
        "This week's plan is full.",
        "We meet on 31.06.",
    ],
)
def test_what_is_not_certain_is_left_alone(text):
    dated = find_dates(text, MONDAY, ENGLISH)
    assert (dated.text, dated.when) == (text, "")


@pytest.mark.parametrize(
    ("text", "shown", "when"),
    [
        ("The kiln arrives on 16 May.", "on 16 May (2023-05-16)", "2023-05-16"),
        ("The kiln arrives May 16.", "May 16 (2023-05-16)", "2023-05-16"),
        ("The kiln arrives on the 16th of May.", "on the 16th of May (2023-05-16)", "2023-05-16"),
        ("The kiln that I ordered arrives on 16 May.", "on 16 May (2023-05-16)", "2023-05-16"),
        ("We open on Tuesday, May 16th.", "on Tuesday, May 16th (2023-05-16)", "2023-05-16"),
        ("We married on 20 December.", "on 20 December (2022-12-20)", "2022-12-20"),
        ("The launch is on 29 February.", "on 29 February (2024-02-29)", "2024-02-29"),
        ("The fair is on 20 December.", "on 20 December (2023-12-20)", "2023-12-20"),
    ],
)
def test_a_date_without_its_year_is_the_nearest_that_makes_sense(text, shown, when):
    dated = find_dates(text, MONDAY, ENGLISH)
    assert shown in dated.text
    assert dated.when == when


@pytest.mark.parametrize(
    "text",
    [
        "My birthday is on 3 May.",
        "The course starts every year on 3 May.",
        "We meet on Friday, 16 May.",
        "Call me on 31 June.",
        "We may 3 times fail.",
    ],
)
def test_a_day_without_a_certain_year_is_left_alone(text):
    dated = find_dates(text, MONDAY, ENGLISH)
    assert (dated.text, dated.when) == (text, "")


@pytest.mark.parametrize(
    "text",
    [
        "It arrives on 20 May, not on 16 May.",
        "It was moved from 16 May to 20 May.",
        "It arrives not on 16 May but on 20 May.",
        "It arrives on 20 May instead of tomorrow.",
    ],
)
def test_a_date_that_is_denied_is_not_when_it_happens(text):
    assert find_dates(text, MONDAY, ENGLISH).when == "2023-05-20"


@pytest.mark.parametrize(
    ("text", "undated", "behind"),
    [
        ("The kiln arrives on 16 May.", "The kiln arrives.", "The kiln arrives on 16 May."),
        ("On 16 May, the kiln arrives.", "the kiln arrives.", "the kiln arrives."),
        (
            "I finished it last week, and it melts.",
            "I finished it, and it melts.",
            "I finished it last week, and it melts.",
        ),
    ],
)
def test_a_text_is_given_without_its_dates(text, undated, behind):
    dated = find_dates(text, MONDAY, ENGLISH)
    assert (dated.undated, dated.behind) == (undated, behind)


def test_what_happens_today_is_no_date_of_its_own():
    assert find_dates("I ran this morning.", MONDAY, ENGLISH).is_now
    assert not find_dates("I ran this morning and yesterday.", MONDAY, ENGLISH).is_now


@pytest.mark.parametrize(
    ("when", "ahead"), [("2023-05-08", True), ("2023-05-07", False), ("2023-05", True), ("2023-04", False)]
)
def test_a_date_lies_ahead_until_it_is_over(when, ahead):
    assert lies_ahead(when, MONDAY) is ahead


def test_without_a_day_nothing_relative_is_known():
    assert find_dates("I went there yesterday.", None, ENGLISH).when == ""


def test_a_week_that_lies_in_two_months_has_no_month():
    assert find_dates("I won last week.", date(2026, 3, 5), ENGLISH).when == "2026"
    assert find_dates("I won last week.", date(2026, 1, 8), ENGLISH).when == ""


def test_months_cross_the_year():
    assert find_dates("We start next month.", date(2023, 12, 31), ENGLISH).when == "2024-01"
    assert find_dates("Two months ago we began.", date(2023, 1, 31), ENGLISH).when == "2022-11"
