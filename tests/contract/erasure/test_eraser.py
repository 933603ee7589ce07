"""When store and index are purged, and that what is wrong with one space keeps no other waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from runekeep_storage.database import Tx
from runekeep_storage.erasure import deletion, receipts
from runekeep_storage.erasure.receipts import Kind, Scope, State
from runekeep_storage.erasure.worker import Eraser, Waits
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.index.base import IndexPoint
from runekeep_storage.indexing import outbox
from tests.support.storage.databases import ANN, BOB, Clock, commit
from tests.support.storage.erasures import WORD, Store, say, words

pytestmark = pytest.mark.postgres_long

GRACE = 3700
MESSAGES = Scope(Kind.MESSAGES, session_id="s", message_ids=("m2",))


class _Purges:
    """Purges of the store, counted; `then` comes after each."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.then: Callable[[], Awaitable[None]] | None = None
        self._purge = store.database.purge
        monkeypatch.setattr(store.database, "purge", self)

    async def __call__(self) -> None:
        self.count += 1
        await self._purge()
        if self.then is not None:
            await self.then()


@pytest.fixture
def purges(store: Store, monkeypatch: pytest.MonkeyPatch) -> _Purges:
    return _Purges(store, monkeypatch)


def _with(store: Store, waits: Waits) -> Eraser:
    search = store.search
    return Eraser(
        search.database,
        search.attachment,
        store.blobs,
        search.relay,
        store.cleaner,
        poll_seconds=0.02,
        waits=waits,
    )


async def _run(tx: Tx, statement: str) -> None:
    assert await tx.execute(statement) > 0


async def _state(store: Store, erasure_id: str) -> State:
    for space in (ANN, BOB):
        for one in await store.database.read(receipts.page, space, None, 10):
            if one.erasure_id == erasure_id:
                return one.state
    raise AssertionError(f"no erasure {erasure_id}")


async def test_a_space_that_cannot_be_checked_keeps_no_other_waiting_and_is_purged_once(
    store: Store, clock: Clock, purges: _Purges
) -> None:
    for space in (ANN, BOB):
        await say(store.database, space, "s", words("m1", "tea"), words("m2", WORD))
    await say(store.database, ANN, "x", words("m1", "tea"))
    await commit(store.database, ANN, "x", "one")
    clock.advance(1)
    await store.erase(ANN, MESSAGES, "ann")
    clock.advance(1)
    await store.erase(BOB, MESSAGES, "bob")
    await store.database.write_global(_run, "UPDATE archives SET diff = '{\"version\"' WHERE user_id = 'ann'")
    clock.advance(GRACE)

    await store.finish(ANN, "ann", steps=6)

    assert (await _state(store, "ann"), await _state(store, "bob")) == (State.PURGING, State.VERIFIED)
    assert purges.count == 1
    await store.database.write_global(_run, "UPDATE archives SET diff = '' WHERE user_id = 'ann'")
    assert (await store.finish(ANN, "ann")).state is State.VERIFIED
    assert purges.count == 1, "it was purged already"


async def test_a_space_that_is_written_to_another_index_is_looked_at_again_without_a_purge(
    store: Store, clock: Clock, purges: _Purges
) -> None:
    await say(store.database, ANN, "s", words("m1", "tea"), words("m2", WORD))
    clock.advance(1)
    await store.erase(ANN, MESSAGES)
    clock.advance(GRACE)
    await store.search.relay.stop()

    async def other_index() -> None:
        await store.database.write_global(_run, "UPDATE spaces SET index_id = 'other' WHERE user_id = 'ann'")

    purges.then = other_index
    for _ in range(4):
        await store.cleaner.clean()
        await store.eraser.step()
    assert (await _state(store, "e1"), purges.count) == (State.PURGING, 1)
    index_id = await store.search.attachment.id()
    await store.database.write_global(_run, f"UPDATE spaces SET index_id = '{index_id}' WHERE user_id = 'ann'")
    assert not await store.eraser.step() or not await store.eraser.step()
    assert (await _state(store, "e1"), purges.count) == (State.VERIFIED, 1)


