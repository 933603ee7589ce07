"""Taking back what a session changed: each of its revisions by a new one, all of them or none; on both stores."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import common_pb2, extractor_service_pb2, proposal_service_pb2, session_service_pb2
from runekeep.v1 import history_service_pb2 as pb
from runekeep_common import failpoints
from tests.support.callers import Caller, failure, policy, said
from tests.support.changes import put, remove, written
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, delete, edit, write

TEA = "viking://user/memories/preferences/Tea.md"
BREAD = "viking://user/memories/preferences/Bread.md"
Servers = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return either_store


@pytest.fixture
async def worker(channel: grpc.aio.Channel) -> AsyncIterator[Worker]:
    async with Worker(channel) as made:
        yield made


async def told(caller: Caller, worker: Worker, *operations: extractor_service_pb2.MemoryOperation) -> Any:
    """A finished commit of the session `talk` that makes these operations."""
    commit = await caller.committed(said("I like tea"), session="talk")
    verdict = await worker.deliver((await worker.take()).lease, *operations)
    assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_APPLIED, verdict
    return commit


async def in_talk(caller: Caller, review: int = 0) -> None:
    await caller.session(policy(types=["preferences"], review=review), session_id="talk")


async def rollback(caller: Caller, session: str = "talk", **fields: Any) -> Any:
    return await caller.history.RollbackSession(pb.RollbackSessionRequest(session=session, **fields))


async def one_rollback(caller: Caller, revision: int, **fields: Any) -> Any:
    return await caller.history.RollbackRevision(pb.RollbackRevisionRequest(revision=revision, **fields))


async def revisions(caller: Caller) -> list[Any]:
    return list((await caller.history.ListRevisions(pb.ListRevisionsRequest())).revisions)


async def texts(caller: Caller) -> dict[str, str]:
    """Every memory as it reads, by the name of its file."""
    entries = (await caller.listing(depth=16)).entries
    return {entry.uri.rsplit("/", 1)[1]: (await caller.read(entry.uri)).text for entry in entries if entry.memory_type}


def shown(answer: Any) -> list[tuple[str, str, str]]:
    return [(one.uri.rsplit("/", 1)[1], one.before, one.after) for one in answer.changes]


async def test_every_commit_is_taken_back_by_a_revision_the_newest_first(caller: Caller, worker: Worker) -> None:
    await in_talk(caller)
    await written(caller, put("preferences", topic="Bread", content="Rye."))
    await told(caller, worker, write("preferences", topic="Tea", content="Green."), edit(BREAD, content="Wheat."))
    await written(caller, put("preferences", topic="Jam", content="Plum."))
    await told(caller, worker, edit(TEA, content="Black."), delete(BREAD, ranges=((2, 2),)))
    waiting = await caller.committed(said("more"), session="talk")
    kept = await texts(caller)
    assert kept == {"Tea.md": "Black.", "Jam.md": "Plum."}

    preview = await rollback(caller, preview=True)
    assert shown(preview) == [("Bread.md", "", "Rye."), ("Tea.md", "Black.", "")]
    assert (preview.newest_revision, preview.open_commits, list(preview.revisions)) == (4, 1, [])
    assert not preview.conflicts and await texts(caller) == kept and len(await revisions(caller)) == 4

    done = await rollback(caller, expected_revision=4, request_id="r")
    assert (list(done.revisions), done.open_commits, done.newest_revision) == ([5, 6], 1, 0)
    assert done.changes == preview.changes
    assert await texts(caller) == {"Bread.md": "Rye.", "Jam.md": "Plum."}
    assert [(one.number, one.rolled_back, one.rolled_back_by) for one in await revisions(caller)] == [
        (6, 2, 0),
        (5, 4, 0),
        (4, 0, 5),
        (3, 0, 0),
        (2, 0, 6),
        (1, 0, 0),
    ]
    assert await rollback(caller, expected_revision=4, request_id="r") == done

    # What is taken back is not taken back again, and what was brought back is.
    assert not (again := await rollback(caller)).revisions and not again.changes
    assert (await one_rollback(caller, 6)).revision == 7
    assert list((await rollback(caller)).revisions) == [8]
    assert await texts(caller) == {"Bread.md": "Rye.", "Jam.md": "Plum."}
    assert (await caller.task(waiting.task_id)).archive_uri == waiting.archive_uri


async def test_what_others_changed_later_stands_in_the_way_unless_forced(caller: Caller, worker: Worker) -> None:
    await in_talk(caller)
    await told(caller, worker, write("preferences", topic="Tea", content="Green."))
    await written(caller, put("preferences", 1, topic="Tea", content="White."))
    await told(caller, worker, edit(TEA, content="Black."))
    await written(caller, put("preferences", 3, topic="Tea", content="Red."))
    uri, before = caller.uri("memories/preferences/Tea.md"), await texts(caller)

    failed = await failure(rollback(caller))
    assert failed.seen == ("FAILED_PRECONDITION", "ROLLBACK_CONFLICT")
    assert failed.preconditions == {uri: "changed by revisions 2, 4"}
    assert "the commits of session talk" in failed.message
    preview = await rollback(caller, preview=True)
    assert [(one.uri, list(one.revisions)) for one in preview.conflicts] == [(uri, [2, 4])]
    assert shown(preview) == [("Tea.md", "Red.", "")]
    assert await texts(caller) == before and len(await revisions(caller)) == 4

    assert list((await rollback(caller, force=True)).revisions) == [5, 6]
    assert not await texts(caller)


async def test_what_others_took_back_themselves_is_no_conflict(caller: Caller, worker: Worker) -> None:
    await in_talk(caller)
    await told(caller, worker, write("preferences", topic="Tea", content="Green."))
    await written(caller, put("preferences", 1, topic="Tea", content="White."))
    await one_rollback(caller, 2)
    await told(caller, worker, edit(TEA, content="Black."))
    assert list((await rollback(caller)).revisions) == [5, 6]
    assert not await texts(caller)


async def test_a_session_of_the_same_name_before_is_another_one(caller: Caller, worker: Worker) -> None:
    await in_talk(caller)
    await told(caller, worker, write("preferences", topic="Tea", content="Green."))
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session="talk"))
    assert (await failure(rollback(caller))).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    await in_talk(caller)
    await told(caller, worker, write("preferences", topic="Jam", content="Plum."))
    assert shown(await rollback(caller)) == [("Jam.md", "Plum.", "")]
    assert await texts(caller) == {"Tea.md": "Green."}


async def test_what_was_accepted_of_its_proposals_is_taken_back_too(caller: Caller, worker: Worker) -> None:
    await in_talk(caller, common_pb2.REVIEW_MODE_ALL)
    commit = await told(caller, worker, write("preferences", topic="Tea", content="Green."))
    assert not await texts(caller)
    await caller.proposals.AcceptProposal(proposal_service_pb2.AcceptProposalRequest(task_id=commit.task_id))
    assert await texts(caller) == {"Tea.md": "Green."}
    assert shown(await rollback(caller)) == [("Tea.md", "Green.", "")]
    assert not await texts(caller)


async def test_a_newer_revision_than_the_preview_showed_stops_it(caller: Caller, worker: Worker) -> None:
    await in_talk(caller)
    await told(caller, worker, write("preferences", topic="Tea", content="Green."))
    newest = (await rollback(caller, preview=True)).newest_revision
    await written(caller, put("preferences", topic="Jam", content="Plum."))
    await written(caller, remove(caller.uri("memories/preferences/Jam.md"), 1))
    failed = await failure(rollback(caller, expected_revision=newest))
    assert failed.seen == ("ABORTED", "VERSION_MISMATCH")
    assert await texts(caller) == {"Tea.md": "Green."}


async def test_a_server_that_dies_in_the_middle_has_taken_nothing_back(
    own_server: Servers, fresh_store: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "hits"
    process = own_server(fresh_store)
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        await in_talk(caller)
        async with Worker(channel) as worker:
            for text in ("Green.", "Black.", "White."):
                await told(caller, worker, write("preferences", topic=text, content=text))
        before = await texts(caller)
        assert len(before) == 3
    process.stop()
    armed = {"RUNEKEEP_FAILPOINT": f"{failpoints.APPLY_MID_OPERATIONS}:KILL:2", "RUNEKEEP_FAILPOINT_LOG": str(log)}
    process = own_server({**fresh_store, **armed})
    async with grpc.aio.insecure_channel(process.address) as channel:
        failed = await failure(rollback(Caller(channel, "ann"), request_id="r"))
        assert failed.code is grpc.StatusCode.UNAVAILABLE
    assert log.read_text().startswith(failpoints.APPLY_MID_OPERATIONS)
    process.discard()
    process = own_server(fresh_store)
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        assert await texts(caller) == before
        assert list((await rollback(caller, request_id="r")).revisions) == [4, 5, 6]
        assert not await texts(caller)
    process.stop()
