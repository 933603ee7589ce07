"""Attempts of strangers on what another user has: every method for users, with the names of a victim."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from runekeep.contract import methods_for
from runekeep.v1 import (
    common_pb2,
    history_service_pb2,
    memory_service_pb2,
    method_options_pb2,
    proposal_service_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
)
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import STUBS, Caller, policy, said, used_tool
from tests.support.changes import change, put, remove
from tests.support.named_requests import is_about_the_name, named_requests
from tests.support.worker import Worker, value, write

SECRET = "xylophonist"
MESSAGE = "m1"


@dataclass(frozen=True)
class Victim:
    """Somebody with a session, a finished commit, a cancelled one, one that runs, and memories full of the secret."""

    caller: Caller
    session: str
    archive: str
    done: str
    cancelled: str
    running: str
    lease: pb.Lease
    proposed: str
    """The task of a commit whose operations wait for review."""

    def uri(self, path: str) -> str:
        return self.caller.uri(path)

    async def state(self) -> list[Message]:
        """All that strangers must neither see nor change."""
        caller = self.caller
        memories, sessions, tasks = memory_service_pb2, session_service_pb2, task_service_pb2
        scope = sessions.MESSAGE_SCOPE_ALL
        return [
            await caller.listing(depth=16, show_hidden=True),
            await caller.memory(self.uri("memories/preferences/Music.md")),
            await caller.memories.ListMemoryVersions(
                memories.ListMemoryVersionsRequest(uri=self.uri("memories/preferences/Music.md"))
            ),
            await caller.sessions.ListSessions(sessions.ListSessionsRequest()),
            await caller.sessions.ListMessages(sessions.ListMessagesRequest(session=self.session, scope=scope)),
            await caller.sessions.ListArchives(sessions.ListArchivesRequest(session=self.session)),
            _without_attempts(await caller.tasks.ListTasks(tasks.ListTasksRequest())),
            await caller.tasks.GetExtractionRecord(tasks.GetExtractionRecordRequest(task_id=self.done)),
            await caller.tasks.GetUsage(tasks.GetUsageRequest()),
            await caller.proposal(self.proposed),
        ]


def _without_attempts(tasks: task_service_pb2.ListTasksResponse) -> task_service_pb2.ListTasksResponse:
    """Leaves out what changes by itself: a worker on a busy machine may lose its job, and the index catches up."""
    for task in tasks.tasks:
        task.pending_passages = task.pending_memories = 0
        if task.state in (task_service_pb2.TASK_STATE_PENDING, task_service_pb2.TASK_STATE_RUNNING):
            task.state = task_service_pb2.TASK_STATE_RUNNING
            for name in ("attempt", "lost_leases", "error", "start_time", "last_event_sequence", "progress"):
                task.ClearField(name)  # type: ignore[arg-type]  # one of the names
    return tasks


@asynccontextmanager
async def victimized(caller: Caller, workers: grpc.aio.Channel) -> AsyncIterator[Victim]:
    """Makes a caller a victim, with the help of a worker, which holds the running job until the end of the block."""
    session = await caller.session(policy(peer=True))
    messages = [said(f"I am a {SECRET}", id=MESSAGE), said("me too", peer=SECRET), used_tool("call-1", SECRET * 3000)]
    done = await caller.committed(*messages, session=session)
    async with Worker(workers) as worker:
        operations = [
            write("preferences", topic="Music", content=f"Is a {SECRET}."),
            write("preferences", topic="Music", content=f"A {SECRET} too.", peer=SECRET),
        ]
        told = {
            "usage": [common_pb2.TokenUsage(model=SECRET, phase="operations", calls=1, input_tokens=10)],
            "model_calls": [common_pb2.ModelCall(phase="operations", answer=SECRET)],
        }
        await worker.deliver((await worker.take()).lease, *operations, summary=f"About a {SECRET}", **told)
        proposed = await caller.committed(said(SECRET), policy=policy(review=common_pb2.REVIEW_MODE_ALL))
        await worker.deliver((await worker.take()).lease, write("preferences", topic="Art", content=f"A {SECRET}."))
        cancelled = await caller.committed(said(SECRET), session=session)
        await caller.tasks.CancelTask(task_service_pb2.CancelTaskRequest(task_id=cancelled.task_id))
        running = await caller.committed(said(SECRET), session=session)
        lease = (await worker.take()).lease
        await caller.add(session, said(f"still a {SECRET}"))
        await caller.searchable()
        yield Victim(
            caller, session, done.archive_uri, done.task_id, cancelled.task_id, running.task_id, lease, proposed.task_id
        )


Attempts = Callable[[Victim], Sequence[Message]]

DOCUMENTS = (
    "memories/preferences/Music.md",
    f"peers/{SECRET}/memories/preferences/Music.md",
    "memories/preferences/.overview.md",
)

TABLE: dict[str, Attempts] = {
    # Sessions
    # The id is free in the stranger's own space: an own session, with nothing in it.
    "CreateSession": lambda v: [session_service_pb2.CreateSessionRequest(session_id=v.session)],
    "GetSession": lambda v: [
        session_service_pb2.GetSessionRequest(session=name)
        for name in (v.session, v.uri(f"sessions/{v.session}"), f"viking://session/{v.session}")
    ],
    "ListSessions": lambda v: [session_service_pb2.ListSessionsRequest(page_size=200)],
    "UpdateSession": lambda v: [
        session_service_pb2.UpdateSessionRequest(session=name, title="forged", update_mask={"paths": ["title"]})  # type: ignore[arg-type]  # as a dict
        for name in (v.session, v.uri(f"sessions/{v.session}"), f"viking://session/{v.session}")
    ],
    "GetSessionContext": lambda v: [
        session_service_pb2.GetSessionContextRequest(session=name)
        for name in (v.session, v.uri(f"sessions/{v.session}"), f"viking://session/{v.session}")
    ],
    "DeleteSession": lambda v: [
        session_service_pb2.DeleteSessionRequest(session=name) for name in (v.session, v.uri(f"sessions/{v.session}"))
    ],
    "AddMessages": lambda v: [
        session_service_pb2.AddMessagesRequest(session=name, messages=[said("intruder")])
        for name in (v.session, v.uri(f"sessions/{v.session}"))
    ],
    "ListMessages": lambda v: [
        session_service_pb2.ListMessagesRequest(session=name, scope=session_service_pb2.MESSAGE_SCOPE_ALL)
        for name in (v.session, v.archive, v.uri(f"sessions/{v.session}"))
    ],
    "RecordUsage": lambda v: [
        session_service_pb2.RecordUsageRequest(session=v.session, context_uris=[v.uri("memories/profile.md")])
    ],
    # Memories
    "GetMemory": lambda v: [memory_service_pb2.GetMemoryRequest(uri=v.uri(path), version=1) for path in DOCUMENTS],
    "ReadDocument": lambda v: [
        memory_service_pb2.ReadDocumentRequest(uri=uri)
        for uri in (
            *map(v.uri, DOCUMENTS),
            *(f"{v.archive}/{name}" for name in ("messages.jsonl", ".overview.md", "memory_diff.json")),
            v.uri(f"sessions/{v.session}/messages.jsonl"),
            v.uri(f"sessions/{v.session}/tools/call-1/tool.json"),
            v.uri(f"sessions/{v.session}/tools/call-1/output.txt"),
            f"viking://session/{v.session}/messages.jsonl",
        )
    ],
    "ListDirectory": lambda v: [
        memory_service_pb2.ListDirectoryRequest(uri=uri, depth=16, show_hidden=True)
        for uri in ("", v.uri("").rstrip("/"), v.uri("memories/preferences"), v.uri(f"sessions/{v.session}"))
    ],
    "GlobDocuments": lambda v: [
        memory_service_pb2.GlobDocumentsRequest(pattern="**", uri=uri, show_hidden=True)
        for uri in ("", v.uri("").rstrip("/"), v.uri("memories/preferences"), v.uri(f"sessions/{v.session}"))
    ],
    "GrepDocuments": lambda v: [
        memory_service_pb2.GrepDocumentsRequest(pattern=".", regex=True, uri=uri, show_hidden=True, context_lines=10)
        for uri in (
            "",
            *map(v.uri, DOCUMENTS),
            v.uri("memories/preferences"),
            v.uri(f"sessions/{v.session}/messages.jsonl"),
            f"{v.archive}/messages.jsonl",
            v.uri(f"sessions/{v.session}/tools/call-1/output.txt"),
        )
    ],
    "FindMemories": lambda v: [
        memory_service_pb2.FindMemoriesRequest(
            query=SECRET, target_uri=uri, limit=100, view=memory_service_pb2.MEMORY_VIEW_FULL
        )
        for uri in ("", v.uri("memories"), v.archive)
    ],
    "ExplainSearch": lambda v: [
        memory_service_pb2.ExplainSearchRequest(
            search=memory_service_pb2.FindMemoriesRequest(query=SECRET), uri=uri, message_id=message_id
        )
        for uri, message_id in (*((v.uri(name), "") for name in DOCUMENTS), (v.uri(f"sessions/{v.session}"), MESSAGE))
    ],
    "Recall": lambda v: [
        memory_service_pb2.RecallRequest(query=query, session=session, target_uri=uri, repeat=True)
        for query, session, uri in (
            (SECRET, "", ""),
            (SECRET, "", v.uri("memories")),
            (SECRET, v.session, ""),
            ("", v.session, ""),
            ("", v.uri(f"sessions/{v.session}"), ""),
        )
    ],
    "AskMemory": lambda v: [memory_service_pb2.AskMemoryRequest(question=SECRET)],
    "ListMemoryTypes": lambda v: [memory_service_pb2.ListMemoryTypesRequest()],
    "DeleteUser": lambda v: [memory_service_pb2.DeleteUserRequest(user=v.caller.user)],
    "WriteMemories": lambda v: [
        memory_service_pb2.WriteMemoriesRequest(changes=[one])
        for one in (
            change(v.uri(DOCUMENTS[0]), 1, content="forged"),
            change(v.uri(DOCUMENTS[0]), 1, content=[(SECRET, "forged")]),
            remove(v.uri(DOCUMENTS[0]), 1),
            put("preferences", 1, topic="Music", content="forged"),
        )
    ],
    # History
    "GetActivity": lambda v: [history_service_pb2.GetActivityRequest(days=366)],
    "ListRevisions": lambda v: [
        history_service_pb2.ListRevisionsRequest(uri=uri) for uri in ("", *map(v.uri, DOCUMENTS))
    ],
    "DiffRevisions": lambda v: [
        history_service_pb2.DiffRevisionsRequest(uri=uri)
        for uri in ("", v.uri("").rstrip("/"), v.uri("memories"), *map(v.uri, DOCUMENTS))
    ],
    "RollbackRevision": lambda v: [
        *(
            history_service_pb2.RollbackRevisionRequest(revision=number, force=True, preview=preview)
            for number in (1, 2)
            for preview in (True, False)
        ),
        history_service_pb2.RollbackRevisionRequest(archive_uri=v.archive, force=True),
    ],
    "ListMessageMemories": lambda v: [
        history_service_pb2.ListMessageMemoriesRequest(session=name, message_id=MESSAGE, view=3)  # type: ignore[arg-type]  # numbers of enums
        for name in (v.session, v.uri(f"sessions/{v.session}"), f"viking://session/{v.session}")
    ],
    # Tasks
    "ListTasks": lambda v: [
        task_service_pb2.ListTasksRequest(session=session, page_size=200) for session in ("", v.session)
    ],
    "WatchTask": lambda v: [
        task_service_pb2.WatchTaskRequest(task_id=task, after_sequence=after)
        for task in (v.done, v.running)
        for after in (0, 1)
    ],
    # What the account cost is for all its users; of a session see test_usage.
    "GetUsage": lambda v: [task_service_pb2.GetUsageRequest()],
    # Proposals
    "ListProposals": lambda v: [
        proposal_service_pb2.ListProposalsRequest(session=session, include_decided=True) for session in ("", v.session)
    ],
    "GetProposal": lambda v: [proposal_service_pb2.GetProposalRequest(task_id=v.proposed)],
    "AcceptProposal": lambda v: [proposal_service_pb2.AcceptProposalRequest(task_id=v.proposed)],
    "EditProposal": lambda v: [
        proposal_service_pb2.EditProposalRequest(task_id=v.proposed, number=1, fields={"content": value("forged")})
    ],
    "RefuseProposal": lambda v: [proposal_service_pb2.RefuseProposalRequest(task_id=v.proposed, numbers=[1])],
    # Spaces
    "EraseData": lambda v: [
        space_service_pb2.EraseDataRequest(user=v.caller.user),
        space_service_pb2.EraseDataRequest(peer_id=SECRET),
        *(space_service_pb2.EraseDataRequest(session=name) for name in (v.session, v.uri(f"sessions/{v.session}"))),
        space_service_pb2.EraseDataRequest(
            messages=space_service_pb2.MessageSet(session=v.session, message_ids=[MESSAGE])
        ),
    ],
    # Of one that there is see test_erasures.
    "GetErasure": lambda v: [space_service_pb2.GetErasureRequest(erasure_id="er_1")],
    "ListErasures": lambda v: [space_service_pb2.ListErasuresRequest()],
}

# Answers with something of the stranger's own, or of nobody; everything else is refused.
OWN = {"CreateSession", "ListSessions", "ListMemoryTypes", "ListTasks", "ListProposals", "GetUsage"}
OWN_PLACES = {
    "GetActivity",
    "ListRevisions",
    "DiffRevisions",
    "ListDirectory",
    "GlobDocuments",
    "GrepDocuments",
    "FindMemories",
    "ExplainSearch",
    "Recall",
    "AskMemory",
    "DeleteUser",
    "EraseData",
    "ListErasures",
}
REFUSED = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)

# Streams of the caller's own alone: see test_export.
STREAMS = {"ExportSpace", "ImportSpace", "StreamMessages"}
# In development mode everybody may act for all users of an account: see test_users and test_copy_user.
OF_ACCOUNT = {"CopyUser", "ListUsers"}
# See test_turn_tenants.
ELSEWHERE = {"TurnMemoryService"}


def attempts(victim: Victim) -> Iterator[tuple[MethodDescriptor, Message]]:
    """Every call on the victim's names: as TABLE says it, and of a method that it lacks by the names of fields."""
    names = {
        "session": [victim.session, victim.uri(f"sessions/{victim.session}")],
        "archive_uri": [victim.archive],
        "task_id": [victim.done, victim.running, victim.cancelled],
        "uri": [*map(victim.uri, DOCUMENTS)],
    }
    for method in methods_for(method_options_pb2.AUDIENCE_USERS):
        if method.containing_service.name not in ELSEWHERE and method.name not in STREAMS | OF_ACCOUNT:
            make = TABLE.get(method.name)
            requests = named_requests(method, names) if make is None else make(victim)
            yield from ((method, request) for request in requests)


