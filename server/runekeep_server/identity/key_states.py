"""Caches the states of API keys, so that not every call reads the store."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from weakref import WeakValueDictionary

from runekeep_storage import deadline
from runekeep_storage.accounts import api_keys
from runekeep_storage.accounts.api_keys import KeyState
from runekeep_storage.database import SpaceDatabase

MAX_KEYS = 20_000
"""Maximum of cached keys. The least recently used ones are evicted."""
MIN_SECONDS = 1.0
"""Minimum time between two reads of a key that are caused by wrong secrets, so that callers with wrong secrets cannot
cause more reads."""
MAX_UNKNOWN = 2_000
"""Maximum of cached ids without a key. They are cached apart from the keys, so that made-up ids evict no key."""


@dataclass(frozen=True, slots=True)
class _Believed:
    """A cached state. `state` is None if there is no such key. `read` is when the state was read, `doubted` when it was
    last read because of a wrong secret; both are seconds on the server's own clock."""

    state: KeyState | None
    read: float
    doubted: float = -inf


class KeyStates:
    """Caches the states of keys for at most `check_seconds`. Use it on the event loop only.

    `clock` returns seconds and never goes back.
    """

    def __init__(self, database: SpaceDatabase, check_seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._database = database
        self._clock = clock
        self.check_seconds = check_seconds
        self._keys: OrderedDict[str, _Believed] = OrderedDict()
        self._unknown: OrderedDict[str, _Believed] = OrderedDict()
        self._reading: dict[str, asyncio.Task[_Believed]] = {}
        self._changes: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    async def get(self, key_id: str) -> tuple[KeyState | None, int]:
        """Returns the key, or None if there is none, and the store's current clock in microseconds (0 if there is no
        key).

        Raises StoreUnavailable if the key must be read and the store is unavailable.
        """
        now = self._clock()
        believed = self._keys.get(key_id)
        if believed is None or now - believed.read >= self.check_seconds:
            believed = self._unknown.get(key_id)
            if believed is None or now - believed.read >= self.check_seconds:
                believed = await self._read_once(key_id)
        else:
            self._keys.move_to_end(key_id)
        return self._now_of(believed)

    async def get_in_doubt(self, key_id: str) -> tuple[KeyState | None, int]:
        """Like `get`, for a key whose secret does not match: another server may have rotated it. Reads the key again,
        at most once every MIN_SECONDS."""
        believed, now = self._keys.get(key_id), self._clock()
        if believed is None or now - believed.doubted < MIN_SECONDS:
            return await self.get(key_id)
        # Set before the read, so that an unavailable store is not asked more often.
        self._keys[key_id] = replace(believed, doubted=now)
        return self._now_of(await self._read_once(key_id))

    def _now_of(self, believed: _Believed) -> tuple[KeyState | None, int]:
        state = believed.state
        if state is None:
            return None, 0
        return state, state.read_at + int((self._clock() - believed.read) * 1_000_000)

    def forget(self, key_id: str) -> None:
        """Drops the cached state of a key that was changed in the store, and wakes the waiters of `change_of`."""
        self._keys.pop(key_id, None)
        self._unknown.pop(key_id, None)
        # A read that is in progress may return the old state. Its waiters get it, but it is not cached.
        self._reading.pop(key_id, None)
        changed = self._changes.pop(key_id, None)
        if changed is not None:
            changed.set()

    def change_of(self, key_id: str) -> asyncio.Event:
        """Returns an event that the next change of the key on this server sets. Take it before you read the key, so
        that you miss no change in between."""
        changed = self._changes.get(key_id)
        if changed is None:
            changed = self._changes[key_id] = asyncio.Event()
        return changed

    async def wait(self, changed: asyncio.Event) -> None:
        """Returns when the key must be read again: after a change or after `check_seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.check_seconds):
                await changed.wait()

    async def _read_once(self, key_id: str) -> _Believed:
        """Reads the key once for all concurrent calls that need it."""
        reading = self._reading.get(key_id)
        if reading is None:
            reading = self._reading[key_id] = asyncio.create_task(self._read(key_id))
            reading.add_done_callback(_looked_at)
        # Cancelling one call must not cancel the read for the others.
        return await asyncio.shield(reading)

    async def _read(self, key_id: str) -> _Believed:
        deadline.ignore_deadline()
        here = asyncio.current_task()
        try:
            # Taken before the read, because the state may be as old as this.
            read = self._clock()
            believed = _Believed(await self._database.read_global(api_keys.state_of, key_id), read)
            if self._reading.get(key_id) is here:
                self._keep(key_id, believed)
            return believed
        finally:
            if self._reading.get(key_id) is here:
                del self._reading[key_id]

    def _keep(self, key_id: str, believed: _Believed) -> None:
        before = self._keys.pop(key_id, None)
        if before is not None:
            believed = replace(believed, doubted=before.doubted)
        kept, most = (self._unknown, MAX_UNKNOWN) if believed.state is None else (self._keys, MAX_KEYS)
        kept[key_id] = believed
        kept.move_to_end(key_id)
        if len(kept) > most:
            kept.popitem(last=False)


def _looked_at(reading: "asyncio.Task[_Believed]") -> None:
    # Waiters get the exception from the task. Without waiters, nobody needs it, and asyncio must not report it as never
    # retrieved.
    if not reading.cancelled():
        reading.exception()
