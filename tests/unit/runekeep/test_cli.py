"""Commands: JSON on stdout alone, errors on stderr with the right status."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import typer.main
from typer.testing import CliRunner

from runekeep.cli.app import app
from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2, task_service_pb2
from tests.unit.runekeep.server_double import Refusal, ServerDouble

ARCHIVE = "viking://user/u/sessions/s1/history/archive_001"
PROFILE = "viking://user/u/memories/profile.md"
LONG = "Who [x] is, where they live, what they do for a living, and much more than one line of a terminal can show."


def run(server: ServerDouble, *arguments: str, status: int = 0, address: bool = True) -> Any:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    target = ["--address", server.address] if address else []
    result = runner.invoke(app, [*arguments, *target])
    assert result.exit_code == status, result.output
    return result


def used(phase: str, model: str) -> common_pb2.TokenUsage:
    return common_pb2.TokenUsage(
        phase=phase, model=model, calls=12, input_tokens=1_234_567, cache_read_tokens=765_432, output_tokens=98_765
    )


def task(state: int = 3) -> task_service_pb2.Task:
    result = task_service_pb2.CommitResult(
        outcome=1,
        memories_extracted={"profile": 1},
        total_adds=1,
        revision=4,
        extractor=common_pb2.ExtractorInfo(engine="offline", model="minilm"),
        rejected=[
            task_service_pb2.LeftOut(
                reason="patch_not_applicable",
                memory_type="experiences",
                uri="viking://user/u/memories/preferences/Tea.md",
                message="content: the text of block 2 does not occur in the field",
            )
        ],
        dropped_items=2,
        counts_by_type={
            "profile": task_service_pb2.TypeCounts(adds=1, unchanged=1234),
            "session_skills": task_service_pb2.TypeCounts(updates=17, deletes=5, skipped=3, rejected=1),
        },
        usage=[used("operations", "some-provider-model-2026-01-31"), used("repair", "m")],
    )
    done = state == 3
    return task_service_pb2.Task(
        task_id="t1", state=state, session="s1", archive_uri=ARCHIVE, attempt=1, result=result if done else None
    )


def record() -> task_service_pb2.GetExtractionRecordResponse:
    """An attempt that failed, and one that was applied."""
    call = common_pb2.ModelCall(
        phase="operations", model="m", prompt_digest="ab" * 32, answer="[red]no JSON[/red]", stop_reason="end_turn"
    )
    attempts = [
        task_service_pb2.ExtractionAttempt(
            number=number,
            extractor=common_pb2.ExtractorInfo(engine="anthropic", model="m", version="2"),
            base_revision=3,
            type_digests={"profile": "cd" * 32},
            calls=[call],
        )
        for number in (1, 2)
    ]
    attempts[0].failure.message = "invalid_output: no JSON object"
    attempts[1].calls[0].answer = ""
    return task_service_pb2.GetExtractionRecordResponse(attempts=attempts)


def failed() -> task_service_pb2.Task:
    """A task whose attempts gave nothing that could be used."""
    ended = task(4)
    ended.error.message = "invalid_output: no JSON object"
    ended.result.outcome = task_service_pb2.COMMIT_OUTCOME_UNPARSEABLE
    ended.result.usage.append(used("operations", "m"))
    return ended


@pytest.fixture
def full(server: ServerDouble) -> ServerDouble:
    """A double with an answer for every call that a command makes."""
    session = session_service_pb2.Session(uri="viking://user/u/sessions/s1", session_id="s1", message_count=2)
    archive = session_service_pb2.Archive(uri=ARCHIVE, index=1, state=2, task_id="t1", revision=4)
    message = common_pb2.Message(id="m1", sequence=1, role=1, parts=[{"text": {"text": "[bold]hi[/bold]"}}])
    message.parts.add().tool.tool_name = "search"
    memory = memory_service_pb2.Memory(
        uri=PROFILE,
        memory_type="profile",
        content="# User profile\n[red]not markup[/red]",
        abstract=LONG,
        version=2,
        update_time={"seconds": 1_772_438_520},
        fields={"content": {"string_value": "x"}, "total_calls": {"int64_value": 2**60}},
        sources=[{"session": "s1", "message_id": "m1", "sequence": 1}],
    )
    entries = [
        memory_service_pb2.DirectoryEntry(uri="d", name="memories", directory=True, depth=1),
        memory_service_pb2.DirectoryEntry(
            uri=PROFILE, name="profile.md", depth=2, memory_type="profile", version=2, abstract=LONG
        ),
    ]
    change = session_service_pb2.MemoryChange(uri=PROFILE, memory_type="profile", before="a\n", after="b\n", version=2)
    diff = session_service_pb2.MemoryDiff(archive_uri=ARCHIVE, revision=4, updates=[change], adds=[change])
    field = memory_service_pb2.MemoryField(name="content", type=1, merge_op=1)
    server.script("GetSession", session_service_pb2.GetSessionResponse(session=session))
    server.script("ListSessions", session_service_pb2.ListSessionsResponse(sessions=[session]))
    server.script("ListArchives", session_service_pb2.ListArchivesResponse(archives=[archive]))
    server.script("ListMessages", session_service_pb2.ListMessagesResponse(messages=[message]))
    server.script(
        "CommitSession",
        session_service_pb2.CommitSessionResponse(status=1, task_id="t1", archive_uri=ARCHIVE, archived=True),
    )
    server.script("GetMemoryDiff", session_service_pb2.GetMemoryDiffResponse(diff=diff))
    server.script("GetTask", task_service_pb2.GetTaskResponse(task=task()))
    server.script("ListTasks", task_service_pb2.ListTasksResponse(tasks=[task(), task(1)]))
    server.script("CancelTask", task_service_pb2.CancelTaskResponse(task=task(5)))
    server.script("RetryTask", task_service_pb2.RetryTaskResponse(task=task(1)))
    server.script("WatchTask", watch(3))
    server.script("GetExtractionRecord", record())
    server.script(
        "GetUsage",
        task_service_pb2.GetUsageResponse(
            usage=[used("operations", "some-provider-model-2026-01-31")], daily_token_budget=3_000_000, spent_today=7
        ),
    )
    server.script("ListDirectory", memory_service_pb2.ListDirectoryResponse(uri="viking://user/u", entries=entries))
    server.script("ReadDocument", memory_service_pb2.ReadDocumentResponse(uri=PROFILE, text="# User [profile]\n"))
    server.script("GetMemory", memory_service_pb2.GetMemoryResponse(memory=memory))
    found = [{"memory": memory, "score": 0.5}, {"passage": {"uri": "p", "text": "Ann: [hi]"}, "score": 0.25}]
    server.script("FindMemories", memory_service_pb2.FindMemoriesResponse(results=found, degraded=["dense"]))
    server.script("ListMemoryVersions", memory_service_pb2.ListMemoryVersionsResponse(memories=[memory]))
    kind = memory_service_pb2.MemoryType(name="profile", operation_mode=1, fields=[field], enabled=True)
    server.script("ListMemoryTypes", memory_service_pb2.ListMemoryTypesResponse(memory_types=[kind]))
    gone = memory_service_pb2.DeleteUserResponse(sessions=2, memories=7, cancelled_tasks=1)
    server.script("DeleteUser", gone)
    server.script("WriteMemories", memory_service_pb2.WriteMemoriesResponse(revision=5, memories=[memory]))
    return server


def watch(state: int) -> list[Any]:
    progress = task_service_pb2.TaskProgress(phase=4, percent=50, message="writing")
    event = task_service_pb2.TaskEvent(sequence=1, progress=progress, attempt=1)
    responses = ({"snapshot": task(2)}, {"event": event}, {"ended": task(state)})
    return [task_service_pb2.WatchTaskResponse(**response) for response in responses]


COMMANDS = [
    ["session", "list"],
    ["session", "show", "s1"],
    ["session", "messages", "s1", "--all"],
    ["session", "commit", "s1"],
    ["session", "commit", "s1", "--wait"],
    ["session", "delete", "s1"],
    ["task", "list"],
    ["task", "show", "t1"],
    ["task", "cancel", "t1"],
    ["task", "retry", "t1"],
    ["task", "record", "t1"],
    ["usage"],
    ["usage", "--session", "s1"],
    ["usage", "--whole-account", "--since", "2026-01-31"],
    ["memory", "ls"],
    ["memory", "tree"],
    ["memory", "read", PROFILE],
    ["memory", "read", PROFILE, "--fields"],
    ["memory", "find", "anything", "--kind", "memory", "--filter", "entity_type=person"],
    ["memory", "diff", ARCHIVE],
    ["memory", "diff", "s1"],
    ["memory", "versions", PROFILE],
    ["memory", "types"],
    ["memory", "write", "profile", "content=x"],
    ["memory", "edit", PROFILE, "content=x"],
    ["memory", "delete", PROFILE],
    ["user", "delete", "u", "--yes"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_json_is_one_object_on_stdout_and_nothing_else(full: ServerDouble, command: list[str]) -> None:
    result = run(full, *command, "--json")
    assert isinstance(json.loads(result.stdout), dict)
    assert result.stderr == ""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_people_see_text_that_fits_and_is_never_read_as_markup(full: ServerDouble, command: list[str]) -> None:
    result = run(full, *command)
    assert result.stdout.strip()
    # Long names are on lines of their own, so that they can be copied whole.
    assert all(len(line) <= 80 or "viking://" in line or LONG in line for line in result.stdout.splitlines())
    if command[:2] == ["session", "messages"]:
        assert "[bold]hi[/bold]" in result.stdout
    if "--fields" in command:
        assert "[red]not markup[/red]" in result.stdout and str(2**60) in result.stdout


def test_a_long_abstract_leaves_room_for_names_and_versions(full: ServerDouble) -> None:
    listed = run(full, "memory", "ls").stdout.splitlines()
    assert "profile.md v2" in listed
    told = run(full, "memory", "versions", PROFILE).stdout
    assert told.split()[:7] == ["version", "revision", "when", "abstract", "2", "0", "2026-03-02"]


def test_no_live_messages_are_said_to_be_none(full: ServerDouble) -> None:
    full._steps["ListMessages"].clear()
    full.script("ListMessages", session_service_pb2.ListMessagesResponse())
    assert "--all" in run(full, "session", "messages", "s1").stdout


def test_a_document_reaches_a_pipe_to_the_letter(full: ServerDouble) -> None:
    full._steps["ReadDocument"].clear()
    text = f'{{"abstract": "{LONG}"}}\n'
    full.script("ReadDocument", memory_service_pb2.ReadDocumentResponse(uri=ARCHIVE, text=text))
    assert run(full, "memory", "read", f"{ARCHIVE}/memory_diff.json").stdout == text


def test_a_result_is_shown_in_full(full: ServerDouble) -> None:
    shown = [line.split() for line in run(full, "task", "show", "t1").stdout.splitlines()]
    assert ["type", "new", "changed", "deleted", "unchanged", "skipped", "rejected"] in shown
    assert ["profile", "1", "1234"] in shown
    assert ["session_skills", "17", "5", "3", "1"] in shown
    (reason,) = [line for line in shown if line[:2] == ["rejected", "patch_not_applicable"]]
    assert reason[2] == "experiences"
    text = " ".join(word for line in shown for word in line)
    assert "memories/preferences/Tea.md:" in text
    assert "2 items of the model's answer could not be read" in text
    assert ["repair", "m", "12", "1,234,567", "765,432", "98,765"] in shown


def test_a_failed_task_says_its_outcome_its_reason_and_its_cost(full: ServerDouble) -> None:
    full._steps["GetTask"].clear()
    full.script("GetTask", task_service_pb2.GetTaskResponse(task=failed()))
    full._steps["ListTasks"].clear()
    full.script("ListTasks", task_service_pb2.ListTasksResponse(tasks=[failed()]))
    text = run(full, "task", "show", "t1").stdout
    assert "unparseable: invalid_output: no JSON object" in text
    assert "765,432" in text and "revision" not in text
    listed = " ".join(run(full, "task", "list").stdout.split())
    assert "failed s1 unparseable: invalid_output: no JSON object" in listed
    told = json.loads(run(full, "task", "show", "t1", "--json").stdout)
    assert told["result"]["outcome"] == "unparseable"
    assert told["result"]["usage"][0]["input_tokens"] == 1_234_567


@pytest.mark.parametrize("command", [["usage"], ["task", "show", "t1"]], ids=" ".join)
def test_numbers_of_any_size_are_never_broken_over_lines(server: ServerDouble, command: list[str]) -> None:
    most = 98_765_432_109
    entry = common_pb2.TokenUsage(
        phase="operations", model="some-provider-model-2026-01-31", calls=1_234_567, input_tokens=most,
        cache_write_tokens=1, cache_read_tokens=most, output_tokens=most,
    )  # fmt: skip
    ended = task()
    ended.result.usage.insert(0, entry)
    server.script("GetUsage", task_service_pb2.GetUsageResponse(usage=[entry]))
    server.script("GetTask", task_service_pb2.GetTaskResponse(task=ended))
    (line,) = [line for line in run(server, *command).stdout.splitlines() if "98,765,432,110" in line]
    assert line.split()[-4:] == ["1,234,567", "98,765,432,109", "98,765,432,110", "98,765,432,109"]
    assert len(line) <= 80


def test_one_is_told_as_one(full: ServerDouble) -> None:
    told = []
    for number in (1, 2):
        ended = task()
        ended.result.duplicates = ended.result.secrets_withheld = ended.result.dropped_items = number
        full._steps["GetTask"].clear()
        full.script("GetTask", task_service_pb2.GetTaskResponse(task=ended))
        told.append(run(full, "task", "show", "t1").stdout)
    for one, many in (
        ("1 new memory was dropped: it says", "2 new memories were dropped: they say"),
        ("1 secret was taken out", "2 secrets were taken out"),
        ("1 item of", "2 items of"),
    ):
        assert one in told[0] and many in told[1]


def test_side_by_side(full: ServerDouble) -> None:
    assert "│" in run(full, "memory", "diff", ARCHIVE, "--side-by-side").stdout


def test_a_watch_prints_one_json_line_an_update(full: ServerDouble) -> None:
    lines = [json.loads(line) for line in run(full, "task", "watch", "t1", "--json").stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["snapshot", "progress", "ended"]


def test_a_watch_of_a_task_that_fails_ends_with_1(server: ServerDouble) -> None:
    server.script("WatchTask", watch(4))
    run(server, "task", "watch", "t1", "--json", status=1)


def test_an_error_goes_to_stderr_with_its_reason_and_what_to_do(server: ServerDouble) -> None:
    server.script("GetMemoryDiff", Refusal(grpc.StatusCode.FAILED_PRECONDITION, "COMMIT_NOT_FINISHED"))
    result = run(server, "memory", "diff", ARCHIVE, "--json", status=1)
    assert result.stdout == ""
    assert "COMMIT_NOT_FINISHED" in result.stderr
    assert "runekeep task watch" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["memory", "find", "x", "--kind", "thing"],
        ["task", "show"],
        ["memory", "find", "x", "--filter", "a"],
        ["memory", "write", "profile", "content"],
        ["memory", "write", "profile", "content=a", "content=b"],
        ["memory", "write", "profile", "content=a", "--content", "/etc/hostname"],
        ["memory", "write", "profile", "--content", "/no/such/file"],
        ["memory", "edit", PROFILE],
        ["memory", "edit", PROFILE, "--replace", "x"],
        ["memory", "edit", PROFILE, "content=a", "--search", "x"],
    ],
)
def test_wrong_usage_ends_with_2(server: ServerDouble, command: list[str]) -> None:
    assert run(server, *command, status=2).stdout == ""


def test_a_memory_is_written_from_fields_and_a_file(full: ServerDouble, tmp_path: Path) -> None:
    file = tmp_path / "tea.md"
    file.write_text("Likes tea.\n\nNo = sugar.\n", encoding="utf-8")
    place = ["--peer", "anna", "--base-version", "3", "--abstract", "Tea"]
    run(full, "memory", "write", "preferences", "topic=a=b", "--content", str(file), *place)
    (change,) = full.requests("WriteMemories")[0].changes
    assert {name: value.string_value for name, value in change.put.fields.items()} == {
        "topic": "a=b",
        "content": "Likes tea.\n\nNo = sugar.",
    }
    told = (change.put.memory_type, change.put.peer_id, change.put.abstract, change.base_version)
    assert told == ("preferences", "anna", "Tea", 3)


def test_an_edit_is_made_on_the_version_named_or_else_on_the_current_one(full: ServerDouble) -> None:
    run(full, "memory", "edit", PROFILE, "--search", "tea", "--replace", "coffee", "abstract=x", "--base-version", "7")
    run(full, "memory", "edit", PROFILE, "content=x")
    run(full, "memory", "delete", PROFILE)
    named, current, deleted = (request.changes[0] for request in full.requests("WriteMemories"))
    assert (named.base_version, current.base_version, deleted.base_version) == (7, 2, 2)
    value, blocks = named.edit.patches
    assert (value.field, value.value.string_value) == ("abstract", "x")
    assert (blocks.field, blocks.search_replace.blocks[0].search) == ("content", "tea")
    assert deleted.delete.uri == PROFILE


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from leaves(child, (*path, name))
    else:
        yield path, command


def test_every_command_has_json_and_says_what_it_does() -> None:
    found = dict(leaves(typer.main.get_command(app)))
    assert len(found) > 20
    for path, command in found.items():
        assert command.help, path
        if path in (("serve",), ("extractor",)):
            # They become the process itself, whose output is JSON lines or logs.
            continue
        assert any("--json" in parameter.opts for parameter in command.params), path


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


def test_a_user_is_deleted_only_when_the_caller_says_so_twice(full: ServerDouble) -> None:
    runner = CliRunner()
    command = ["user", "delete", "ann", "--user", "ann", "--json", "--address", full.address]

    refused = runner.invoke(app, command, input="n\n")
    assert refused.exit_code == 1
    assert full.requests("DeleteUser") == []

    agreed = runner.invoke(app, command, input="y\n")
    assert agreed.exit_code == 0
    assert json.loads(agreed.stdout.splitlines()[-1]) == {"sessions": 2, "memories": 7, "cancelled_tasks": 1}
    assert "Delete everything of ann?" in agreed.stderr
    (call,) = [call for call in full.calls if call.method == "DeleteUser"]
    assert (call.request.user, call.metadata["x-runekeep-user"]) == ("ann", "ann")
    assert call.request.request_id
    assert "2 sessions and 7 memories; 1 open task was cancelled" in run(full, "user", "delete", "ann", "--yes").stdout


def test_a_record_shows_attempts_calls_and_answers_as_they_are(full: ServerDouble) -> None:
    lines = [line.strip(" │├└─") for line in run(full, "task", "record", "t1").stdout.splitlines()]
    assert lines == [
        "attempt 1  failed",
        "invalid_output: no JSON object",
        "anthropic extractor 2 m; read at revision 3",
        "1 memory type",
        "profile  cdcdcdcdcdcd",
        "call 1  operations  m  end_turn  prompt abababababab",
        "[red]no JSON[/red]",
        "attempt 2  applied",
        "anthropic extractor 2 m; read at revision 3",
        "1 memory type",
        "profile  cdcdcdcdcdcd",
        "call 1  operations  m  end_turn  prompt abababababab",
        "the answer is not kept",
    ]
    told = json.loads(run(full, "task", "record", "t1", "--json").stdout)["attempts"]
    assert told[0]["calls"][0]["prompt_digest"] == "ab" * 32
    assert (told[0]["failure"]["message"], told[1]["failure"]) == ("invalid_output: no JSON object", None)


def test_usage_is_asked_for_whom_it_is_and_sums_tokens(full: ServerDouble) -> None:
    shown = run(full, "usage").stdout
    assert "2,098,764 tokens in all." in shown
    assert "The account spent 7 of 3,000,000 tokens today (UTC)." in shown
    run(full, "usage", "--session", "s1")
    run(full, "usage", "--whole-account", "--since", "2026-01-31")
    asked = full.requests("GetUsage")
    scopes = [task_service_pb2.UsageScope.Name(one.scope).removeprefix("USAGE_SCOPE_") for one in asked]
    assert scopes == ["UNSPECIFIED", "SESSION", "ACCOUNT"]
    assert [one.session_id for one in asked] == ["", "s1", ""]
    assert [one.start_time.ToJsonString() for one in asked if one.HasField("start_time")] == ["2026-01-31T00:00:00Z"]
    assert "two things" in run(full, "usage", "--session", "s1", "--whole-account", status=1).stderr


def test_where_no_model_was_called_usage_says_so(server: ServerDouble) -> None:
    shown = run(server, "usage").stdout
    assert "No model was called." in shown
    assert "The account spent 0 tokens today (UTC)." in shown
    assert "Nothing is recorded of this task." in run(server, "task", "record", "t1").stdout
