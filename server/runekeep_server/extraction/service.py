"""ExtractorService: the Work stream, and reads of a job, which are confined to the space of its lease."""

from asyncio import to_thread
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import extractor_service_pb2_grpc, memory_service_pb2
from runekeep_schemas.documents.uris import Place, parse
from runekeep_server.extraction.extraction import Extraction
from runekeep_server.extraction.job_input import JobInput
from runekeep_server.identity import current_worker
from runekeep_server.leases.lease_table import lease_of
from runekeep_server.memories import listed_memories, reads, search
from runekeep_server.protocol.answer_sizes import AnswerSizes
from runekeep_server.protocol.errors import protocol_violation, unavailable
from runekeep_server.protocol.truncation import shorten
from runekeep_server.protocol.validation import validate_message
from runekeep_server.settings import Settings
from runekeep_server.wire import memories as wire_memories
from runekeep_storage.embedders.vectors import from_bytes
from runekeep_storage.jobs import jobs
from runekeep_storage.memories import memories
from runekeep_storage.records import Job, LeaseId
from runekeep_storage.store import Store

Context = grpc.aio.ServicerContext[Any, Any]


class ExtractorService(extractor_service_pb2_grpc.ExtractorServiceServicer):
    """A call names a lease and reaches only that lease's space. `runekeep_storage.jobs.lease_holders` decides who may
    use the lease."""

    def __init__(self, store: Store, settings: Settings, extraction: Extraction) -> None:
        self._store = store
        self._extraction = extraction
        self._sizes = AnswerSizes.of(settings.max_message_bytes)
        self._input = JobInput(store, self._sizes, buckets_enabled=settings.buckets_enabled)

    async def Work(
        self, request_iterator: AsyncIterator[pb.WorkRequest], context: Context
    ) -> AsyncIterator[pb.WorkResponse]:
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        if first is None:
            return
        validate_message(first)
        if first.WhichOneof("message") != "hello":
            raise protocol_violation("The first message is not a Hello", "Send Hello first")
        connection = self._extraction.new_connection(current_worker(), first.hello)
        # Closed as soon as the call ends: the reader must not outlive its stream.
        with self._extraction.dispatcher.serve(connection):
            async with aclosing(connection.serve(requests)) as responses:
                async for response in responses:
                    yield response

    async def GetJobInput(
        self, request: pb.GetJobInputRequest, context: Context
    ) -> AsyncIterator[pb.GetJobInputResponse]:
        job = await self._extraction.renewer.renew(_presented(request.lease))
        async for piece in self._input.pieces(job):
            yield piece

    async def ReadForJob(self, request: pb.ReadForJobRequest, context: Context) -> pb.ReadForJobResponse:
        job = await self._job(request.lease)
        space = jobs.space_of(job)
        document = await reads.read(self._store, space, request.read, job.revision)
        answer = pb.ReadForJobResponse(document=document)
        name = document.uri.rpartition("/")[2]
        if parse(document.uri).kind in (Place.MEMORIES, Place.SKILLS) and not name.startswith("."):
            found = await self._store.database.read(memories.get, space, document.uri, revision=job.revision)
            full = memory_service_pb2.MEMORY_VIEW_FULL
            answer.memory.CopyFrom(wire_memories.memory(space.user, found, self._store.registry, full))
            if answer.ByteSize() > self._sizes.record:
                await to_thread(shorten, answer, self._sizes.record)
                answer.memory.shortened = True
        return answer

    async def ListForJob(self, request: pb.ListForJobRequest, context: Context) -> pb.ListForJobResponse:
        lease, registry = _presented(request.lease), self._store.registry
        return await self._store.database.read_global(
            listed_memories.for_job, registry, lease, request, self._sizes.page
        )

    async def FindForJob(self, request: pb.FindForJobRequest, context: Context) -> pb.FindForJobResponse:
        job = await self._job(request.lease)
        space = jobs.space_of(job)
        found = await search.find_for_job(self._store, space, request.find, job.revision, self._sizes)
        return pb.FindForJobResponse(found=found)

    async def EmbedForJob(self, request: pb.EmbedForJobRequest, context: Context) -> pb.EmbedForJobResponse:
        job = await self._job(request.lease)
        embedder = await self._store.embedders.of_space(jobs.space_of(job))
        if embedder is None:
            raise unavailable("embedder", "This server runs without an embedder", retry_after=60.0)
        vectors = await embedder.embed(list(request.texts), space=jobs.space_of(job))
        return pb.EmbedForJobResponse(
            model=embedder.model, embeddings=[pb.Embedding(values=from_bytes(vector)) for vector in vectors]
        )

    async def _job(self, lease: pb.Lease) -> Job:
        """Returns the job of a held lease. Reads do not renew the lease; only messages of the worker do."""
        return await self._store.database.read_global(jobs.held, _presented(lease))


def _presented(lease: pb.Lease) -> LeaseId:
    return lease_of(lease, current_worker())
