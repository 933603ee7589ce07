"""The bench of recall: how it reads and counts, and the whole of it on two sessions made up here, with the real
embedder, in a real server."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from runekeep.v1 import memory_service_pb2 as pb
from tests.bench.recall.locomo import Conversation, Question, read
from tests.bench.recall.run import Callers
from tests.bench.recall.score import DEPTHS, FIGURES, Asked, by_category, figures

ROOT = Path(__file__).parents[3]


def said(session: int, *texts: str) -> list[dict[str, str]]:
    turns = [("Ann", "Bo")[at % 2] for at in range(len(texts))]
    return [
        {"speaker": speaker, "dia_id": f"D{session}:{at}", "text": text}
        for at, (speaker, text) in enumerate(zip(turns, texts, strict=True), 1)
    ]


def document() -> list[dict[str, Any]]:
    first = said(
        1,
        "I bought a sailing boat last week!",
        "Wow, what will you call it?",
        "Pelican, after the bird we saw.",
        "My sister opened a bakery in Lisbon.",
        "What does she bake?",
        "Rye bread, mostly.",
    )
    second = said(
        2,
        "The doctor says my knee needs rest.",
        "Oh no, no marathon then?",
        "Not before October.",
        "I adopted a grey cat yesterday.",
        "Does it have a name?",
        "Not yet.",
    )
    first[0]["blip_caption"] = "a small white boat"
    asked = [
        ("What is the name of Ann's boat?", 4, ["D1:3"]),
        ("Which pet did Bo adopt?", 1, ["D2:4"]),
        ("What did Ann and Bo buy or adopt?", 1, ["D1:01; D2:4"]),
        ("What was never said?", 5, ["D1:1"]),
        ("What has no evidence?", 2, []),
        ("What has evidence that is not there?", 2, ["D9:9"]),
    ]
    return [
        {
            "sample_id": "made-up",
            "conversation": {
                "session_1": first,
                "session_1_date_time": "1:56 pm on 8 May, 2023",
                "session_2": second,
                "session_2_date_time": "9:00 am on 20 June, 2023",
            },
            "qa": [{"question": text, "category": category, "evidence": on} for text, category, on in asked],
        }
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "made-up.json"
    path.write_text(json.dumps(document()), encoding="utf-8")
    return path


def test_questions_are_read_with_evidence_that_is_there(file: Path) -> None:
    (conversation,) = read(file)

    assert [len(messages) for messages in conversation.sessions.values()] == [6, 6]
    assert [(one.category, sorted(one.evidence)) for one in conversation.questions] == [
        (4, ["D1-3"]),
        (1, ["D2-4"]),
        (1, ["D1-1", "D2-4"]),
    ]
    assert len(conversation.session_of) == 12


def test_sessions_are_counted_by_name_and_by_results() -> None:
    """Six results of one session: among the first five results it is the only one, of the ranking it is the first."""
    session_of = {f"{name}{at}": name for name in "abcdef" for at in range(7)}
    found = (*(f"a{at}" for at in range(6)), "b0", "c0", "d0", "e0", "f0")
    asked = Asked(Question("?", 1, frozenset({"a0", "a5", "b0", "f1"})), found, 1.0)
    conversation = Conversation("ann", {}, (asked.question,), session_of)

    counted = figures({"ann": [asked]}, [conversation])

    assert [counted[f"turn_recall_{depth}"] for depth in DEPTHS] == [0.25, 0.75, 0.75]
    assert [counted[f"session_recall_{depth}"] for depth in DEPTHS] == [0.6667, 1.0, 1.0]
    assert [counted[f"result_session_recall_{depth}"] for depth in DEPTHS] == [0.3333, 0.6667, 1.0]


def test_means_are_over_questions_then_over_conversations() -> None:
    hit = Asked(Question("?", 1, frozenset({"m"})), ("m",), 1.0)
    miss = Asked(Question("?", 4, frozenset({"m"})), ("n",), 1.0)
    session_of = {"m": "s", "n": "t"}
    both = [Conversation(name, {}, (), session_of) for name in ("ann", "bo")]
    answers = {"ann": [hit, hit, hit, miss], "bo": [miss]}

    assert figures(answers, both)["turn_recall_5"] == 0.375
    told = by_category(answers, both)
    assert {name: (row["questions"], row["turn_recall_5"]) for name, row in told.items()} == {1: (3, 1.0), 4: (2, 0.0)}


@pytest.mark.long
def test_the_whole_bench_on_a_small_file(file: Path) -> None:
    run = [sys.executable, "-m", "tests.bench.recall", str(file), "--ablations"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=240, env=None, check=True)

    made = json.loads(done.stdout.splitlines()[-1])
    assert made["questions"] == 3
    assert made["session_recall_5"] == 1.0, "there are no more than two"
    assert made["turn_recall_20"] == 1.0, "there are no more than twelve"
    assert made["find_p50_ms"] > 0
    assert set(made["recall"]) == {"1000", "2000", "4000"}
    assert set(made["ablations"]) == {"all", "no vectors", "no words", "no neighbours", "no facts", "no sessions"}
    assert {f"{of}_{depth}" for of in FIGURES for depth in DEPTHS} <= made.keys()
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80


class Answers:
    """Gives the answers in their order, whoever asks for what."""

    def __init__(self, *answers: Any) -> None:
        self._answers = iter(answers)

    async def __call__(self, request: Any, **options: Any) -> Any:
        return next(self._answers)


@pytest.mark.parametrize("place", [0, 1])
async def test_figures_of_a_search_without_vectors_are_refused(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    well, degraded = pb.FindMemoriesResponse(), pb.FindMemoriesResponse(degraded=["dense"])
    answers = [well, well]
    answers[place] = degraded
    question = Question("what?", 1, frozenset({"m1"}))
    async with grpc.aio.insecure_channel("localhost:1") as channel:
        callers = Callers(channel)
        monkeypatch.setattr(callers, "_memories", SimpleNamespace(FindMemories=Answers(*answers)))
        with pytest.raises(AssertionError, match="dense"):
            await callers.ask("ann", [question])
        degraded_recall = Answers(pb.RecallResponse(degraded=["dense"]))
        monkeypatch.setattr(callers, "_memories", SimpleNamespace(Recall=degraded_recall))
        with pytest.raises(AssertionError, match="dense"):
            await callers.tell("ann", [question], 1000)
