"""The `anthropic` engine in its own process: the real SDK against a server that speaks the Messages API."""

import json
import signal
import subprocess
import threading
from typing import Any

import pytest

from runekeep import Client, TextPart, ToolPart
from tests.acceptance.processes import Processes
from tests.doubles.messages_api import (
    Behaviour,
    MessagesApi,
    Request,
    Response,
    answer,
    overloaded,
    tool_use,
    truncated,
)

WAIT_SECONDS = 90.0


def remembered(request: Request) -> dict[str, Any]:
    """What a model might answer: one preference and the statistics of the tool calls it was shown."""
    return {
        "reasoning": "A preference was said and a tool was called.",
        "write_operations": [
            write("preferences", {"topic": "Tea", "content": "Drinks green tea in the morning."}),
            write("tools", {"tool_name": "web_search", "total_calls": 2, "success_count": 1, "fail_count": 1}),
        ],
        "edit_operations": [],
        "delete_operations": [],
        "summary": {
            "abstract": "Tea and a search.",
            "topic": "Tea",
            "intent": "say a preference",
            "result": "noted",
            "status": "done",
            "analysis": ["The user named a preference."],
            "primary_request": "Remember the tea.",
            "key_concepts": ["tea"],
            "pending_tasks": [],
        },
    }


def write(memory_type: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "memory_type": memory_type,
        "fields": [{"name": name, "value": value} for name, value in fields.items()],
        "peer_id": "",
        "ranges": [{"start": 1, "end": 2}],
        "reason": "said in the conversation",
        "abstract": "",
        "overview": "",
    }


def talk(client: Client, session_id: str = "chat") -> str:
    """Commits a short conversation; its task."""
    session = client.session(session_id=session_id)
    session.add_message("user", [TextPart("I drink green tea in the morning.")])
    session.add_message(
        "assistant",
        [
            TextPart("Noted."),
            ToolPart(tool_id="t1", tool_name="web_search", output="found", status="completed", duration_ms=100),
            ToolPart(tool_id="t2", tool_name="web_search", output="no", status="error", duration_ms=50),
        ],
    )
    return session.commit()["task_id"]


def with_model(fleet: Processes, api: MessagesApi, *workers: str) -> list[subprocess.Popen[str]]:
    settings = {
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": "any",
        # Without probes, so that each request is one of the job's own.
        "RUNEKEEP_EXTRACTOR_STRUCTURED_OUTPUT": "on",
        "RUNEKEEP_EXTRACTOR_TOOLS": "on",
    }
    return [fleet.extractor(worker, "--concurrency", "1", **settings) for worker in workers]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([], id="structured-output"),
        pytest.param([tool_use(("ls", {"uri": "viking://user/memories"}))], id="tool-use"),
        pytest.param([overloaded(retry_after=0.01)], id="overload"),
        pytest.param([truncated()], id="truncated"),
        pytest.param([answer("I would rather not answer in JSON")], id="malformed"),
    ],
)
def test_the_commit_is_applied_whatever_comes_before_a_good_answer(fleet: Processes, before: list[Behaviour]) -> None:
    with MessagesApi() as api:
        api.script(*before)
        api.otherwise = answer(remembered)
        fleet.server(RUNEKEEP_BACKOFF_FIRST_SECONDS="0.1", RUNEKEEP_BACKOFF_MAX_SECONDS="0.2")
        with_model(fleet, api, "worker")
        with Client(fleet.address) as client:
            task = client.wait_task(talk(client), timeout=WAIT_SECONDS)
            assert task["status"] == "completed", fleet.log()
            assert task["result"]["extractor"]["engine"] == "anthropic"
            assert task["result"]["memories_extracted"] == {"preferences": 1, "tools": 1}
            assert "green tea" in client.read("viking://user/memories/preferences/Tea.md")
            usage = task["result"]["usage"]
            assert sum(entry["input_tokens"] for entry in usage) > 0
        assert len(api.requests) > len(before)


def test_what_a_model_claims_of_tools_is_not_counted(fleet: Processes) -> None:
    """One call of grep that ended well and one of ls that did not; the model tells of others."""

    def claimed(request: Request) -> dict[str, Any]:
        grep = {"tool_name": "grep", "total_calls": 50, "success_count": 70, "fail_count": 3, "best_for": "Text."}
        never = {"tool_name": "web_search", "total_calls": 4, "best_for": "Nothing that was called."}
        return {**remembered(request), "write_operations": [write("tools", grep), write("tools", never)]}

    with MessagesApi() as api:
        api.otherwise = answer(claimed)
        fleet.server()
        with_model(fleet, api, "worker")
        with Client(fleet.address) as client:
            session = client.session(session_id="chat")
            calls = [("grep", "completed", 40), ("ls", "error", None)]
            session.add_message(
                "assistant",
                [ToolPart(tool_id=name, tool_name=name, status=status, duration_ms=ms) for name, status, ms in calls],
            )
            session.add_message("user", [TextPart("Thanks.")])
            task = client.wait_task(session.commit()["task_id"], timeout=WAIT_SECONDS)
            assert task["status"] == "completed", fleet.log()
            assert [one["reason"] for one in task["result"]["skipped"]] == ["not_in_records"]
            assert task["result"]["memories_extracted"] == {"tools": 2}
            grep, ls = (client.read(f"viking://user/memories/tools/{name}.md") for name in ("grep", "ls"))
            assert "Success rate: 100.0% (1 successful, 0 failed)" in grep and "Best for: Text." in grep
            assert "Success rate: 0.0% (0 successful, 1 failed)" in ls and "Avg time: unknown" in ls
        assert "total_calls" not in json.dumps(api.calls[0].body["system"]), "the model is not asked for counters"


