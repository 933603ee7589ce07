"""Lives are read whole and checked; a recalled text is judged by its labels; recorded answers are found again."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.quality import lives
from tests.bench.quality.answers import Answers
from tests.bench.quality.lives import LifeError, Question
from tests.bench.quality.score import CORRECTED, judge
from tests.doubles.messages_api import MessagesRequest

FILES = sorted(lives.DIRECTORY.glob("*.jsonl"))
ABOUT = {"life": "l", "about": "a", "user": "u", "languages": ["en"], "origin": "o"}
MESSAGES = [
    {"id": f"m{number}", "at": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z", "role": "user", "text": "the 3rd"}
    for number in range(lives.MIN_MESSAGES)
]
QUESTION = {
    "question": "q",
    "asked": "2026-02-01T00:00:00Z",
    "text": "when?",
    "language": "en",
    "answers": [["3rd"], ["the"]],
    "outdated": ["2nd"],
    "evidence": ["m0"],
    "kinds": ["corrected"],
}


def written(folder: Path, **changed: Any) -> Path:
    sessions: list[dict[str, Any]] = []
    for number, message in enumerate(MESSAGES):
        if number % 20 == 0:
            sessions.append({"session": f"s{number}"})
        sessions.append(message)
    lines = [ABOUT, *sessions, QUESTION | changed]
    file = folder / "l.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_life_is_sound(file: Path) -> None:
    life = lives.read(file)
    assert life.about.life == file.stem
    assert sum(bool(one.answers) for one in life.questions) >= 30
    assert sum(one.never is not None for one in life.questions) >= 10


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"answers": [["4th"]]}, "no answer of"),
        ({"evidence": ["m999"]}, "no message"),
        ({"answers": [], "evidence": []}, "`never`, or neither"),
        ({"asked": "2025-01-01T00:00:00Z"}, "asked before its evidence"),
        ({"kinds": []}, "corrected without an outdated value"),
        ({"kinds": ["corrected", "two_sessions"]}, "two_sessions"),
        ({"kinds": ["corrected", "middle"]}, "middle"),
        ({"outdated": ["the 3rd"]}, "outdated values hold an answer"),
        ({"surprise": 1}, "l.jsonl:265"),
    ],
)
def test_a_wrong_label_is_refused(tmp_path: Path, changed: dict[str, Any], fault: str) -> None:
    lives.read(written(tmp_path))
    with pytest.raises(LifeError, match=fault):
        lives.read(written(tmp_path, **changed))


@pytest.mark.parametrize(("text", "there"), [("On the 3RD.", True), ("3rdly", False), ("(3rd)", True), ("33rd", False)])
def test_a_value_is_no_part_of_a_word(text: str, there: bool) -> None:
    assert lives.has(text, "3rd") is there


@pytest.mark.parametrize("value", ["鹿特丹", "Delft", "590", "保险"])
def test_a_value_is_found_between_characters_of_another_script(value: str) -> None:
    assert lives.has("我们从Delft搬到鹿特丹市，有保险590块", value)


def entry(text: str, kind: str = "memory", time: str = "2026-01-01T00:00:00Z") -> dict[str, str]:
    return {"text": text, "kind": kind, "time": time}


@pytest.mark.parametrize(
    ("entries", "has_answer", "is_stale"),
    [
        ([entry("the 3rd")], True, False),
        ([entry("3rd")], False, False),
        ([entry("the 2nd")], False, True),
        ([entry("the 3rd"), entry("the 2nd")], True, True),
        ([entry("the 3rd, not the 2nd")], True, False),
        ([entry("the 3rd"), entry(f"the 2nd ({CORRECTED})")], True, False),
        ([entry("the 3rd", time="2026-01-02T00:00:00Z"), entry("the 2nd", "passage")], True, False),
        ([entry("the 3rd", time="2025-12-31T00:00:00Z"), entry("the 2nd", "passage")], True, True),
    ],
)
def test_a_text_is_judged_by_its_labels(
    tmp_path: Path, entries: list[dict[str, str]], has_answer: bool, is_stale: bool
) -> None:
    life = lives.read(written(tmp_path))
    recalled = {"text": "\n".join(one["text"] for one in entries), "entries": entries, "tokens": 5}
    asked = judge(life, Question.model_validate(QUESTION), "both", 200, recalled)
    assert (asked.has_answer, asked.is_stale) == (has_answer, is_stale)
    assert asked.answers is (has_answer and not is_stale)


def request(system: str, message: str) -> MessagesRequest:
    return MessagesRequest(
        "/v1/messages", {}, {"model": "m", "system": system, "messages": [{"role": "user", "content": message}]}
    )


def test_a_recorded_answer_is_found_again(tmp_path: Path) -> None:
    file, asks = tmp_path / "answers.jsonl", tmp_path / "asks"
    asks.mkdir()
    (asks / "001.answer").write_text('{"tea": "green"}\n')
    first = Answers(file, asks, "a reader").behave(request("rules", f"<talk-{'0' * 16}>\nhello"))
    assert "# System\n\nrules" in (asks / "001.md").read_text().replace("\n\n\n", "\n\n")
    again = Answers(file)
    # The delimiters of another job, and other rules.
    answers = [
        again.behave(request("rules", f"<talk-{'1' * 16}>\nhello")),
        again.behave(request("new", f"<talk-{'2' * 16}>\nhello")),
    ]
    for answer in (first, *answers):
        assert isinstance(answer.body, dict)
        assert answer.body["content"] == [{"type": "text", "text": '{"tea": "green"}'}]
    assert (len(again.unanswered), len(again.older)) == (0, 1)
    assert again.behave(request("rules", "another talk")).status == 400
    assert len(again.unanswered) == 1
