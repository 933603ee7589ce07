"""AskMemory with real servers and extractors: a model's answers with checked sources, and what stands in for them."""

import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from runekeep import Client, InvalidArgumentError, PutMemory, RunekeepError, TextPart, UnavailableError
from runekeep.client.asks import AnswerStatement, AskResult, AskUpdate
from tests.acceptance.processes import Processes
from tests.acceptance.test_anthropic_end_to_end import remembered, talk, with_model
from tests.doubles.messages_api import MessagesApi, answer, held, tool_use
from tests.support.pages import DEFAULT_ADDRESS, DOCS, example

WAIT_SECONDS = 90.0
QUESTION = "What does the user drink in the morning, and since when?"


def said(*statements: tuple[str, list[str]], unknown: list[str] | None = None) -> dict[str, Any]:
    """What a model might answer."""
    return {
        "reasoning": "Memory says so.",
        "statements": [{"text": text, "sources": sources} for text, sources in statements],
        "unknown": unknown or [],
    }


def remember(client: Client) -> str:
    """One memory and one message. Returns the memory's URI."""
    tea = PutMemory("preferences", {"topic": "Tea", "content": "Drinks green tea in the morning."})
    written = client.write_memories([tea])
    client.session(session_id="chat").add_message("user", [TextPart("I have had green tea since May.")])
    client.find("tea", min_revision=written["revision"])
    return written["memories"][0]["uri"]


def asked(client: Client, question: str = QUESTION, **options: Any) -> tuple[list[AnswerStatement], AskResult]:
    *updates, result = client.ask(question, timeout=WAIT_SECONDS, **options)
    assert result["kind"] == "result"
    return [one for one in updates if one["kind"] == "statement"], result


def questions_in(fleet: Processes) -> int:
    """Rows of questions that the store holds."""
    (path,) = fleet.data_dir.glob("*.db")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as store:
        count = (
            "SELECT (SELECT COUNT(*) FROM jobs WHERE kind = 'ask') + (SELECT COUNT(*) FROM tasks WHERE kind = 'ask')"
        )
        return int(store.execute(count).fetchone()[0])


def eventually(holds: Any, fleet: Processes) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, fleet.log()
        time.sleep(0.05)


def start(fleet: Processes, api: MessagesApi, *workers: str) -> dict[str, subprocess.Popen[str]]:
    """Starts extractors with a model, and waits until they are connected."""
    started = dict(zip(workers, with_model(fleet, api, *workers), strict=True))
    for worker in workers:
        eventually(lambda worker=worker: "connected" in fleet.log(worker), fleet)
    return started


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with MessagesApi() as started:
        yield started


def test_each_statement_has_sources_that_exist_and_nothing_of_the_question_stays(
    fleet: Processes, api: MessagesApi
) -> None:
    """The model also cites a memory that does not exist, another user's, and messages that were never sent."""
    fleet.server()
    start(fleet, api, "worker")
    with Client(fleet.address, user="ben") as ben:
        foreign = ben.put_memory("preferences", {"topic": "Coffee", "content": "Ben drinks coffee."})["uri"]
    with Client(fleet.address, user="ann") as client:
        tea = remember(client)
        session = "viking://user/ann/sessions/chat"
        forged = tea.replace("Tea", "Water")
        read = tool_use(("find", {"query": "tea"}), ("read", {"uri": tea}), ("read", {"uri": foreign}))
        final = said(
            ("The user drinks green tea in the morning.", ["viking://user/memories/preferences/Tea.md", forged]),
            ("The user has had it since May.", [f"{session}#1", f"{session}#99"]),
            ("Ben drinks coffee.", [foreign]),
            ("Water is wet.", []),
            unknown=["In which year it began."],
        )
        api.script(read, answer(final))
        statements, result = asked(client, f"{QUESTION} My key is sk-ant-api03-{'x' * 40}.")
        assert [(one["text"], [(s["uri"], s["sequence"]) for s in one["sources"]]) for one in statements] == [
            ("The user drinks green tea in the morning.", [(tea, 0)]),
            ("The user has had it since May.", [(session, 1)]),
        ], fleet.log()
        assert statements[1]["sources"][0]["message_id"]
        assert result["unknown"] == ["In which year it began."]
        assert (result["sources_removed"], result["statements_removed"]) == (3, 2)
        assert (result["statements"], result["fallback"], result["secrets_withheld"]) == (2, None, 1)
        assert result["extractor"] is not None and result["extractor"]["engine"] == "anthropic"
        assert [(one["phase"], one["calls"]) for one in result["usage"]] == [("answer", 2)]
        assert [(one["phase"], one["calls"]) for one in client.usage()["usage"]] == [("answer", 2)]
        assert not list(client.list_tasks())
    first, second = api.calls
    assert QUESTION in first.last_text and "sk-ant-api03" not in first.last_text
    assert "Drinks green tea" in first.last_text, "what a recall finds is shown without a tool"
    found, own, others = (block["content"] for block in second.body["messages"][-1]["content"])
    assert tea in found
    assert "Drinks green tea" in own and "coffee" not in others
    assert questions_in(fleet) == 0
    assert QUESTION not in fleet.log() and "green tea" not in fleet.log()


