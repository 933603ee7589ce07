"""Spaces that are full of everything, exports of them, and what the whole API says of a space."""

import gzip
import io
import json
import re
import tarfile
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value

from runekeep.client.connection.call_status import is_from_server, record_statuses
from runekeep.v1 import common_pb2, history_service_pb2_grpc, space_service_pb2_grpc
from runekeep.v1 import extractor_service_pb2 as work_pb
from runekeep.v1 import history_service_pb2 as history_pb
from runekeep.v1 import memory_service_pb2 as memories_pb
from runekeep.v1 import session_service_pb2 as sessions_pb
from runekeep.v1 import space_service_pb2 as pb
from runekeep.v1 import task_service_pb2 as tasks_pb
from runekeep.v1 import turn_memory_service_pb2 as turns_pb
from runekeep_storage.transfer.exports.archive import LAST, Digest
from runekeep_storage.transfer.exports.layout import Closing
from tests.support.callers import Caller, policy, said, used_tool
from tests.support.changes import change, put, remove, written
from tests.support.turns import bucketed, fingerprinted, load, paged, react, select, signal
from tests.support.worker import Worker, edit, write

ALL = sessions_pb.MESSAGE_SCOPE_ALL
FULL = memories_pb.MEMORY_VIEW_FULL
PIECE = 1000
"""Bytes of an archive that an import is sent at once: few, so that pieces end anywhere."""


def _metadata(caller: Caller) -> tuple[tuple[str, str], ...]:
    return (("x-runekeep-account", caller.account), ("x-runekeep-user", caller.user))


def spaces(caller: Caller) -> Any:
    return space_service_pb2_grpc.SpaceServiceStub(caller.channel)


async def exported(caller: Caller) -> bytes:
    stream = spaces(caller).ExportSpace(pb.ExportSpaceRequest(), metadata=_metadata(caller))
    return b"".join([piece.data async for piece in stream])


async def imported(caller: Caller, archive: bytes, request_id: str = "", piece: int = PIECE) -> pb.ImportSpaceResponse:
    async def requests() -> AsyncIterator[pb.ImportSpaceRequest]:
        yield pb.ImportSpaceRequest(options=pb.ImportOptions(request_id=request_id))
        for start in range(0, len(archive), piece):
            yield pb.ImportSpaceRequest(data=archive[start : start + piece])

    call = spaces(caller).ImportSpace(requests(), metadata=_metadata(caller))
    statuses = record_statuses(call)
    try:
        answer: pb.ImportSpaceResponse = await call
    except grpc.aio.AioRpcError:
        # If the server refuses while a piece is on its way, grpc.aio may raise a status of its own.
        if told := next(filter(is_from_server, statuses), None):
            raise told from None
        raise
    return answer


def entries(archive: bytes) -> dict[str, bytes]:
    """Content by name, in the order of the archive; as any other program unpacks it."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for member in tar:
            opened = tar.extractfile(member)
            assert opened is not None and member.name not in found
            found[member.name] = opened.read()
    return found


def packed(named: Iterable[tuple[str, bytes]]) -> bytes:
    """An archive of these entries, as another program packs it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in named:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


def sealed(named: Iterable[tuple[str, bytes]]) -> bytes:
    """The same with the checksum of these entries, as somebody makes it who wants to be believed."""
    digest, whole = Digest(), [(name, content) for name, content in named if name != LAST]
    for name, content in whole:
        digest.begin(name, len(content))
        digest.data(content)
    closing = Closing(entries=digest.entries, sha256=digest.hexadecimal())
    return packed([*whole, (LAST, closing.encode())])


# A space full of everything


@dataclass
class Lived:
    """A user with two sessions, commits in every state, memories of several kinds, turns, and what was deleted."""

    caller: Caller
    pending: str = ""
    failed: str = ""
    revisions: list[int] = field(default_factory=list)


