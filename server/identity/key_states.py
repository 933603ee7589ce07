"""What this server believes of API keys, so that not every call asks the store."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from weakref import WeakValueDictionary

from storage import api_keys, deadline
from storage.api_keys import KeyState
from storage.database import Database

MOST_KEYS = 20_000
"""Keys that are remembered; of more, those that were used least lately are asked for again."""
LEAST_SECONDS = 1.0
"""Between two reads of a key that calls with a wrong secret ask for: whoever sends such makes no more of them."""
MOST_UNKNOWN = 2_000
"""Ids without a key that are remembered, apart from the keys: whoever makes ids up drives no key out."""


@dataclass(frozen=True, slots=True)
class _Believed:
    """`state` None: there is no such key. `read`, and `doubted`, when it was last read because of a secret that did not
    fit: on the server's own clock, seconds."""

    state: KeyState | None
    read: float
    doubted: float = -inf


class KeyStates:
    """The states of keys, each as it was read at most `check_seconds` ago. Used on the event loop alone.

    `clock`: seconds that never go back.
    """

    def __init__(self, database: Database, check_seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._database = database
        self._clock = clock
        self.check_seconds = check_seconds
        self._keys: OrderedDict[str, _Believed] = OrderedDict()
        self._unknown: OrderedDict[str, _Believed] = OrderedDict()
        self._reading: dict[str, asyncio.Task[_Believed]] = {}
        self._changes: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    async def get(self, key_id: str) -> tuple[KeyState | None, int]:
        """The key, None when there is none, and the store's clock now, in microseconds (0 when there is none).

        Raises StoreUnavailable when it has to be read and cannot be.
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
        """As `get`, of a key whose secret does not seem to fit: another server may have given it a new one. It is read
        anew for that, at most every LEAST_SECONDS."""
        believed, now = self._keys.get(key_id), self._clock()
        if believed is None or now - believed.doubted < LEAST_SECONDS:
            return await self.get(key_id)
        # Before the read, so that a store that is away is asked no more often.
        self._keys[key_id] = replace(believed, doubted=now)
        return self._now_of(await self._read_once(key_id))

    def _now_of(self, believed: _Believed) -> tuple[KeyState | None, int]:
        state = believed.state
        if state is None:
            return None, 0
        return state, state.read_at + int((self._clock() - believed.read) * 1_000_000)

    def forget(self, key_id: str) -> None:
        """The key was changed in the store: nothing that was read before holds any more, and whoever waits for a
        `change_of` it is woken."""
        self._keys.pop(key_id, None)
        self._unknown.pop(key_id, None)
        # What a read brings that began before is given to who waits for it already, and not believed afterwards.
        self._reading.pop(key_id, None)
        changed = self._changes.pop(key_id, None)
        if changed is not None:
            changed.set()

    def change_of(self, key_id: str) -> asyncio.Event:
        """Is set by the next change of the key on this server. To be taken before the key is looked at, so that no
        change goes unnoticed in between."""
        changed = self._changes.get(key_id)
        if changed is None:
            changed = self._changes[key_id] = asyncio.Event()
        return changed

    async def wait(self, changed: asyncio.Event) -> None:
        """Returns when a key should be looked at again: it was changed, or `check_seconds` are over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.check_seconds):
                await changed.wait()

    async def _read_once(self, key_id: str) -> _Believed:
        """Reads the key, once for all calls that want it at the same time."""
        reading = self._reading.get(key_id)
        if reading is None:
            reading = self._reading[key_id] = asyncio.create_task(self._read(key_id))
            reading.add_done_callback(_looked_at)
        # A call that is cancelled does not take the others' read with it.
        return await asyncio.shield(reading)

    async def _read(self, key_id: str) -> _Believed:
        deadline.outlive()
        here = asyncio.current_task()
        try:
            # Taken before the read: what it brings may be as old as that.
            read = self._clock()
            believed = _Believed(await self._database.read(api_keys.state_of, key_id), read)
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
        kept, most = (self._unknown, MOST_UNKNOWN) if believed.state is None else (self._keys, MOST_KEYS)
        kept[key_id] = believed
        kept.move_to_end(key_id)
        if len(kept) > most:
            kept.popitem(last=False)


def _looked_at(reading: "asyncio.Task[_Believed]") -> None:
    # Whoever still waits for it hears of its failure; when nobody does, nobody has to.
    if not reading.cancelled():
        reading.exception()
