"""The connection to the server and what every call on it carries."""

import grpc.aio

from extractor.settings import NAMES, ExtractorSettings
from runekeep.transport.rotation import open_channel as open_transport
from runekeep.transport.transport import Transport, transport

Metadata = tuple[tuple[str, str], ...]

_OPTIONS = (
    # A worker without a job has no calls but its stream; the pings tell a dead peer from a silent one.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Retries are ours to make (see `calls`); those of the channel would hide behind them.
    ("grpc.enable_retries", 0),
    # How long to wait is the caller's to say too: one that tries again after the server is back must not find the
    # channel still waiting, for a lease may end meanwhile.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # One search gives up to 100 whole memories; gRPC's own limit of 4 MiB would refuse what the server may send.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)


def server_transport(settings: ExtractorSettings) -> Transport:
    """How the settings say that the server is reached. Raises TransportError, which says what is wrong."""
    way = transport(
        settings.server,
        NAMES,
        api_key=settings.api_key.get_secret_value() if settings.api_key is not None else None,
        ca_file=settings.ca_file,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
    )
    way.check()
    return way


def open_channel(way: Transport) -> grpc.aio.Channel:
    """A channel to the server. It connects at the first call; certificates that are renewed are taken with the next."""
    return open_transport(way, _OPTIONS)


def worker_metadata(worker_id: str, way: Transport) -> Metadata:
    """Metadata of every call of this worker. A worker calls as itself, never as a user."""
    return (("x-runekeep-worker", worker_id), *way.metadata)