async def lived(caller: Caller) -> Lived:
    one = Lived(caller)
    both = policy(peer=True, types=["preferences", "entities", "events", "tools", "trajectories", "profile"])
    await caller.sessions.CreateSession(
        sessions_pb.CreateSessionRequest(session_id="talk", title="Über Tee \u2028 und mehr", memory_policy=both)
    )
    async with Worker(caller.channel) as worker:
        await caller.add(
            "talk",
            said("I like green tea, 煎茶, and nothing else", id="m1"),
            said("Bo here: I would rather have coffee", peer="bo", id="m2"),
            used_tool("call-1", "a line of output\n" * 3000, id="m3"),
            used_tool("call 2/strange", "x" * 30_000, id="m4", name="fetch"),
            _rich(),
        )
        tea = caller.uri("memories/preferences/Tea.md")
        await caller.sessions.RecordUsage(
            sessions_pb.RecordUsageRequest(
                session="talk",
                context_uris=[tea],
                skills=[
                    sessions_pb.SkillUsage(uri=caller.uri("skills/brew.md"), output="done", success=True),
                    # Any JSON is an input, a text as well.
                    sessions_pb.SkillUsage(uri=caller.uri("skills/brew.md"), input=Value(string_value="tea")),
                ],
            )
        )
        await _applied(
            worker, one, await caller.commit("talk"),
            write("preferences", topic="Tea", content="Likes green tea.", ranges=[(1, 1)]),
            write("entities", entity_name="Bo", content="Drinks coffee.", peer="bo"),
            write("events", event_name="Tea party", event_time="2024-05-01", content="They met <b>--></b>."),
            write("tools", tool_name="grep", total_calls=1, success_count=1, total_time_ms=12),
            write("preferences", topic="Tea", content="Is skipped.", peer="nobody"),
        )  # fmt: skip
        await caller.add("talk", said("On second thought, black tea", id="m6"), said("and no cake", id="m7"))
        await caller.sessions.RecordUsage(sessions_pb.RecordUsageRequest(session="talk", context_uris=[tea]))
        await _applied(
            worker, one, await caller.commit("talk", keep_recent_count=1),
            edit(tea, content=[("green", "black")], ranges=[(6, 6)]),
            write("tools", tool_name="grep", total_calls=2, success_count=1, total_time_ms=30),
        )  # fmt: skip
        await written(caller, put("preferences", topic="Cake " + "é" * 60, content="None, thanks."))
        await written(caller, put("preferences", topic="Music", content="Likes jazz."))
        await written(caller, change(caller.uri("memories/preferences/Music.md"), 1, content="Likes blues."))
        await written(caller, remove(caller.uri("memories/preferences/Music.md"), 2))
        # A commit that failed for good, one that was cancelled, one that nobody has, one that somebody works on.
        await caller.add("talk", said("this one fails"))
        lost = await caller.commit("talk")
        lease = (await worker.take()).lease
        await worker.fail(lease, work_pb.FAILURE_CLASS_INTERNAL, retryable=False)
        one.failed = lost.task_id
        await caller.add("talk", said("this one is cancelled"))
        gone = await caller.commit("talk")
        await caller.tasks.CancelTask(tasks_pb.CancelTaskRequest(task_id=gone.task_id, reason="changed my mind"))
        await caller.session(session_id="short")
        await caller.add("short", said("deleted soon"))
        done = await caller.commit("short")
        await caller.sessions.DeleteSession(sessions_pb.DeleteSessionRequest(session="short"))
        assert done.task_id
    await _turns(caller)
    await caller.session(session_id="empty")
    await caller.add("talk", said("who extracts this?", id="last-archived"))
    one.pending = (await caller.commit("talk")).task_id
    await caller.add("talk", said("live words", id="live-1"), used_tool("call-9", "y" * 25_000, id="live-2"))
    await caller.memories.Recall(memories_pb.RecallRequest(query="tea", session="talk", token_budget=500))
    return one


def _rich() -> common_pb2.Message:
    """A message of every kind of part."""
    message = common_pb2.Message(id="m5", role=common_pb2.ROLE_ASSISTANT, speaker="Ada", turn_id="t0")
    message.create_time.FromMicroseconds(1_700_000_000_123_456)
    message.parts.add().image.CopyFrom(common_pb2.ImagePart(url="https://example.test/tea.png", detail="high"))
    message.parts.add().context.CopyFrom(
        common_pb2.ContextPart(uri="viking://user/memories/preferences/Tea.md", abstract="About tea")
    )
    tool = message.parts.add().tool
    tool.tool_id, tool.tool_name, tool.output, tool.status = "c3", "brew", "hot\0?", common_pb2.TOOL_STATUS_ERROR
    tool.input.update({"grams": 2.5, "big": 1e300, "deep": [{"a": None, "b": [True, "\ud7ff"]}]})
    tool.duration.FromMilliseconds(1234)
    return message


