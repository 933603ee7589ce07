"""`python -m tests.bench.public` on small files in the forms of the three data sets: real server, extractors and SDK.

No model can be had here: a double of the Messages API writes one memory for each commit, answers from what Recall
returned, and judges by the texts in the prompt.
"""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bench.public import beam
from tests.bench.public.__main__ import main
from tests.bench.public.state import FILE
from tests.doubles.messages_api import Behaviour, MessagesApi, Request, Response, answer, error, held
from tests.support.server_process import ROOT

pytestmark = pytest.mark.long

SAMPLES = Path(beam.__file__).parent / "samples"
LOCOMO = ROOT.parent / "shared" / "data" / "locomo-dev.json"
SECONDS = 240.0
UNKNOWN = "There is no information about it."
OUTPUT = {
    "reasoning": "",
    "edit_operations": [],
    "delete_operations": [],
    "summary": {
        "abstract": "A talk.",
        "topic": "talk",
        "intent": "",
        "result": "",
        "status": "",
        "analysis": [],
        "primary_request": "",
        "key_concepts": [],
        "pending_tasks": [],
    },
}
OF_ANN = {
    "memory_type": "profile",
    "fields": [{"name": "content", "value": "Her boat is the Pelican."}],
    "peer_id": "Ann",
    "ranges": [{"start": 1, "end": 3}],
    "reason": "said",
    "abstract": "",
    "overview": "",
}


def kind(request: Request) -> str:
    """What a request is for, by the keys of its answer."""
    keys = request.body["output_config"]["format"]["schema"]["properties"].keys()
    if "answer" in keys:
        return "answer"
    return next((name for name in ("label", "verdict", "score") if name in keys), "extract")


@dataclass
class Model:
    """Plays all models. `known`: by a part of the question, a text that Recall must return for it, and the answer that
    is then given. `writes`: operations of each commit. `judge`: what judges in place of the comparison of texts."""

    known: Mapping[str, tuple[str, str]]
    writes: Sequence[Mapping[str, Any]] = ()
    judge: Behaviour | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)

    def behave(self, request: Request) -> Response:
        what = kind(request)
        self.asked.append((what, request.last_text))
        if what == "extract":
            return answer({**OUTPUT, "write_operations": self.writes})(request)
        if what == "answer":
            return answer({"notes": "", "answer": self._answer(request.last_text)})(request)
        if self.judge is not None:
            return self.judge(request)
        return answer({what: verdict(what, request.last_text), "reason": "by its words"})(request)

    def count(self, what: str) -> int:
        return sum(one == what for one, _ in self.asked)

    def _answer(self, prompt: str) -> str:
        recalled, _, question = prompt.rpartition("</memory>")
        for part, (needed, said) in self.known.items():
            if part in question and needed in recalled:
                return said
        return UNKNOWN


def verdict(what: str, prompt: str) -> str | float:
    """Whether the last line of the prompt has the first words of the line before it."""
    lines = [line.partition(": ")[2] for line in prompt.split("\n")]
    wanted, said = lines[-2].rpartition(": ")[2].casefold(), lines[-1].casefold()
    matches = " ".join(wanted.split()[:3]) in said or ("never mention" in wanted and UNKNOWN.casefold() in said)
    return {"label": "CORRECT" if matches else "WRONG", "verdict": "yes" if matches else "no"}.get(what, float(matches))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesApi]:
    with MessagesApi() as api:
        # Without probes, so that each request is one of the run's own.
        monkeypatch.setenv("RUNEKEEP_EXTRACTOR_STRUCTURED_OUTPUT", "on")
        monkeypatch.setenv("RUNEKEEP_EXTRACTOR_TOOLS", "on")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
        yield api


def arguments(benchmark: str, data: Path, work: Path, *more: str) -> list[str]:
    return [benchmark, "--data", str(data), "--work", str(work), "--extractors", "1", "--concurrency", "2", *more]


