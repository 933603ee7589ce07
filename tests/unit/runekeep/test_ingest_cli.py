"""`runekeep ingest`: what is committed of a transcript, and what is told of it."""

import json
from pathlib import Path

import grpc

from runekeep.v1 import task_service_pb2
from tests.unit.runekeep.cli_answers import PROFILE, failed, run, watch
from tests.unit.runekeep.server_double import Refusal, ServerDouble


def chat_file(directory: Path) -> Path:
    file = directory / "chat.jsonl"
    lines = [
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
    assert "Nothing was sent" in run(full, "ingest", file, "--dry-run").stdout
    assert not full.calls


def test_ingest_waits_where_too_many_commits_are_open(full: ServerDouble, tmp_path: Path) -> None:
    answer = full._steps["CommitSession"][0]
    full._steps["CommitSession"].clear()
    full.script("CommitSession", Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "COMMIT_BACKLOG_FULL"), answer)
    run(full, "ingest", str(chat_file(tmp_path)), "--no-wait")
    assert len(full.requests("CommitSession")) == 3
    assert not full.requests("WatchTask")


def test_ingest_of_a_failed_commit_ends_with_1(full: ServerDouble, tmp_path: Path) -> None:
    full._steps["WatchTask"].clear()
    full.script("WatchTask", watch(4))
    result = run(full, "ingest", str(chat_file(tmp_path)), status=1)
    assert "failed" in result.stdout


def test_ingest_tells_how_a_commit_failed(full: ServerDouble, tmp_path: Path) -> None:
    full._steps["WatchTask"].clear()
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
