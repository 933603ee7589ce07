"""`runekeep history ...`: what people see, what is asked of them, and what is asked of the server."""

import json
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from runekeep import AsyncClient, FailedPreconditionError
from runekeep.cli.app import app
from runekeep.v1 import history_service_pb2 as wire
from runekeep.v1 import session_service_pb2
from tests.unit.runekeep.server_double import Refusal, ServerDouble

TEA = "viking://user/u/memories/preferences/Tea.md"
BREAD = "viking://user/u/memories/preferences/Bread.md"
ARCHIVE = f"viking://user/u/sessions/{'s' * 60}/history/archive_001"


def run(server: ServerDouble, *arguments: str, status: int = 0, stdin: str | None = None) -> Any:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    result = runner.invoke(app, ["history", *arguments, "--address", server.address], input=stdin)
    assert result.exit_code == status, result.output
    return result


def change(uri: str, before: str, after: str) -> session_service_pb2.MemoryChange:
    return session_service_pb2.MemoryChange(uri=uri, memory_type="preferences", before=before, after=after, version=3)


CHANGES = [change(BREAD, "", "Rye.\n"), change(TEA, "[b]two[/b]\nsame", "one\nsame")]


def answer(revision: int = 0, *conflicts: wire.RollbackConflict, changes: Any = CHANGES, **fields: Any) -> Any:
    return wire.RollbackRevisionResponse(revision=revision, changes=changes, conflicts=conflicts, **fields)


def conflict() -> wire.RollbackConflict:
    return wire.RollbackConflict(uri=TEA, revisions=[5, 7])


def asked(server: ServerDouble) -> list[tuple[int, bool, bool]]:
    return [(one.revision, one.preview, one.force) for one in server.requests("RollbackRevision")]


def test_a_rollback_is_shown_and_asked_about_before_it_is_made(server: ServerDouble) -> None:
    server.script("RollbackRevision", answer(), answer(9))
    told = run(server, "rollback", "4", stdin="y\n")
    assert asked(server) == [(4, True, False), (4, False, False)]
    assert f"new {BREAD}" in told.stdout and f"changed {TEA}" in told.stdout
    assert "-[b]two[/b]\n+one\n same" in told.stdout
    assert "2 memories are as before; revision 9." in told.stdout
    assert "Take back 4?" in told.stderr


def test_who_does_not_say_yes_changes_nothing(server: ServerDouble) -> None:
    server.script("RollbackRevision", answer())
    run(server, "rollback", "4", stdin="\n", status=1)
    assert asked(server) == [(4, True, False)]


def test_what_later_revisions_changed_is_told_and_needs_force(server: ServerDouble) -> None:
    server.script("RollbackRevision", answer(0, conflict()), answer(0, conflict()), answer(9, conflict()))
    told = run(server, "rollback", "4", stdin="y\n", status=1)
    assert f"{TEA} was changed later too, by revision 5, 7" in told.stdout
    assert "--force" in told.stderr
    assert "revision 9" in run(server, "rollback", "4", "--force", stdin="y\n").stdout
    assert asked(server) == [(4, True, False), (4, True, False), (4, False, True)]


def test_with_yes_the_server_decides(server: ServerDouble) -> None:
    refusal = Refusal(grpc.StatusCode.FAILED_PRECONDITION, "ROLLBACK_CONFLICT", "Since revision 4.")
    server.script("RollbackRevision", refusal)
    told = run(server, "rollback", "4", "--yes", status=1)
    assert asked(server) == [(4, False, False)]
    assert "Since revision 4" in told.stderr and "--preview" in told.stderr


def test_an_archive_is_named_by_its_uri(server: ServerDouble) -> None:
    server.script("RollbackRevision", answer(9))
    run(server, "rollback", ARCHIVE, "--yes")
    (request,) = server.requests("RollbackRevision")
    assert request.archive_uri == ARCHIVE and request.WhichOneof("target") == "archive_uri" and request.request_id


@pytest.mark.parametrize("options", [["--preview"], ["--yes"], []])
def test_nothing_to_take_back_is_said(server: ServerDouble, options: list[str]) -> None:
    server.script("RollbackRevision", answer(changes=[]))
    assert run(server, "rollback", "4", *options).stdout == "There is nothing to take back.\n"


def test_programs_get_the_preview_or_the_answer(server: ServerDouble) -> None:
    server.script("RollbackRevision", answer(0, conflict()), answer(), answer(9))
    planned = json.loads(run(server, "rollback", "4", "--preview", "--json").stdout)
    assert planned["conflicts"] == [{"uri": TEA, "revisions": [5, 7]}]
    assert planned["changes"][0] == {
        "uri": BREAD, "memory_type": "preferences", "before": "", "after": "Rye.\n", "version": 3, "shortened": False,
    }  # fmt: skip
    # The runner shows what was typed, too.
    told = run(server, "rollback", "4", "--json", stdin="y\n").stdout.splitlines()[-1]
    assert json.loads(told)["revision"] == 9


