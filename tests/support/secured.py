"""A server for tours that takes keys over TLS alone."""

import secrets
from pathlib import Path

import grpc

from runekeep.v1 import admin_service_pb2 as wire
from runekeep.v1.admin_service_pb2_grpc import AdminServiceStub
from tests.acceptance.processes import Processes
from tests.support.certificates import LOCAL, Authority


def secured(fleet: Processes, directory: Path, user: str) -> tuple[dict[str, str], dict[str, str]]:
    """Starts the server of `fleet`. The variables with which a client is that user, and those of an extractor."""
    authority = Authority()
    ca_file = authority.write(directory)
    certificate, key = authority.issue(*LOCAL).write(directory, "server")
    admin_key, worker_key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    fleet.server(
        RUNEKEEP_IDENTITY_MODE="keys",
        RUNEKEEP_ADMIN_KEY=admin_key,
        RUNEKEEP_WORKER_KEY=worker_key,
        RUNEKEEP_TLS__CERTIFICATE=str(certificate),
        RUNEKEEP_TLS__KEY=str(key),
    )
    with grpc.secure_channel(fleet.address, grpc.ssl_channel_credentials(ca_file.read_bytes())) as channel:
        request = wire.CreateApiKeyRequest(scope=wire.SCOPE_USER, account="garden", user=user)
        bearer = (("authorization", f"Bearer {admin_key}"),)
        made = AdminServiceStub(channel).CreateApiKey(request, timeout=10, metadata=bearer)
    trusted = str(ca_file)
    return (
        {"RUNEKEEP_API_KEY": made.secret, "RUNEKEEP_CA_FILE": trusted},
        {"RUNEKEEP_EXTRACTOR_API_KEY": worker_key, "RUNEKEEP_EXTRACTOR_CA_FILE": trusted},
    )
