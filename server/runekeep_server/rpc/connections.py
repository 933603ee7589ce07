"""Limits on connections: how many the server takes, when it closes them, and how many file descriptors it reserves."""

import resource
from typing import Final

import structlog

from runekeep_server.protocol.answer_sizes import AnswerSizes
from runekeep_server.settings import Settings

HANDSHAKE_MS: Final = 10_000
"""Time after which a connection without a complete TLS and HTTP/2 handshake is closed."""
PING_MS: Final = 20_000
PING_ANSWER_MS: Final = 10_000
_CONNECTION_AGE_MS: Final = 3_600_000
_UPLOAD_WINDOW_BYTES: Final = 256 * 1024
"""Bytes of a request that gRPC reads ahead. A request of 4 MiB takes 16 round trips."""
_IDENTITY_ALONE: Final = 1
"""Bit set of compression algorithms: https://grpc.github.io/grpc/core/compression__types_8h.html"""
_RESERVED_DESCRIPTORS: Final = 256
"""Descriptors for the store, the index, blobs and files. At most half of the limit."""

_log = structlog.get_logger()


def connection_budget(settings: Settings) -> int:
    """Raises the soft limit of descriptors to the hard limit. Returns how many connections may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            # macOS refuses an unlimited soft limit.
            _log.warning("descriptor_limit", soft=soft, hard=hard, error=str(error))
    most = settings.limits.connections
    if soft == resource.RLIM_INFINITY:
        return most
    budget = max(1, soft - min(_RESERVED_DESCRIPTORS, soft // 2))
    if budget < most:
        _log.warning("descriptor_limit", descriptors=soft, connections=budget, wanted=most)
    return min(most, budget)


def channel_options(settings: Settings) -> list[tuple[str, int]]:
    """Returns the options of the gRPC server."""
    options = [
        # Without this, a second server could start on the same address and take a share of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", AnswerSizes.of(settings.max_message_bytes).sent),
        ("grpc.max_concurrent_streams", 1000),
        # gRPC would grow the buffers of each connection to megabytes, and many uploads at once would fill the memory.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _UPLOAD_WINDOW_BYTES),
        # Only the server would pay for decompression: a few kilobytes can become many megabytes.
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ALONE),
        ("grpc.max_allowed_incoming_connections", connection_budget(settings)),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.http2.settings_timeout", HANDSHAKE_MS),
        ("grpc.max_connection_idle_ms", round(settings.limits.connection_idle_seconds * 1000)),
        # Notices within 30 s that a peer vanished. Without the third option gRPC waits a minute for answers to pings,
        # whatever the second option says.
        ("grpc.keepalive_time_ms", PING_MS),
        ("grpc.keepalive_timeout_ms", PING_ANSWER_MS),
        ("grpc.http2.ping_timeout_ms", PING_ANSWER_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # Workers and watchers ping every 20 s. Half of that tolerates a late ping followed by an early one.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ]
    if settings.tls.client_ca is not None:
        # New calls then use a new connection, whose certificate is verified again. Open streams go on.
        options.append(("grpc.max_connection_age_ms", _CONNECTION_AGE_MS))
    return options
