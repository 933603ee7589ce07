"""When keys were used, written behind the calls that use them."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping

import structlog

from storage import api_keys
from storage.database import Database
from storage.errors import StoreUnavailable

HOUR = 3600 * 1_000_000
"""To this, in microseconds, a use is exact: a key that is used all day costs 24 writes."""
PAUSE_SECONDS = 30.0

_log = structlog.get_logger()


class KeyUses:
    """`start`, and `close` in the end, which writes what is left."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hours: dict[str, int] = {}
        self._writer: asyncio.Task[None] | None = None

    def note(self, key_id: str, known: int, now: int) -> None:
        """The key is used `now`; `known`: the use that the store knows of. In microseconds."""
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
        """Writes what was noted; what the store cannot take now is kept for the next time."""
        left, self._hours = self._hours, {}
        try:
            for hour, some in _parts(left):
                await self._database.write(api_keys.note_uses, hour, some)
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
                # Nothing but a time to look at is lost; without the loop none would ever be written again.
                _log.exception("loop_failed", loop="key_uses")


def _parts(hours: Mapping[str, int]) -> Iterator[tuple[int, list[str]]]:
    """An hour and keys that were used in it, as many as a transaction takes: the store is held for each by itself, so
    that others' writes come in between."""
    for hour in sorted(set(hours.values())):
        # In the same order on every server.
        key_ids = sorted(key_id for key_id, used in hours.items() if used == hour)
        for start in range(0, len(key_ids), api_keys.USES_AT_ONCE):
            yield hour, key_ids[start : start + api_keys.USES_AT_ONCE]
