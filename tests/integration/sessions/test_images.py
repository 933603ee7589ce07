"""What images show: told with an output, given as captions to later jobs of the user, seen by nobody else."""

import asyncio
from collections.abc import Callable, Iterable

import grpc
import pytest

from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import Caller, said
from tests.support.worker import Worker, write

TEA = write("preferences", topic="Tea", content="Drinks green tea.")
URL = "https://pictures.example/cat.png"


def looked(url: str = URL, caption: str = "") -> common_pb2.Message:
    parts = [
        common_pb2.Part(text=common_pb2.TextPart(text="look")),
        common_pb2.Part(image=common_pb2.ImagePart(url=url, caption=caption)),
    ]
    return common_pb2.Message(role=common_pb2.ROLE_USER, parts=parts)


def described(sequence: int, part: int, text: str = "A cat on a stove.") -> pb.OutputItem:
    return pb.OutputItem(image_description=pb.ImageDescription(message_sequence=sequence, part_index=part, text=text))


async def input_captions(worker: Worker, lease: pb.Lease) -> list[str]:
    """Captions of the images of a job's input."""
    found = []
    async for piece in worker.calls.GetJobInput(pb.GetJobInputRequest(lease=lease)):
        found += captions(piece.messages.messages)
    return found


async def deliver(worker: Worker, lease: pb.Lease, *items: pb.OutputItem, output_id: str = "o") -> pb.JobVerdict:
    await worker.chunk(lease, output_id, 0, items)
    return await worker.complete(lease, output_id, 1)


async def test_an_image_is_described_once_for_all_sessions_of_its_user(
    caller: Caller, callers: Callable[..., Caller], channel: grpc.aio.Channel
) -> None:
    session = await caller.session()
    other = callers(account=caller.account)
    async with Worker(channel) as worker:
        await caller.committed(said("hello"), looked(), session=session)
        lease = (await worker.take()).lease
        assert await input_captions(worker, lease) == [""]
        verdict = await deliver(worker, lease, pb.OutputItem(operation=TEA), described(2, 1))
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED

        await caller.committed(looked(), looked(caption="Minka"), looked("https://pictures.example/dog.png"))
        lease = (await worker.take()).lease
        assert await input_captions(worker, lease) == ["A cat on a stove.", "Minka", ""]
        await worker.deliver(lease, TEA)
        await other.committed(looked())
        lease = (await worker.take()).lease
        assert await input_captions(worker, lease) == [""], "nobody else is told"
        await worker.deliver(lease, TEA)

        await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session))
        await caller.committed(looked())
        lease = (await worker.take()).lease
        assert await input_captions(worker, lease) == [""], "gone with the session that found it out"
        await worker.deliver(lease, TEA)


@pytest.mark.parametrize("words", ["look", ""])
async def test_a_description_reaches_the_message_it_is_about(
    caller: Caller, callers: Callable[..., Caller], channel: grpc.aio.Channel, words: str
) -> None:
    """Its passage, found at the revision of the commit, and its caption wherever the message is read; nobody else's."""
    zeppelin = "A zeppelin over a lake."
    shown = looked()
    if not words:
        del shown.parts[0]
    committed = await caller.committed(said("see this"), shown, said("a fine day"))
    session = committed.archive_uri.rpartition("/history/")[0]
    await caller.searchable()
    other = callers(account=caller.account)
    await other.add(await other.session(), looked())
    async with Worker(channel) as worker:
        verdict = await deliver(worker, (await worker.take()).lease, described(2, len(shown.parts) - 1, zeppelin))
    found = await caller.find("zeppelin", min_revision=verdict.revision)
    assert f"[photo: {zeppelin}]" in {one.passage.sequence: one.passage.text for one in found.results}[2]

    everything = session_service_pb2.MESSAGE_SCOPE_ALL
    listed = session_service_pb2.ListMessagesRequest(session=session, scope=everything)
    assert captions((await caller.sessions.ListMessages(listed)).messages) == [zeppelin]
    assert zeppelin in (await caller.read(f"{committed.archive_uri}/messages.jsonl")).text
    grep = memory_service_pb2.GrepDocumentsRequest(pattern="zeppelin", uri=committed.archive_uri)
    (match,) = [one for one in (await caller.memories.GrepDocuments(grep)).matches if "jsonl" in one.uri]
    assert match.line == 1
    await caller.add(session, looked())
    asked = session_service_pb2.GetSessionContextRequest(session=session)
    context = await caller.sessions.GetSessionContext(asked)
    assert captions(context.live_messages) == [zeppelin]

    (foreign,) = (await other.sessions.ListSessions(session_service_pb2.ListSessionsRequest())).sessions
    listed = session_service_pb2.ListMessagesRequest(session=foreign.uri, scope=everything)
    assert captions((await other.sessions.ListMessages(listed)).messages) == [""]


