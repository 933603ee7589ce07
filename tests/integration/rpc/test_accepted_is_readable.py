"""Whatever a server accepts is listed, found, exported, imported and read in full, whatever the sizes and their order.

The server takes requests of 256 KiB, so that pages are cut early, and the client takes answers of 4 MiB, as every
client of gRPC does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runekeep.v1 import common_pb2, extractor_service_pb2, history_service_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import memory_service_pb2 as memories_pb
from runekeep.v1 import turn_memory_service_pb2 as turns_pb
from tests.support.callers import Caller, Failure, policy, unique
from tests.support.changes import change, put, remove, written
from tests.support.exports import exported, imported
from tests.support.server_process import ServerProcess
from tests.support.turn_calls import submit
from tests.support.turns import bucketed, fingerprint, load, paged, react, signal
from tests.support.worker import Worker, edit, write

EXAMPLES = 12
ON_POSTGRES = 4
"""Examples on PostgreSQL, which differs in nothing but the reading of rows."""
SESSION = "s"
ALL = session_service_pb2.MESSAGE_SCOPE_ALL
FULL = memories_pb.MEMORY_VIEW_FULL
KIB = 1024


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return {**either_store, "RUNEKEEP_MAX_MESSAGE_BYTES": str(256 * KIB)}


# On both sides of what matters: a page, an output that is kept apart, a request.
SIZE = st.sampled_from([1, 300, 19_999, 20_001, 60 * KIB, 110 * KIB, 190 * KIB])
SIGN = st.sampled_from(["a", "ß", "茶", "\n", '"', "\x01"])
"""Of one, two and three bytes; and some that JSON escapes."""
TEXT = st.tuples(SIGN, SIZE)
END = "\N{SECTION SIGN}"
"""The end of each memory, where more is put in."""
TOPIC = st.sampled_from(["Tea", "Rye", "Oak"])


def text(of: tuple[str, int]) -> str:
    sign, size = of
    return f"tea {sign * (size // len(sign.encode()))}"


PART = st.one_of(
    TEXT.map(lambda of: common_pb2.Part(text=common_pb2.TextPart(text=text(of)))),
    SIZE.map(lambda size: common_pb2.Part(image=common_pb2.ImagePart(url=f"data:{'x' * size}", detail="low"))),
    st.just(common_pb2.Part(context=common_pb2.ContextPart(uri="viking://user/memories/x.md", abstract="ß" * 3000))),
    st.tuples(TEXT, st.integers(0, 20_000)).map(lambda of: tool_part(text(of[0]), of[1])),
)
MESSAGE = st.lists(PART, min_size=1, max_size=3)


def tool_part(output: str, values: int) -> common_pb2.Part:
    tool = common_pb2.ToolPart(tool_id="call", tool_name="grep", output=output, status=common_pb2.TOOL_STATUS_ERROR)
    many = tool.input.fields["list"].list_value.values
    many.add()
    # Unset: they come back as null, which is longer.
    many.extend([many[0]] * values)
    return common_pb2.Part(tool=tool)


@dataclass(slots=True)
class Model:
    """What was accepted of one caller. `memories`: contents by topic, None for a delete, oldest first."""

    caller: Caller
    worker: Worker
    messages: list[common_pb2.Message] = field(default_factory=list)
    archived: int = 0
    memories: dict[str, list[str | None]] = field(default_factory=dict)
    archives: list[str] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    reactions: int = 0

    def uri(self, topic: str) -> str:
        return self.caller.uri(f"memories/preferences/{topic}.md")

    def now(self) -> dict[str, str]:
        return {topic: known[-1] for topic, known in self.memories.items() if known[-1] is not None}


Step = Callable[[Model], Awaitable[None]]


async def accepted(call: Awaitable[Any]) -> Any:
    """The answer, or None for what is refused since it is too large; any other failure is one."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        failed = Failure(error)
        # Of gRPC itself, where the request is too large.
        of_request = "larger than max" in failed.message and "SERVER: Received" in failed.message
        assert failed.reason == "TOO_LARGE" or of_request or "larger than max" in failed.message, failed
        assert failed.code is grpc.StatusCode.RESOURCE_EXHAUSTED, failed
        return None


def says(parts: list[common_pb2.Part]) -> Step:
    async def step(model: Model) -> None:
        message = common_pb2.Message(
            id=f"m{len(model.messages)}", role=common_pb2.ROLE_ASSISTANT, parts=parts, turn_id=f"t{len(model.turns)}"
        )
        if await accepted(model.caller.add(SESSION, message)):
            model.messages.append(message)

    return step


