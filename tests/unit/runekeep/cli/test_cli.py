"""Commands: JSON on stdout alone, errors on stderr with the right status."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import typer.main
from typer.testing import CliRunner

from runekeep.cli.app import app
from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2, task_service_pb2
from tests.unit.runekeep.cli.cli_answers import ARCHIVE, LONG, PROFILE, failed, run, task, watch
from tests.unit.runekeep.server_double import Refusal, ServerDouble

COMMANDS = [
    ["session", "list"],
    ["session", "create", "s1", "--auto-commit-messages", "40"],
    ["session", "update", "s1", "--title", "Tea"],
    ["session", "show", "s1"],
    ["session", "messages", "s1", "--all"],
    ["session", "commit", "s1"],
    ["session", "commit", "s1", "--wait"],
    ["session", "delete", "s1"],
    ["session", "context", "s1"],
    ["recall", "anything", "--session", "s1", "--quota", "events=3", "--quota", "passages=2,300"],
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
    ["memory", "read", PROFILE, "--characters", "3:5", "--as-of", "2026-05-01"],
    ["memory", "glob", "**/*.md", "--as-of", "4"],
    ["memory", "grep", "x", "--context", "1"],
    ["memory", "grep", "x", "--count"],
    ["memory", "find", "anything", "--kind", "memory", "--filter", "entity_type=person"],
    ["memory", "find", "anything", "--why", "viking://user/memories/profile.md", "--type", "profile"],
    ["memory", "find", "anything", "--explain", "--since", "2026-01-31", "--as-of", "3"],
    ["memory", "diff", ARCHIVE],
    ["memory", "diff", "s1"],
    ["memory", "versions", PROFILE],
    ["memory", "types"],
    ["history", "list"],
    ["history", "list", PROFILE],
    ["history", "diff", "1", "4"],
    ["history", "diff", "0", "--below", PROFILE, "--side-by-side"],
    ["history", "rollback", "4", "--preview"],
    ["history", "rollback", ARCHIVE, "--yes"],
    ["history", "sources", "s1", "m1"],
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
    full.steps["ListMessages"].clear()
    full.script("ListMessages", session_service_pb2.ListMessagesResponse())
    assert "--all" in run(full, "session", "messages", "s1").stdout


def test_a_document_reaches_a_pipe_to_the_letter(full: ServerDouble) -> None:
    full.steps["ReadDocument"].clear()
    text = f'{{"abstract": "{LONG}"}}\n'
    full.script("ReadDocument", memory_service_pb2.ReadDocumentResponse(uri=ARCHIVE, text=text))
    assert run(full, "memory", "read", f"{ARCHIVE}/memory_diff.json").stdout == text


@pytest.mark.parametrize(
    ("state", "part", "error", "progress", "shown"),
    [
        (
            task_service_pb2.TASK_STATE_PENDING,
            "index",
            "dependency_unavailable: waiting for the index, which is away (FindForJob: UNAVAILABLE)",
            "reading",
            "waiting for the index, which is away (FindForJob: UNAVAILABLE)",
        ),
        (
            task_service_pb2.TASK_STATE_PENDING,
            "model",
            "rate_limited: the model server limits the rate",
            "",
            "waiting for the model: the model server limits the rate",
        ),
        (
            task_service_pb2.TASK_STATE_RUNNING,
            "blobs",
            "internal: an earlier one",
            "waiting for the blob store, which is away",
            "waiting for the blob store, which is away",
        ),
    ],
)
def test_what_a_task_waits_for_is_shown(
    full: ServerDouble, state: int, part: str, error: str, progress: str, shown: str
) -> None:
    waiting = task(state)
    waiting.waiting_for = part
    waiting.error.message = error
    waiting.progress.message = progress
    full.steps["GetTask"].clear()
    full.script("GetTask", task_service_pb2.GetTaskResponse(task=waiting))
    text = " ".join(run(full, "task", "show", "t1").stdout.split())
    assert f"{shown} viking://" in text


def test_a_result_is_shown_in_full(full: ServerDouble) -> None:
    shown = [line.split() for line in run(full, "task", "show", "t1").stdout.splitlines()]
    assert ["type", "new", "changed", "deleted", "unchanged", "skipped", "rejected", "held"] in shown
    assert ["profile", "1", "1234"] in shown
    assert ["session_skills", "17", "5", "3", "1"] in shown
    (reason,) = [line for line in shown if line[:2] == ["rejected", "patch_not_applicable"]]
    assert reason[2] == "experiences"
    text = " ".join(word for line in shown for word in line)
    assert "memories/preferences/Tea.md:" in text
    assert "2 items of the model's answer could not be read" in text
    assert ["repair", "m", "12", "1,234,567", "765,432", "98,765"] in shown


def test_a_commit_of_which_nothing_was_applied_says_so_and_what_it_left_out(full: ServerDouble) -> None:
    empty = task(3)
    empty.result.outcome = task_service_pb2.COMMIT_OUTCOME_NOTHING_APPLIED
    empty.result.skipped.add(reason="peer_not_in_batch", memory_type="entities", message="no message is of that peer")
    full.steps["GetTask"].clear()
    full.script("GetTask", task_service_pb2.GetTaskResponse(task=empty))
    text = " ".join(run(full, "task", "show", "t1").stdout.split())
    assert "completed nothing applied, 2 left out" in text and "peer_not_in_batch" in text
    assert " new" not in text.partition("left out")[0]


def test_a_failed_task_says_its_outcome_its_reason_and_its_cost(full: ServerDouble) -> None:
    full.steps["GetTask"].clear()
    full.script("GetTask", task_service_pb2.GetTaskResponse(task=failed()))
    full.steps["ListTasks"].clear()
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
        full.steps["GetTask"].clear()
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
        ["memory", "ls", "--as-of", "yesterday"],
        ["memory", "ls", "--as-of", str(2**63)],
        ["history", "diff", "1", "9" * 5000],
        ["memory", "read", PROFILE, "--characters", "3-5"],
        ["memory", "read", PROFILE, "--characters", "3", "--limit", "1"],
        ["task", "show"],
        ["memory", "find", "x", "--filter", "a"],
        ["memory", "find", "x", "--since", "spring"],
        ["memory", "find", "x", "--as-of", "spring"],
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


def test_a_search_is_narrowed_and_explained(server: ServerDouble) -> None:
    detail = memory_service_pb2.ScoreDetail(dense_rank=1)
    detail.parts.add(name="dense", value=0.61, added=6.1)
    detail.parts.add(name="fact", value=-1, added=-0.6)
    passage = {"message_id": "m1", "text": "Ann (8 May 2026): hello"}
    found = memory_service_pb2.FindMemoriesResponse(results=[{"passage": passage, "score": 5.5, "detail": detail}])
    server.script("FindMemories", found)

    narrow = ["--peer", "kim", "--peer", "", "--tag", "outdoors", "--session", "s1", "--as-of", "7"]
    times = ["--since", "2026-05-01T00:00:00Z", "--until", "2026-06-01T00:00:00+02:00"]
    drawn = run(server, "memory", "find", "hello", "--explain", *narrow, *times).stdout

    (asked,) = server.requests("FindMemories")
    assert (list(asked.peers), list(asked.tags), list(asked.sessions)) == (["kim", ""], ["outdoors"], ["s1"])
    assert (asked.start_time.ToJsonString(), asked.end_time.ToJsonString()) == (
        "2026-05-01T00:00:00Z",
        "2026-05-31T22:00:00Z",
    )
    assert (asked.as_of.revision, asked.explain) == (7, True)
    assert [line.split() for line in drawn.splitlines() if "+6.1" in line or "-0.6" in line] == [
        ["dense", "0.610", "+6.100"],
        ["fact", "-1.000", "-0.600"],
    ]
    assert max(map(len, drawn.splitlines())) <= 80


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


def test_nothing_of_an_extra_is_imported_before_it_is_asked_for() -> None:
    program = (
        "import sys, runekeep, runekeep.cli.app, runekeep.client.sync_client\n"
        "extras = {'runekeep.studio', 'starlette', 'jinja2', 'uvicorn', 'nh3', 'itsdangerous', 'runekeep.mcp', 'mcp'}\n"
        "print(extras & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"


def test_every_command_has_json_and_says_what_it_does() -> None:
    found = dict(leaves(typer.main.get_command(app)))
    assert len(found) > 20
    for path, command in found.items():
        assert command.help, path
        if path in (("serve",), ("extractor",), ("hook",)):
            # They become the process itself, whose output is JSON lines or logs, or print what an agent reads.
            continue
        assert any("--json" in parameter.opts for parameter in command.params), path


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
    assert "not both" in run(full, "usage", "--session", "s1", "--whole-account", status=1).stderr


def test_where_no_model_was_called_usage_says_so(server: ServerDouble) -> None:
    shown = run(server, "usage").stdout
    assert "No model was called." in shown
    assert "The account spent 0 tokens today (UTC)." in shown
    assert "Nothing is recorded of this task." in run(server, "task", "record", "t1").stdout


def test_lines_that_are_found_are_drawn_once_in_their_documents(server: ServerDouble) -> None:
    lines = [f"line {number}" for number in range(20)]

    def match(uri: str, number: int) -> memory_service_pb2.GrepMatch:
        before, after = lines[max(number - 2, 0) : number], lines[number + 1 : number + 3]
        return memory_service_pb2.GrepMatch(uri=uri, line=number, text=lines[number], before=before, after=after)

    found = [match("viking://a", number) for number in (0, 2, 3, 12)] + [match("viking://b", 5)]
    server.script("GrepDocuments", memory_service_pb2.GrepDocumentsResponse(matches=found))
    assert (
        run(server, "memory", "grep", "line", "-C", "2").stdout
        == """viking://a
1:line 0
2-line 1
3:line 2
4:line 3
5-line 4
6-line 5
--
11-line 10
12-line 11
13:line 12
14-line 13
15-line 14

viking://b
4-line 3
5-line 4
6:line 5
7-line 6
8-line 7

5 lines in 2 documents.
"""
    )
    assert run(server, "memory", "grep", "line", "--limit", "4", "-c").stdout == (
        "viking://a: 4\n4 lines in 1 document.\nThere are more lines; raise --limit.\n"
    )


def test_up_starts_nothing_if_the_address_of_the_studio_is_none() -> None:
    refused = CliRunner().invoke(app, ["up", "--studio", "nonsense"])
    assert refused.exit_code == 2 and "expected HOST:PORT" in refused.stderr