def test_a_diff_takes_numbers_and_times(server: ServerDouble) -> None:
    page = wire.DiffRevisionsResponse(changes=CHANGES[:1], from_revision=1, to_revision=4, next_page_token="t")
    rest = wire.DiffRevisionsResponse(changes=[change(TEA, "one", "")], from_revision=1, to_revision=4)
    server.script("DiffRevisions", page, rest, wire.DiffRevisionsResponse(to_revision=4))
    told = run(server, "diff", "1", "2026-05-04T16:00:00+00:00").stdout
    assert told.startswith("revision 1 to 4\n") and f"deleted {TEA}\n@@ -1 +0,0 @@\n-one" in told
    assert "Nothing is different." in run(server, "diff", "0").stdout
    first, second, third = server.requests("DiffRevisions")
    assert getattr(first, "from").revision == 1
    assert first.to.time.ToDatetime(UTC) == datetime(2026, 5, 4, 16, tzinfo=UTC)
    assert second.page_token == "t" and second.to == first.to
    assert not third.HasField("from") and not third.HasField("to")
    run(server, "diff", "yesterday", status=2)


def test_revisions_say_who_made_them_and_who_took_them_back(server: ServerDouble) -> None:
    listed = [
        wire.Revision(number=3, origin=wire.REVISION_ORIGIN_ROLLBACK, rolled_back=1, deletes=2),
        wire.Revision(number=2, origin=wire.REVISION_ORIGIN_CALLER, updates=1),
        wire.Revision(number=1, origin=wire.REVISION_ORIGIN_COMMIT, archive_uri=ARCHIVE, adds=2, rolled_back_by=3),
    ]
    server.script("ListRevisions", wire.ListRevisionsResponse(revisions=listed))
    text = " ".join(run(server, "list").stdout.split())
    assert "rollback of 1" in text and "caller" in text and "commit (taken back by 3)" in text
    # To be copied.
    assert f" {ARCHIVE}\n" in run(server, "list").stdout
    assert len(json.loads(run(server, "list", "--limit", "2", "--json").stdout)["revisions"]) == 2


def test_a_rollback_is_of_what_the_preview_showed(server: ServerDouble) -> None:
    moved = Refusal(grpc.StatusCode.ABORTED, "VERSION_MISMATCH", "The newest revision is 9, not 8.")
    server.script("RollbackRevision", answer(newest_revision=8), moved, answer(9))
    told = run(server, "rollback", "4", stdin="y\n", status=1)
    assert [one.expected_revision for one in server.requests("RollbackRevision")] == [0, 8]
    assert "is 9, not 8" in told.stderr and "Run the command again" in told.stderr
    assert "memory read" not in told.stderr
    run(server, "rollback", "4", "--yes")
    assert server.requests("RollbackRevision")[-1].expected_revision == 0


def test_programs_are_told_which_revisions_stand_in_the_way(server: ServerDouble) -> None:
    server.script("RollbackRevision", answer(0, conflict()))
    told = run(server, "rollback", "4", "--json", status=1)
    assert told.stdout == "" and f"{TEA} was changed later too, by revision 5, 7" in told.stderr


def test_texts_that_were_left_out_are_no_new_memories(server: ServerDouble) -> None:
    server.script("RollbackRevision", answer(changes=[change(TEA, "", "")], texts_omitted=True))
    told = run(server, "rollback", "4", "--preview").stdout
    assert f"changed {TEA}" in told and "Some texts are left out" in told and "history diff" in told


def test_before_the_first_revision_nothing_can_end(server: ServerDouble) -> None:
    for zero in ("0", "00"):
        told = run(server, "diff", "2", zero, status=2)
        assert "leave TO out for the current state" in " ".join(told.stderr.replace("│", "").split())
    assert not server.requests("DiffRevisions")


@pytest.mark.parametrize("command", [["rollback"], ["diff"], ["diff", "1"]])
def test_a_number_that_no_revision_has_is_refused_with_a_way_out(server: ServerDouble, command: list[str]) -> None:
    told = run(server, *command, "99999999999999999999", status=2)
    assert "run `runekeep history list` to see what exists" in " ".join(told.stderr.replace("│", "").split())


async def test_a_refused_rollback_is_an_exception(server: ServerDouble) -> None:
    server.script("RollbackRevision", Refusal(grpc.StatusCode.FAILED_PRECONDITION, "ROLLBACK_CONFLICT", "Changed."))
    async with AsyncClient(server.address) as client:
        with pytest.raises(FailedPreconditionError) as caught:
            await client.rollback(4)
    assert caught.value.reason == "ROLLBACK_CONFLICT"
