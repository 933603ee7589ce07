"""Whatever is accepted is answered, at the largest sizes of records, to the Python client and to an ordinary one."""

from collections.abc import AsyncIterator

import grpc
import pytest

from runekeep import AsyncClient, EditMemory, Message, PutMemory, ResourceExhaustedError, TextPart
from runekeep.v1 import common_pb2, extractor_service_pb2, history_service_pb2, memory_service_pb2, session_service_pb2
from tests.support.callers import Caller, failure, unique, used_tool
from tests.support.exports import exported, imported
from tests.support.server_process import ServerProcess
from tests.support.turns import paged
from tests.support.worker import Worker, edit, write

MIB = 1024 * 1024
SERVER_SETTINGS = {"RUNEKEEP_MAX_MESSAGE_BYTES": str(16 * MIB)}
ALL = session_service_pb2.MESSAGE_SCOPE_ALL
FULL = memory_service_pb2.MEMORY_VIEW_FULL


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[AsyncClient]:
    # Megabytes take longer than the client's own deadlines on a machine with other work.
    async with AsyncClient(server.address, account=unique("account"), user=unique("user"), timeout=120) as made:
        yield made


@pytest.fixture
async def ordinary(server: ServerProcess) -> AsyncIterator[Caller]:
    """A caller whose channel has gRPC's own limit of 4 MiB for what it takes."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield Caller(channel, unique("user"), unique("account"))


def text(size: int) -> common_pb2.Part:
    return common_pb2.Part(text=common_pb2.TextPart(text="x" * size))


def of_size(size: int) -> session_service_pb2.AddMessagesRequest:
    """One message that makes a request of so many bytes."""
    request = session_service_pb2.AddMessagesRequest(session="s")
    parts = request.messages.add(role=common_pb2.ROLE_USER).parts
    parts.extend([text(256 * 1024)] * (size // (256 * 1024 + 16)))
    parts.append(text(1))
    parts[-1].text.text = "x" * (size - request.ByteSize() - 5)
    parts[-1].text.text += "x" * (size - request.ByteSize())
    assert request.ByteSize() == size, request.ByteSize()
    return request


async def test_sixty_messages_of_416_kilobytes_are_listed(client: AsyncClient) -> None:
    session = client.session("s")
    half = "x" * 208_000
    texts = [f"{number} {half}" for number in range(60)]
    for start in range(0, 60, 20):
        await session.add_messages(
            [Message("user", [TextPart(one), TextPart(half)]) for one in texts[start : start + 20]]
        )
    found = [message async for message in session.messages()]
    assert [(one.parts[0].text, one.parts[1].text) for one in found] == [(one, half) for one in texts]  # type: ignore[union-attr]  # texts
    assert [one.sequence for one in found] == list(range(1, 61))


async def test_a_request_beyond_the_limit_is_refused_with_what_to_do(client: AsyncClient) -> None:
    parts = [TextPart("x" * 256 * 1024)] * 64
    with pytest.raises(ResourceExhaustedError, match=r"larger than max .* Send or ask for less at once"):
        await client.session("s").add_messages([Message("user", parts)] * 2)


async def test_a_page_is_what_an_ordinary_client_takes(ordinary: Caller) -> None:
    session = await ordinary.session()
    message = common_pb2.Message(role=common_pb2.ROLE_USER, parts=[text(208_000), text(208_000)])
    for _ in range(2):
        await ordinary.add(session, *[message] * 15)
    request = session_service_pb2.ListMessagesRequest(session=session)
    first = await ordinary.sessions.ListMessages(request)
    assert len(first.messages) == 7 and first.next_page_token
    found = await paged(ordinary.sessions.ListMessages, request, "messages")
    assert [one.sequence for one in found] == list(range(1, 31))


async def test_what_no_answer_could_hold_is_refused_with_its_size(caller: Caller) -> None:
    session = await caller.session(session_id="s")
    before = (await caller.sessions.GetSession(session_service_pb2.GetSessionRequest(session=session))).session
    failed = await failure(caller.sessions.AddMessages(of_size(16 * MIB - 4)))
    assert failed.seen == ("RESOURCE_EXHAUSTED", "TOO_LARGE") and failed.fields == ["messages[0]"]
    size, limit = (int(failed.metadata[name]) for name in ("size", "limit"))
    assert failed.metadata["field"] == "messages[0]" and str(size) in failed.message and str(limit) in failed.message
    assert (await caller.sessions.GetSession(session_service_pb2.GetSessionRequest(session=session))).session == before
    # As large as may be, to the byte: what is stored has an id that the server made.
    request = of_size(limit)
    request.messages[0].id = "m"
    grown = request.ByteSize() - limit
    request.messages[0].parts[-1].text.text = request.messages[0].parts[-1].text.text[grown + 16 :]
    await caller.sessions.AddMessages(request)
    (found,) = await paged(
        caller.sessions.ListMessages, session_service_pb2.ListMessagesRequest(session=session, scope=ALL), "messages"
    )
    assert found.parts == request.messages[0].parts and not found.shortened
    committed = await caller.commit(session)
    async with Worker(caller.channel) as worker:
        job = await worker.take()
        assert job.task_id == committed.task_id
        assert list((await worker.input(job.lease)).messages[0].parts) == list(request.messages[0].parts)
        await worker.deliver(job.lease)


async def test_json_that_grows_when_it_is_stored_is_measured_as_it_comes_back(caller: Caller) -> None:
    """An unset value is null once it is stored, which takes twice as many bytes."""
    await caller.session(session_id="s")
    limit = int((await failure(caller.sessions.AddMessages(of_size(16 * MIB - 4)))).metadata["limit"])

    def with_values(count: int) -> session_service_pb2.AddMessagesRequest:
        request = of_size(limit - 180_000 - MIB)
        tool = common_pb2.ToolPart(tool_id="call", tool_name="grep", output="x" * MIB)
        values = tool.input.fields["list"].list_value.values
        values.add()
        values.extend([values[0]] * (count - 1))
        request.messages[0].parts.add(tool=tool)
        return request

    larger = with_values(60_000)
    assert larger.messages[0].ByteSize() < limit
    failed = await failure(caller.sessions.AddMessages(larger))
    assert failed.seen == ("RESOURCE_EXHAUSTED", "TOO_LARGE") and failed.fields == ["messages[0]"]
    await caller.sessions.AddMessages(with_values(30_000))
    (found,) = await paged(
        caller.sessions.ListMessages, session_service_pb2.ListMessagesRequest(session=larger.session), "messages"
    )
    assert len(found.parts[-1].tool.input.fields["list"].list_value.values) == 30_000


async def test_a_full_search_of_ninety_memories_of_240_kilobytes(client: AsyncClient, ordinary: Caller) -> None:
    body = "green tea " * 24_000
    for start in range(0, 90, 15):
        changes = [
            PutMemory("preferences", {"topic": f"t{number:02}", "content": body}) for number in range(start, start + 15)
        ]
        revision = (await client.write_memories(changes))["revision"]
    found = await client.find("green tea", limit=100, view="full", min_revision=revision)
    results = found["results"]
    assert {one["uri"].rpartition("/")[2] for one in results} == {f"t{number:02}.md" for number in range(90)}
    views = [one["view"] for one in results]
    count = {view: views.count(view) for view in ("full", "overview", "abstract")}
    # The best ones have the room.
    assert views == [view for view, times in count.items() for _ in range(times)] and 3 <= count["full"] < 8
    assert all((one["content"] == body) == (one["view"] == "full") for one in results)
    assert all(one["abstract"] and bool(one["overview"]) == (one["view"] != "abstract") for one in results)
    rest = await client.get_memory(results[-1]["uri"])
    assert rest["content"] == body and not rest["shortened"]
    # Of the shorter views each has room.
    found = await client.find("green tea", limit=100, view="overview")
    assert {one["view"] for one in found["results"]} == {"overview"} and len(found["results"]) == 90


async def test_a_memory_that_no_answer_could_hold_is_refused(client: AsyncClient) -> None:
    await client.write_memories([PutMemory("preferences", {"topic": "Tea", "content": "a" * 4_000_000})])
    uri = "viking://user/memories/preferences/Tea.md"
    with pytest.raises(
        ResourceExhaustedError, match=r"changes\[0\]\.edit\.patches\[0\] takes \d+ bytes, and \d+ is"
    ) as caught:
        await client.write_memories([EditMemory(uri, {"content": "b" * 4_300_000}, base_version=1)])
    assert caught.value.reason == "TOO_LARGE"
    with pytest.raises(ResourceExhaustedError, match=r'changes\[0\]\.put\.fields\["content"\]'):
        await client.write_memories([PutMemory("preferences", {"topic": "Rye", "content": "b" * 4_300_000})])
    assert (await client.get_memory(uri))["version"] == 1
    await client.write_memories([EditMemory(uri, {"content": "b" * 4_000_000}, base_version=1)])
    versions = [one async for one in client.versions(uri)]
    assert [one["content"][0] for one in versions] == ["b", "a"]
    (change,) = (await client.diff_revisions(1, 2))["changes"]
    assert (change["before"][0], change["after"][0], change["shortened"]) == ("a", "b", False)
    assert (await client.rollback(2, preview=True))["texts_omitted"]


async def test_a_commit_that_would_make_too_large_a_memory_leaves_that_out(
    server: ServerProcess, caller: Caller
) -> None:
    async with AsyncClient(server.address, account=caller.account, user=caller.user, timeout=120) as client:
        await client.write_memories([PutMemory("preferences", {"topic": "Tea", "content": "a" * 3_600_000 + "END"})])
    uri = caller.uri("memories/preferences/Tea.md")
    longer = extractor_service_pb2.OutputItem(operation=edit(uri, content=[("END", "x" * 200_000 + "END")]))
    async with Worker(caller.channel) as worker:
        task = await caller.committed()
        lease = (await worker.take()).lease
        # A slow machine needs more than the ten seconds of the first lease for megabytes.
        await worker.heartbeat(lease)
        for number in range(4):
            await worker.chunk(lease, "o", number, [longer])
        verdict = await worker.complete(lease, "o", 4)
        assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_NEEDS_REPAIR
        assert {one.reason for one in verdict.refused} == {"too_large"}
        assert [one.operation_index for one in verdict.refused] == [2, 3]
        # Sent once more they are left out, and the others are applied.
        await worker.heartbeat(lease, sequence=2)
        for number in range(4):
            await worker.chunk(lease, "p", number, [longer])
        assert (await worker.complete(lease, "p", 4)).outcome == extractor_service_pb2.JOB_OUTCOME_APPLIED
    assert len((await caller.memory(uri)).content) == 4_000_000 + len("END")
    assert {one.reason for one in (await caller.task(task.task_id)).result.rejected} == {"too_large"}


async def test_the_diff_of_a_large_commit_comes_in_pages(caller: Caller) -> None:
    committed = await caller.committed()
    names = [f"t{number:03}" for number in range(12)]
    async with Worker(caller.channel) as worker:
        lease = (await worker.take()).lease
        for number, name in enumerate(names):
            operation = write("preferences", topic=name, content="x" * 150_000, reason="said so")
            await worker.chunk(lease, "o", number, [extractor_service_pb2.OutputItem(operation=operation)])
        await worker.complete(lease, "o", len(names))
    request = session_service_pb2.GetMemoryDiffRequest(archive_uri=committed.archive_uri)
    whole = (await caller.sessions.GetMemoryDiff(request)).diff
    assert len(whole.adds) == 12 and not any(one.shortened for one in whole.adds)
    request.page_size = 8
    pages = []
    while True:
        pages.append(await caller.sessions.GetMemoryDiff(request))
        if not pages[-1].next_page_token:
            break
        request.page_token = pages[-1].next_page_token
    assert all(page.ByteSize() < 4 * MIB for page in pages) and len(pages) == 2
    assert [one for page in pages for one in page.diff.adds] == list(whole.adds)
    assert all(page.diff.revision == whole.revision for page in pages)
    # Every message that a memory came from leads to it, page by page.
    listed = history_service_pb2.ListMessageMemoriesRequest(
        session=committed.archive_uri.split("/")[5], message_id=await _first_message(caller, committed), view=FULL
    )
    found = await paged(caller.history.ListMessageMemories, listed, "memories")
    assert len(found) == 12 and sum(len(one.content) for one in found) == 12 * 150_000


async def _first_message(caller: Caller, committed: session_service_pb2.CommitSessionResponse) -> str:
    request = session_service_pb2.ListMessagesRequest(session=committed.archive_uri)
    return str((await caller.sessions.ListMessages(request)).messages[0].id)


async def test_large_outputs_come_back_whole_after_an_import(
    client: AsyncClient, caller: Caller, server: ServerProcess
) -> None:
    session = await caller.session(session_id="s")
    outputs = [chr(0x61 + number) * 2_000_000 for number in range(7)]
    message = common_pb2.Message(id="m", role=common_pb2.ROLE_ASSISTANT)
    message.parts.extend(used_tool(f"c{number}", output).parts[0] for number, output in enumerate(outputs))
    await caller.add(session, message)
    archive = await exported(caller)
    other = Caller(caller.channel, unique("user"), caller.account)
    await imported(other, archive, piece=MIB)
    for one in (caller, other):
        for number, output in enumerate(outputs):
            uri = one.uri(f"sessions/s/tools/c{number}/output.txt")
            read = [
                await one.read(uri, characters=memory_service_pb2.CharacterRange(start=start)) for start in (0, MIB)
            ]
            assert "".join(part.text for part in read) == output
        await one.commit("s")
        async with Worker(one.channel) as worker:
            lease = (await worker.take()).lease
            (whole,) = (await worker.input(lease)).messages
            assert [part.tool.output for part in whole.parts] == outputs
            await worker.deliver(lease)
