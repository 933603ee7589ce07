"""The connection to the server, and the metadata of every call on it."""

import grpc.aio

from runekeep.transport.rotation import open_channel as open_transport
from runekeep.transport.transport import Transport, transport
from runekeep_extractor.settings import NAMES, ExtractorSettings

Metadata = tuple[tuple[str, str], ...]

_OPTIONS = (
    # The stream is the only call of a worker without a job; the pings distinguish a dead peer from a silent one.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # `calls` makes the retries; retries of the channel would hide behind them.
    ("grpc.enable_retries", 0),
    # The caller also decides how long to wait: if it retries after the server is back, the channel must not still be
    # waiting, because a lease may expire meanwhile.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # One search returns up to 100 whole memories; gRPC's default limit of 4 MiB would refuse what the server may send.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)


def server_transport(settings: ExtractorSettings) -> Transport:
    """Returns how to reach the server, from the settings. Raises TransportError with the reason."""
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
    """Returns a channel to the server. It connects at the first call; each call picks up renewed certificates."""
    return open_transport(way, _OPTIONS)


def worker_metadata(worker_id: str, way: Transport) -> Metadata:
    """Returns the metadata of every call of this worker. A worker calls as itself, never as a user."""
    return (("x-runekeep-worker", worker_id), *way.metadata)