class Bench:
    """Runs the benchmark in this process, with server and extractors in processes of their own."""

    def __init__(self, output: pytest.CaptureFixture[str], work: Path) -> None:
        self._output = output
        self._work = work
        self.said = self.complaints = ""

    def run(self, benchmark: str, *more: str, status: int = 0) -> str:
        """Returns the last line of its output."""
        ended = main(arguments(benchmark, SAMPLES / f"{benchmark}.json", self._work, *more), prepared=True)
        self.said, self.complaints = self._output.readouterr()
        assert ended == status, self.said + self.complaints
        return (self.said.splitlines() or [""])[-1]

    def result(self, benchmark: str, *more: str, status: int = 0) -> dict[str, Any]:
        return json.loads(self.run(benchmark, *more, status=status))


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Bench:
    return Bench(capsys, tmp_path / "work")


def test_locomo(api: MessagesApi, bench: Bench, tmp_path: Path) -> None:
    """Each speaker is a peer: what is written about Ann is found. All calls have one model and one price."""
    model = Model(
        {
            "name of Ann's boat": ("Her boat is the Pelican", "The Pelican"),
            "adopt the cat": ("20 June 2023): Oh no", "19 June 2023"),
            "bought or adopted": ("bakery", "a sailing boat, a cat"),
        },
        writes=[OF_ANN],
    )
    api.otherwise = model.behave
    prices = tmp_path / "prices.yaml"
    prices.write_text(yaml.safe_dump({"claude-sonnet-5-5": {"input": 3.0, "output": 15.0}}))

    made = bench.result("locomo", "--prices", str(prices), "--budget", "300")

    assert {name: row["accuracy"] for name, row in made["by_category"].items()} == {
        "single-hop": 1.0,
        "temporal": 1.0,
        "multi-hop": 1.0,
        "open-domain": 0.0,
    }
    assert (made["accuracy"], made["questions"], made["open"]) == (0.75, 4, {})
    assert made["by_category"]["multi-hop"]["f1"] == 1.0
    assert made["commits"]["commits"] == model.count("extract") == 2
    assert (model.count("answer"), model.count("label")) == (4, 4), "a question of category 5 is not asked"
    assert all(0 < row["recalled_tokens"] <= 300 for row in made["by_question"])
    for cost in (made["commits"], *(row[step] for row in made["by_question"] for step in ("answer", "judge"))):
        assert cost["input_tokens"] > 0
        expected = (3 * cost["input_tokens"] + 15 * cost["output_tokens"]) / 1e6
        assert cost["usd"] == pytest.approx(expected)


def test_longmemeval(api: MessagesApi, bench: Bench) -> None:
    model = Model({"instrument": ("oboe", "You play the oboe."), "plants": ("7 plants", "You have 7.")})
    api.otherwise = model.behave

    made = bench.result("longmemeval", "--json")

    accuracies = {name: row["accuracy"] for name, row in made["by_category"].items()}
    assert accuracies == {"single-session-user": 1.0, "knowledge-update": 1.0, "multi-session": 1.0}
    assert made["groups"]["abstention"]["questions"] == 1
    assert made["commits"]["commits"] == 5
    assert made["answer_usd"] is None and made["models_without_price"] == ["claude-sonnet-5-5"]
    asked = next(text for what, text in model.asked if what == "answer" and "plants" in text.rpartition("\n")[2])
    assert "Current date: 2023/06/02 (Fri) 09:00" in asked


def test_beam(api: MessagesApi, bench: Bench) -> None:
    order = "Getting the permit\nSomething else\nChoosing the roof\nPouring the foundation"
    model = Model(
        {
            "In which order": ("permit", order),
            "How large": ("6 square metres", "6 square metres."),
            "colour": ("", UNKNOWN),
        }
    )
    api.otherwise = model.behave

    made = bench.result("beam")

    table = bench.said.splitlines()[:-1]
    assert any("information_extraction" in line and "0.500" in line for line in table), "names and figures are whole"
    assert max(map(len, table)) <= 80
    rows = {row["category"]: row for row in made["by_question"]}
    assert rows["information_extraction"]["score"] == 0.5, "one of two items of the rubric"
    assert rows["abstention"]["score"] == 1.0
    wanted = ["Getting the permit", "Pouring the foundation", "Choosing the roof"]
    assert rows["event_ordering"]["score"] == beam.order_agreement(wanted, order.split("\n"))
    assert made["accuracy_mean_of_categories"] == pytest.approx(
        sum(row["score"] for row in rows.values()) / 3, abs=1e-4
    )