@pytest.mark.parametrize("worker", [None, "offline"])
def test_without_a_model_the_answer_is_a_recall_and_says_so(fleet: Processes, worker: str | None) -> None:
    """An extractor without a model does not offer to answer questions, as one of an earlier release does not."""
    fleet.server()
    if worker is not None:
        fleet.extractor(worker, "--engine", "offline")
    with Client(fleet.address) as client:
        tea = remember(client)
        if worker is not None:
            eventually(lambda: "connected" in fleet.log(worker), fleet)
        statements, result = asked(client)
        assert (result["fallback"], result["usage"], result["extractor"]) == ("no_extractor", [], None)
        assert tea in [source["uri"] for one in statements for source in one["sources"]]
        assert "no extractor" in result["fallback_message"]
        with pytest.raises(UnavailableError) as refused:
            asked(client, model_only=True)
        assert refused.value.reason == "NO_MODEL_ANSWER"
        with pytest.raises(InvalidArgumentError, match="question"):
            asked(client, " ")


def test_a_question_for_a_user_of_whom_nothing_is_stored_asks_no_model(fleet: Processes, api: MessagesApi) -> None:
    fleet.server()
    start(fleet, api, "worker")
    with Client(fleet.address, user="nobody") as client:
        for model_only in (False, True):
            statements, result = asked(client, model_only=model_only)
            assert (statements, result["fallback"]) == ([], "nothing_stored")
    assert not api.calls


def test_an_answer_of_which_nothing_can_be_read_is_asked_again(fleet: Processes, api: MessagesApi) -> None:
    fleet.server(RUNEKEEP_BACKOFF_FIRST_SECONDS="0.1")
    start(fleet, api, "worker")
    with Client(fleet.address) as client:
        tea = remember(client)
        good = {"text": "The user drinks green tea.", "sources": [tea]}
        api.script(
            answer({"reasoning": "", "statements": [f"The user drinks tea ({tea})."], "unknown": []}),
            answer({"reasoning": "", "statements": [good, "And milk."], "unknown": []}),
        )
        statements, result = asked(client)
        assert [one["text"] for one in statements] == ["The user drinks green tea."], fleet.log()
        assert (result["attempts"], result["dropped_items"]) == (2, 1)


def test_another_worker_answers_when_the_first_is_killed(fleet: Processes, api: MessagesApi) -> None:
    gate = api.gate()
    fleet.server(RUNEKEEP_LEASE_SECONDS="2", RUNEKEEP_HEARTBEAT_SECONDS="0.5", RUNEKEEP_FIRST_LEASE_SECONDS="2")
    workers = start(fleet, api, "one", "two")
    with Client(fleet.address) as client:
        tea = remember(client)
        api.script(held(gate, answer(said(("Of a dead worker.", [tea])))))
        api.otherwise = answer(said(("The user drinks green tea.", [tea])))
        updates: list[AskUpdate] = []
        for update in client.ask(QUESTION, timeout=WAIT_SECONDS):
            updates.append(update)
            if gate.entered.is_set() and all(one.poll() is None for one in workers.values()):
                _kill_holder(fleet, workers)
        result = updates[-1]
        assert result["kind"] == "result" and result["attempts"] == 2, fleet.log()
        assert [one["text"] for one in updates if one["kind"] == "statement"] == ["The user drinks green tea."]


def _kill_holder(fleet: Processes, workers: dict[str, subprocess.Popen[str]]) -> None:
    (holder,) = [name for name in workers if "job_started" in fleet.log(name)]
    workers[holder].send_signal(signal.SIGKILL)
    workers[holder].wait()


