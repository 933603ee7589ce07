"""Records when keys were last used. A background task writes it, so that calls do not wait for the write."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping

import structlog

from runekeep_storage.accounts import api_keys
from runekeep_storage.database import Database
from runekeep_storage.errors import StoreUnavailable

HOUR = 3600 * 1_000_000
"""Resolution of a use time in microseconds: a key that is used all day costs 24 writes."""
PAUSE_SECONDS = 30.0

_log = structlog.get_logger()


class KeyUses:
    """Collects key uses and writes them periodically. `close` writes the remaining ones."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hours: dict[str, int] = {}
        self._writer: asyncio.Task[None] | None = None

    def note(self, key_id: str, known: int, now: int) -> None:
        """Notes that the key is used at `now`; `known` is the last use in the store. Both in microseconds."""
        hour = now - now % HOUR
        if hour > known:
            self._hours[key_id] = hour

    async def start(self) -> None:
        self._writer = asyncio.create_task(self._write_now_and_then())

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
        await self.write()

    async def write(self) -> None:
        """Writes the noted uses. If the store is unavailable, keeps them for the next attempt."""
        left, self._hours = self._hours, {}
        try:
            for hour, some in _parts(left):
                await self._database.write_global(api_keys.note_uses, hour, some)
                for key_id in some:
                    del left[key_id]
        except StoreUnavailable as error:
            _log.warning("loop_waits", loop="key_uses", error=str(error))
            self._hours = left | self._hours
        except asyncio.CancelledError:
            self._hours = left | self._hours
            raise

    async def _write_now_and_then(self) -> None:
        never = asyncio.Event()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS):
                    await never.wait()
            try:
                await self.write()
            except Exception:
                # Only use times are lost. If the loop ended, no use would ever be written again.
                _log.exception("loop_failed", loop="key_uses")


def _parts(hours: Mapping[str, int]) -> Iterator[tuple[int, list[str]]]:
    """Yields an hour and the keys that were used in it, split by the maximum of one transaction, so that other writes
    can run in between."""
    for hour in sorted(set(hours.values())):
        # Every server uses the same order.
        key_ids = sorted(key_id for key_id, used in hours.items() if used == hour)
        for start in range(0, len(key_ids), api_keys.USES_AT_ONCE):
            yield hour, key_ids[start : start + api_keys.USES_AT_ONCE]
