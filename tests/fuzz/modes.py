"""The identity modes in which servers are tried, and how its callers are known in each."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc

from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc
from tests.fuzz.identities import ACCOUNTS, Development, Identities, Keys

ADMIN_KEY = "fuzz-admin-key-" + "a" * 32
WORKER_KEY = "fuzz-worker-key-" + "w" * 32


@dataclass(frozen=True, slots=True)
class Mode:
    settings: dict[str, str]
    identities: Callable[[str], Awaitable[Identities]]


async def _development(address: str) -> Identities:
    return Development()


async def _keys(address: str) -> Identities:
    metadata = (("authorization", f"Bearer {ADMIN_KEY}"),)
    accounts: dict[str, str] = {}
    async with grpc.aio.insecure_channel(address) as channel:
        admin = admin_service_pb2_grpc.AdminServiceStub(channel)
        for account in ACCOUNTS:
            request = admin_service_pb2.CreateApiKeyRequest(scope=admin_service_pb2.SCOPE_ACCOUNT, account=account)
            accounts[account] = (await admin.CreateApiKey(request, metadata=metadata, timeout=20)).secret
    return Keys(accounts, WORKER_KEY, ADMIN_KEY)


MODES = {
    "development": Mode({}, _development),
    "keys": Mode(
        {
            "RUNEKEEP_IDENTITY_MODE": "keys",
            "RUNEKEEP_ADMIN_KEY": ADMIN_KEY,
            "RUNEKEEP_WORKER_KEY": WORKER_KEY,
            "RUNEKEEP_REFLECTION": "true",
        },
        _keys,
    ),
}
