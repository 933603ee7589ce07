"""ExtractorService: the Work stream, and the reads of a job, confined to the space of its lease."""

import json
from asyncio import to_thread
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message as ProtoMessage

from runekeep.v1 import common_pb2, extractor_service_pb2_grpc, memory_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from schemas.policy import Plan
from schemas.session_skills import SESSION_SKILLS
from schemas.uris import Place, parse
from server import memory_reads
from server.errors import protocol_violation, unavailable
from server.validation import validate_message
from server.wire import memories as wire_memories
from server.wire import messages as wire_messages
from server.work.connection import Connection, lease_of
from server.work.dispatcher import Dispatcher
from storage import archives, image_descriptions, jobs, memories, sessions
from storage.database import Space, Tx
from storage.embedders.vectors import from_bytes
from storage.records import STORED_OUTPUT, Archive, Job, LeaseId, Message, Usage
from storage.store import Store

INPUT_CHUNK_BYTES = 768 * 1024
"""Of messages or of what was used in one piece of a job's input; one that is larger is a piece by itself."""
INPUT_PAGE = 200
"""Messages that are read from the store at once."""

Item = TypeVar("Item", bound=ProtoMessage)
Context = grpc.aio.ServicerContext[Any, Any]


class ExtractorService(extractor_service_pb2_grpc.ExtractorServiceServicer):
    """Workers are known by their leases: a call names one, and reaches that lease's space and no other."""

    def __init__(self, store: Store, dispatcher: Dispatcher) -> None:
        self._store = store
        self._dispatcher = dispatcher

    async def Work(
        self, request_iterator: AsyncIterator[pb.WorkRequest], context: Context
    ) -> AsyncIterator[pb.WorkResponse]:
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        if first is None:
            return
        validate_message(first)
        if first.WhichOneof("message") != "hello":
            raise protocol_violation("The first message is no Hello", "Send Hello first")
        connection = Connection(self._dispatcher, first.hello)
        # Closed here and now when the call ends: the reader must not outlive its stream.
        with self._dispatcher.connected(connection):
            async with aclosing(connection.serve(requests)) as responses:
                async for response in responses:
                    yield response

    async def GetJobInput(
        self, request: pb.GetJobInputRequest, context: Context
    ) -> AsyncIterator[pb.GetJobInputResponse]:
        job = await self._dispatcher.hold(lease_of(request.lease))
        types = self._types(Plan.from_json(json.loads(job.plan)))
        yield pb.GetJobInputResponse(memory_types=pb.MemoryTypeChunk(memory_types=types))
        archive, usages = await self._store.database.read(_input, job.lease)
        async for messages in _chunks(self._messages(job, archive)):
            yield pb.GetJobInputResponse(messages=pb.MessageChunk(messages=messages))
        async for uses in _chunks(_uses(usages)):
            piece = pb.GetJobInputResponse(usage=pb.UsageChunk())
            for use in uses:
                piece.usage.MergeFrom(use)
            yield piece

    async def ReadForJob(self, request: pb.ReadForJobRequest, context: Context) -> pb.ReadForJobResponse:
        job = await self._job(request.lease)
        space = jobs.space_of(job)
        document = await memory_reads.read(self._store, space, request.read, job.revision)
        answer = pb.ReadForJobResponse(document=document)
        name = document.uri.rpartition("/")[2]
        if parse(document.uri).kind in (Place.MEMORIES, Place.SKILLS) and not name.startswith("."):
            found = await self._store.database.read(memories.get, space, document.uri, revision=job.revision)
            full = memory_service_pb2.MEMORY_VIEW_FULL
            answer.memory.CopyFrom(wire_memories.memory(space.user, found, self._store.registry, full))
        return answer

    async def ListForJob(self, request: pb.ListForJobRequest, context: Context) -> pb.ListForJobResponse:
        job = await self._job(request.lease)
        listing = await memory_reads.list_(self._store, jobs.space_of(job), request.list, job.revision)
        return pb.ListForJobResponse(listing=listing)

    async def FindForJob(self, request: pb.FindForJobRequest, context: Context) -> pb.FindForJobResponse:
        job = await self._job(request.lease)
        found = await memory_reads.find(self._store, jobs.space_of(job), request.find, at_revision=job.revision)
        return pb.FindForJobResponse(found=found)

    async def EmbedForJob(self, request: pb.EmbedForJobRequest, context: Context) -> pb.EmbedForJobResponse:
        await self._job(request.lease)
        embedder = self._store.embedder
        if embedder is None:
            raise unavailable("embedder", "This server runs without an embedder", retry_after=60.0)
        vectors = await embedder.embed(list(request.texts), bulk=True)
        return pb.EmbedForJobResponse(
            model=embedder.model, embeddings=[pb.Embedding(values=from_bytes(vector)) for vector in vectors]
        )

    async def _job(self, lease: pb.Lease) -> Job:
        """The job of a lease that is held. Reads renew nothing: only what workers send of themselves does."""
        return await self._store.database.read(jobs.held, lease_of(lease))

    def _types(self, plan: Plan) -> list[Any]:
        names = (*plan.long_term_types, *plan.execution_types)
        types = [type for type in self._store.registry if type.name in names]
        if plan.session_skills:
            types.append(SESSION_SKILLS)
        return [wire_memories.memory_type(type) for type in types]

    async def _messages(self, job: Job, archive: Archive) -> AsyncIterator[common_pb2.Message]:
        """Messages of the job's archive, whole, read page by page: an archive may hold any number."""
        space = jobs.space_of(job)
        first = archive.first_sequence
        while page := await self._store.database.read(_page, space, job.session_id, first, archive.last_sequence):
            for message in page:
                yield wire_messages.to_wire(await self._with_outputs(space, message))
            first = page[-1].sequence + 1

    async def _with_outputs(self, space: Space, message: Message) -> Message:
        """The message with tool outputs that are kept apart put back whole."""
        parts = []
        for part in message.parts:
            blob = part.get(STORED_OUTPUT)
            if blob is not None:
                part = {**part, "output": (await to_thread(self._store.blobs.get, space, blob)).decode()}
            parts.append(part)
        return replace(message, parts=tuple(parts))


async def _page(tx: Tx, space: Space, session_id: str, first: int, last: int) -> list[Message]:
    """Messages, with what is known of their images: it need not be found out, and paid for, again."""
    messages = await sessions.messages_between(tx, space, session_id, first, last, INPUT_PAGE)
    return await image_descriptions.captioned(tx, space, messages)


async def _input(tx: Tx, lease: LeaseId) -> tuple[Archive, list[Usage]]:
    job = await jobs.held(tx, lease)
    space = jobs.space_of(job)
    archive = await archives.get(tx, space, job.session_id, job.archive_index)
    return archive, await sessions.usages_of(tx, space, job.session_id, job.archive_index)


async def _uses(usages: Iterable[Usage]) -> AsyncIterator[pb.UsageChunk]:
    """One use each, after an empty one: the input ends with usage even where nothing was used."""
    yield pb.UsageChunk()
    for usage in usages:
        if usage.kind == "context":
            yield pb.UsageChunk(context_uris=[usage.uri])
        else:
            yield pb.UsageChunk(skills=[wire_messages.usage_to_wire(usage)])


async def _chunks(items: AsyncIterator[Item]) -> AsyncIterator[list[Item]]:
    """The items in lists of at most INPUT_CHUNK_BYTES, or of one that is larger."""
    chunk: list[Item] = []
    size = 0
    async for item in items:
        length = item.ByteSize()
        if chunk and size + length > INPUT_CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += length
    if chunk:
        yield chunk
