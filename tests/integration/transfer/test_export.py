"""A space exported, deleted and imported is the same space: everything that the API says of it, before and after."""

import json
import random
from collections.abc import AsyncIterator, Callable, Iterator

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import extractor_service_pb2 as work_pb
from runekeep.v1 import memory_service_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import space_service_pb2 as pb
from tests.integration.conftest import CHANNEL_OPTIONS, Callers
from tests.support.callers import Caller, failure, said, unique
from tests.support.exports import differences, entries, everything, exported, imported, lived, packed, spaces
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

Servers = Callable[..., ServerProcess]
NOTHING = pb.SpaceContents()


@pytest.fixture
def postgres(postgres_server: PostgresServer, own_server: Servers) -> Iterator[ServerProcess]:
    """A server on an empty PostgreSQL."""
    name = postgres_server.create()
    process = own_server({"RUNEKEEP_STORE_URL": postgres_server.url(name)}, "postgres")
    yield process
    process.stop()
    postgres_server.drop(name)


@pytest.fixture
async def elsewhere(postgres: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(postgres.address, options=CHANNEL_OPTIONS) as channel:
        yield channel


def delete(caller: Caller) -> memory_service_pb2.DeleteUserRequest:
    return memory_service_pb2.DeleteUserRequest(user=caller.user)


@pytest.mark.parametrize("how", ["deleted", "erased"])
async def test_a_space_that_is_gone_comes_back_whole(caller: Caller, how: str) -> None:
    await lived(caller)
    before = await everything(caller)
    archive = await exported(caller)
    if how == "deleted":
        await caller.memories.DeleteUser(delete(caller))
    else:
        await erased(caller)

    answer = await imported(caller, archive)

    assert answer.revision_offset > 0
    assert not (found := differences(before, await everything(caller, answer.revision_offset))), "\n".join(found)


async def test_what_a_task_waits_for_and_what_it_left_out_come_along(
    caller: Caller, channel: grpc.aio.Channel, callers: Callers
) -> None:
    session = await caller.session()
    for text in ("tea", "more tea", "still more"):
        await caller.committed(said(text), session=session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.deliver(lease, summary="Tea.", skipped_rules={"dates": 2})
        stranger = write("preferences", topic="Tea", content="Likes tea.", peer="dora")
        await worker.deliver((await worker.take()).lease, stranger, summary="Tea.")
        lease = (await worker.take()).lease
        progress = task_service_pb2.TaskProgress(percent=5, message="waiting for the index", waiting_for="index")
        await worker.send(progress=work_pb.JobProgress(lease=lease, progress=progress))
        await worker.fail(
            lease, work_pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE, waiting_for="blobs", retry_after=Duration(seconds=3600)
        )
    other = callers()
    await imported(other, await exported(caller))
    waiting, empty, done = (await other.tasks.ListTasks(task_service_pb2.ListTasksRequest())).tasks
    assert done.result.skipped_rules == {"dates": 2}
    assert empty.result.outcome == task_service_pb2.COMMIT_OUTCOME_NOTHING_APPLIED
    assert [one.reason for one in empty.result.skipped] == ["peer_not_in_batch"]
    assert (waiting.waiting_for, waiting.progress.waiting_for) == ("blobs", "index")


async def erased(caller: Caller) -> None:
    """Everything of the user; what nobody can read any more may still be on its way out."""
    metadata = (("x-runekeep-account", caller.account), ("x-runekeep-user", caller.user))
    await spaces(caller).EraseData(pb.EraseDataRequest(user=caller.user), metadata=metadata)


async def test_another_user_gets_the_same_space(callers: Callers) -> None:
    first, second = callers(), callers()
    one = await lived(first)
    before = await everything(first)

    answer = await imported(second, await exported(first))

    assert (answer.revision_offset, answer.revision) == (0, max(one.revisions) + 4)
    assert not (found := differences(before, await everything(second))), "\n".join(found)
    # The work that was open is done by either for itself.
    assert not (found := differences(before, await everything(first))), "\n".join(found)


async def test_there_and_back_between_two_kinds_of_store(
    caller: Caller, elsewhere: grpc.aio.Channel, own_server: Servers
) -> None:
    """From SQLite to PostgreSQL and to SQLite again: the same answers, and byte for byte the same export but for when
    it was made."""
    await lived(caller)
    before, archive = await everything(caller), await exported(caller)
    there = Caller(elsewhere, caller.user, caller.account)

    answer = await imported(there, archive, piece=100_000)

    assert answer.contents == pb.SpaceContents(
        sessions=3, messages=15, archives=5, memories=7, memory_versions=11, turns=4, turn_artifacts=8, blobs=5, tasks=7
    )
    assert not (found := differences(before, await everything(there))), "\n".join(found)
    second = await exported(there)
    assert_same(archive, second)
    process = own_server({}, "back")
    async with grpc.aio.insecure_channel(process.address, options=CHANNEL_OPTIONS) as channel:
        back = Caller(channel, caller.user, caller.account)
        await imported(back, second, piece=7)
        assert not (found := differences(before, await everything(back))), "\n".join(found)
        assert_same(archive, await exported(back))
    process.stop()


def assert_same(first: bytes, second: bytes) -> None:
    """Entry by entry, but for the time of the export and the digest of it all."""
    one, other = entries(first), entries(second)
    assert list(one) == list(other)
    manifests = [json.loads(of.pop("manifest.json")) for of in (one, other)]
    for of in (one, other):
        del of["checksums.json"]
    assert all(manifest.pop("export_time") for manifest in manifests)
    assert manifests[0] == manifests[1]
    assert [name for name in one if one[name] != other[name]] == []


async def test_a_person_can_open_it(caller: Caller) -> None:
    await lived(caller)
    files = entries(await exported(caller))

    assert files["memories/preferences/Tea.md"].decode() == "Likes black tea."
    assert b"<!-- MEMORY_FIELDS" in files["memories/tools/grep.md"]
    assert files["peers/bo/memories/entities/Bo.md"].decode() == "Drinks coffee."
    assert "memories/preferences/Music.md" not in files
    folder = "sessions/talk/history/archive_001"
    assert files[f"{folder}/.abstract.md"].decode() == "What was said of tea"
    assert json.loads(files[f"{folder}/memory_diff.json"])["summary"]["total_adds"] == 6
    lines = files[f"{folder}/messages.jsonl"].decode().splitlines()
    assert [json.loads(line)["message_id"] for line in lines] == ["m1", "m2", "m3", "m4", "m5"]
    live = [json.loads(line) for line in files["sessions/talk/messages.jsonl"].decode().splitlines()]
    assert [line["message_id"] for line in live] == ["live-1", "live-2"]
    tool = json.loads(files["sessions/talk/tools/call-1/tool.json"])
    assert tool["length"] == 51_000
    output = f"sessions/talk/tools/call-1/{tool['output']}".replace("tools/call-1/../../", "")
    assert files[output].decode() == "a line of output\n" * 3000
    manifest = json.loads(files["manifest.json"])
    assert (manifest["user"], manifest["version"], manifest["counts"]["messages"]) == (caller.user, 1, 15)
    assert caller.account not in files["manifest.json"].decode()
    assert [next(iter(files)), list(files)[-1]] == ["manifest.json", "checksums.json"]


async def test_a_user_who_has_nothing_has_an_empty_export(callers: Callers) -> None:
    first, second = callers(), callers()
    answer = await imported(second, await exported(first))
    assert (answer.contents, answer.revision, answer.revision_offset) == (NOTHING, 0, 0)
    await second.session(session_id="begins")


async def test_open_work_goes_on_behind_the_import(callers: Callers) -> None:
    """What waited is extracted, what was given up can be tried again, and nobody's lease comes along."""
    first, second = callers(), callers()
    one = await lived(first)
    async with Worker(first.channel) as worker:
        held = await worker.take()
        assert held.task_id == one.pending
        await imported(second, await exported(first))
        # Ids of jobs are known to workers by themselves, and these are taken.
        tasks = await second.tasks.ListTasks(task_service_pb2.ListTasksRequest(session="talk"))
        assert one.pending not in [task.task_id for task in tasks.tasks]
        (open_,) = [task for task in tasks.tasks if task.state == task_service_pb2.TASK_STATE_PENDING]
        (lost,) = [task for task in tasks.tasks if task.state == task_service_pb2.TASK_STATE_FAILED]
        job = await worker.take()
        assert job.task_id == open_.task_id
        messages = (await worker.input(job.lease)).messages
        assert [message.id for message in messages] == ["last-archived"]
        assert (await worker.deliver(job.lease, summary="Who?")).outcome == work_pb.JOB_OUTCOME_APPLIED
        await second.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=lost.task_id))
        job = await worker.take()
        assert job.task_id == lost.task_id
        assert (await worker.deliver(job.lease, summary="Luck")).outcome == work_pb.JOB_OUTCOME_APPLIED
        assert [update.WhichOneof("update") for update in await second.watch(lost.task_id)][-1] == "ended"
        assert (await worker.deliver(held.lease, summary="First")).outcome == work_pb.JOB_OUTCOME_APPLIED
    ended = await second.watch(next(task for task in tasks.tasks if task.state == 3).task_id)
    assert [update.WhichOneof("update") for update in ended] == ["snapshot", "ended"]