async def test_points_that_a_relay_is_about_to_take_back_are_no_leftovers(
    store: Store, clock: Clock, purges: _Purges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another session of the user, which is deleted while its passages are on their way to the index."""
    await say(store.database, ANN, "s", words("m1", "tea"), words("m2", WORD))
    clock.advance(1)
    await store.erase(ANN, MESSAGES)
    clock.advance(GRACE)
    search, relay = store.search, store.search.relay
    upsert, at_rest = search.index.upsert, relay.at_rest
    read, deleted, brought, go = (asyncio.Event() for _ in range(4))

    async def held(points: Sequence[IndexPoint]) -> None:
        """Between the rows and their points, and between the points and the second look at their rows."""
        read.set()
        await deleted.wait()
        await upsert(points)
        brought.set()
        await go.wait()

    def rested() -> Any:
        go.set()
        return at_rest()

    async def talk_is_deleted() -> None:
        monkeypatch.setattr(search.index, "upsert", held)
        await say(store.database, ANN, "x", words("m1", "coffee"))
        await commit(store.database, ANN, "x", "of x")
        relay.wake()
        await read.wait()
        await store.database.write(deletion.delete_session, ANN, "x", "test")
        await store.cleaner.clean()
        # The removal that the deletion ordered comes before the points.
        while await store.database.read(outbox.removals, ANN):
            relay.wake()
            await relay.moved()
        deleted.set()
        await brought.wait()
        monkeypatch.setattr(relay, "at_rest", rested)

    purges.then = talk_is_deleted
    async with asyncio.timeout(30):
        done = await store.finish(ANN)
    go.set()
    assert (done.state, purges.count) == (State.VERIFIED, 1)


async def test_an_erasure_of_nothing_is_verified_without_a_purge(store: Store, clock: Clock, purges: _Purges) -> None:
    for number in range(3):
        await store.erase(ANN, Scope(Kind.USER), f"e{number}")
        assert (await store.finish(ANN, f"e{number}")).state is State.VERIFIED
    assert purges.count == 0
    await say(store.database, BOB, "s", words("m2", WORD))
    await store.erase(BOB, Scope(Kind.USER), "first")
    clock.advance(GRACE)
    await store.finish(BOB, "first")
    assert purges.count == 1
    await store.erase(BOB, Scope(Kind.USER), "second")
    await store.finish(BOB, "second")
    assert purges.count == 2, "something was taken away here before"


async def _ready(store: Store, clock: Clock, eraser: Eraser, erasure_id: str) -> None:
    """An erasure that waits for nothing but a purge."""
    await say(store.database, ANN, erasure_id, words("m2", WORD))
    clock.advance(1)
    await store.erase(ANN, Scope(Kind.MESSAGES, session_id=erasure_id, message_ids=("m2",)), erasure_id)
    clock.advance(GRACE)
    for _ in range(4):
        await store.cleaner.clean()
        await eraser.step()
        await store.search.relay.moved()


@pytest.mark.parametrize("waits", [Waits(purge=1000.0), Waits(purge=0.0, rest=1e9)])
async def test_a_purge_waits_for_the_time_that_the_last_one_asked_for(
    store: Store, clock: Clock, purges: _Purges, waits: Waits
) -> None:
    eraser = _with(store, waits)
    await _ready(store, clock, eraser, "e1")
    assert (await _state(store, "e1"), purges.count) == (State.VERIFIED, 1)
    await _ready(store, clock, eraser, "e2")
    assert (await _state(store, "e2"), purges.count) == (State.PURGING, 1)


async def test_a_purge_that_fails_is_not_tried_again_at_once(
    store: Store, clock: Clock, purges: _Purges, monkeypatch: pytest.MonkeyPatch
) -> None:
    eraser = _with(store, Waits(purge=0.0, rest=0.0, incomplete=0.0))

    async def full() -> None:
        raise StoreUnavailable("no room")

    purges.then = full
    with pytest.raises(StoreUnavailable):
        await _ready(store, clock, eraser, "e1")
    first = purges.count
    eraser._waits = Waits(purge=100.0, rest=0.0)
    with pytest.raises(StoreUnavailable):
        await eraser.step()
    assert purges.count == first + 1
    assert await eraser.step()
    assert purges.count == first + 1
    before = eraser._purge_at
    eraser._purge_at = 0.0
    with pytest.raises(StoreUnavailable):
        await eraser.step()
    assert eraser._purge_at > before + 300.0, "each time it waits longer"
    eraser._purge_at, purges.then = 0.0, None
    await eraser.step()
    assert await _state(store, "e1") is State.VERIFIED