def captions(messages: Iterable[common_pb2.Message]) -> list[str]:
    return [part.image.caption for message in messages for part in message.parts if part.HasField("image")]


async def test_what_an_image_shows_is_found_in_passages_made_later(caller: Caller, channel: grpc.aio.Channel) -> None:
    async with Worker(channel) as worker:
        await caller.committed(looked())
        await deliver(worker, (await worker.take()).lease, described(1, 1, "A zeppelin over a lake."))
        again = await caller.committed(looked())
        await worker.deliver((await worker.take()).lease, TEA)
    async with asyncio.timeout(20):
        while (found := await caller.find("zeppelin")).pending_passages:  # noqa: ASYNC110  # told to nobody
            await asyncio.sleep(0.02)
    session = again.archive_uri.rpartition("/history/")[0]
    (text,) = [one.passage.text for one in found.results if one.passage.session == session]
    assert text.endswith(": look [photo: A zeppelin over a lake.]")


async def test_what_is_no_image_of_the_batch_is_named_and_the_rest_applied(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await caller.session()
    async with Worker(channel) as worker:
        await caller.committed(looked(), session=session)
        await worker.deliver((await worker.take()).lease, TEA)
        committed = await caller.committed(looked("https://pictures.example/dog.png"), session=session)
        lease = (await worker.take()).lease
        wrong = [described(1, 1), described(2, 0), described(2, 2), described(3, 1)]
        verdict = await deliver(worker, lease, described(2, 1, "A dog."), *wrong)
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED, "nothing of it can be mended"
        result = (await caller.task(committed.task_id)).result
        assert result.outcome == task_service_pb2.COMMIT_OUTCOME_PARTLY_REJECTED
        assert [(one.reason, one.operation_index, one.message) for one in result.rejected] == [
            ("no_such_image", -1, "image description 1: message 1 is not of the batch"),
            ("no_such_image", -1, "image description 2: part 0 of message 2 is no image"),
            ("no_such_image", -1, "image description 3: part 2 of message 2 is no image"),
            ("no_such_image", -1, "image description 4: message 3 is not of the batch"),
        ]
        await caller.committed(looked("https://pictures.example/dog.png"), looked())
        assert await input_captions(worker, (await worker.take()).lease) == ["A dog.", ""]


async def test_secrets_on_a_picture_are_withheld(caller: Caller, channel: grpc.aio.Channel) -> None:
    async with Worker(channel) as worker:
        committed = await caller.committed(looked())
        await deliver(worker, (await worker.take()).lease, described(1, 1, "A note: password = Tr0ub4dor&3xyz"))
        assert (await caller.task(committed.task_id)).result.secrets_withheld == 1
        await caller.committed(looked())
        (caption,) = await input_captions(worker, (await worker.take()).lease)
    assert "Tr0ub4dor" not in caption and "withheld" in caption


async def test_an_output_with_too_many_descriptions_ends_the_stream(caller: Caller, channel: grpc.aio.Channel) -> None:
    await caller.committed(looked())
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        most = worker.welcome.max_operations
        items = [described(1, 1, "A cat.")] * (most + 1)
        await worker.send(output=pb.OutputChunk(lease=lease, output_id="o", index=0, items=items))
        ended = await worker.end()
    assert ended is not None and ended.seen == ("FAILED_PRECONDITION", "PROTOCOL_VIOLATION")


async def test_descriptions_are_kept_where_nothing_else_of_the_output_could_be_read(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    async with Worker(channel) as worker:
        committed = await caller.committed(looked())
        lease = (await worker.take()).lease
        await worker.chunk(lease, "o", 0, [described(1, 1)])
        assert (await worker.complete(lease, "o", 1, dropped_items=3)).outcome == pb.JOB_OUTCOME_APPLIED
        result = (await caller.task(committed.task_id)).result
        assert (result.outcome, result.dropped_items) == (task_service_pb2.COMMIT_OUTCOME_PARTLY_REJECTED, 3)
        await caller.committed(looked())
        assert await input_captions(worker, (await worker.take()).lease) == ["A cat on a stove."]