def test_an_unreadable_verdict_is_asked_for_again_and_leaves_the_question_open_at_last(
    api: MessagesApi, bench: Bench, tmp_path: Path
) -> None:
    model = Model({"name of Ann's boat": ("Pelican", "Pelican")})
    seen: Counter[str] = Counter()

    def judge(request: Request) -> Response:
        seen[request.last_text] += 1
        if "boat" in request.last_text and seen[request.last_text] == 1:
            return answer("Hard to say.")(request)
        label = "maybe" if "marathon" in request.last_text else "correct"
        return answer({"reason": "", "label": label})(request)

    model.judge = judge
    api.otherwise = model.behave

    made = bench.result("locomo", status=1)

    rows = {row["category"]: row for row in made["by_question"]}
    assert (rows["single-hop"]["score"], rows["single-hop"]["judge"]["calls"]) == (1.0, 2)
    assert rows["open-domain"]["score"] is None
    assert rows["open-domain"]["judge"]["calls"] == 3, "what was paid for is counted"
    assert list(made["open"]) == [rows["open-domain"]["id"]]
    assert (made["scored"], made["questions"]) == (3, 4)

    model.judge = None
    model.asked.clear()
    # As if the run had broken off before it knew that the commits were made.
    lines = (tmp_path / "work" / FILE).read_text().splitlines(keepends=True)
    (tmp_path / "work" / FILE).write_text("".join(line for line in lines if '"key": ["commit"' not in line))
    again = bench.result("locomo")
    assert (again["scored"], again["commits"]["commits"], again["commits"]["calls"]) == (4, 2, 2)
    assert [what for what, _ in model.asked] == ["label"], "nothing else is paid for again"


@pytest.mark.skipif(not LOCOMO.exists(), reason="the data set is no part of this repository")
def test_a_run_on_a_part_of_locomo_continues_after_a_break_and_pays_for_nothing_twice(
    api: MessagesApi, tmp_path: Path
) -> None:
    conversation = json.loads(LOCOMO.read_text(encoding="utf-8"))[0]
    talk = conversation["conversation"]
    kept = {name: talk[name] for name in talk if name.startswith("speaker") or name.split("_")[1] in ("1", "2")}
    data = tmp_path / "part.json"
    data.write_text(json.dumps([{**conversation, "conversation": kept}]), encoding="utf-8")
    command = [sys.executable, "-m", "tests.bench.public"]
    command += arguments("locomo", data, tmp_path / "work", "--each", "2", "--concurrency", "1")
    gate = api.gate()
    model = Model({"support group": ("support group", "7 May 2023")})

    def hold_the_third_verdict(request: Request) -> Response:
        held_back = kind(request) == "label" and model.count("label") == 2
        return held(gate, error(500, "api_error"))(request) if held_back else model.behave(request)

    api.otherwise = hold_the_third_verdict
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with first:
        assert gate.entered.wait(SECONDS)
        first.send_signal(signal.SIGINT)
        said, complaints = first.communicate(timeout=SECONDS)
    assert first.returncode == 1 and not said, complaints
    assert b"start it again to continue" in complaints, complaints
    gate.release.set()
    api.otherwise = model.behave

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout.splitlines()[-1])

    assert (made["scored"], made["questions"]) == (8, 8)
    assert made["by_category"]["temporal"]["accuracy"] > 0
    assert [model.count(what) for what in ("extract", "answer", "label")] == [2, 8, 8]
    assert max(Counter(model.asked).values()) == 1
    assert sum(row["judge"]["calls"] for row in made["by_question"]) == 8


def test_a_refused_key_stops_the_run_and_says_how_to_go_on(api: MessagesApi, bench: Bench) -> None:
    model = Model({}, judge=error(401, "authentication_error"))
    api.otherwise = model.behave
    bench.run("locomo", status=1)
    assert "refuses the credentials" in bench.complaints
    assert "start it again" in " ".join(bench.complaints.split())
