"""Answers of a server that commands are tried against, and how they are run."""

from typing import Any

from typer.testing import CliRunner

from runekeep.cli.app import app
from runekeep.v1 import common_pb2, history_service_pb2, memory_service_pb2, session_service_pb2, task_service_pb2
from tests.unit.runekeep.server_double import ServerDouble

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


def script_all(server: ServerDouble) -> None:
    """An answer for every call that a command makes."""
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
    session.auto_commit.message_count = 40
    server.script("CreateSession", session_service_pb2.CreateSessionResponse(session=session))
    server.script("UpdateSession", session_service_pb2.UpdateSessionResponse(session=session))
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
    server.script("GlobDocuments", memory_service_pb2.GlobDocumentsResponse(uri="viking://user/u", entries=entries))
    hit = memory_service_pb2.GrepMatch(uri=PROFILE, line=3, text="[red]x[/red]", before=["before"], after=["after"])
    server.script("GrepDocuments", memory_service_pb2.GrepDocumentsResponse(matches=[hit]))
    server.script("ReadDocument", memory_service_pb2.ReadDocumentResponse(uri=PROFILE, text="# User [profile]\n"))
    server.script("GetMemory", memory_service_pb2.GetMemoryResponse(memory=memory))
    detail = {"dense_rank": 1, "parts": [{"name": "dense", "value": 0.05, "added": 0.5}]}
    found = [
        {"memory": memory, "score": 0.5, "detail": detail},
        {"passage": {"uri": "p", "text": "Ann: [hi]"}, "score": 0.25, "detail": detail},
    ]
    server.script("FindMemories", memory_service_pb2.FindMemoriesResponse(results=found, degraded=["dense"]))
    why = memory_service_pb2.ExplainSearchResponse(
        outcome=8, document=found[0], last=found[1], candidates=2, excluded_by=[], without_vector=True
    )
    server.script("ExplainSearch", why)
    told = f"## Memories\n- <{PROFILE}> (profile, as of 2026-01-31): Who [red]x[/red] is."
    server.script("Recall", memory_service_pb2.RecallResponse(text=told, tokens=34))
    server.script("ListMemoryVersions", memory_service_pb2.ListMemoryVersionsResponse(memories=[memory]))
    kind = memory_service_pb2.MemoryType(name="profile", operation_mode=1, fields=[field], enabled=True)
    server.script("ListMemoryTypes", memory_service_pb2.ListMemoryTypesResponse(memory_types=[kind]))
    made = history_service_pb2.Revision(
        number=4, origin=1, archive_uri=ARCHIVE, task_id="t1", adds=1, create_time={"seconds": 1_772_438_520},
        rolled_back_by=5,
    )  # fmt: skip
    back = history_service_pb2.Revision(number=5, origin=3, rolled_back=4, deletes=1)
    server.script("ListRevisions", history_service_pb2.ListRevisionsResponse(revisions=[back, made]))
    compared = history_service_pb2.DiffRevisionsResponse(changes=[change], from_revision=1, to_revision=4)
    server.script("DiffRevisions", compared)
    server.script("RollbackRevision", history_service_pb2.RollbackRevisionResponse(revision=5, changes=[change]))
    server.script("ListMessageMemories", history_service_pb2.ListMessageMemoriesResponse(memories=[memory]))
    gone = memory_service_pb2.DeleteUserResponse(sessions=2, memories=7, cancelled_tasks=1)
    server.script("DeleteUser", gone)
    server.script("WriteMemories", memory_service_pb2.WriteMemoriesResponse(revision=5, memories=[memory]))


def watch(state: int) -> list[Any]:
    progress = task_service_pb2.TaskProgress(phase=4, percent=50, message="writing")
    event = task_service_pb2.TaskEvent(sequence=1, progress=progress, attempt=1)
    responses = ({"snapshot": task(2)}, {"event": event}, {"ended": task(state)})
    return [task_service_pb2.WatchTaskResponse(**response) for response in responses]