async def _applied(worker: Worker, one: Lived, commit: Any, *operations: Any) -> None:
    while (job := await worker.take()).task_id != commit.task_id:
        await worker.release(job.lease)
    usage = [common_pb2.TokenUsage(model="m", phase="reason", calls=2, input_tokens=100, output_tokens=7)]
    verdict = await worker.deliver(job.lease, *operations, summary="What was said of tea", usage=usage)
    while verdict.outcome == work_pb.JOB_OUTCOME_NEEDS_REPAIR:
        raise AssertionError(verdict)
    assert verdict.outcome == work_pb.JOB_OUTCOME_APPLIED, verdict
    one.revisions.append(verdict.revision)


async def _turns(caller: Caller) -> None:
    await caller.session(session_id="turns")
    await fingerprinted(
        caller, "turns", "t1", "Book a trip", topics=["travel"], assertions=[signal("seat", "aisle", "must")],
        assistant_signals=[signal("rail.pass", "offered", "recommend")], conversation_title="A trip",
    )  # fmt: skip
    await fingerprinted(caller, "turns", "t2", "Plan dinner", facts=[signal("guests", {"min": 2, "max": 4})])
    await react(caller, "turns", "t1", text="too dear")
    await react(caller, "turns", "t2", machine=True, reaction=turns_pb.REACTION_OK)
    context = await load(caller, "turns", "t2", "reconciler")
    await select(caller, "turns", context.offer, turn_ids=["t1"], local_memories_turn_ids=["t1"])
    await bucketed(caller, "turns", "Trips", "Dinners", turn_id="t3")


# What the API says


async def everything(caller: Caller, offset: int = 0) -> dict[str, Any]:
    """All that a user can read, with revisions as they were before an import that added `offset` to them."""
    await caller.searchable()
    said_: dict[str, Any] = {}
    revision = (await caller.find("anything")).latest_revision
    sessions = await paged(caller.sessions.ListSessions, sessions_pb.ListSessionsRequest(page_size=2), "sessions")
    said_["sessions"] = sessions
    for session in sessions:
        name = session.session_id
        said_[f"messages {name}"] = await paged(
            caller.sessions.ListMessages, sessions_pb.ListMessagesRequest(session=name, scope=ALL), "messages"
        )
        found = await paged(caller.sessions.ListArchives, sessions_pb.ListArchivesRequest(session=name), "archives")
        said_[f"archives {name}"] = found
        for archive in found:
            if archive.state == sessions_pb.ARCHIVE_STATE_DONE:
                request = sessions_pb.GetMemoryDiffRequest(archive_uri=archive.uri)
                said_[f"diff {archive.uri}"] = (await caller.sessions.GetMemoryDiff(request)).diff
        said_ |= await _turn_memory(caller, name)
        context = sessions_pb.GetSessionContextRequest(session=name, token_budget=100_000)
        said_[f"context {name}"] = await caller.sessions.GetSessionContext(context)
    said_["tasks"] = await paged(caller.tasks.ListTasks, tasks_pb.ListTasksRequest(page_size=3), "tasks")
    uris = set()
    for at in range(offset + 1, revision + 1):
        as_of = common_pb2.AsOf(revision=at)
        listing = await caller.listing(depth=16, as_of=as_of)
        said_[f"tree {at - offset}"] = listing
        for entry in listing.entries:
            if entry.memory_type:
                uris.add(entry.uri)
                said_[f"read {entry.uri} {at - offset}"] = await caller.read(entry.uri, as_of=as_of)
        said_[f"find {at - offset}"] = await caller.find("green tea coffee", as_of=as_of, view=FULL, limit=100)
    for uri in sorted(uris):
        versions = memories_pb.ListMemoryVersionsRequest(uri=uri)
        said_[f"versions {uri}"] = await paged(caller.memories.ListMemoryVersions, versions, "memories")
    tree = await caller.listing(depth=16, show_hidden=True)
    said_["tree"] = tree
    for entry in tree.entries:
        if not entry.directory:
            said_[f"read {entry.uri}"] = await caller.read(entry.uri)
    for query in ("green tea", "煎茶", "coffee Bo", "second thought", "trip"):
        said_[f"find {query}"] = await caller.find(query, limit=100, view=FULL)
    history = history_service_pb2_grpc.HistoryServiceStub(caller.channel)
    found = await history.ListRevisions(history_pb.ListRevisionsRequest(page_size=200), metadata=_metadata(caller))
    said_["revisions"] = [{"revision": one.number, "what": one} for one in found.revisions]
    for one in found.revisions:
        one.ClearField("number")
    for message in ("m1", "m6"):
        request_ = history_pb.ListMessageMemoriesRequest(session="talk", message_id=message)
        said_[f"made from {message}"] = await history.ListMessageMemories(request_, metadata=_metadata(caller))
    # Of what they are about: a space that there was before names tasks anew.
    tasks = {task.task_id: f"{task.kind} {task.session} {task.archive_uri} {task.turn_id}" for task in said_["tasks"]}
    told = {plain(name, caller.user, 0, {}): plain(one, caller.user, offset, tasks) for name, one in said_.items()}
    for name, one in told.items():
        if name.startswith("find "):
            # Between two that are equally good, or nearly, rare words decide, see _OF_THE_MOMENT.
            one.get("results", []).sort(key=json.dumps)
    return told


