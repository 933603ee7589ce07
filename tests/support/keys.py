"""API keys in tests: a server that asks for them, operators who make them, channels that send them."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import grpc

from runekeep.v1 import admin_service_pb2 as pb
from runekeep.v1 import admin_service_pb2_grpc

ADMIN_KEY = "a-key-of-the-settings-for-operators-0001"
WORKER_KEY = "a-key-of-the-settings-for-extractors-002"
KEYED = {
    "RUNEKEEP_IDENTITY_MODE": "keys",
    "RUNEKEEP_ADMIN_KEY": ADMIN_KEY,
    "RUNEKEEP_WORKER_KEY": WORKER_KEY,
    # The tests ask a server which calls it has.
    "RUNEKEEP_REFLECTION": "true",
}
"""Settings of a server in the mode keys."""

Metadata = tuple[tuple[str, str], ...]


def bearer(key: str) -> Metadata:
    return (("authorization", f"Bearer {key}"),)


def _sending(kind: type, metadata: Metadata) -> Any:
    """An interceptor that adds metadata to calls of one kind: gRPC takes none for more than one."""

    async def send(self: Any, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        every = grpc.aio.Metadata(*(details.metadata or ()), *metadata)
        more = grpc.aio.ClientCallDetails(
            details.method, details.timeout, every, details.credentials, details.wait_for_ready
        )
        return await continuation(more, request)

    (name,) = (name for name in vars(kind) if name.startswith("intercept_"))
    return type("Sending", (kind,), {name: send})()


@asynccontextmanager
async def sending(address: str, key: str, *more: tuple[str, str]) -> AsyncIterator[grpc.aio.Channel]:
    """A channel whose calls all carry the key."""
    kinds = (
        grpc.aio.UnaryUnaryClientInterceptor,
        grpc.aio.UnaryStreamClientInterceptor,
        grpc.aio.StreamUnaryClientInterceptor,
        grpc.aio.StreamStreamClientInterceptor,
    )
    interceptors = [_sending(kind, (*bearer(key), *more)) for kind in kinds]
    async with grpc.aio.insecure_channel(address, interceptors=interceptors) as channel:
        yield channel


class Operator:
    """Calls AdminService with the key of the settings, or another one."""

    def __init__(self, channel: grpc.aio.Channel, key: str = ADMIN_KEY) -> None:
        self.stub = admin_service_pb2_grpc.AdminServiceStub(channel)
        self.metadata = bearer(key)

    async def make(self, scope: pb.Scope.ValueType, account: str = "", user: str = "", **fields: Any) -> Any:
        """CreateApiKeyResponse."""
        request = pb.CreateApiKeyRequest(scope=scope, account=account, user=user, **fields)
        return await self.stub.CreateApiKey(request, metadata=self.metadata)

    async def rotate(self, key_id: str, **fields: Any) -> Any:
        """RotateApiKeyResponse."""
        request = pb.RotateApiKeyRequest(key_id=key_id, **fields)
        return await self.stub.RotateApiKey(request, metadata=self.metadata)

    async def revoke(self, key_id: str) -> Any:
        return (await self.stub.RevokeApiKey(pb.RevokeApiKeyRequest(key_id=key_id), metadata=self.metadata)).key

    async def keys(self, **fields: Any) -> Any:
        """ListApiKeysResponse."""
        return await self.stub.ListApiKeys(pb.ListApiKeysRequest(**fields), metadata=self.metadata)

    async def events(self, **fields: Any) -> Any:
        """ListAuditEventsResponse."""
        return await self.stub.ListAuditEvents(pb.ListAuditEventsRequest(**fields), metadata=self.metadata)


async def in_store(settings: dict[str, str], data_dir: Path, sql: str) -> list[Any]:
    """Runs a statement on a server's store behind its back."""
    url = settings.get("RUNEKEEP_STORE_URL")
    if url is None:
        with sqlite3.connect(data_dir / "runekeep.db", isolation_level=None) as connection:
            return connection.execute(sql).fetchall()
    connected = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connected.fetch(sql)]
    finally:
        await connected.close()
