"""Data of a server that took larger requests: its records are cut, say so, and are read whole by ranges."""

from collections.abc import AsyncIterator, Callable

import grpc
import pytest

from runekeep.v1 import common_pb2, history_service_pb2, session_service_pb2
from runekeep.v1 import extractor_service_pb2 as work_pb
from runekeep.v1 import memory_service_pb2 as memories_pb
from tests.support.callers import Caller, used_tool
from tests.support.changes import change, put, written
from tests.support.exports import exported, imported
from tests.support.server_process import ServerProcess
from tests.support.turns import paged
from tests.support.worker import Worker

MIB = 1024 * 1024
FULL = memories_pb.MEMORY_VIEW_FULL
TEA = "viking://user/memories/preferences/Tea.md"
LONG, LONGER = "long " * 500_000, "longer " * 200_000
PARTS = [common_pb2.Part(text=common_pb2.TextPart(text=str(number % 10) * 250_000)) for number in range(24)]


async def _live(caller: Caller) -> None:
    await caller.session(session_id="s")
    await caller.add("s", common_pb2.Message(id="before", role=common_pb2.ROLE_USER, parts=PARTS[:1]))
    await caller.add("s", common_pb2.Message(id="large", role=common_pb2.ROLE_USER, parts=PARTS))
    outputs = common_pb2.Message(id="tools", role=common_pb2.ROLE_ASSISTANT)
    outputs.parts.extend(used_tool(f"c{number}", "y" * 2_000_000).parts[0] for number in range(3))
    await caller.add("s", outputs)
    await caller.add("s", common_pb2.Message(id="after", role=common_pb2.ROLE_USER, parts=PARTS[:1]))
    await written(caller, put("preferences", topic="Tea", content=LONG))
    await written(caller, change(TEA, 1, content=LONG + LONGER))
    await written(caller, put("preferences", topic="Rye", content="long bread"))


@pytest.fixture
async def caller(own_server: Callable[..., ServerProcess]) -> AsyncIterator[Caller]:
    """Of a server of small answers, on the data of one of large ones."""
    large = own_server({"RUNEKEEP_MAX_MESSAGE_BYTES": str(16 * MIB)})
    async with grpc.aio.insecure_channel(large.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        await _live(Caller(channel, "anna", "home"))
    large.stop()
    small = own_server({"RUNEKEEP_MAX_MESSAGE_BYTES": str(64 * 1024)})
    async with grpc.aio.insecure_channel(small.address) as channel:
        yield Caller(channel, "anna", "home")


async def _characters(caller: Caller, uri: str, start: int = 0, **fields: object) -> str:
    pieces = []
    while True:
        part = await caller.read(uri, characters=memories_pb.CharacterRange(start=start), **fields)
        pieces.append(part.text)
        start = part.next_offset
        if not start:
            return "".join(pieces)


async def test_records_are_cut_and_read_by_ranges(caller: Caller) -> None:
    listed = session_service_pb2.ListMessagesRequest(session="s")
    messages = await paged(caller.sessions.ListMessages, listed, "messages")
    assert [(one.id, one.shortened) for one in messages] == [
        ("before", False), ("large", True), ("tools", False), ("after", False),
    ]  # fmt: skip
    assert list(messages[0].parts) == PARTS[:1]
    cut = [part.text.text for part in messages[1].parts]
    assert len(cut) == 24 and all(whole.text.text.startswith(one) for one, whole in zip(cut, PARTS, strict=True))
    assert 3 * MIB < messages[1].ByteSize() < 4 * MIB
    # The second line of the log, in ranges.
    line = await caller.read("viking://session/s/messages.jsonl", offset=1, limit=1)
    assert line.next_character and line.total_lines == 4
    rest = await _characters(caller, "viking://session/s/messages.jsonl", line.next_character)
    assert (line.text + rest).partition("\n")[0].count('"type": "text"') == 24

    memory = await caller.memory(TEA)
    assert memory.shortened and (LONG + LONGER).startswith(memory.content) and memory.version == 2
    assert await _characters(caller, TEA) == LONG + LONGER
    assert await _characters(caller, TEA, as_of=common_pb2.AsOf(revision=1)) == LONG
    request = memories_pb.ListMemoryVersionsRequest(uri=TEA)
    versions = await paged(caller.memories.ListMemoryVersions, request, "memories")
    assert [(one.version, one.shortened) for one in versions] == [(2, True), (1, True)]
    found = (await caller.find("long", view=FULL)).results
    assert {one.memory.uri.rpartition("/")[2]: one.view for one in found} == {
        "Tea.md": memories_pb.MEMORY_VIEW_OVERVIEW, "Rye.md": FULL,
    }  # fmt: skip
    diff = history_service_pb2.DiffRevisionsRequest(to=common_pb2.AsOf(revision=2))
    # `from` is a word of Python.
    getattr(diff, "from").CopyFrom(common_pb2.AsOf(revision=1))
    (one,) = await paged(caller.history.DiffRevisions, diff, "changes")
    assert one.shortened and LONG.startswith(one.before) and (LONG + LONGER).startswith(one.after)
    preview = history_service_pb2.RollbackRevisionRequest(revision=2, preview=True)
    assert (await caller.history.RollbackRevision(preview)).texts_omitted


async def test_an_extractor_reads_what_it_is_to_work_on(caller: Caller) -> None:
    await caller.commit("s")
    async with Worker(caller.channel) as worker:
        lease = (await worker.take()).lease
        messages = (await worker.input(lease)).messages
        assert [(one.id, one.shortened) for one in messages] == [
            ("before", False), ("large", True), ("tools", True), ("after", False),
        ]  # fmt: skip
        read = memories_pb.ReadDocumentRequest(uri=TEA, limit=1)
        answer = await worker.calls.ReadForJob(work_pb.ReadForJobRequest(lease=lease, read=read))
        assert answer.memory.shortened and answer.document.text
        wanted = memories_pb.FindMemoriesRequest(query="long", view=FULL)
        found = (await worker.calls.FindForJob(work_pb.FindForJobRequest(lease=lease, find=wanted))).found
        # Whole, or not at all: an engine would take a part of a memory for all of it.
        assert [one.memory.content for one in found.results if one.memory.uri] == ["long bread"]
        await worker.deliver(lease)


async def test_an_export_has_all_of_it(caller: Caller) -> None:
    other = Caller(caller.channel, "bo", "home")
    await imported(other, await exported(caller), piece=32 * 1024)
    uri = "viking://user/memories/preferences/Tea.md"
    assert await _characters(other, uri) == LONG + LONGER
    for path in ("messages.jsonl", "tools/c2/output.txt"):
        of_both = [await _characters(one, f"viking://session/s/{path}") for one in (caller, other)]
        assert of_both[0] == of_both[1] and len(of_both[0]) >= 2_000_000
