"""What a server believes of keys, for how long, and what it forgets at once."""

import asyncio
import re
from dataclasses import replace
from typing import Any, cast

import pytest

from runekeep_server.identity import Audience, Caller, new_trace
from runekeep_server.identity import key_states as under_test
from runekeep_server.identity.key_format import new_key, parts_of
from runekeep_server.identity.key_states import KeyStates
from runekeep_server.identity.key_uses import HOUR, KeyUses
from runekeep_server.identity.keys import KeyAuthenticator
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.settings import Settings
from runekeep_storage.accounts.api_keys import USES_AT_ONCE, KeyState
from runekeep_storage.errors import StoreUnavailable

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


class Store:
    """Keys by their ids, a clock, and reads that can be held up or fail."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyState] = {}
        self.seconds = 100.0
        self.reads = 0
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.away = False
        self.fault: Exception | None = None
        self.uses: dict[str, int] = {}
        self.written: list[list[str]] = []

    def clock(self) -> float:
        return self.seconds

    async def read_global(self, work: Any, key_id: str) -> KeyState | None:
        self.reads += 1
        self.begun.set()
        found = self.keys.get(key_id)
        await self.open.wait()
        if self.fault is not None:
            raise self.fault
        if self.away:
            raise StoreUnavailable("away")
        return found and replace(found, read_at=START + int(self.seconds * SECOND))

    async def write_global(self, work: Any, used_at: int, key_ids: list[str]) -> None:
        if self.away:
            raise StoreUnavailable("away")
        self.written.append(key_ids)
        self.uses.update(dict.fromkeys(key_ids, used_at))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def states(store: Store) -> KeyStates:
    return KeyStates(cast(Any, store), 5.0, store.clock)


@pytest.fixture
def uses(store: Store) -> KeyUses:
    return KeyUses(cast(Any, store))


@pytest.fixture
def keys(states: KeyStates, uses: KeyUses) -> KeyAuthenticator:
    return KeyAuthenticator(Settings(identity_mode="keys"), states, uses)


def made(store: Store, **fields: Any) -> tuple[str, str]:
    """Id and text of a key of the user ada that is in the store."""
    key = new_key()
    state = KeyState("user", "acme", "ada", key.digest, "", 0, 0, 0, 0, 0)
    store.keys[key.key_id] = replace(state, **fields)
    return key.key_id, key.text


async def who(keys: KeyAuthenticator, text: str) -> str:
    """The user that the key stands for, or the code of the refusal."""
    metadata = (("authorization", f"Bearer {text}"),)
    try:
        caller = await keys.authenticate(metadata, cast(Any, None), Audience.USERS, new_trace())
    except ApiError as error:
        return str(error.code.name)
    assert isinstance(caller, Caller)
    return caller.user


async def test_a_known_key_asks_the_store_once_in_a_while(store: Store, keys: KeyAuthenticator) -> None:
    _, text = made(store)
    for _ in range(100):
        assert await who(keys, text) == "ada"
    assert store.reads == 1
    store.seconds += 4.9
    assert await who(keys, text) == "ada" and store.reads == 1
    store.seconds += 0.2
    assert await who(keys, text) == "ada" and store.reads == 2


async def test_an_unknown_key_asks_the_store_once_in_a_while(store: Store, keys: KeyAuthenticator) -> None:
    text = new_key().text
    for _ in range(10):
        assert await who(keys, text) == "UNAUTHENTICATED"
    assert store.reads == 1
    # What is no key asks for nothing at all.
    for wrong in ("", "rk_", text[:-1], text + "x", "x" * 1000):
        assert await who(keys, wrong) == "UNAUTHENTICATED"
    assert store.reads == 1


async def test_a_change_of_this_server_holds_at_once(store: Store, states: KeyStates, keys: KeyAuthenticator) -> None:
    key_id, text = made(store)
    assert await who(keys, text) == "ada"
    store.keys[key_id] = replace(store.keys[key_id], revoked_at=1)
    assert await who(keys, text) == "ada", "it is believed until somebody says otherwise"
    states.forget(key_id)
    assert await who(keys, text) == "UNAUTHENTICATED"


async def test_a_read_that_began_before_a_change_is_not_believed_after_it(
    store: Store, states: KeyStates, keys: KeyAuthenticator
) -> None:
    key_id, text = made(store)
    store.open.clear()
    early = asyncio.create_task(who(keys, text))
    await store.begun.wait()
    store.keys[key_id] = replace(store.keys[key_id], revoked_at=1)
    states.forget(key_id)
    late = asyncio.create_task(who(keys, text))
    await asyncio.sleep(0)
    store.open.set()
    assert (await early, await late) == ("ada", "UNAUTHENTICATED")
    assert await who(keys, text) == "UNAUTHENTICATED"


async def test_calls_that_come_together_share_a_read(store: Store, keys: KeyAuthenticator) -> None:
    _, text = made(store)
    store.open.clear()
    calls = [asyncio.create_task(who(keys, text)) for _ in range(20)]
    await store.begun.wait()
    # The call that began it may go.
    calls[0].cancel()
    await asyncio.sleep(0)
    store.open.set()
    assert await asyncio.gather(*calls[1:]) == ["ada"] * 19
    assert store.reads == 1


async def test_nothing_is_believed_longer_because_the_store_is_away(store: Store, keys: KeyAuthenticator) -> None:
    _, text = made(store)
    assert await who(keys, text) == "ada"
    store.away = True
    assert await who(keys, text) == "ada"
    store.seconds += 5
    with pytest.raises(StoreUnavailable):
        await who(keys, text)
    store.away = False
    assert await who(keys, text) == "ada"


async def test_a_key_expires_and_a_grace_ends_between_two_reads(store: Store, keys: KeyAuthenticator) -> None:
    """By the store's clock, of which the server's own tells only how much went by."""
    old = new_key()
    until = START + 102 * SECOND
    _, grace = made(store, previous_digest=old.digest, previous_until=until)
    old_text = f"{grace[:20]}{old.text[20:]}"
    _, expiring = made(store, expires_at=until)
    for text in (grace, old_text, expiring):
        assert await who(keys, text) == "ada"
    store.seconds += 1.9
    for text in (grace, old_text, expiring):
        assert await who(keys, text) == "ada"
    store.seconds += 0.2
    assert [await who(keys, text) for text in (grace, old_text, expiring)] == [
        "ada",
        "UNAUTHENTICATED",
        "UNAUTHENTICATED",
    ]
    # The third for the secret that does not fit any more: another rotation might have given it more time.
    assert store.reads == 3


async def test_whoever_makes_ids_up_drives_no_key_out(
    store: Store, keys: KeyAuthenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "MAX_UNKNOWN", 3)
    monkeypatch.setattr(under_test, "MAX_KEYS", 2)
    _, text = made(store)
    assert await who(keys, text) == "ada"
    for _ in range(10):
        await who(keys, new_key().text)
    assert store.reads == 11
    assert await who(keys, text) == "ada" and store.reads == 11
    # Of keys those are forgotten that were used least lately.
    others = [made(store)[1] for _ in range(2)]
    assert await who(keys, others[0]) == "ada" and await who(keys, text) == "ada"
    assert await who(keys, others[1]) == "ada" and store.reads == 13
    assert await who(keys, text) == "ada" and store.reads == 13
    assert await who(keys, others[0]) == "ada" and store.reads == 14


async def test_a_stream_is_told_at_once_of_a_change_and_looks_by_itself(
    store: Store, states: KeyStates, keys: KeyAuthenticator
) -> None:
    key_id, text = made(store)
    metadata = (("authorization", f"Bearer {text}"),)

    async def ended() -> ApiError:
        return await keys.until_refused(metadata, cast(Any, None), Audience.USERS, new_trace())

    waiting = asyncio.create_task(ended())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done() and store.reads == 1
    # A rotation, say, with a grace: it was changed and goes on.
    states.forget(key_id)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done() and store.reads == 2
    # The store is away when it is looked at: nothing is known then, and the next look tells. Nor is it after a fault.
    for away, fault in ((True, None), (False, ValueError("a fault that nobody thought of"))):
        store.away, store.fault = away, fault
        states.forget(key_id)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
    store.fault = None
    store.keys[key_id] = replace(store.keys[key_id], revoked_at=1)
    states.forget(key_id)
    async with asyncio.timeout(20):
        assert (await waiting).code.name == "UNAUTHENTICATED"
    # Without being told.
    quick = KeyStates(cast(Any, store), 0.01, store.clock)
    keys = KeyAuthenticator(Settings(identity_mode="keys"), quick, KeyUses(cast(Any, store)))
    async with asyncio.timeout(20):
        assert (await ended()).code.name == "UNAUTHENTICATED"


async def test_a_stream_does_not_miss_what_is_revoked_while_it_opens(
    store: Store, states: KeyStates, keys: KeyAuthenticator
) -> None:
    # Nothing but a change of this server wakes it in the time of this test.
    states.check_seconds = 3600.0
    for when in ("before it waits", "while it looks"):
        key_id, text = made(store)
        metadata = (("authorization", f"Bearer {text}"),)
        assert await who(keys, text) == "ada"
        revoked = replace(store.keys[key_id], revoked_at=1)
        if when == "before it waits":
            store.keys[key_id] = revoked
            states.forget(key_id)
        else:
            states.forget(key_id)
            store.open.clear()
            store.begun.clear()
        watch = keys.until_refused(metadata, cast(Any, None), Audience.USERS, new_trace())
        waiting = asyncio.create_task(watch)
        if when == "while it looks":
            await store.begun.wait()
            store.keys[key_id] = revoked
            states.forget(key_id)
            store.open.set()
        async with asyncio.timeout(20):
            assert (await waiting).code.name == "UNAUTHENTICATED", when


def rotated(store: Store, key_id: str) -> str:
    """Text of the key's new secret, which another server gave it."""
    new, state = new_key(key_id), store.keys[key_id]
    until = START + 10_000 * SECOND
    store.keys[key_id] = replace(state, digest=new.digest, previous_digest=state.digest, previous_until=until)
    return new.text