def puts(topic: str, content: tuple[str, int]) -> Step:
    async def step(model: Model) -> None:
        known = model.memories.get(topic, [])
        base = 0 if not known or known[-1] is None else len(known)
        body = text(content) + END
        if body == model.now().get(topic):
            return
        if await accepted(written(model.caller, put("preferences", base, topic=topic, content=body))):
            model.memories.setdefault(topic, []).append(body)

    return step


def grows(topic: str, content: tuple[str, int], times: int) -> Step:
    """By hand, a request at a time: no request is as long as the memory in the end."""

    async def step(model: Model) -> None:
        for _ in range(times):
            known = model.memories.get(topic)
            if not known or known[-1] is None:
                return
            grown = known[-1].removesuffix(END) + text(content) + END
            made = change(model.uri(topic), len(known), content=[(END, text(content) + END)])
            if await accepted(written(model.caller, made)) is None:
                return
            known.append(grown)

    return step


def removes(topic: str) -> Step:
    async def step(model: Model) -> None:
        known = model.memories.get(topic)
        if known and known[-1] is not None:
            await written(model.caller, remove(model.uri(topic), len(known)))
            known.append(None)

    return step


def commits(topic: str, content: tuple[str, int], times: int, overview: tuple[str, int]) -> Step:
    """The extractor makes a memory, or adds to it so many times, in as many chunks."""

    async def step(model: Model) -> None:
        if model.archived == len(model.messages):
            return
        committed = await model.caller.commit(SESSION)
        job = await model.worker.take()
        assert job.task_id == committed.task_id
        batch, model.archived = model.messages[model.archived :], len(model.messages)
        given = await model.worker.input(job.lease)
        for part in (part for message in given.messages for part in message.parts if part.HasField("tool")):
            part.tool.ClearField("stored_output_length")
        # Whole, with the outputs that are kept apart.
        assert [list(one.parts) for one in given.messages] == [as_stored(one) for one in batch]
        known, more = model.memories.get(topic, []), text(content)[: 60 * KIB]
        summary = common_pb2.Summary(abstract="Talk", overview=text(overview))
        output = unique("output")
        await model.worker.chunk(job.lease, output, 0, [extractor_service_pb2.OutputItem(summary=summary)])
        if not known or known[-1] is None:
            operations, grown = [write("preferences", topic=topic, content=more + END)], more + END
        else:
            operations = [edit(model.uri(topic), content=[(END, more + END)])] * times
            grown = known[-1].removesuffix(END) + more * times + END
        chunks = [[extractor_service_pb2.OutputItem(operation=operation)] for operation in operations]
        for number, chunk in enumerate(chunks, 1):
            await model.worker.chunk(job.lease, output, number, chunk)
        verdict = await model.worker.complete(job.lease, output, len(chunks) + 1)
        if verdict.outcome == extractor_service_pb2.JOB_OUTCOME_NEEDS_REPAIR:
            assert {one.reason for one in verdict.refused} <= {"too_large"}, verdict
            output = unique("output")
            await model.worker.chunk(job.lease, output, 0, [extractor_service_pb2.OutputItem(summary=summary)])
            verdict = await model.worker.complete(job.lease, output, 1)
            grown = known[-1] if known else None  # Nothing of it was applied.
        assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_APPLIED, verdict
        if grown is not None and (not known or grown != known[-1]):
            model.memories.setdefault(topic, []).append(grown)
        model.archives.append(committed.archive_uri)

    return step


def understands(sign: str, values: int) -> Step:
    async def step(model: Model) -> None:
        turn = f"t{len(model.turns)}"
        if not any(one.turn_id == turn for one in model.messages):
            return
        facts = [signal(f"k{number}", sign * 150) for number in range(values)]
        summary = turns_pb.TurnSummary(done=[sign * 300] * 16, risks=[sign * 300] * 16)
        given = fingerprint("tea", facts=facts, assistant_signals=facts)
        if await accepted(submit(model.caller, SESSION, turn, fingerprint=given, summary=summary)):
            model.turns.append(turn)
            await react(model.caller, SESSION, turn, text=sign * 1000)
            model.reactions += 1

    return step


STEP = st.one_of(
    st.builds(says, MESSAGE),
    st.builds(says, MESSAGE),
    st.builds(puts, TOPIC, TEXT),
    st.builds(grows, TOPIC, TEXT, st.integers(1, 6)),
    st.builds(removes, TOPIC),
    st.builds(commits, TOPIC, TEXT, st.integers(1, 20), TEXT),
    st.builds(understands, st.sampled_from(["a", "ß", "茶"]), st.integers(0, 6)),
)


