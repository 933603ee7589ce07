"""MemoryService: memories as a tree of versioned documents."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc

from runekeep.v1 import memory_service_pb2 as pb
from runekeep.v1 import memory_service_pb2_grpc
from runekeep_server.identity import caller_space
from runekeep_server.memories import direct_writes, explaining, reads, recall, search
from runekeep_server.memories.tree import grep
from runekeep_server.protocol.answer_sizes import DEFAULT_SIZES, AnswerSizes
from runekeep_server.protocol.errors import invalid
from runekeep_server.protocol.idempotency import mutate, run_to_completion
from runekeep_server.protocol.pagination import cut_page, open_page
from runekeep_server.protocol.truncation import shorten
from runekeep_server.wire import memories as wire
from runekeep_server.wire.basics import canonical
from runekeep_storage.database import Space, Tx
from runekeep_storage.erasure.deletion import delete_user
from runekeep_storage.memories import memories
from runekeep_storage.records import Job
from runekeep_storage.store import Store

Context = grpc.aio.ServicerContext[Any, Any]
Ask = Callable[[Space, pb.AskMemoryRequest, float | None], AsyncGenerator[pb.AskMemoryResponse]]
"""Answers a question within the seconds that its caller has, if it sets a deadline."""


class MemoryService(memory_service_pb2_grpc.MemoryServiceServicer):
    """Every call is confined to the caller's space. `ask` answers questions. `cancelled` is called for each job that
    ended because its user was deleted."""

    def __init__(
        self,
        store: Store,
        *,
        ask: Ask,
        cancelled: Callable[[Job, str], None],
        withhold_secrets: bool,
        sizes: AnswerSizes = DEFAULT_SIZES,
    ) -> None:
        self._store = store
        self._sizes = sizes
        self._withhold_secrets = withhold_secrets
        self._database = store.database
        self._ask = ask
        self._cancelled = cancelled

    async def GetMemory(self, request: pb.GetMemoryRequest, context: Context) -> pb.GetMemoryResponse:
        return await reads.get(self._store, caller_space(), request, self._sizes)

    async def ReadDocument(self, request: pb.ReadDocumentRequest, context: Context) -> pb.ReadDocumentResponse:
        return await reads.read(self._store, caller_space(), request)

    async def ListDirectory(self, request: pb.ListDirectoryRequest, context: Context) -> pb.ListDirectoryResponse:
        return await reads.list_(self._store, caller_space(), request, self._sizes)

    async def GlobDocuments(self, request: pb.GlobDocumentsRequest, context: Context) -> pb.GlobDocumentsResponse:
        return await reads.glob_(self._store, caller_space(), request, self._sizes)

    async def GrepDocuments(self, request: pb.GrepDocumentsRequest, context: Context) -> pb.GrepDocumentsResponse:
        return await grep.grep(self._store, caller_space(), request)

    async def Recall(self, request: pb.RecallRequest, context: Context) -> pb.RecallResponse:
        return await recall.recall(self._store, caller_space(), request, withhold_secrets=self._withhold_secrets)

    async def AskMemory(self, request: pb.AskMemoryRequest, context: Context) -> AsyncIterator[pb.AskMemoryResponse]:
        # Without a deadline, time_remaining returns None, although its type does not say so.
        remaining: float | None = context.time_remaining()
        async with aclosing(self._ask(caller_space(), request, remaining)) as responses:
            async for response in responses:
                yield response

    async def FindMemories(self, request: pb.FindMemoriesRequest, context: Context) -> pb.FindMemoriesResponse:
        return await search.find(self._store, caller_space(), request, self._sizes)

    async def ExplainSearch(self, request: pb.ExplainSearchRequest, context: Context) -> pb.ExplainSearchResponse:
        return await explaining.explain(self._store, caller_space(), request)

    async def ListMemoryVersions(
        self, request: pb.ListMemoryVersionsRequest, context: Context
    ) -> pb.ListMemoryVersionsResponse:
        space = caller_space()
        uri = canonical("uri", request.uri, space.user)
        page = open_page(request, (int,))
        below = int(page.after[0]) if page.after else memories.LATEST
        most_bytes = self._sizes.page
        found, more = await self._database.read(memories.versions_page, space, uri, below, page.size, most_bytes)

        def answer() -> pb.ListMemoryVersionsResponse:
            rows = [wire.memory(space.user, one, self._store.registry, pb.MEMORY_VIEW_FULL) for one in found]
            for row in rows:
                shorten(row, self._sizes.record)
            keys = [(one.version,) for one in found]
            shown, token = cut_page(request, rows, keys, page.size, most_bytes, more=more)
            return pb.ListMemoryVersionsResponse(memories=shown, next_page_token=token)

        # In a thread, because megabytes would block other calls.
        return await asyncio.to_thread(answer) if more else answer()

    async def WriteMemories(self, request: pb.WriteMemoriesRequest, context: Context) -> pb.WriteMemoriesResponse:
        return await direct_writes.write(
            self._store, caller_space(), request, withhold_secrets=self._withhold_secrets, sizes=self._sizes
        )

    async def DeleteUser(self, request: pb.DeleteUserRequest, context: Context) -> pb.DeleteUserResponse:
        space = caller_space()
        if request.user != space.user:
            raise invalid("user", "is not the caller", "Give the name of the user in whose name you call")
        reason = "its user was deleted"
        cancelled: list[Job] = []

        async def work(tx: Tx) -> pb.DeleteUserResponse:
            gone = await delete_user(tx, space, reason)
            cancelled[:] = gone.cancelled
            return pb.DeleteUserResponse(
                sessions=gone.sessions, memories=gone.memories, cancelled_tasks=len(gone.cancelled)
            )

        async def delete() -> pb.DeleteUserResponse:
            try:
                answer = await mutate(self._database, space, request, pb.DeleteUserResponse, work)
            finally:
                # Also if the outcome of the write is unknown: the space may be locked.
                self._store.relay.wake()
                self._store.cleaner.wake()
            for job in cancelled:
                self._cancelled(job, reason)
            return answer

        # Runs to completion: before that, the cleaner has nothing to do.
        answer = await run_to_completion(delete())
        # The deletion is durable: if this call ends here, the cleaner continues.
        await self._store.cleaner.empty(space)
        return answer

    async def ListMemoryTypes(self, request: pb.ListMemoryTypesRequest, context: Context) -> pb.ListMemoryTypesResponse:
        registry = self._store.registry
        return pb.ListMemoryTypesResponse(
            memory_types=[wire.memory_type(type) for type in registry], digest=registry.digest
        )
