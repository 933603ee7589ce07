"""Users whose session or who themselves are deleted while their commit is under way, and what they then can read."""

from dataclasses import dataclass, field
from typing import Any

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2, session_service_pb2, task_service_pb2
from tests.support.callers import Caller, failure, policy, said, used_tool
from tests.support.changes import change, put, written
from tests.support.worker import Worker, delete, write

SESSION = "talk"
SECRET = "xylophonist"
MUSIC = "memories/preferences/Music.md"
# Else the first commit also makes an empty profile.
ONLY_PREFERENCES = policy(types=["preferences"])
NOT_FOUND = ("NOT_FOUND", "RESOURCE_NOT_FOUND")


def delete_session(request_id: str = "") -> session_service_pb2.DeleteSessionRequest:
    return session_service_pb2.DeleteSessionRequest(session=SESSION, request_id=request_id)


def delete_user(caller: Caller, request_id: str = "") -> memory_service_pb2.DeleteUserRequest:
    return memory_service_pb2.DeleteUserRequest(user=caller.user, request_id=request_id)


@dataclass
class Victim:
    """A user with a session whose first commit is applied and whose second one is under way."""

    caller: Caller
    applied: Any = None
    open: Any = None
    late: list[Any] = field(default_factory=list)
    """What a worker still has to say and to ask when all is over: coroutines without arguments."""

    async def first_commit(self, worker: Worker) -> None:
        await self.caller.session(ONLY_PREFERENCES, session_id=SESSION)
        self.applied = await self.caller.committed(
            said(f"I am a {SECRET}"), used_tool("call-1", SECRET * 3000), session=SESSION
        )
        assert await self.delivered(worker, (await worker.take()).lease) == pb.JOB_OUTCOME_APPLIED

    async def delivered(self, worker: Worker, lease: pb.Lease) -> int:
        """As workers do: sent again while the server cannot tell, as after its connections to the store were ended."""
        music = write("preferences", topic="Music", content=f"Is a {SECRET}.")
        while True:
            verdict = await worker.deliver(lease, music, summary=f"About a {SECRET}", output_id="whole")
            if verdict.outcome != pb.JOB_OUTCOME_TRY_AGAIN:
                return verdict.outcome

    async def second_commit(self) -> None:
        self.open = await self.caller.committed(said(f"once more, a {SECRET}"), session=SESSION)

    async def refused(self) -> None:
        """Everything that the worker says late is refused."""
        for say in self.late:
            assert await say() in (pb.JOB_OUTCOME_LEASE_LOST, pb.JOB_OUTCOME_CANCELLED)


async def pending(victim: Victim, worker: Worker) -> None:
    """Nobody has the job."""
    await victim.second_commit()


async def leased(victim: Victim, worker: Worker) -> None:
    """A worker has the job, has read its input, and has sent nothing."""
    await victim.second_commit()
    lease = (await worker.take()).lease
    assert [one async for one in worker.calls.GetJobInput(pb.GetJobInputRequest(lease=lease))]
    hear_late(victim, worker, lease)


async def half_sent(victim: Victim, worker: Worker) -> None:
    """A worker has sent half of its output."""
    await victim.second_commit()
    lease = (await worker.take()).lease
    item = pb.OutputItem(operation=write("preferences", topic="Late", content=f"A late {SECRET}."))
    assert await worker.chunk(lease, "half", 0, [item]) is not None

    async def other_half() -> int:
        await worker.chunk(lease, "half", 1, [item])
        return (await worker.complete(lease, "half", 2)).outcome

    victim.late.append(other_half)
    hear_late(victim, worker, lease)


async def asked_to_repair(victim: Victim, worker: Worker) -> None:
    """A worker has been told what was wrong with its output."""
    await victim.second_commit()
    lease = (await worker.take()).lease
    wrong = delete(victim.caller.uri("memories/preferences/None.md"))
    assert (await worker.deliver(lease, wrong)).outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
    hear_late(victim, worker, lease)


async def just_applied(victim: Victim, worker: Worker) -> None:
    """The commit is applied, the relay is bringing it into the index."""
    await victim.second_commit()
    lease = (await worker.take()).lease
    assert await victim.delivered(worker, lease) == pb.JOB_OUTCOME_APPLIED


def hear_late(victim: Victim, worker: Worker, lease: pb.Lease) -> None:
    async def whole() -> int:
        return await victim.delivered(worker, lease)

    async def failed() -> int:
        return (await worker.fail(lease, pb.FAILURE_CLASS_INTERNAL)).outcome

    async def released() -> int:
        return (await worker.release(lease)).outcome

    async def renewed() -> int:
        (state,) = (await worker.heartbeat(lease, sequence=9)).leases
        assert state.status == pb.LEASE_STATUS_LOST
        return pb.JOB_OUTCOME_LEASE_LOST

    async def read() -> int:
        uri = memory_service_pb2.ReadDocumentRequest(uri=f"viking://user/{MUSIC}")
        find = memory_service_pb2.FindMemoriesRequest(query=SECRET)
        for call in (
            worker.calls.GetJobInput(pb.GetJobInputRequest(lease=lease)),
            worker.calls.ReadForJob(pb.ReadForJobRequest(lease=lease, read=uri)),
            worker.calls.FindForJob(pb.FindForJobRequest(lease=lease, find=find)),
        ):
            assert (await failure(call)).seen == ("ABORTED", "LEASE_LOST")
        return pb.JOB_OUTCOME_LEASE_LOST

    victim.late += [renewed, read, whole, failed, released]


