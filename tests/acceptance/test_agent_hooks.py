"""Hooks of coding agents before a real server: they recall into prompts and hand in conversations, once, and never hold
up the agent."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runekeep import Client, Message, TextPart, ToolPart
from tests.acceptance.processes import Processes, environment
from tests.support.agent_hooks import HOOK_SECONDS, TRANSCRIPTS, CodingAgent, deaf_server
from tests.support.waiting import until

WAIT_SECONDS = 90.0
NOWHERE = "127.0.0.1:1"


def claude_input(session: str, transcript: Path) -> dict[str, Any]:
    """The fields that all hooks of Claude Code get."""
    return {
        "session_id": session,
        "transcript_path": str(transcript),
        "cwd": "/home/anna/greenhouse",
        "permission_mode": "default",
    }


def texts(messages: list[Message]) -> list[str]:
    return [part.text for message in messages for part in message.parts if isinstance(part, TextPart)]


def wait_for_commits(client: Client, session: str) -> None:
    for task in client.list_tasks(session):
        assert client.wait_task(task["task_id"], timeout=WAIT_SECONDS)["status"] == "completed"


def test_claude_code_remembers_a_conversation_once_and_recalls_it_in_the_next(fleet: Processes, tmp_path: Path) -> None:
    fleet.server(RUNEKEEP_EMBEDDER="none")
    fleet.extractor("worker-1", "--engine", "offline")
    agent = CodingAgent("claude-code", tmp_path / "home", fleet.address)
    with Client(fleet.address, user="robin") as client:
        client.put_memory("preferences", {"topic": "Tea", "content": "Likes tea."})
    assert "Did you mean `robin`?" in agent.install("--user", "robbin").stdout
    assert agent.install().returncode == 0
    first = claude_input("first", TRANSCRIPTS / "claude_code.jsonl")
    assert agent.context("SessionStart", **first, source="startup", model="claude-fable-5") == ""
    assert agent.context("UserPromptSubmit", **first, prompt="I live in Ghent with my sister.") == ""
    for _ in range(2):
        agent.fire("Stop", **first, stop_hook_active=False)
        agent.settled()
    for _ in range(2):
        agent.fire("SessionEnd", **first, reason="prompt_input_exit")
        agent.settled()

    with Client(fleet.address, user="anna") as client:
        wait_for_commits(client, "claude-code-first")
        stored = list(client.get_session("claude-code-first").messages("all"))
        assert texts(stored) == [
            "I live in Ghent with my sister. Read the plan, please.",
            "I read the plan.",
            "The plan says to water the beans.",
        ]
        calls = [part for message in stored for part in message.parts if isinstance(part, ToolPart)]
        assert [(call.tool_name, call.status, call.output) for call in calls] == [
            ("Read", "completed", "Water the beans."),
            ("mcp__runekeep__memory_recall", "completed", ""),
        ]
        assert len(list(client.get_session("claude-code-first").archives())) == 1
        client.find("Ghent", min_revision=client.get_memory("viking://user/memories/profile.md")["revision"])

    second = claude_input("second", tmp_path / "not-written-yet.jsonl")
    begun = agent.context("SessionStart", **second, source="startup", model="claude-fable-5")
    assert begun.startswith("<runekeep-memory>") and begun.endswith("</runekeep-memory>") and "Ghent" in begun
    asked = {**second, "prompt": "In which town do I live, is it Ghent?"}
    assert "Ghent" in agent.context("UserPromptSubmit", **asked)
    assert "failed" not in agent.log() and "no memory" not in agent.log()
    # The log quotes nobody.
    assert "Ghent" not in agent.log()


def test_while_the_server_is_away_nothing_is_held_up_and_nothing_is_lost(fleet: Processes, tmp_path: Path) -> None:
    server = fleet.server(RUNEKEEP_EMBEDDER="none")
    server.stop()
    agent = CodingAgent("claude-code", tmp_path / "home", fleet.address)
    assert agent.install().returncode == 0
    first = claude_input("first", TRANSCRIPTS / "claude_code.jsonl")
    assert agent.context("SessionStart", **first, source="startup") == ""
    assert agent.context("UserPromptSubmit", **first, prompt="Where do I live?") == ""
    agent.fire("SessionEnd", **first, reason="other")
    assert re.search("SessionStart: no memory: (UNAVAILABLE|TimeoutError)", agent.log())
    assert len(agent.state.spooled()) == 1
    assert {os.stat(path).st_mode & 0o077 for path in (agent.state.log_file, *agent.state.spooled())} == {0}

    server.start(fleet.address)
    agent.fire("SessionStart", **claude_input("second", tmp_path / "none.jsonl"), source="startup")
    agent.settled()
    with Client(fleet.address, user="anna") as client:
        assert len(texts(list(client.get_session("claude-code-first").messages("all")))) == 3
        assert len(list(client.get_session("claude-code-first").archives())) == 1


def test_a_hook_hands_in_nothing_of_another_user(fleet: Processes, tmp_path: Path) -> None:
    fleet.server(RUNEKEEP_EMBEDDER="none")
    agent = CodingAgent("claude-code", tmp_path / "home", fleet.address)
    assert agent.install().returncode == 0
    waiting = {"hook_event_name": "Stop", **claude_input("of-anna", TRANSCRIPTS / "claude_code.jsonl")}
    agent.state.put(json.dumps({"agent": "claude-code", "input": json.dumps(waiting)}))
    agent.fire("Stop", "--user", "ben", **claude_input("of-ben", TRANSCRIPTS / "claude_code.jsonl"))
    until(lambda: "of-ben handed in" in agent.log())
    assert len(agent.state.spooled()) == 1
    agent.fire("SessionStart", **claude_input("next", tmp_path / "none.jsonl"), source="startup")
    agent.settled()
    for user in ("anna", "ben"):
        with Client(fleet.address, user=user) as client:
            assert [session["session_id"] for session in client.list_sessions()] == [f"claude-code-of-{user}"]


def test_a_hook_ends_well_with_a_server_that_hangs_bad_input_or_input_that_never_ends(tmp_path: Path) -> None:
    with deaf_server() as address:
        agent = CodingAgent("claude-code", tmp_path / "home", address)
        assert agent.install().returncode == 0
        assert agent.context("UserPromptSubmit", **claude_input("one", tmp_path / "none"), prompt="Hello?") == ""
    assert agent.fire("Stop") is None
    assert "session_id is missing" in agent.log()
    # Claude Code takes the status 2 as an order to stop.
    assert agent.fire("Stop", "--prompt-budget", "10", "--unknown") is None
    assert "wrong usage" in agent.log()
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    process = subprocess.Popen(
        [sys.executable, "-m", "runekeep", "hook", "claude-code"],
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.wait(HOOK_SECONDS) == 0
    assert process.stdout.read() == ""
    process.stdin.close()
    process.stdout.close()


def test_codex_and_cursor_hand_in_what_was_said(fleet: Processes, tmp_path: Path) -> None:
    fleet.server(RUNEKEEP_EMBEDDER="none")
    with Client(fleet.address, user="anna") as client:
        client.put_memory("profile", {"content": "# User profile\n\nAnna keeps bees."})
    codex = CodingAgent("codex", tmp_path / "codex", fleet.address)
    assert "codex_hooks = true" in codex.install().stdout
    one = {**claude_input("one", TRANSCRIPTS / "codex.jsonl"), "model": "gpt-6"}
    assert "Anna keeps bees." in codex.context("SessionStart", **one, source="startup")
    for _ in range(2):
        assert codex.fire("Stop", **one, turn_id="t1", stop_hook_active=False, last_assistant_message="Good.") is None
        codex.settled()

    cursor = CodingAgent("cursor", tmp_path / "cursor", fleet.address)
    assert cursor.install().returncode == 0
    shared = {"conversation_id": "two", "generation_id": "g1", "workspace_roots": ["/home/anna/greenhouse"]}
    begun = cursor.fire("sessionStart", **shared, session_id="two")
    assert "Anna keeps bees." in begun["additional_context"]
    assert cursor.fire("beforeSubmitPrompt", **shared, prompt="Which tea?", attachments=[]) == {"continue": True}
    assert cursor.fire("afterAgentResponse", **shared, text="Green tea.") == {}
    assert cursor.fire("sessionEnd", **shared, session_id="two", reason="completed") == {}
    cursor.settled()

    with Client(fleet.address, user="anna") as client:
        of_codex = list(client.get_session("codex-one").messages("all"))
        assert texts(of_codex) == ["I live in Ghent with my sister.", "Good to know."]
        assert client.get_session("codex-one").info()["auto_commit"] is not None
        of_cursor = list(client.get_session("cursor-two").messages("all"))
        assert [message.role for message in of_cursor] == ["user", "assistant"]
        assert texts(of_cursor) == ["Which tea?", "Green tea."]
        assert len(list(client.get_session("cursor-two").archives())) == 1


OTHERS: dict[str, Any] = {
    "claude-code": {
        "model": "opus",
        "hooks": {
            "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
            "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}],
        },
    },
    "codex": {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}},
    "cursor": {"version": 1, "hooks": {"stop": [{"command": "say done"}], "sessionStart": [{"command": "greet"}]}},
}


@pytest.mark.parametrize("name", OTHERS)
def test_remove_deletes_an_empty_settings_file(name: str, tmp_path: Path) -> None:
    agent = CodingAgent(name, tmp_path, NOWHERE)
    assert agent.install("--remove").returncode == 0 and not agent.settings_file.exists()
    assert agent.install().returncode == 0 and agent.settings_file.exists()
    assert agent.install("--remove").returncode == 0 and not agent.settings_file.exists()
    # A symbolic link is kept: its target may be under version control.
    kept = tmp_path / "kept.json"
    kept.write_text("{}")
    agent.settings_file.symlink_to(kept)
    assert agent.install().returncode == 0 and "hook" in kept.read_text()
    assert agent.install("--remove").returncode == 0
    assert agent.settings_file.is_symlink() and "hook" not in kept.read_text()
    agent.settings_file.unlink()
    agent.settings_file.write_text('{"hooks": null}')
    assert agent.install("--remove").returncode == 0 and agent.settings_file.exists()


@pytest.mark.parametrize("name", OTHERS)
def test_install_and_remove_leave_other_entries_alone(name: str, tmp_path: Path) -> None:
    agent = CodingAgent(name, tmp_path, NOWHERE)
    agent.settings_file.parent.mkdir()
    agent.settings_file.write_text(json.dumps(OTHERS[name], indent=2) + "\n")
    before = agent.settings_file.read_text()
    assert agent.install().returncode == 0
    installed = agent.settings_file.read_text()
    assert "say done" in installed and f"hook {name}" in installed
    assert agent.install("--user", "anna").returncode == 0
    again = agent.settings_file.read_text()
    assert again.count(f" hook {name}") == installed.count(f" hook {name}") == again.count("--user anna") > 2
    assert agent.install("--remove").returncode == 0
    assert agent.settings_file.read_text() == before

    # `null` is as good as nothing, and a command that only mentions ours is not ours.
    mentions = {"type": "command", "command": f"echo runekeep hook {name}"}
    settings = {"hooks": {agent.events[0]: None, "Other": [{"hooks": [mentions]}]}, "odd": "\ud800"}
    agent.settings_file.write_text(json.dumps(settings))
    installed_again = agent.install()
    assert installed_again.returncode == 0 and "Memory cannot be reached now" in installed_again.stdout
    assert agent.install("--remove").returncode == 0
    left = json.loads(agent.settings_file.read_text())
    assert left["hooks"] == {"Other": [{"hooks": [mentions]}]} and left["odd"] == "\ud800"
    assert list(agent.settings_file.parent.iterdir()) == [agent.settings_file]

    agent.settings_file.write_text("{ // a comment\n}")
    refused = agent.install()
    assert refused.returncode == 1 and "nothing was changed" in refused.stderr
    assert agent.settings_file.read_text() == "{ // a comment\n}"