async def test_an_import_needs_a_user_who_has_nothing(caller: Caller) -> None:
    archive = await exported(caller)
    await caller.session(session_id="s")
    refused = await failure(imported(caller, archive))
    assert refused.seen == ("FAILED_PRECONDITION", "SPACE_NOT_EMPTY")
    assert (await caller.sessions.ListSessions(session_service_pb2.ListSessionsRequest())).sessions


async def test_the_answer_to_a_finished_import_is_given_again(caller: Caller, callers: Callers) -> None:
    other = callers()
    await other.add(await other.session(session_id="s"), said("hello"))
    archive = await exported(other)
    first = await imported(caller, archive, request_id="once")
    await caller.add("s", said("more"))
    assert await imported(caller, b"anything", request_id="once") == first
    assert (await failure(imported(caller, archive, request_id="twice"))).reason == "SPACE_NOT_EMPTY"
    await caller.memories.DeleteUser(delete(caller))
    assert (await failure(imported(caller, archive, request_id="once"))).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    assert (await imported(caller, archive, request_id="anew")).contents.messages == 1


async def test_a_session_deleted_while_it_is_exported_ends_the_export(caller: Caller) -> None:
    """It is noticed, whatever was sent by then: the stream ends with an error and never as if it were whole."""
    for name in ("a", "b"):
        await caller.session(session_id=name)
        for _ in range(8):
            await caller.add(name, said(_noise(200_000)))
    stream = spaces(caller).ExportSpace(
        pb.ExportSpaceRequest(),
        metadata=(("x-runekeep-account", caller.account), ("x-runekeep-user", caller.user)),
    )
    pieces = aiter(stream)
    assert (await anext(pieces)).data
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session="b"))

    async def rest() -> None:
        async for _ in pieces:
            pass

    assert (await failure(rest())).seen == ("ABORTED", "VERSION_MISMATCH")
    answer = await imported(Caller(caller.channel, unique("other")), await exported(caller))
    assert answer.contents.sessions == 1


