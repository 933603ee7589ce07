"""Turns and the offline engine over a real server: what a task finds out, what a commit fills in, what buckets take."""

from runekeep import Client, Session, TextPart
from tests.acceptance.processes import Processes

WAIT_SECONDS = 90.0
PREFERENCE = "viking://user/ana/memories/preferences/Oat milk.md"


def talked(session: Session, turn_id: str, asked: str, answered: str = "") -> None:
    session.add_message("user", [TextPart(asked)], turn_id=turn_id, speaker="Ana")
    if answered:
        session.add_message("assistant", [TextPart(answered)], turn_id=turn_id)


def done(client: Client, task_id: str) -> dict:
    task = client.wait_task(task_id, timeout=WAIT_SECONDS)
    assert task["status"] == "completed", task["error"]
    return task


def signals(turn: dict, of: str) -> dict:
    return {one["key"]: (one["value"], one["severity"]) for one in turn["fingerprint"][of]}


def test_a_task_finds_out_what_a_turn_said(fleet: Processes):
    fleet.server()
    fleet.extractor("worker-1", "--engine", "offline")
    with Client(fleet.address, user="ana") as client:
        session = client.session("trip")
        talked(
            session,
            "t1",
            "Find me a hotel in Lisbon under 120 euros per night. I prefer a quiet room. No carpets, please.",
            "I recommend Hotel Lumen, it has quiet rooms.",
        )
        # What a caller has said stays as it is.
        submitted = session.submit_turn(
            "t1", fingerprint={"objective": "A hotel"}, extract=True, assistant_signal_spec="hotels"
        )
        task = done(client, submitted["task_id"])
        assert task["turn_result"]["fingerprints"] == 1
        assert task["turn_result"]["extractor"]["engine"] == "offline"
        turn = session.get_turn("t1")
        assert turn["fingerprint"]["objective"] == "A hotel"
        assert signals(turn, "assertions") == {
            "budget": ({"max": 120}, "must"),
            "room": ("quiet room", "prefer"),
        }
        assert signals(turn, "exceptions") == {"carpet": ({"exclude": ["carpets"]}, "do_not")}
        assert signals(turn, "assistant_signals") == {"hotel": ("Hotel Lumen", "recommend")}
        assert turn["fingerprint"]["conversation_title"].startswith("Find me a hotel in Lisbon")
        assert turn["summary"]["assistant_answer"] == "I recommend Hotel Lumen, it has quiet rooms."


def test_a_commit_fills_in_what_is_missing_and_takes_fingerprints_as_evidence(fleet: Processes):
    fleet.server()
    fleet.extractor("worker-1", "--engine", "offline")
    with Client(fleet.address, user="ana") as client:
        session = client.session("breakfast")
        talked(session, "t1", "Plan my breakfasts for a week, please. My budget is 40 euros.")
        talked(session, "t2", "Oat milk in everything.")
        wish = {"key": "drink", "value": "oat milk", "severity": "must"}
        session.submit_turn("t2", fingerprint={"objective": "Say what to drink", "assertions": [wish]})
        task = done(client, session.commit()["task_id"])
        assert task["result"]["fingerprints"] == 1
        assert "Oat milk in everything." in client.get_memory(PREFERENCE)["content"]
        first, second = session.get_turn("t1"), session.get_turn("t2")
        assert first["fingerprint"]["objective"] == "Plan my breakfasts for a week, please."
        assert signals(first, "assertions") == {"budget": ({"max": 40}, "must")}
        assert second["fingerprint"]["objective"] == "Say what to drink"
        assert list(signals(second, "assertions")) == ["drink"]

        # Without a word for it the same sentence is talk.
        other = client.session("supper")
        talked(other, "t1", "Rice milk in everything.")
        assert done(client, other.commit()["task_id"])["result"]["memories_extracted"] == {}


def test_turns_are_put_to_buckets_by_what_they_are_about(fleet: Processes):
    fleet.server()
    fleet.extractor("worker-1", "--engine", "offline")
    with Client(fleet.address, user="ana") as client:
        session = client.session("year")
        talked(session, "t1", "Find me a hotel in Lisbon under 120 euros. The Lisbon hotel must have a pool.")
        talked(session, "t2", "Which tax office takes my invoices? The invoices must be in German.")
        for turn_id in ("t1", "t2"):
            done(client, session.submit_turn(turn_id, extract=True)["task_id"])
        task = done(client, session.reconcile_buckets())
        assert (task["turn_result"]["buckets_added"], task["turn_result"]["turns_left"]) == (2, 0)
        talked(
            session, "t3", "Is the hotel in Lisbon still free? I need breakfast in the hotel in Lisbon, but no eggs."
        )
        done(client, session.submit_turn("t3", extract=True)["task_id"])
        task = done(client, session.reconcile_buckets())
        assert (task["turn_result"]["buckets_changed"], task["turn_result"]["buckets_added"]) == (1, 0)
        [hotel] = [one for one in session.buckets()["buckets"] if "lisbon" in one["topic_centroid"]]
        said = {
            signal["signal"]["key"]: signal["support_turn_ids"]
            for piece in hotel["timeline"]
            for kind in ("assertions", "exceptions", "facts")
            for signal in piece[kind]
        }
        assert said["budget"] == ["t1"]
        assert said["egg"] == ["t3"]
        assert session.reconcile_buckets() == "", "nothing new"


def test_the_loop_of_a_turn_runs_without_a_gate_and_a_reconciler_of_the_caller(fleet: Processes):
    fleet.server()
    fleet.extractor("worker-1", "--engine", "offline")
    with Client(fleet.address, user="ana") as client:
        session = client.session("loop")
        talked(session, "t1", "Find me a quiet hotel in Lisbon under 120 euros per night.", "Hotel Lumen.")
        talked(session, "t2", "Which tax office takes my invoices? The invoices must be in German.", "The nearest one.")
        talked(session, "t3", "Back to the hotel in Lisbon: does it have a garage?", "It has none.")
        for turn_id in ("t1", "t2", "t3"):
            done(client, session.submit_turn(turn_id, extract=True)["task_id"])
        talked(session, "t4", "That's not what I asked for. Find a hotel in Lisbon with a garage.")
        asked = session.submit_turn("t4", extract=True, extract_selection=True, extract_feedback=True)
        result = done(client, asked["task_id"])["turn_result"]
        assert (result["fingerprints"], result["selection_stored"], result["feedback"]) == (1, True, 1)

        shown = session.turn_context("t4", "downstream")
        assert [one["turn_id"] for one in shown["turn_memories"]] == ["t4", "t3", "t1"]
        (said,) = session.list_feedback()["feedback"]
        assert (said["turn_id"], said["from_turn_id"], said["reaction"]) == ("t3", "t4", "not_ok")
        assert (said["origin"], said["text"]) == ("machine", "That's not what I asked for.")

        # The answer, and what came of the whole turn.
        session.add_message("assistant", [TextPart("I recommend Hotel Porto, it has a garage.")], turn_id="t4")
        done(client, session.submit_turn("t4", extract=True, assistant_signal_spec="hotels")["task_id"])
        turn = session.get_turn("t4")
        assert turn["summary"]["assistant_answer"] == "I recommend Hotel Porto, it has a garage."
        assert signals(turn, "assistant_signals") == {"hotel": ("Hotel Porto", "recommend")}