STAGES = (pending, leased, half_sent, asked_to_repair, just_applied)


async def state(caller: Caller) -> list[Any]:
    """Everything that a user can read."""
    sessions, memories, tasks = session_service_pb2, memory_service_pb2, task_service_pb2
    scope = sessions.MESSAGE_SCOPE_ALL
    found = await caller.find(SECRET, limit=100, view=memories.MEMORY_VIEW_FULL)
    while found.pending_passages or found.revision < found.latest_revision:
        found = await caller.find(SECRET, limit=100, view=memories.MEMORY_VIEW_FULL)
    read = [
        found,
        await caller.listing(depth=16, show_hidden=True),
        await caller.sessions.ListSessions(sessions.ListSessionsRequest()),
        await caller.tasks.ListTasks(tasks.ListTasksRequest()),
    ]
    for session in read[2].sessions:
        read += [
            await caller.sessions.ListMessages(sessions.ListMessagesRequest(session=session.uri, scope=scope)),
            await caller.sessions.ListArchives(sessions.ListArchivesRequest(session=session.uri)),
        ]
    for entry in read[1].entries:
        if not entry.directory:
            read.append(await caller.read(entry.uri))
        if entry.memory_type:
            read.append(await caller.memories.ListMemoryVersions(memories.ListMemoryVersionsRequest(uri=entry.uri)))
    return read


async def talk_is_gone(victim: Victim) -> None:
    """Nothing of the session is listed, read or found."""
    caller, sessions = victim.caller, session_service_pb2
    for commit in filter(None, (victim.applied, victim.open)):
        for call in (
            caller.sessions.GetMemoryDiff(sessions.GetMemoryDiffRequest(archive_uri=commit.archive_uri)),
            caller.sessions.ListMessages(sessions.ListMessagesRequest(session=commit.archive_uri)),
            caller.read(f"{commit.archive_uri}/messages.jsonl"),
            caller.read(f"{commit.archive_uri}/.overview.md"),
            caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=commit.task_id)),
        ):
            failed = await failure(call)
            assert failed.seen == NOT_FOUND or failed.reason == "TASK_STATE", failed
    for call in (
        caller.sessions.GetSession(sessions.GetSessionRequest(session=SESSION)),
        caller.read(caller.uri(f"sessions/{SESSION}/messages.jsonl")),
        caller.read(caller.uri(f"sessions/{SESSION}/tools/call-1/tool.json")),
        caller.sessions.CommitSession(sessions.CommitSessionRequest(session=SESSION)),
    ):
        assert (await failure(call)).seen == NOT_FOUND
    assert not (await caller.sessions.ListSessions(sessions.ListSessionsRequest())).sessions
    found = await caller.find(SECRET, limit=100)
    assert not found.pending_passages
    assert not [one for one in found.results if one.HasField("passage")]


async def user_is_gone(victim: Victim) -> None:
    """Nothing of the user is listed, read or found."""
    await talk_is_gone(victim)
    caller, memories, tasks = victim.caller, memory_service_pb2, task_service_pb2
    for path in (MUSIC, "memories/preferences/Late.md", "memories/preferences/.overview.md"):
        assert (await failure(caller.read(caller.uri(path)))).seen == NOT_FOUND
    for call in (
        caller.memory(caller.uri(MUSIC)),
        caller.memory(caller.uri(MUSIC), version=1),
        caller.memories.ListMemoryVersions(memories.ListMemoryVersionsRequest(uri=caller.uri(MUSIC))),
        *(caller.task(one.task_id) for one in filter(None, (victim.applied, victim.open))),
    ):
        assert (await failure(call)).seen == NOT_FOUND
    assert not (await caller.tasks.ListTasks(tasks.ListTasksRequest())).tasks
    assert not (await caller.find(SECRET, limit=100)).results
    assert all(SECRET.encode() not in one.SerializeToString() for one in await state(caller))


async def begin_again(victim: Victim, worker: Worker) -> None:
    """The same names once more: a session, a memory by hand, and a commit that changes it."""
    caller = victim.caller
    answer = await written(caller, put("preferences", topic="Music", content="Hates noise."))
    assert (answer.memories[0].version, answer.memories[0].uri) == (1, caller.uri(MUSIC))
    await caller.session(ONLY_PREFERENCES, session_id=SESSION)
    committed = await caller.committed(said("quiet, please"), session=SESSION)
    assert committed.archive_uri == victim.applied.archive_uri
    edited = change(caller.uri(MUSIC), 1, content=[("noise", "every noise")]).edit
    lease = (await worker.take()).lease
    operation = pb.MemoryOperation(edit=pb.EditOp(uri=edited.uri, patches=edited.patches))
    verdict = await worker.deliver(lease, operation, summary="Likes it quiet")
    assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    await caller.searchable()
    victim.applied, victim.open = committed, None


async def began_again(victim: Victim) -> None:
    """What `begin_again` wrote is there, and nothing else."""
    caller = victim.caller
    assert (await caller.memory(caller.uri(MUSIC))).content == "Hates every noise."
    read = await state(caller)
    assert len(read[2].sessions) == len(read[3].tasks) == 1
    assert [message.parts[0].text.text for message in read[4].messages] == ["quiet, please"]
    found = (await caller.find("noise quiet", limit=100, view=memory_service_pb2.MEMORY_VIEW_FULL)).results
    assert [one.memory.content for one in found if one.HasField("memory")] == ["Hates every noise."]
    assert len([one for one in found if one.HasField("passage")]) == 1
    assert all(SECRET.encode() not in one.SerializeToString() for one in read)
