"""`runekeep turn ...`: what people see, what programs get, and what is asked of the server."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from runekeep.cli.app import app
from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as wire
from tests.unit.runekeep.server_double import ServerDouble

SESSION = "viking://user/u/sessions/s1"
TEXT = "[CURRENT TURN]\n[TURN turn_id=t2] / 09:15 Jan 25 2026 / user: is [bold]this[/bold] a header?"
MEMORIES = "[TURN MEMORIES]\n- t1 objective=Plan; A=['budget=500 (must)']; E=[]; F=[]; topics=[]"


def run(server: ServerDouble, *arguments: str, status: int = 0, stdin: str | None = None) -> Any:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    result = runner.invoke(app, [*arguments, "--address", server.address], input=stdin)
    assert result.exit_code == status, result.output
    return result


def turn() -> wire.Turn:
    signal = {"key": "budget", "value": {"number_value": 500}, "severity": 1, "scope": 2, "applies_to": "trip"}
    fingerprint = {
        "turn_id": "t1",
        "objective": "Plan a trip [red]to[/red] Ghent, by train, with two people and a small dog, for three days",
        "topics": ["travel"],
        "assertions": [signal],
        "assistant_signals": [{"key": "pass", "value": {"string_value": "Benelux"}, "severity": 10}],
        "ctx_retrieval_queries": [{"target": 3, "query": "train table"}],
        "conversation_title": "A trip",
    }
    return wire.Turn(
        session=SESSION,
        turn_id="t1",
        messages={"start_sequence": 1, "end_sequence": 2},
        fingerprint=fingerprint,
        summary={"user_inquiry": "a trip", "done": ["looked up trains", "counted costs"]},
        start_time={"seconds": 1_769_332_500},
    )


def task(kind: int, state: int = 3, **result: Any) -> task_service_pb2.Task:
    made_by = common_pb2.ExtractorInfo(engine="offline", model="minilm")
    turn_result = task_service_pb2.TurnTaskResult(extractor=made_by, **result) if state in (3, 4) else None
    return task_service_pb2.Task(
        task_id="job1",
        kind=kind,
        state=state,
        session=SESSION,
        turn_id="t1" if kind == 2 else "",
        attempt=1,
        turn_result=turn_result,
    )


def watch(ended: task_service_pb2.Task) -> list[Any]:
    return [task_service_pb2.WatchTaskResponse(snapshot=task(2, 1)), task_service_pb2.WatchTaskResponse(ended=ended)]


@pytest.fixture
def full(server: ServerDouble) -> ServerDouble:
    """A double with an answer for every call that a command about turns makes."""
    bucket = wire.MemoryBucket(
        bucket_id="obj-trip-12345678",
        session=SESSION,
        state=2,
        name="Trip [x]",
        short_desc="Where they go",
        timeline=[
            {
                "start_time": {"seconds": 1_769_332_500},
                "end_time": {"seconds": 1_769_336_100},
                "objective_hint": "Ghent",
                "exceptions": [
                    {"signal": {"key": "hotel", "value": {"string_value": "Ibis"}, "severity": 4}, "weight": 0.35}
                ],
            }
        ],
    )
    bucket.timeline[0].exceptions[0].support_turn_ids.append("t1")
    feedback = wire.Feedback(
        turn_id="t1", reaction=2, origin=2, confidence=0.8, from_turn_id="t2", text="too [b]dear", objective="Plan"
    )
    signals = wire.AssistantSignals(
        session=SESSION, turn_id="t1", signals=[{"key": "pass", "value": {"string_value": "Benelux"}, "severity": 10}]
    )
    artifact = wire.TurnArtifact(
        name="artifact:turn.fingerprint.v1",
        session=SESSION,
        turn_id="t1",
        text='{"objective": "[Plan]"}',
        tags=["turn:t1"],
    )
    sections = [{"header": "[CURRENT TURN]", "text": TEXT}, {"header": "[TURN MEMORIES]", "text": MEMORIES}]
    messages = {"start_sequence": 1, "end_sequence": 2}
    shown = wire.LoadTurnContextResponse(
        current={"turn": {"turn_id": "t2", "messages": messages}},
        candidates=[{"turn": {"turn_id": "t1", "messages": messages}}],
        turn_memories=[{"turn_id": "old-1"}, {"turn_id": "old-2"}],
        buckets=[{"bucket_id": "b"}],
        sections=sections,
        text=f"{TEXT}\n\n{MEMORIES}",
        offer="abc",
    )
    selection = wire.TurnSelection(local_memories_turn_ids=["t1"], turn_ids=["t2"])
    server.script("ListTurns", wire.ListTurnsResponse(turns=[turn(), wire.Turn(turn_id="t0")]))
    server.script("GetTurn", wire.GetTurnResponse(turn=turn()))
    server.script("LoadTurnContext", shown)
    server.script("SubmitTurn", wire.SubmitTurnResponse(turn=turn(), task_id="job1"))
    server.script("SetTurnSelection", wire.SetTurnSelectionResponse(selection=selection, dropped=["t7"]))
    server.script("SubmitFeedback", wire.SubmitFeedbackResponse(feedback=feedback))
    server.script("ClearFeedback", wire.ClearFeedbackResponse(cleared=True))
    counts = wire.FeedbackCounts(total=1, machine=1, not_ok=1)
    server.script("ListFeedback", wire.ListFeedbackResponse(feedback=[feedback], counts=counts))
    server.script("ListAssistantSignals", wire.ListAssistantSignalsResponse(turns=[signals]))
    server.script("ListTurnArtifacts", wire.ListTurnArtifactsResponse(artifacts=[artifact]))
    covered = {"seconds": 1_769_336_100}
    server.script("ListMemoryBuckets", wire.ListMemoryBucketsResponse(buckets=[bucket], last_covered_time=covered))
    server.script("UpdateMemoryBucket", wire.UpdateMemoryBucketResponse(bucket=bucket))
    server.script("ReconcileMemoryBuckets", wire.ReconcileMemoryBucketsResponse(task_id="job1"))
    server.script("WatchTask", watch(task(2, fingerprints=1)))
    server.script("GetTask", task_service_pb2.GetTaskResponse(task=task(2, fingerprints=1)))
    return server


COMMANDS = [
    ["turn", "list", "s1"],
    ["turn", "show", "s1", "t1"],
    ["turn", "context", "s1", "t2", "--audience", "final-answer", "--last", "5", "--query", "x", "--query", "y"],
    ["turn", "submit", "s1", "t1", "--extract"],
    ["turn", "submit", "s1", "t1", "--extract", "--signals", "offers", "--wait"],
    ["turn", "submit", "s1", "t1", "--extract", "--select", "--feedback", "--query", "walnut"],
    ["turn", "select", "s1", "--memory", "t1", "--turn", "t2", "--bucket", "b"],
    ["turn", "feedback", "s1", "t1", "--reaction", "not-ok", "--text", "too dear"],
    ["turn", "feedback", "s1", "t1", "--clear"],
    ["turn", "feedback-list", "s1", "--turn", "t1", "--since", "2026-01-01"],
    ["turn", "feedback-list"],
    ["turn", "signals", "pass"],
    ["turn", "artifacts", "turn:t1"],
    ["turn", "buckets", "s1", "--all"],
    ["turn", "bucket", "s1", "obj-trip-12345678", "--disable"],
    ["turn", "reconcile", "s1"],
    ["turn", "reconcile", "s1", "--wait"],
    ["task", "show", "job1"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_json_is_one_object_on_stdout_and_nothing_else(full: ServerDouble, command: list[str]) -> None:
    result = run(full, *command, "--json")
    assert isinstance(json.loads(result.stdout), dict)
    assert result.stderr == ""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_people_see_text_that_fits(full: ServerDouble, command: list[str]) -> None:
    lines = run(full, *command).stdout.splitlines()
    assert any(line.strip() for line in lines)
    # A prompt and what is stored are given to the letter, however long their lines are.
    assert all(len(line) <= 80 or line in TEXT or line in MEMORIES for line in lines)


def test_a_context_is_printed_to_the_letter(full: ServerDouble) -> None:
    assert run(full, "turn", "context", "s1", "t2", "-q", "trains").stdout == f"{TEXT}\n\n{MEMORIES}\n"
    (asked,) = full.requests("LoadTurnContext")
    assert (asked.session, asked.current_turn_id, asked.audience) == ("s1", "t2", wire.CONTEXT_AUDIENCE_GATE)
    assert asked.ctx_retrieval_queries[0].query == "trains" and asked.render


def test_a_query_that_was_not_answered_is_told_beside_the_prompt(full: ServerDouble) -> None:
    full.steps["LoadTurnContext"].clear()
    full.script("LoadTurnContext", wire.LoadTurnContextResponse(unanswered_queries=["trains"]))
    result = run(full, "turn", "context", "s1", "t2")
    assert "trains" in result.stderr and "trains" not in result.stdout


def test_a_turn_is_drawn_with_all_that_it_holds(full: ServerDouble) -> None:
    lines = [line.strip(" │├└─") for line in run(full, "turn", "show", "s1", "t1").stdout.splitlines()]
    assert "objective  Plan a trip [red]to[/red] Ghent, by train, with two people and a" in lines
    for expected in (
        "title  A trip",
        "topics  travel",
        "assertions",
        "budget = 500 (must, scope=objective, applies_to=trip)",
        "pass = Benelux (recommend)",
        "searched  train table in what the assistant artifact said",
        "user inquiry  a trip",
        "done  looked up trains; counted costs",
    ):
        assert expected in lines
    listed = " ".join(run(full, "turn", "list", "s1").stdout.split())
    assert "1A 1S Plan a trip" in listed and "t0 no fingerprint" in listed


def test_a_fingerprint_comes_from_a_file_or_from_standard_input(full: ServerDouble, tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    file.write_text('{"done": ["é"]}', encoding="utf-8")
    run(full, "turn", "submit", "s1", "t1", "--fingerprint", "-", "--summary", str(file), stdin='{"objective": "x"}')
    (request,) = full.requests("SubmitTurn")
    assert (request.fingerprint.objective, list(request.summary.done), request.extract) == ("x", ["é"], False)
    both = run(full, "turn", "submit", "s1", "t1", "--fingerprint", "-", "--summary", "-", stdin="{}", status=2).stderr
    assert "only one of them" in " ".join(both.replace("│", " ").split())
    error = run(full, "turn", "submit", "s1", "t1", "--fingerprint", "-", stdin='{"objektive": 1}', status=1).stderr
    assert "fingerprint has no 'objektive'" in error


def test_a_task_is_asked_to_reconcile(full: ServerDouble) -> None:
    run(full, "turn", "submit", "s1", "t1", "--extract", "--select", "--feedback", "--query", "a", "--query", "b")
    run(full, "turn", "submit", "s1", "t1", "--extract")
    asked, plain = full.requests("SubmitTurn")
    assert (asked.extract_selection, asked.extract_feedback) == (True, True)
    assert [one.query for one in asked.ctx_retrieval_queries] == ["a", "b"]
    assert not (plain.extract_selection or plain.extract_feedback or plain.ctx_retrieval_queries)


def test_a_choice_is_made_from_what_was_shown(full: ServerDouble) -> None:
    shown = run(full, "turn", "context", "s1", "t2", "-a", "reconciler", "--json").stdout
    said = run(full, "turn", "select", "s1", "-m", "t1", "-t", "t2", "--context", "-", stdin=shown).stdout
    assert "Dropped: t7" in said
    run(full, "turn", "select", "s1")
    assert len(full.requests("LoadTurnContext")) == 1
    chosen, emptied = full.requests("SetTurnSelection")
    assert (chosen.offer, chosen.selection.current_turn_id) == ("abc", "t2")
    assert list(chosen.selection.local_memories_turn_ids) == ["t1"]
    assert emptied.offer == "" and not emptied.selection.turn_ids


def test_what_is_chosen_without_a_context_is_chosen_from_what_is_offered_then(full: ServerDouble) -> None:
    full.steps["SetTurnSelection"].clear()
    full.script("SetTurnSelection", wire.SetTurnSelectionResponse(selection={}, dropped=["old", "t9", "t1"]))
    said = run(full, "turn", "select", "s1", "-m", "old", "-m", "t9", "-t", "t1", "-b", "b").stdout
    assert "Dropped: old (could be old-1 or old-2); t9 (not offered); t1 (one too many)" in " ".join(said.split())
    (asked,), (chosen,) = full.requests("LoadTurnContext"), full.requests("SetTurnSelection")
    assert (asked.audience, asked.last_turns, asked.render) == (wire.CONTEXT_AUDIENCE_RECONCILER, 20, False)
    assert (chosen.offer, chosen.selection.current_turn_id) == ("abc", "")
    assert list(chosen.selection.local_memories_turn_ids) == ["old", "t9"]


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_choice_of_nothing_that_was_offered_empties_no_selection(full: ServerDouble, as_json: list[str]) -> None:
    result = run(full, "turn", "select", "s1", "-m", "old", "-t", "t9", "-b", "t1", *as_json, status=1)
    assert result.stdout == "" and not full.requests("SetTurnSelection")
    told = " ".join(result.stderr.split())
    assert "old (could be old-1 or old-2); t9 (not offered); t1 (not offered)" in told
    assert "The selection is unchanged" in told
    # A prefix of one is enough, and one that fits is.
    for named in (["-t", "t"], ["-m", "old-1"], ["-b", "b", "-t", "t9"]):
        run(full, "turn", "select", "s1", *named, *as_json)
    assert len(full.requests("SetTurnSelection")) == 3


def test_what_one_may_not_say_of_reactions_and_buckets_is_told_by_its_option(full: ServerDouble) -> None:
    for option, value in (("--reaction", "ok"), ("--text", "x"), ("--from-turn", "t2")):
        told = run(full, "turn", "feedback", "s1", "t1", "--clear", option, value, status=2).stderr
        assert option in told and "--clear" in told
    for option, value in (("--confidence", "1"), ("--from-turn", "t2"), ("--match", "x")):
        told = run(full, "turn", "feedback", "s1", "t1", "-r", "ok", option, value, status=2).stderr
        assert option in told and "--machine" in told
    told = run(full, "turn", "bucket", "s1", "b", status=2).stderr
    assert all(option in told for option in ("--name", "--description", "--enable", "--disable"))
    assert "short_desc" not in told and not full.calls
    run(full, "turn", "feedback", "s1", "t1", "-r", "not-ok")
    assert full.requests("SubmitFeedback")[0].feedback.reaction == wire.REACTION_NOT_OK


def test_buckets_that_are_all_disabled_are_spoken_of(server: ServerDouble) -> None:
    hidden = wire.ListMemoryBucketsResponse(buckets=[{"bucket_id": "b", "state": 2, "name": "B"}])
    server.script("ListMemoryBuckets", wire.ListMemoryBucketsResponse(), hidden)
    assert "--all shows 1 disabled one" in run(server, "turn", "buckets", "s1").stdout
    assert [one.show_disabled for one in server.requests("ListMemoryBuckets")] == [False, True]
    server.steps["ListMemoryBuckets"].clear()
    server.script("ListMemoryBuckets", wire.ListMemoryBucketsResponse())
    assert "turn reconcile" in run(server, "turn", "buckets", "s1").stdout


def test_a_reconciliation_that_is_waited_for_always_has_a_task_in_json(full: ServerDouble) -> None:
    full.steps["ReconcileMemoryBuckets"].clear()
    full.script("ReconcileMemoryBuckets", wire.ReconcileMemoryBucketsResponse())
    told = json.loads(run(full, "turn", "reconcile", "s1", "--wait", "--json").stdout)
    assert told == {"task_id": "", "task": None}
    assert json.loads(run(full, "turn", "reconcile", "s1", "--json").stdout) == {"task_id": ""}


def test_a_machine_need_not_name_the_turn_and_a_user_must(full: ServerDouble) -> None:
    said = run(
        full, "turn", "feedback", "s1", "--machine", "--confidence", "0.8", "--from-turn", "t2", "--match", "price"
    ).stdout
    assert "not ok on t1" in said and "0.80, said in t2" in said and "too [b]dear" in said
    (request,) = full.requests("SubmitFeedback")
    assert (request.feedback.turn_id, request.feedback.confidence) == ("", 0.8)
    assert request.feedback.origin == wire.FEEDBACK_ORIGIN_MACHINE
    run(full, "turn", "feedback", "s1", "t1", "-r", "ok")
    by_user = full.requests("SubmitFeedback")[1].feedback
    assert (by_user.turn_id, by_user.origin, by_user.reaction) == ("t1", wire.FEEDBACK_ORIGIN_USER, wire.REACTION_OK)
    assert request.match_queries[0].query == "price"


def test_a_bucket_shows_weights_and_what_they_rest_on(full: ServerDouble) -> None:
    text = run(full, "turn", "buckets", "s1").stdout
    assert "Trip [x]  obj-trip-12345678  disabled" in text
    assert "exception hotel = Ibis (avoid)  0.35 of t1" in text
    assert "Turns up to 2026-01-25 10:15 UTC are in them." in text
    run(full, "turn", "bucket", "s1", "obj-trip-12345678", "--enable", "--name", "New")
    (request,) = full.requests("UpdateMemoryBucket")
    assert (request.bucket.state, list(request.update_mask.paths)) == (1, ["name", "state"])


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        (task(2, fingerprints=1), "turn t1: fingerprint filled in"),
        (task(2), "turn t1: nothing to add"),
        (task(2, selection_stored=True, feedback=1), "turn t1: selection stored, 1 reaction"),
        (
            task(3, buckets_changed=2, buckets_added=1, turns_left=1),
            "buckets: 2 changed, 1 added, 0 disabled, 1 turn left",
        ),
        (task(3, 1), "pending buckets"),
    ],
)
def test_tasks_about_turns_say_what_came_of_them(server: ServerDouble, ended: task_service_pb2.Task, told: str) -> None:
    server.script("GetTask", task_service_pb2.GetTaskResponse(task=ended))
    server.script("ListTasks", task_service_pb2.ListTasksResponse(tasks=[ended]))
    shown = " ".join(run(server, "task", "show", "job1").stdout.split())
    assert told in shown and SESSION in shown
    assert told.removeprefix("pending ") in " ".join(run(server, "task", "list").stdout.split())


def test_a_failed_task_about_a_turn_says_why_and_what_it_cost(full: ServerDouble) -> None:
    failed = task(2, 4)
    failed.error.message = "invalid_output: no JSON object"
    failed.turn_result.usage.add(phase="fingerprint", model="m", calls=3, input_tokens=1_234, output_tokens=5)
    failed.turn_result.dropped_items = 2
    full.steps["WatchTask"].clear()
    full.script("WatchTask", watch(failed))
    text = run(full, "turn", "submit", "s1", "t1", "--extract", "--wait", status=1).stdout
    assert "turn t1: invalid_output: no JSON object" in text and "1,234" in text and "2 items" in text
    run(full, "turn", "reconcile", "s1", "--wait", "--json", status=1)


@pytest.mark.parametrize(
    "command",
    [
        ["turn", "submit", "s1", "t1"],
        ["turn", "submit", "s1", "t1", "--fingerprint", "/no/such/file"],
        ["turn", "submit", "s1", "t1", "--fingerprint", "/etc/hostname"],
        ["turn", "submit", "s1", "t1", "--summary", "-", "--signals", "offers"],
        ["turn", "submit", "s1", "t1", "--summary", "-", "--wait"],
        ["turn", "submit", "s1", "t1", "--summary", "-", "--select"],
        ["turn", "submit", "s1", "t1", "--summary", "-", "--feedback"],
        ["turn", "submit", "s1", "t1", "--extract", "--query", "walnut"],
        ["turn", "submit", "s1", "t1", "--summary", "-", "--fingerprint", "-"],
        ["turn", "select", "s1", "--context", "-"],
        ["turn", "feedback", "s1", "--reaction", "ok"],
        ["turn", "feedback", "s1", "--clear"],
        ["turn", "feedback", "s1", "t1", "--clear", "--machine"],
        ["turn", "bucket", "s1", "b"],
        ["turn", "feedback-list", "--turn", "t1"],
        ["turn", "artifacts"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(server: ServerDouble, command: list[str]) -> None:
    assert run(server, *command, status=2, stdin="{}").stdout == ""
    assert not server.calls
