"""The calibration of relevance in `make bench-quality`."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from runekeep_server.memories.relevance_file import load_calibrations
from runekeep_storage.embedders import EmbeddingOptions, open_embedder
from runekeep_storage.search.relevance import Calibration, built_in
from tests.bench.quality.__main__ import model_of
from tests.bench.quality.lives import Question
from tests.bench.quality.relevance import BestScore, calibrate, fit, write_curve


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
    assert calibrate(scores[:3]) == {} and made["degraded"] == 0


def test_the_server_reads_the_curves_that_the_command_writes(tmp_path: Path) -> None:
    file = tmp_path / "relevance.json"
    write_curve(file, "openai/one", {"slope": 0.4, "offset": -4.7, "questions": {}})
    write_curve(file, "openai/two", {"slope": 0.5, "offset": 0.0})
    write_curve(file, "openai/one", {"slope": 0.6, "offset": -5.0})
    assert load_calibrations(file) == {"openai/one": Calibration(0.6, -5.0), "openai/two": Calibration(0.5, 0.0)}
    before = file.read_text()
    for none in ({}, {"slope": -0.1, "offset": 1.0}):
        with pytest.raises(ValueError, match="told apart"):
            write_curve(file, "openai/three", none)
    with pytest.raises(ValueError, match="2 questions were searched without vectors"):
        write_curve(file, "openai/three", {"slope": 0.4, "offset": 0.0, "degraded": 2})
    assert file.read_text() == before


def test_the_command_names_the_model_as_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("URL", "http://127.0.0.1:1/v1"), ("MODEL", "m"), ("DIMENSION", "8"), ("QUERY_PREFIX", "q: ")):
        monkeypatch.setenv(f"RUNEKEEP_EMBEDDING__{name}", value)
    embedder = open_embedder("openai", options=EmbeddingOptions(model="m", dimension=8, query_prefix="q: "))
    assert embedder is not None and model_of("openai") == embedder.model
    assert model_of("minilm") in built_in() and model_of("none") == ""
