"""Waits for a PostgreSQL that does not answer yet, for example because containers start in any order."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, TypeVar

import asyncpg
import structlog

from runekeep_storage.drivers.postgres.transaction import told
from runekeep_storage.errors import StoreUnreachable

T = TypeVar("T")

RETRY_SECONDS: Final = 0.5
LOG_SECONDS: Final = 5.0

_NOT_YET: Final = (
    asyncpg.PostgresConnectionError,
    # The server is starting up or shutting down.
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.TooManyConnectionsError,
    # Connection refused, no route, or a name that does not resolve yet.
    OSError,
    TimeoutError,
)
"""Errors that may go away with time. A wrong password, a missing database or a certificate that does not match does
not."""

_log = structlog.get_logger(__name__)


async def answered_within(seconds: float, connect: Callable[[], Awaitable[T]]) -> T:
    """Returns what `connect` returns. Retries while PostgreSQL does not answer; raises StoreUnreachable after
    `seconds`."""
    began = monotonic()
    logged = began - LOG_SECONDS
    while True:
        try:
            return await connect()
        except ssl.SSLCertVerificationError:
            raise
        except _NOT_YET as error:
            now = monotonic()
            if now - began >= seconds:
                raise StoreUnreachable(f"PostgreSQL did not answer within {seconds:g} s: {told(error)}") from error
            if now - logged >= LOG_SECONDS:
                logged = now
                _log.warning("waiting_for_store", error=told(error), seconds_left=round(seconds - (now - began), 1))
        await asyncio.sleep(RETRY_SECONDS)
