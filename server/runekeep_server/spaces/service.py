"""SpaceService: operations on all data of a user."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from runekeep.v1 import space_service_pb2 as pb
from runekeep.v1 import space_service_pb2_grpc
from runekeep_server.identity import caller_space
from runekeep_server.rpc.audit import is_about
from runekeep_server.spaces.erasures import Erasures
from runekeep_server.spaces.exporting import export
from runekeep_server.spaces.importing import Imports
from runekeep_server.spaces.users import copy_user, list_users
from runekeep_storage.store import Store

Context = grpc.aio.ServicerContext[Any, Any]


class SpaceService(space_service_pb2_grpc.SpaceServiceServicer):
    """Delegates its calls."""

    def __init__(self, store: Store, erasures: Erasures, imports: Imports) -> None:
        self._store = store
        self._erasures = erasures
        self._imports = imports

    async def ExportSpace(self, request: pb.ExportSpaceRequest, context: Context) -> None:  # type: ignore[override]  # it writes
        # Not a generator: a slow reader must block the write, and with it the reading.
        await export(self._store, caller_space(), lambda data: context.write(pb.ExportSpaceResponse(data=data)))

    async def ImportSpace(
        self, requests: AsyncIterator[pb.ImportSpaceRequest], context: Context
    ) -> pb.ImportSpaceResponse:
        return await self._imports.take(caller_space(), requests)

    async def CopyUser(self, request: pb.CopyUserRequest, context: Context) -> pb.CopyUserResponse:
        return await copy_user(self._imports, request)

    async def ListUsers(self, request: pb.ListUsersRequest, context: Context) -> pb.ListUsersResponse:
        return await list_users(self._store, request)

    async def EraseData(self, request: pb.EraseDataRequest, context: Context) -> pb.EraseDataResponse:
        answer = await self._erasures.erase(caller_space(), request)
        is_about(f"{request.WhichOneof('scope')} {answer.erasure.erasure_id}")
        return answer

    async def GetErasure(self, request: pb.GetErasureRequest, context: Context) -> pb.GetErasureResponse:
        return await self._erasures.get(caller_space(), request)

    async def ListErasures(self, request: pb.ListErasuresRequest, context: Context) -> pb.ListErasuresResponse:
        return await self._erasures.page(caller_space(), request)