async def _turn_memory(caller: Caller, session: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    turns = await paged(caller.turns.ListTurns, turns_pb.ListTurnsRequest(session=session), "turns")
    found[f"turns {session}"] = turns
    for audience in ("gate", "reconciler", "answer"):
        if turns and f"CONTEXT_AUDIENCE_{audience.upper()}" in turns_pb.ContextAudience.keys():  # noqa: SIM118 (an enum is no dict)
            found[f"context {session} {audience}"] = await load(caller, session, turns[0].turn_id, audience)
    buckets = turns_pb.ListMemoryBucketsRequest(session=session, show_disabled=True)
    found[f"buckets {session}"] = await caller.turns.ListMemoryBuckets(buckets)
    feedback = await paged(caller.turns.ListFeedback, turns_pb.ListFeedbackRequest(session=session), "feedback")
    found[f"feedback {session}"] = feedback
    signals = await paged(
        caller.turns.ListAssistantSignals, turns_pb.ListAssistantSignalsRequest(session=session), "turns"
    )
    found[f"signals {session}"] = signals
    for tag in ("artifact:turn.fingerprint.v1", "turn:t1", "conversation.memory.bucket.v1"):
        request = turns_pb.ListTurnArtifactsRequest(tags=[tag], session=session)
        found[f"tag {session} {tag}"] = await paged(caller.turns.ListTurnArtifacts, request, "artifacts")
    return found


_REVISIONS = {"revision", "supersededRevision", "latestRevision", "rolledBackRevision", "rolledBack"}
_OF_THE_MOMENT = {"lastEventSequence", "pendingPassages", "offer", "hostedUri", "detail", "score"}
"""What is not of the space: how far watchers and the index are, where this server keeps a blob, and how rare words are
in the index, which knows of points that it has not let go of yet."""
_IN_TEXT = re.compile(r'(?<="revision": )\d+')


def plain(value: Any, user: str, offset: int, tasks: Mapping[str, str]) -> Any:
    """As JSON, of a user called `me`, with revisions as before `offset` was added to them."""
    if isinstance(value, Message):
        return plain(MessageToDict(value), user, offset, tasks)
    if isinstance(value, dict):
        return {
            name: str(int(one) - offset) if name in _REVISIONS and int(one) else plain(one, user, offset, tasks)
            for name, one in value.items()
            if name not in _OF_THE_MOMENT
        }
    if isinstance(value, list | tuple) or hasattr(value, "MergeFrom"):
        return [plain(one, user, offset, tasks) for one in value]
    if isinstance(value, str) and value in tasks:
        return plain(tasks[value], user, offset, {})
    if isinstance(value, str):
        value = _IN_TEXT.sub(lambda found: str(int(found[0]) - offset), value)
        return re.sub(rf"viking://user/{user}\b", "viking://user/me", value)
    return value


def differences(before: Any, after: Any, place: str = "", *, ignore_added: bool = False) -> list[str]:
    """Where two answers differ, in words. `ignore_added`: fields and documents that only the second one has are no
    difference."""
    if isinstance(before, dict) and isinstance(after, dict):
        added = [] if ignore_added else [name for name in after if name not in before]
        return [
            line
            for name in [*before, *added]
            for line in differences(before.get(name), after.get(name), f"{place}/{name}", ignore_added=ignore_added)
        ]
    if ignore_added and isinstance(before, list) and isinstance(after, list):
        known = _uris(before)
        after = [one for one in after if not known or not _uris([one]) - known]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            line
            for number, (one, other) in enumerate(zip(before, after, strict=True))
            for line in differences(one, other, f"{place}[{number}]", ignore_added=ignore_added)
        ]
    return [] if before == after else [f"{place}: {json.dumps(before)[:300]} is {json.dumps(after)[:300]} now"]


def _uris(entries: list[Any]) -> set[str]:
    return {one["uri"] for one in entries if isinstance(one, dict) and "uri" in one}
