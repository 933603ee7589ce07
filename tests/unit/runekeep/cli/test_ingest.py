"""`runekeep ingest`: what is committed of a transcript, and what is told of it."""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import session_service_pb2, task_service_pb2
from tests.unit.runekeep.cli.cli_answers import PROFILE, failed, run, watch
from tests.unit.runekeep.server_double import Refusal, ServerDouble


def chat_file(directory: Path) -> Path:
    file = directory / "chat.jsonl"
    lines: list[dict[str, Any]] = [
        {"session": f"s{n // 150}"} if n % 150 == 0 else {"role": "user", "content": f"line {n}"} for n in range(300)
    ]
    lines.append({"used": {"contexts": [PROFILE]}})
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


def test_ingest_commits_every_session_and_tells_what_came_of_it(full: ServerDouble, tmp_path: Path) -> None:
    told = json.loads(run(full, "ingest", str(chat_file(tmp_path)), "--peers", "--user", "ann", "--json").stdout)
    assert (told["commits"], told["messages"], told["outcomes"]) == (2, 298, {"applied": 2})
    assert told["yielded_nothing"] == 0
    assert told["memories_extracted"] == {"profile": 2}
    assert [len(request.messages) for request in full.requests("AddMessages")] == [100, 49, 100, 49]
    assert [request.session for request in full.requests("CommitSession")] == ["s0", "s1"]
    assert all(request.memory_policy.peer.enabled for request in full.requests("CommitSession"))
    assert full.requests("RecordUsage")[0].context_uris == [PROFILE]
    assert {call.metadata["x-runekeep-user"] for call in full.calls} == {"ann"}


def test_a_dry_run_shows_what_the_file_would_become_and_sends_nothing(full: ServerDouble, tmp_path: Path) -> None:
    file = str(chat_file(tmp_path))
    shown = json.loads(run(full, "ingest", file, "--dry-run", "--user", "ann", "--json").stdout)
    assert shown["messages"] == 298
    assert [(one["session"], one["user"], one["messages"]) for one in shown["sessions"]] == [
        ("s0", "ann", 149),
        ("s1", "ann", 149),
    ]
    said = run(full, "ingest", file, "--dry-run").stdout
    assert "for the user of your key, or `default` if it names none. Nothing was sent" in said
    assert not full.calls


def test_a_dry_run_shows_whose_memory_it_becomes_and_what_has_no_text(
    server: ServerDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNEKEEP_USER", "robin")
    said = {"uuid": "m", "sender": "human", "text": "Hello"}
    file = tmp_path / "conversations.json"
    conversations = [{"uuid": "a", "chat_messages": [said]}, {"uuid": "b", "chat_messages": [{}, {}]}]
    file.write_text(json.dumps(conversations), encoding="utf-8")
    shown = json.loads(run(server, "ingest", str(file), "--dry-run", "--json").stdout)
    assert [(one["session"], one["user"], one["left_out"]) for one in shown["sessions"]] == [
        ("claude_a", "robin", 0),
        ("claude_b", "robin", 2),
    ]
    assert run(server, "ingest", str(file), "--dry-run").stdout.count("robin") == 1

    told = json.loads(run(server, "ingest", str(file), "--no-wait", "--json").stdout)
    assert (told["commits"], told["left_out_lines"]) == (1, 2)
    assert [request.session for request in server.requests("CommitSession")] == ["claude_a"]
    assert {call.metadata["x-runekeep-user"] for call in server.calls} == {"robin"}

    turn = {"speaker": "Ann", "dia_id": "D1:1", "text": "Hello"}
    session = {"session_1": [turn], "session_1_date_time": "1:56 pm on 8 May, 2023"}
    file.write_text(json.dumps([{"sample_id": name, "conversation": session} for name in ("c1", "c2")]))
    text = run(server, "ingest", str(file), "--dry-run").stdout
    assert "for 2 users" in text and text.count("c1") == text.count("c2") == 2


def test_a_message_that_differs_from_what_was_ingested_stays_and_is_counted(full: ServerDouble, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    lines = [{"role": "user", "content": f"line {n}", "id": f"m{n}"} for n in range(3)]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    conflict = Refusal(grpc.StatusCode.ALREADY_EXISTS, "MESSAGE_EXISTS")
    added = session_service_pb2.AddMessagesResponse()

    def script() -> None:
        full.steps["AddMessages"].clear()
        full.script("AddMessages", conflict, added, conflict, added)

    script()
    told = json.loads(run(full, "ingest", str(file), "--json").stdout)
    assert (told["conflicts"], told["details"][0]["conflicts"], told["commits"]) == (1, 1, 1)
    sent = [[message.id for message in request.messages] for request in full.requests("AddMessages")]
    assert sent == [["m0", "m1", "m2"], ["m0"], ["m1"], ["m2"]]
    script()
    text = " ".join(run(full, "ingest", str(file)).stdout.split())
    assert "1 message differs from what was ingested before and was kept as it was." in text


def test_ingest_waits_where_too_many_commits_are_open(full: ServerDouble, tmp_path: Path) -> None:
    answer = full.steps["CommitSession"][0]
    full.steps["CommitSession"].clear()
    full.script("CommitSession", Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "COMMIT_BACKLOG_FULL"), answer)
    run(full, "ingest", str(chat_file(tmp_path)), "--no-wait")
    assert len(full.requests("CommitSession")) == 3
    assert not full.requests("WatchTask")


def test_ingest_of_a_failed_commit_ends_with_1(full: ServerDouble, tmp_path: Path) -> None:
    full.steps["WatchTask"].clear()
    full.script("WatchTask", watch(4))
    result = run(full, "ingest", str(chat_file(tmp_path)), status=1)
    assert "failed" in result.stdout


def test_ingest_tells_how_a_commit_failed(full: ServerDouble, tmp_path: Path) -> None:
    full.steps["WatchTask"].clear()
    full.script("WatchTask", [task_service_pb2.WatchTaskResponse(ended=failed())])
    result = run(full, "ingest", str(chat_file(tmp_path)), "--json", status=1)
    told = json.loads(result.stdout)
    assert told["outcomes"] == {"unparseable": 2} and told["yielded_nothing"] == 0
    text = run(full, "ingest", str(chat_file(tmp_path)), status=1).stdout
    assert "unparseable" in text and "no JSON object" in " ".join(text.split())


def test_ingest_of_no_transcript_says_where(server: ServerDouble, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text("hello\n", encoding="utf-8")
    assert "line 1" in run(server, "ingest", str(file), status=1).stderr
    run(server, "ingest", str(tmp_path / "none.jsonl"), status=2)


@pytest.mark.parametrize("given", ["9" * 400, "[" * 200 + "]" * 200], ids=["large", "deep"])
def test_ingest_of_a_tool_call_that_cannot_be_sent_says_which(full: ServerDouble, tmp_path: Path, given: str) -> None:
    call = f'{{"type": "tool_use", "id": "c1", "name": "calendar", "input": {{"day": {given}}}}}'
    file = tmp_path / "chat.jsonl"
    file.write_text(f'{{"role": "assistant", "content": [{call}]}}\n', encoding="utf-8")
    result = run(full, "ingest", str(file), status=1)
    assert "c1" in result.stderr and "Traceback" not in result.stderr
