from datetime import date

import pytest

from extractor.offline.dates import has_date, make_absolute

WEDNESDAY = date(2026, 5, 20)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("A week from today I'm defending my thesis.", "2026-05-27"),
        ("Two weeks ago today I handed in my notice.", "2026-05-06"),
        ("A fortnight ago we bought a car.", "2026-05"),
        ("I have an interview on Thursday.", "2026-05-21"),
        ("I got the results back Friday.", "2026-05-15"),
        ("Since Monday I have been on leave.", "2026-05-18"),
        ("My appointment is on the 28th.", "2026-05-28"),
        ("I sold it on the 3rd.", "2026-05-03"),
        ("I lost my job in April.", "2026-04"),
        ("The conference is in November.", "2026-11"),
        ("The deadline is the end of June.", "2026-06"),
        ("In 2019 I moved to Berlin.", "2019"),
        ("Last summer we camped.", "2025"),
        ("Am 03.05.2024 sind wir umgezogen.", "2024-05-03"),
        ("Hier, nous avons adopté un chat.", "2026-05-19"),
        ("La semana pasada firmé el contrato.", "2026-05"),
        ("Вчера мы переехали.", "2026-05-19"),
        ("先月引っ越しました。", "2026-04"),
    ],
)
def test_what_is_certain_is_made_absolute(text, when):
    assert make_absolute(text, WEDNESDAY).when == when


@pytest.mark.parametrize(
    "text",
    [
        "Ich wohne hier.",
        "Half a year ago I quit.",
        "We moved last spring.",
        "I work every Friday, not Thursday.",
        "We may march on.",
        "It was the 3rd time.",
    ],
)
def test_what_may_be_another_day_is_left_alone(text):
    assert make_absolute(text, WEDNESDAY).text == text


def test_the_day_of_speaking_is_no_date_that_makes_an_event():
    assert has_date("I start tomorrow.")
    assert not has_date("I'm so tired today.")