async def may_know(keys: KeyAuthenticator, text: str) -> bool:
    return await keys.may_know((("authorization", f"Bearer {text}"),))


async def test_a_secret_that_another_server_made_is_taken_at_once(store: Store) -> None:
    here, there = (
        KeyAuthenticator(Settings(identity_mode="keys"), states, KeyUses(cast(Any, store)))
        for states in (KeyStates(cast(Any, store), 5.0, store.clock) for _ in range(2))
    )
    key_id, text = made(store)
    assert [await who(one, text) for one in (here, there)] == ["ada", "ada"]
    for ask_first in (True, False):
        new = rotated(store, key_id)
        store.seconds += 1
        if ask_first:
            assert await may_know(here, new) and await may_know(there, new)
        assert [await who(one, new) for one in (here, there)] == ["ada", "ada"]
    assert await who(there, text) == "UNAUTHENTICATED", "of two secrets before this one the last alone goes on"


async def test_wrong_secrets_read_a_key_once_a_second_at_most(store: Store, keys: KeyAuthenticator) -> None:
    key_id, text = made(store)
    assert await who(keys, text) == "ada" and store.reads == 1
    for seconds in range(3):
        for _ in range(20):
            wrong = new_key(key_id).text
            assert not await may_know(keys, wrong) and await who(keys, wrong) == "UNAUTHENTICATED"
        assert store.reads == 2 + seconds
        store.seconds += 1
    # A store that is away is asked no more often, and the right secret goes on.
    store.away = True
    with pytest.raises(StoreUnavailable):
        await who(keys, new_key(key_id).text)
    reads = store.reads
    for _ in range(20):
        assert await who(keys, new_key(key_id).text) == "UNAUTHENTICATED" and await who(keys, text) == "ada"
    assert store.reads == reads