def as_stored(message: common_pb2.Message) -> list[common_pb2.Part]:
    """Its parts, with null for JSON values that were not set."""
    stored = common_pb2.Message()
    stored.CopyFrom(message)
    for part in stored.parts:
        for value in part.tool.input.fields["list"].list_value.values if part.HasField("tool") else ():
            value.null_value = 0  # type: ignore[assignment]  # NULL_VALUE
    return list(stored.parts)


# What can be read


async def check(model: Model) -> None:
    caller = model.caller
    listed = session_service_pb2.ListMessagesRequest(session=SESSION, scope=ALL)
    messages = await paged(caller.sessions.ListMessages, listed, "messages")
    assert [one.id for one in messages] == [one.id for one in model.messages]
    assert not any(one.shortened for one in messages)
    for message, said in zip(messages, model.messages, strict=True):
        for part, whole in zip(message.parts, as_stored(said), strict=True):
            if part.tool.stored_output_length:
                assert part.tool.stored_output_length == len(whole.tool.output)
                assert whole.tool.output.startswith(part.tool.output)
            else:
                assert part == whole
    archives = await paged(
        caller.sessions.ListArchives, session_service_pb2.ListArchivesRequest(session=SESSION), "archives"
    )
    assert [one.uri for one in archives] == model.archives[::-1]
    await paged(caller.sessions.ListSessions, session_service_pb2.ListSessionsRequest(), "sessions")
    context = session_service_pb2.GetSessionContextRequest(session=SESSION, token_budget=1_000_000)
    await caller.sessions.GetSessionContext(context)
    for uri in model.archives:
        await _check_archive(caller, uri)
    await _check_memories(model)
    await _check_turns(model)
    tasks = await paged(caller.tasks.ListTasks, task_service_pb2.ListTasksRequest(), "tasks")
    for task in tasks:
        assert not task.shortened
        await caller.tasks.GetExtractionRecord(task_service_pb2.GetExtractionRecordRequest(task_id=task.task_id))
    tree = await everything(caller)
    for entry in tree:
        if not entry.directory:
            await whole_document(caller, entry.uri)


async def everything(caller: Caller) -> list[memories_pb.DirectoryEntry]:
    """The tree, in pages of any size, which say the same."""
    wanted = memories_pb.ListDirectoryRequest(depth=16, show_hidden=True)
    whole = await paged(caller.memories.ListDirectory, wanted, "entries")
    few = memories_pb.ListDirectoryRequest(depth=16, show_hidden=True, node_limit=3)
    assert await paged(caller.memories.ListDirectory, few, "entries") == whole
    globbed = memories_pb.GlobDocumentsRequest(pattern="**", show_hidden=True, node_limit=2)
    found = await paged(caller.memories.GlobDocuments, globbed, "entries")
    assert [one.uri for one in found] == [one.uri for one in whole]
    return whole


async def whole_document(caller: Caller, uri: str) -> str:
    start, pieces = 0, []
    while True:
        part = await caller.read(uri, characters=memories_pb.CharacterRange(start=start))
        pieces.append(part.text)
        if not part.next_offset:
            assert sum(map(len, pieces)) == part.total_characters
            return "".join(pieces)
        start = part.next_offset


async def _check_archive(caller: Caller, uri: str) -> None:
    request = session_service_pb2.GetMemoryDiffRequest(archive_uri=uri)
    whole = (await caller.sessions.GetMemoryDiff(request)).diff
    paged_ = session_service_pb2.GetMemoryDiffRequest(archive_uri=uri, page_size=1)
    pages = []
    while True:
        pages.append(await caller.sessions.GetMemoryDiff(paged_))
        if not pages[-1].next_page_token:
            break
        paged_.page_token = pages[-1].next_page_token
    for kind in ("adds", "updates", "deletes"):
        assert [one for page in pages for one in getattr(page.diff, kind)] == list(getattr(whole, kind))
    assert not any(one.shortened for one in (*whole.adds, *whole.updates))