def test_a_question_that_nobody_waits_for_is_cancelled_and_commits_go_on(fleet: Processes, api: MessagesApi) -> None:
    """The only worker takes one job at a time. Its model never answers the question."""
    gate = api.gate()
    fleet.server(RUNEKEEP_MAX_OPEN_QUESTIONS_PER_USER="1")
    start(fleet, api, "worker")
    with Client(fleet.address) as client:
        remember(client)
        api.script(held(gate, answer("too late")))
        api.otherwise = answer(remembered)
        updates = client.ask(QUESTION, timeout=WAIT_SECONDS)
        while not gate.entered.is_set():
            assert next(updates)["kind"] == "progress"
        assert questions_in(fleet) > 0
        with Client(fleet.address) as other, pytest.raises(RunekeepError) as refused:
            asked(other)
        assert refused.value.reason == "RATE_LIMITED"
        # Whoever drops the iterator hangs up.
        del updates
        task = client.wait_task(talk(client, "commit"), timeout=WAIT_SECONDS)
        assert task["status"] == "completed", fleet.log()
        assert questions_in(fleet) == 0
        assert '"reason": "cancelled"' in fleet.log("worker"), fleet.log("worker")


@pytest.mark.parametrize(
    ("settings", "timeout", "fallback"),
    [
        pytest.param({"RUNEKEEP_ACCOUNT_DAILY_TOKEN_BUDGET": "50"}, WAIT_SECONDS, "out_of_budget", id="budget"),
        pytest.param({}, 4.0, "out_of_time", id="deadline"),
    ],
)
def test_a_recall_stands_in_for_a_model_that_may_not_or_does_not_answer(
    fleet: Processes, api: MessagesApi, settings: dict[str, str], timeout: float, fallback: str
) -> None:
    fleet.server(**settings)
    start(fleet, api, "worker")
    with Client(fleet.address) as client:
        tea = remember(client)
        api.otherwise = held(api.gate(), answer("too late"))
        *statements, result = [one for one in client.ask(QUESTION, timeout=timeout) if one["kind"] != "progress"]
        assert result["kind"] == "result" and result["fallback"] == fallback, fleet.log()
        assert len(api.calls) <= 1, "the rest of its time is not spent on another attempt"
        assert tea in [source["uri"] for one in statements if one["kind"] == "statement" for source in one["sources"]]
        assert questions_in(fleet) == 0


def test_workers_without_a_model_take_commits_beside_one_that_answers(fleet: Processes, api: MessagesApi) -> None:
    """Questions wait for a worker that offers to answer them, and block nobody meanwhile."""
    gate = api.gate()
    fleet.server()
    start(fleet, api, "model")
    with Client(fleet.address) as client:
        tea = remember(client)
        api.script(held(gate, answer(said(("The user drinks green tea.", [tea])))))
        api.otherwise = answer(said(("It is green.", [tea])))
        first = client.ask(QUESTION, timeout=WAIT_SECONDS)
        while not gate.entered.is_set():
            next(first)
        fleet.extractor("offline", "--engine", "offline")
        with Client(fleet.address) as other:
            second = other.ask("Which colour is the tea?", timeout=WAIT_SECONDS)
            task = other.wait_task(talk(other, "commit"), timeout=WAIT_SECONDS)
            assert task["result"] is not None and task["result"]["extractor"] is not None
            assert task["result"]["extractor"]["engine"] == "offline", fleet.log()
            gate.release.set()
            assert [one["text"] for one in second if one["kind"] == "statement"] == ["It is green."]
        assert [one["text"] for one in first if one["kind"] == "statement"] == ["The user drinks green tea."]


def test_the_command_and_the_page_print_statements_with_their_sources(
    fleet: Processes, api: MessagesApi, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.server()
    start(fleet, api, "worker")
    with Client(fleet.address, user="robin") as client:
        tea = remember(client)
    api.otherwise = answer(said(("The user drinks green tea.", [tea]), unknown=["Since when."]))
    command = ["runekeep", "ask", QUESTION, "--address", fleet.address, "--user", "robin"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_SECONDS)
    assert shown.stdout.splitlines() == ["The user drinks green tea.", f"    {tea}", "Not known: Since when."]
    assert "1 model call" in shown.stderr
    lines = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=True, timeout=WAIT_SECONDS
    ).stdout
    *_, statement, result = map(json.loads, lines.splitlines())
    assert (statement["kind"], result["kind"], result["statements"]) == ("statement", "result", 1)
    exec(example(DOCS / "guides" / "asking.md", "asking.py").replace(DEFAULT_ADDRESS, fleet.address), {})
    assert capsys.readouterr().out.splitlines() == [
        f"The user drinks green tea. [('{tea}', 0)]",
        "not known: ['Since when.']",
        "answered by: anthropic",
    ]