async def test_what_a_fault_keeps_secret_is_left_to_the_call(store: Store, keys: KeyAuthenticator) -> None:
    _, text = made(store)
    store.fault = ValueError("the path of the store")
    assert await may_know(keys, text)


async def test_uses_are_written_in_parts_and_what_is_left_is_kept(store: Store, uses: KeyUses) -> None:
    hours = {f"key-{number:04}": (number % 2 + 1) * HOUR for number in reversed(range(1500))}
    for key_id, hour in hours.items():
        uses.note(key_id, 0, hour)
    store.away = True
    await uses.write()
    store.away = False
    await uses.write()
    assert store.uses == hours
    # An hour after another one, each in parts and in order.
    assert [len(part) for part in store.written] == [USES_AT_ONCE, 750 - USES_AT_ONCE] * 2
    assert all(part == sorted(part) for part in store.written)


async def test_uses_that_were_being_written_when_the_server_ends_are_not_lost(store: Store, uses: KeyUses) -> None:
    class Stalled(Store):
        async def write_global(self, work: Any, used_at: int, key_ids: list[str]) -> None:
            if not self.begun.is_set():
                self.begun.set()
                await asyncio.Event().wait()
            await super().write_global(work, used_at, key_ids)

    stalled = Stalled()
    uses = KeyUses(cast(Any, stalled))
    uses.note("a", 0, HOUR)
    writing = asyncio.create_task(uses.write())
    await stalled.begun.wait()
    writing.cancel()
    await asyncio.wait([writing])
    await uses.close()
    assert stalled.uses == {"a": HOUR}


async def test_uses_are_exact_to_the_hour_and_written_behind(
    store: Store, keys: KeyAuthenticator, uses: KeyUses
) -> None:
    key_id, text = made(store)
    await who(keys, text)
    assert store.uses == {}
    store.away = True
    await uses.write()
    store.away = False
    await uses.write()
    now = START + 100 * SECOND
    assert store.uses == {key_id: now - now % HOUR}
    # The store knows it: nothing is written again before the next hour.
    store.keys[key_id] = replace(store.keys[key_id], used_at=store.uses.pop(key_id))
    for seconds, written in ((10, False), (3600, True)):
        store.seconds += seconds
        assert await who(keys, text) == "ada"
        await uses.write()
        assert (key_id in store.uses) is written


def test_keys_have_one_form() -> None:
    seen = {new_key().text for _ in range(200)}
    assert len(seen) == 200
    for text in seen:
        assert re.fullmatch(r"rk_[a-z2-7]{16}_[A-Za-z0-9_-]{43}", text)
        parts = parts_of(text)
        assert parts is not None and parts[0] == text[3:19] and text[20:] not in parts[1]
    made = new_key("abcdefghijklmnop")
    assert made.key_id == "abcdefghijklmnop" and made.text.startswith("rk_abcdefghijklmnop_")
    assert made.text[20:] not in repr(made) and made.digest not in repr(made)