def test_the_model_lists_hidden_documents_when_it_asks_for_them(fleet: Processes) -> None:
    """With the seed's argument of `ls` and `tree`. It then reads what a directory says of itself."""
    directory = "viking://user/memories/preferences"
    with MessagesApi() as api:
        api.otherwise = answer(remembered)
        fleet.server()
        with_model(fleet, api, "worker")
        with Client(fleet.address) as client:
            client.wait_task(talk(client), timeout=WAIT_SECONDS)
            before = len(api.calls)
            reads = tool_use(
                ("ls", {"uri": directory}),
                ("ls", {"uri": directory, "show_all_hidden": True}),
                ("tree", {"uri": "viking://user/memories", "show_all_hidden": True}),
                ("read", {"uri": f"{directory}/.overview.md"}),
            )
            api.script(reads)
            task = client.wait_task(talk(client, "chat2"), timeout=WAIT_SECONDS)
            assert task["status"] == "completed", fleet.log()
    shown = [block["content"] for block in api.calls[before + 1].body["messages"][-1]["content"]]
    assert [text.count("/preferences/.overview.md") for text in shown[:3]] == [0, 1, 1]
    assert [text.count("/preferences/.abstract.md") for text in shown[:3]] == [0, 1, 1]
    assert shown[3] == "- Tea: Drinks green tea in the morning."


def test_the_model_is_told_what_was_wrong_with_its_answers_and_all_that_they_cost_is_counted(fleet: Processes) -> None:
    """The first cannot be read: the next attempt knows of it. That one edits a memory that is not there: so does the
    repair."""

    def wrong(request: Request) -> dict[str, Any]:
        block = {"search": "coffee", "replace": "tea", "start_line": 0}
        edit = {"uri": "viking://user/memories/preferences/None.md", "ranges": [{"start": 1, "end": 1}], "reason": ""}
        patches = [{"field": "content", "blocks": [block], "value": None}]
        return {**remembered(request), "write_operations": [], "edit_operations": [{**edit, "patches": patches}]}

    with MessagesApi() as api:
        api.script(answer("I would rather not answer in JSON"), answer(wrong))
        api.otherwise = answer(remembered)
        fleet.server(RUNEKEEP_BACKOFF_FIRST_SECONDS="0.1", RUNEKEEP_BACKOFF_MAX_SECONDS="0.2")
        with_model(fleet, api, "worker")
        with Client(fleet.address) as client:
            task = client.wait_task(talk(client), timeout=WAIT_SECONDS)
        assert (task["status"], task["attempt"]) == ("completed", 2), fleet.log()
        assert task["result"] is not None and task["result"]["outcome"] == "applied"
        first, second, repair = api.calls
        assert "An earlier answer was not usable" not in first.last_text
        (told,) = [line for line in second.last_text.splitlines() if "An earlier answer was not usable" in line]
        assert "no JSON object" in told
        assert "# Repair" in repair.last_text and '"refused": "not_found"' in repair.last_text
        assert {one["phase"]: one["calls"] for one in task["result"]["usage"]} == {"operations": 2, "repair": 1}


def test_a_killed_extractor_loses_nothing_and_doubles_nothing(fleet: Processes) -> None:
    """The model's answer is held back; the process that waits for it is killed; another one does the job."""
    asked, release = threading.Event(), threading.Event()
    held_once = threading.Lock()

    def held(request: Request) -> Response:
        if held_once.acquire(blocking=False):
            asked.set()
            release.wait(WAIT_SECONDS)
        return answer(remembered)(request)

    with MessagesApi() as api:
        api.otherwise = held
        fleet.server(RUNEKEEP_LEASE_SECONDS="2", RUNEKEEP_HEARTBEAT_SECONDS="0.5", RUNEKEEP_FIRST_LEASE_SECONDS="2")
        workers = dict(zip(("one", "two"), with_model(fleet, api, "one", "two"), strict=True))
        try:
            with Client(fleet.address) as client:
                task_id = talk(client)
                assert asked.wait(WAIT_SECONDS), fleet.log()
                (holder,) = [name for name in workers if "job_started" in fleet.log(name)]
                workers[holder].send_signal(signal.SIGKILL)
                workers[holder].wait()
                task = client.wait_task(task_id, timeout=WAIT_SECONDS)
                assert task["status"] == "completed", fleet.log()
                assert task["lost_leases"] == 1
                assert task["result"]["revision"] == 1
                tools = client.get_memory("viking://user/memories/tools/web_search.md")
                assert tools["version"] == 1
                assert tools["fields"]["total_calls"] == 2
                assert tools["fields"]["success_count"] == 1
                assert len(list(client.versions("viking://user/memories/preferences/Tea.md"))) == 1
        finally:
            release.set()
