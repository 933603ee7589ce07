"""Turn memory by the `anthropic` engine: a real server, a real extractor, and a double of the Messages API."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from runekeep import Client, Session, TextPart
from tests.acceptance.processes import Processes, processes
from tests.doubles.messages_api import MessagesApi, Request, answer, overloaded, truncated
from tests.unit.extractor.turn_talk import NOTED, SPEC, SUMMARY, inside, signal

WAIT_SECONDS = 90.0
PROMOTED = signal("product", "is", ["Hotel Aurora"], "recommend")
WRITE = {
    "memory_type": "preferences",
    "fields": [{"name": "topic", "value": "Hotels"}, {"name": "content", "value": "Never hostels."}],
    "ranges": [{"start": 1, "end": 1}],
}


def model(request: Request) -> dict[str, Any]:
    """What a model might answer to any of the three questions, by what it is shown."""
    prompt = request.last_text
    asked = request.body["output_config"]["format"]["schema"]["properties"]
    if "changed" in asked:
        shown = [json.loads(record) for record in inside(prompt, "turns").splitlines()]
        wishes = [
            {**wish, "turns": [one["turn"]]}
            for one in shown
            for wish in one.get("assertions", [])
            if wish["key"] == "budget.cap"
        ]
        theme = {"objective_hint": "Find a hotel.", "assertions": wishes, "exceptions": [], "facts": []}
        if '"bucket": "b1"' in prompt:
            return {"reasoning": "", "changed": [{"bucket": "b1", **theme}], "added": [], "disabled": []}
        return {"reasoning": "", "changed": [], "added": [{"name": "Hotels", **theme}], "disabled": []}
    if "write_operations" in asked:
        unnoted = [json.loads(record) for record in inside(prompt, "unnoted").splitlines()]
        return {
            "reasoning": "",
            "write_operations": [WRITE],
            "edit_operations": [],
            "delete_operations": [],
            "summary": {"topic": "Hotels", "intent": "find one", "result": "found", "status": "done"},
            "turns": [{"turn": one["turn"], **NOTED, "objective": f"Of {one['messages']}."} for one in unnoted],
        }
    named = {"conversation_title": "A trip to Lisbon"} if "conversation_title" in asked else {}
    promoted = {"assistant_signals": [PROMOTED]} if "assistant_signals" in asked else {}
    whole = {**NOTED, **named, **promoted, "ctx_retrieval_queries": [], "summary": SUMMARY, **chosen(prompt)}
    return {name: value for name, value in whole.items() if name in asked}


def chosen(prompt: str) -> dict[str, Any]:
    """Of the context that is shown, the memory of the oldest turn and the newest turn, of which the user complains."""
    context = inside(prompt, "context")
    memories = re.findall(r"^- (\S+) ", context.rpartition("[TURN MEMORIES")[2], re.MULTILINE)
    prior = re.findall(r"^\[TURN turn_id=(\S+)\]", context, re.MULTILINE)
    reaction = {"turn": "", "reaction": "not_ok", "text": "Too loud.", "confidence": 0.9}
    return {
        "local_memories_turn_ids": memories[-1:],
        "turn_ids": [f"turn_id={one}" for one in prior[:1]],
        "memory_bucket_ids": [],
        "feedback": [reaction] if "too loud" in inside(prompt, "turn") else [],
    }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Processes, MessagesApi]]:
    with MessagesApi() as api, processes(tmp_path_factory.mktemp("turns")) as fleet:
        api.otherwise = answer(model)
        fleet.server(RUNEKEEP_BACKOFF_FIRST_SECONDS="0.1", RUNEKEEP_BACKOFF_MAX_SECONDS="0.2")
        fleet.extractor(
            "worker",
            ANTHROPIC_BASE_URL=api.url,
            ANTHROPIC_API_KEY="any",
            RUNEKEEP_EXTRACTOR_STRUCTURED_OUTPUT="on",
            RUNEKEEP_EXTRACTOR_TOOLS="on",
        )
        yield fleet, api


@pytest.fixture
def client(running: tuple[Processes, MessagesApi]) -> Iterator[Client]:
    with Client(running[0].address) as made:
        yield made


def ask(session: Session, turn_id: str, question: str = "A hotel below 120 euros, no hostels. I have a dog.") -> None:
    session.add_message("user", [TextPart(question)], turn_id=turn_id)
    session.add_message("assistant", [TextPart("I recommend Hotel Aurora.")], turn_id=turn_id)


def done(client: Client, fleet: Processes, task_id: str) -> Any:
    assert task_id, "nothing was queued"
    task = client.wait_task(task_id, timeout=WAIT_SECONDS)
    assert task["status"] == "completed", (task["error"], fleet.log())
    return task


def test_a_turn_is_noted_and_what_the_caller_said_stays(running, client):
    fleet, api = running
    session = client.session(session_id="noted")
    ask(session, "turn-1")
    given = {"assertions": [{"key": "budget.cap", "value": {"max": 90}, "severity": "must"}]}
    before = len(api.calls)
    submitted = session.submit_turn("turn-1", fingerprint=given, extract=True, assistant_signal_spec=SPEC)
    task = done(client, fleet, submitted["task_id"])

    assert task["turn_id"] == "turn-1"
    assert {one["phase"]: one["calls"] for one in task["turn_result"]["usage"]} == {"fingerprint": 1}
    assert task["turn_result"]["extractor"]["engine"] == "anthropic"
    assert task["turn_result"]["fingerprints"] == 1
    turn = session.get_turn("turn-1")
    made = turn["fingerprint"]
    assert made["objective"] == "Find a hotel in Lisbon."
    assert [(one["key"], one["value"]) for one in made["assertions"]] == [("budget.cap", {"max": 90})]
    assert [(one["key"], one["value"], one["severity"]) for one in made["exceptions"]] == [
        ("lodging.kind", {"exclude": ["hostel"]}, "do_not")
    ]
    assert made["conversation_title"] == "A trip to Lisbon"
    assert turn["summary"]["assistant_answer"] == "Hotel Aurora for 95 euros."
    (promoted,) = list(client.assistant_signals(["product"], session="noted"))
    assert [one["value"] for one in promoted["signals"]] == ["Hotel Aurora"]
    (call,) = api.calls[before:]
    assert 'budget.cap={"max": 90} (must)' in json.loads(inside(call.last_text, "noted"))["assertions"]
    assert inside(call.last_text, "spec") == SPEC


def test_a_later_turn_is_read_in_the_light_of_the_one_before(running, client):
    fleet, api = running
    session = client.session(session_id="light")
    ask(session, "turn-1", "Plan a trip to Lisbon.")
    ask(session, "turn-2", "Which one did you mean?")
    api.script(overloaded(retry_after=0.01), truncated())
    done(client, fleet, session.submit_turn("turn-2", extract=True)["task_id"])
    last = api.calls[-1]
    assert "Plan a trip to Lisbon." in inside(last.last_text, "earlier")
    assert "Plan a trip to Lisbon." not in inside(last.last_text, "turn")
    assert "Which one did you mean?" in inside(last.last_text, "turn")
    made = session.get_turn("turn-2")["fingerprint"]
    assert made["objective"] and not made["assistant_signals"] and not made["conversation_title"]
    assert session.get_turn("turn-1")["fingerprint"] is None


def test_a_turn_that_says_nothing_is_paid_for_once(running, client):
    fleet, api = running
    session = client.session(session_id="nothing")
    ask(session, "turn-1", "Hm.")
    before = len(api.calls)
    api.script(answer({**{name: [] for name in NOTED}, "objective": "", "ctx_retrieval_queries": [], "summary": {}}))
    task = done(client, fleet, session.submit_turn("turn-1", extract=True)["task_id"])
    assert len(api.calls) == before + 1
    assert task["turn_result"]["fingerprints"] == 0
    assert session.get_turn("turn-1")["fingerprint"] is None


def test_a_commit_fills_in_what_is_missing_in_its_one_call(running, client):
    fleet, api = running
    session = client.session(session_id="commit")
    ask(session, "turn-1")
    ask(session, "turn-2")
    session.add_message("user", [TextPart("Thanks.")])
    session.submit_turn("turn-1", fingerprint={"objective": "Said by the caller."})
    before = len(api.calls)
    task = done(client, fleet, session.commit()["task_id"])
    assert task["result"]["outcome"] == "applied"
    assert task["result"]["fingerprints"] == 1
    assert task["result"]["memories_extracted"] == {"preferences": 1}
    first, *others = api.calls[before:]
    assert all("changed" not in call.last_text for call in others)
    assert json.loads(inside(first.last_text, "turns"))["objective"] == "Said by the caller."
    assert json.loads(inside(first.last_text, "unnoted")) == {"turn": "t2", "messages": "3-4"}
    assert session.get_turn("turn-1")["fingerprint"]["objective"] == "Said by the caller."
    assert session.get_turn("turn-2")["fingerprint"]["objective"] == "Of 3-4."


def test_turns_are_folded_into_buckets_and_later_ones_into_the_same(running, client):
    fleet, api = running
    session = client.session(session_id="buckets")
    for number, cap in ((1, 100), (2, 100)):
        ask(session, f"turn-{number}")
        wish = {"key": "budget.cap", "value": {"max": cap}, "severity": "must"}
        session.submit_turn(f"turn-{number}", fingerprint={"objective": "Find a hotel.", "assertions": [wish]})
        task = done(client, fleet, session.reconcile_buckets())
        assert task["turn_result"]["turns_left"] == 0
        assert {one["phase"]: one["calls"] for one in task["turn_result"]["usage"]} == {"buckets": 1}
    assert (task["turn_result"]["buckets_changed"], task["turn_result"]["buckets_added"]) == (1, 0)
    (bucket,) = session.buckets()["buckets"]
    assert bucket["name"] == "Hotels"
    (part,) = bucket["timeline"]
    (held,) = part["assertions"]
    assert held["signal"]["value"] == {"max": 100}
    assert held["support_turn_ids"] == ["turn-1", "turn-2"]
    assert held["weight"] > 0.5, "said twice"
    assert '"weight": 0.5' in inside(api.calls[-1].last_text, "buckets")
    assert session.reconcile_buckets() == "", "nothing is new"


def test_the_loop_of_a_turn_runs_without_a_gate_and_a_reconciler_of_the_caller(running, client):
    fleet, api = running
    session = client.session(session_id="loop")
    ask(session, "turn-1")
    ask(session, "turn-2", "And the way from the airport?")
    for turn_id in ("turn-1", "turn-2"):
        session.submit_turn(turn_id, fingerprint={"objective": f"Of {turn_id}"})
    session.add_message("user", [TextPart("That hotel is too loud. Another one, please.")], turn_id="turn-3")
    before = len(api.calls)
    asked = session.submit_turn("turn-3", extract=True, extract_selection=True, extract_feedback=True)
    result = done(client, fleet, asked["task_id"])["turn_result"]

    assert (result["fingerprints"], result["selection_stored"], result["feedback"]) == (1, True, 1)
    assert len(api.calls) - before == 1, "one call does the work of gate and reconciler"
    turn = session.get_turn("turn-3")
    assert turn["fingerprint"]["objective"] == "Find a hotel in Lisbon." and turn["summary"] is None
    shown = session.turn_context("turn-3", "downstream")
    assert [one["turn_id"] for one in shown["turn_memories"]] == ["turn-3", "turn-1"]
    assert shown["selection"]["turn_ids"] == ["turn-2"] and shown["selection"]["current_turn_id"] == "turn-3"
    final = session.turn_context("turn-3", "final_answer")["text"]
    assert final.startswith("[TURN MEMORIES — CHRONOLOGICAL (selected; scope=conversation)]")
    assert "turn_id=turn-2" in final and "text: Too loud." in final and "origin=machine" in final
