"""The calibration of relevance in `make bench-quality`."""

from datetime import UTC, datetime

from tests.bench.quality.lives import Question
from tests.bench.quality.relevance import BestScore, calibrate, fit


def question(answers: list[list[str]], never: str | None = None) -> Question:
    return Question.model_validate(
        {
            "question": "q",
            "asked": datetime(2026, 1, 1, tzinfo=UTC),
            "text": "Who?",
            "language": "en",
            "answers": answers,
            "never": never,
        }
    )


def test_the_curve_is_half_between_what_was_said_and_what_was_not_however_many_of_each() -> None:
    for copies in (1, 10):
        slope, offset = fit([9.0, 11.0, 14.0] * copies, [6.0, 9.0, 11.0])
        assert slope > 0 and 9 < -offset / slope < 11


def test_the_page_counts_questions_below_each_floor() -> None:
    scores = [BestScore(question([["Ann"]]), score) for score in (9.0, 12.0, 14.0)]
    scores += [BestScore(question([], "subject"), score) for score in (5.0, 10.0)]
    scores += [BestScore(question([], "detail"), 13.0)]
    made = calibrate(scores)
    assert made["questions"] == {"answerable": 3, "unknown_subject": 2, "unknown_detail": 1}
    assert made["below"]["0.3"]["unknown_subject"] == 1 and made["below"]["0.5"]["answerable"] == 1
    assert calibrate(scores[:3]) == {}
