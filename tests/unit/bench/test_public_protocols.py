"""The public benchmarks: how data is read, and what counts by each protocol."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from runekeep.v1 import common_pb2
from tests.bench.public import beam, locomo, longmemeval
from tests.bench.public.__main__ import choose
from tests.bench.public.cases import Case, DataError, Judge, Question
from tests.bench.public.state import FILE, OtherSettings, State

SAMPLES = Path(beam.__file__).parent / "samples"


def test_locomo_has_a_peer_for_each_speaker_and_no_question_of_category_5() -> None:
    (case,) = locomo.Locomo().read([SAMPLES / "locomo.json"])
    said = [message for messages in case.sessions.values() for message in messages]
    assert {message.peer_id for message in said} == {"Ann", "Bo"}
    assert case.policy is not None and case.policy["peer"] == {"enabled": True}
    assert [one.category for one in case.questions] == ["single-hop", "temporal", "multi-hop", "open-domain"]


@pytest.mark.parametrize(
    ("category", "answer", "gold", "expected"),
    [
        ("single-hop", "The sailing boats!", "a sailing boat", 1.0),
        ("temporal", "in June 2023", "19 June 2023", 2 / 3),
        ("single-hop", "a cat", "a boat, a dog", 0.0),
        ("multi-hop", "a cat, a boat", "boat, dog", 0.5),
        ("open-domain", "no", "No; her knee needs rest", 1.0),
    ],
)
def test_f1_counts_words_as_the_data_sets_own_code_does(category: str, answer: str, gold: str, expected: float) -> None:
    assert locomo.f1(category, answer, gold) == pytest.approx(expected)


def test_longmemeval_is_read_in_the_order_of_time_and_marks_what_cannot_be_answered() -> None:
    cases = longmemeval.LongMemEval().read([SAMPLES / "longmemeval.json"])
    assert [[*case.sessions] for case in cases] == [["001-s_0", "002-s_1"], ["001-s_1", "002-s_0"], ["001-s_0"]]
    questions = [case.questions[0] for case in cases]
    assert [one.groups for one in questions] == [(), (), ("abstention",)]
    assert questions[1].gold == "7"
    first = cases[0].sessions["001-s_0"][0]
    assert first.created_at is not None and first.created_at.isoformat() == "2023-05-20T02:21:00+00:00"


def test_beam_is_read_from_rows_from_the_repositorys_folders_and_from_plans(tmp_path: Path) -> None:
    (row,) = json.loads((SAMPLES / "beam.json").read_text())
    folder = tmp_path / "100K" / "1"
    (folder / "probing_questions").mkdir(parents=True)
    batches = [{"batch_number": 1, "time_anchor": None, "turns": [batch]} for batch in row["chat"]]
    (folder / "chat.json").write_text(json.dumps(batches))
    questions = folder / "probing_questions" / "probing_questions.json"
    questions.write_text(json.dumps(ast.literal_eval(row["probing_questions"])))
    plans = tmp_path / "plans.jsonl"
    plans.write_text(json.dumps({**row, "chat": [{"plan-1": row["chat"], "plan-2": None}]}) + "\n")

    read = [beam.Beam().read([file])[0] for file in (SAMPLES / "beam.json", folder / "chat.json", plans)]

    assert [case.user for case in read] == ["1", "100K-1", "1"]
    assert read[0].sessions == read[1].sessions == read[2].sessions
    texts = [message.parts[0].text for messages in read[0].sessions.values() for message in messages]
    assert texts[0] == "I am planning a garden shed of 6 square metres."
    assert all(one.rubric for case in read for one in case.questions)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["a", "b", "c"], 1.0),
        (["c", "b", "a"], 0.0),
        (["a", "c", "b"], 2 / 3),
        # b and c stand behind the end of the answer, both at one place.
        (["a"], (2 / 6**0.5 + 1) / 2),
        ([], 0.0),
    ],
)
def test_the_order_of_events_counts_by_kendalls_tau(found: list[str], expected: float) -> None:
    assert beam.order_agreement(["a", "b", "c"], found) == pytest.approx(expected)


async def test_half_a_point_of_a_rubric_counts_half_and_not_at_all_in_the_stricter_figure() -> None:
    scores = iter((1, 0.5, 0))

    async def judge(item: str, prompt: Any, name: str, allowed: Any) -> Any:
        return next(scores)

    given: Judge = judge
    question = Question("q", "What?", "summarization", rubric=("one", "two", "three"))
    scored = await beam.Beam().score(question, "An answer.", given)
    assert (scored.score, scored.others) == (0.5, {"whole_only": pytest.approx(1 / 3)})


def test_files_of_another_form_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('[{"unknown": 1}]')
    for benchmark in (locomo.Locomo(), longmemeval.LongMemEval(), beam.Beam()):
        with pytest.raises(DataError, match=r"other\.json"):
            benchmark.read([file])


def test_the_first_questions_of_each_category_are_chosen() -> None:
    cases = [
        Case(user, {}, [Question(f"{user}{number}", "?", category) for number, category in enumerate("xxy")])
        for user in ("ann", "bo")
    ]
    assert [[one.id for one in case.questions] for case in choose(cases, [], 1)] == [["ann0", "ann2"]]
    assert [case.user for case in choose(cases, ["bo"], None)] == ["bo"]
    with pytest.raises(DataError, match="ann"):
        choose([*cases, cases[0]], [], None)


def test_the_state_survives_half_a_line_and_belongs_to_its_settings(tmp_path: Path) -> None:
    usage = [common_pb2.TokenUsage(model="m", calls=1, input_tokens=5)]
    state = State(tmp_path, {"data": "1"})
    state.put(("answer", "q"), "", "Pelican", usage)
    state.close()
    with (tmp_path / FILE).open("a") as file:
        file.write('{"key": ["answer", "r"]')

    again = State(tmp_path, {"data": "1"})
    again.put(("answer", "r"), "", "Minka")
    again.close()

    last = State(tmp_path, {"data": "1"})
    assert (last.get(("answer", "q")), last.get(("answer", "r"))) == ("Pelican", "Minka")
    assert list(last.spent(("answer", "q"))) == usage
    last.close()
    with pytest.raises(OtherSettings, match="data was '1' and is '2'"):
        State(tmp_path, {"data": "2"})
