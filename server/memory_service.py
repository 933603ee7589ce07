"""MemoryService: memories as a tree of versioned documents."""

from typing import Any

import grpc

from runekeep.v1 import memory_service_pb2 as pb
from runekeep.v1 import memory_service_pb2_grpc
from server import memory_reads
from server.identity import caller_space
from server.pages import next_token, open_page
from server.wire import memories as wire
from server.wire.basics import canonical
from storage import memories
from storage.store import Store

Context = grpc.aio.ServicerContext[Any, Any]


class MemoryService(memory_service_pb2_grpc.MemoryServiceServicer):
    """Every read is confined to the caller's space."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database

    async def GetMemory(self, request: pb.GetMemoryRequest, context: Context) -> pb.GetMemoryResponse:
        space = caller_space()
        uri = canonical("uri", request.uri, space.user)
        found = await self._database.read(memories.get, space, uri, version=request.version)
        view = request.view or pb.MEMORY_VIEW_FULL
        return pb.GetMemoryResponse(memory=wire.memory(space.user, found, self._store.registry, view))

    async def ReadDocument(self, request: pb.ReadDocumentRequest, context: Context) -> pb.ReadDocumentResponse:
        return await memory_reads.read(self._store, caller_space(), request)

    async def ListDirectory(self, request: pb.ListDirectoryRequest, context: Context) -> pb.ListDirectoryResponse:
        return await memory_reads.list_(self._store, caller_space(), request)

    async def FindMemories(self, request: pb.FindMemoriesRequest, context: Context) -> pb.FindMemoriesResponse:
        return await memory_reads.find(self._store, caller_space(), request)

    async def ListMemoryVersions(
        self, request: pb.ListMemoryVersionsRequest, context: Context
    ) -> pb.ListMemoryVersionsResponse:
        space = caller_space()
        uri = canonical("uri", request.uri, space.user)
        page = open_page(request, (int,))
        below = int(page.after[0]) if page.after else memories.LATEST
        found = await self._database.read(memories.versions, space, uri, below, page.size + 1)
        token = next_token(request, (found[page.size - 1].version,)) if len(found) > page.size else ""
        registry = self._store.registry
        shown = [wire.memory(space.user, one, registry, pb.MEMORY_VIEW_FULL) for one in found[: page.size]]
        return pb.ListMemoryVersionsResponse(memories=shown, next_page_token=token)

    async def ListMemoryTypes(self, request: pb.ListMemoryTypesRequest, context: Context) -> pb.ListMemoryTypesResponse:
        registry = self._store.registry
        return pb.ListMemoryTypesResponse(
            memory_types=[wire.memory_type(type) for type in registry], digest=registry.digest
        )