async def _check_memories(model: Model) -> None:
    caller, now = model.caller, model.now()
    for topic, known in model.memories.items():
        request = memories_pb.ListMemoryVersionsRequest(uri=model.uri(topic))
        versions = await paged(caller.memories.ListMemoryVersions, request, "memories")
        assert [None if one.deleted else one.content for one in versions] == known[::-1]
        assert not any(one.shortened for one in versions)
        for version in (versions[0], versions[-1]):
            if not version.deleted:
                assert (await caller.memory(version.uri, version=version.version)).content == version.content
        if topic in now:
            assert await whole_document(caller, model.uri(topic)) == now[topic]
    if not model.memories:
        return
    kinds = [memories_pb.FOUND_KIND_MEMORY]
    found = (await caller.find("tea", limit=100, view=FULL, kinds=kinds, memory_types=["preferences"])).results
    assert {one.memory.uri for one in found} == {model.uri(topic) for topic in now}
    for one in found:
        content = now[one.memory.uri.rpartition("/")[2].removesuffix(".md")]
        assert one.memory.content == (content if one.view == FULL else "")
        # The rest is where the result says.
        assert (await caller.memory(one.memory.uri)).content == content
    diff = history_service_pb2.DiffRevisionsRequest(uri=caller.uri("memories/preferences"))
    changes = await paged(caller.history.DiffRevisions, diff, "changes")
    assert {one.uri: one.after for one in changes} == {model.uri(topic): content for topic, content in now.items()}
    revisions = await paged(caller.history.ListRevisions, history_service_pb2.ListRevisionsRequest(), "revisions")
    for revision in revisions[:3]:
        back = history_service_pb2.RollbackRevisionRequest(revision=revision.number, preview=True)
        preview = await caller.history.RollbackRevision(back)
        assert len(preview.changes) + preview.changes_omitted <= 4
    for message in model.messages[:2]:
        came = history_service_pb2.ListMessageMemoriesRequest(session=SESSION, message_id=message.id, view=FULL)
        await paged(caller.history.ListMessageMemories, came, "memories")


async def _check_turns(model: Model) -> None:
    caller = model.caller
    turns = await paged(caller.turns.ListTurns, turns_pb.ListTurnsRequest(session=SESSION), "turns")
    assert {one.turn_id for one in turns if one.HasField("fingerprint")} == set(model.turns)
    for audience in ("gate", "reconciler", "downstream", "final_answer"):
        answer = await load(caller, SESSION, "now", audience, last_turns=20, render=True)
        assert not answer.shortened
    feedback = await paged(caller.turns.ListFeedback, turns_pb.ListFeedbackRequest(session=SESSION), "feedback")
    assert len(feedback) == model.reactions
    await paged(caller.turns.ListAssistantSignals, turns_pb.ListAssistantSignalsRequest(), "turns")
    for tag in ("artifact:turn.fingerprint.v1", "artifact:turn.log.reaction"):
        tagged = turns_pb.ListTurnArtifactsRequest(tags=[tag])
        await paged(caller.turns.ListTurnArtifacts, tagged, "artifacts")


async def lived(server: ServerProcess, steps: list[Step]) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel, Worker(channel) as worker:
        caller = Caller(channel, unique("user"), unique("account"))
        types = policy(types=["preferences"])
        await caller.session(types, session_id=SESSION)
        model = Model(caller, worker)
        for step in steps:
            await step(model)
        await caller.searchable()
        await check(model)
        if model.turns:
            await bucketed(caller, SESSION, "Trip", turn_id="of-bucket")
            listed = turns_pb.ListMemoryBucketsRequest(session=SESSION)
            assert len(await paged(caller.turns.ListMemoryBuckets, listed, "buckets")) == 1
            model.messages.append(common_pb2.Message())
            found = await paged(
                caller.sessions.ListMessages,
                session_service_pb2.ListMessagesRequest(session=SESSION, scope=ALL),
                "messages",
            )
            model.messages[-1] = found[-1]
            model.turns.append("of-bucket")
        archive = await exported(caller)
        other = Caller(channel, unique("user"), caller.account)
        await imported(other, archive, piece=64 * KIB)
        model.caller = other
        await other.searchable()
        model.archives = [uri.replace(f"/{caller.user}/", f"/{other.user}/") for uri in model.archives]
        await check(model)
        await other.cancel_open()
        await caller.cancel_open()


def test_what_is_accepted_can_be_read(server: ServerProcess, either_store: dict[str, str]) -> None:
    # An example takes a second: to make one that failed smaller would take minutes.
    phases = [Phase.explicit, Phase.reuse, Phase.generate]

    @settings(
        max_examples=ON_POSTGRES if either_store else EXAMPLES,
        deadline=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(STEP, min_size=4, max_size=30))
    def hold(steps: list[Step]) -> None:
        asyncio.run(lived(server, steps))

    hold()