async def try_everything(other: Caller, victim: Victim) -> int:
    """Makes every call on the victim's names. Returns the number of calls."""
    count = 0
    # The session of the same name that CreateSession makes would answer for some of the others, and be deleted.
    for method, request in sorted(attempts(victim), key=lambda one: one[0].name == "CreateSession"):
        await attempt(getattr(other, STUBS[method.containing_service.name]), method.name, request)
        count += 1
    return count


async def attempt(service: Any, method: str, request: Message) -> None:
    call = getattr(service, method)(request)
    try:
        answer = [one async for one in call] if method in ("WatchTask", "AskMemory") else [await call]
    except grpc.aio.AioRpcError as error:
        assert method not in OWN, f"{method} of nothing but the stranger's own: {error}"
        # What nobody has written in the stranger's own space is at no version.
        own_version = method == "WriteMemories" and "There is no memory" in (error.details() or "")
        refused = error.code() in REFUSED if method in TABLE else is_about_the_name(error)
        assert refused or own_version, f"{method}: {error}"
        # The secret is the name of a peer in some of the requests, and a refusal may name what was asked for.
        asked = SECRET in f"{getattr(request, 'uri', '')}{getattr(request, 'peer_id', '')}"
        assert asked or SECRET not in (error.details() or ""), method
        return
    assert method in OWN | OWN_PLACES, f"{method} answered {answer}"
    assert all(SECRET.encode() not in one.SerializeToString() for one in answer), method
    if method in (
        "ListSessions",
        "ListRevisions",
        "DiffRevisions",
        "ListTasks",
        "ListProposals",
        "FindMemories",
        "DeleteUser",
    ):
        assert answer[0].ByteSize() == 0, f"{method} answered {answer}"