def _noise(length: int) -> str:
    return "".join(random.Random(length).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))


async def test_what_is_damaged_is_refused_and_nothing_of_it_stays(caller: Caller, callers: Callers) -> None:
    other = callers()
    await other.add(await other.session(session_id="s"), said("hello", id="m1"), said("again", id="m2"))
    await other.commit("s")
    archive = await exported(other)
    files = entries(archive)
    bad: list[bytes] = [b"", b"x" * 5000, archive[:-9], archive[: len(archive) // 2], archive + b"more"]
    names = list(files)
    for name, content in (
        ("sessions/s/history/archive_001/messages.jsonl", b""),
        ("data/archives.jsonl", b""),
        ("data/sessions.jsonl", files["data/sessions.jsonl"] * 2),
        ("data/commits.jsonl", b'{"revision":9}\n'),
        ("checksums.json", b"{}"),
    ):
        bad.append(packed((one, content if one == name else files[one]) for one in names))
    bad.append(packed((one, files[one]) for one in names if one != "data/tasks.jsonl"))
    bad.append(packed((one, files[one]) for one in reversed(names)))
    bad.append(packed([*((one, files[one]) for one in names[:-1]), ("../etc/passwd", b"x"), (names[-1], b"{}")]))
    for number, one in enumerate(bad):
        refused = await failure(imported(caller, one))
        assert refused.seen == ("INVALID_ARGUMENT", "EXPORT_INVALID"), (number, refused)
    assert not (await caller.sessions.ListSessions(session_service_pb2.ListSessionsRequest())).sessions
    assert (await imported(caller, archive)).contents.messages == 2


@pytest.mark.parametrize("kind", ["nothing", "data first", "options twice", "empty"])
async def test_the_stream_begins_with_its_options(caller: Caller, kind: str) -> None:
    options, data = pb.ImportSpaceRequest(options=pb.ImportOptions()), pb.ImportSpaceRequest(data=b"x")

    async def requests() -> AsyncIterator[pb.ImportSpaceRequest]:
        sent = {
            "nothing": [],
            "data first": [data],
            "options twice": [options, options],
            "empty": [options, pb.ImportSpaceRequest()],
        }
        for one in sent[kind]:
            yield one

    call = spaces(caller).ImportSpace(requests(), metadata=(("x-runekeep-user", caller.user),))
    assert (await failure(call)).seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
