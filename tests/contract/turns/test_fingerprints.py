"""Fingerprints: merged, numbered and read, on every driver."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from runekeep_schemas.turns.fingerprint import MAX_BYTES, Fingerprint, Query, plain
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import FingerprintTooLong, NotFound
from runekeep_storage.records import Turn
from runekeep_storage.sessions import sessions
from runekeep_storage.turns import artifacts, fingerprints, turns
from tests.support.storage.databases import ANN, SECOND, Clock, NewStore
from tests.support.storage.turns import fill, rows_of, say, signal, submit, two_servers

DAY = 86_400 * SECOND


async def fingerprint(database: Database, turn_id: str) -> Fingerprint:
    return (await database.read(fingerprints.of, ANN, "s", [turn_id]))[turn_id]


async def version(database: Database) -> int:
    return await database.read(fingerprints.turn_version, ANN, "s")


async def test_a_turn_without_messages_has_no_fingerprint(database: Database) -> None:
    await say(database, "a -")

    with pytest.raises(NotFound) as refused:
        await submit(database, "b", objective="aim")

    assert (refused.value.kind, refused.value.name) == ("turn", "b")
    assert await database.read(fingerprints.of, ANN, "s", ["a", "b"]) == {}
    assert await version(database) == 0


async def test_nothing_is_stored_for_a_session_that_is_gone(database: Database) -> None:
    gone = Turn("gone", "a", 1, 1, 0, 0, "")
    with pytest.raises(NotFound):
        await database.write(fingerprints.submit, ANN, gone, Fingerprint("a", "aim"))
    with pytest.raises(NotFound):
        await database.write(fingerprints.fill, ANN, gone, None, Fingerprint("a", "aim"))
    with pytest.raises(NotFound):
        await database.read(fingerprints.turn_version, ANN, "gone")
    with pytest.raises(NotFound):
        await database.read(fingerprints.covered_at, ANN, "gone")
    assert (await rows_of(database))["turn_artifacts"] == []


async def test_what_is_submitted_comes_back_as_it_is_stored(database: Database, clock: Clock) -> None:
    await say(database, "a", at=5 * SECOND)
    await say(database, "a", at=9 * SECOND)
    said: dict[str, Any] = {
        "objective": "A trip \N{SNOWMAN}, <b>, \x00",
        "topics": ("one", "two"),
        "assertions": (signal("budget.cap", {"max": 500}, "must"),),
        "exceptions": (signal("color", {"options": ["red", 1, None]}, "avoid"),),
        "facts": (signal("is", True, "high"),),
        "assistant_signals": (signal("Promo Code!", "X"), signal("promo-code", "Y"), signal("other")),
        "ctx_retrieval_queries": (Query("user", "trip", "why"),),
    }

    made = await submit(database, "a", **said)

    # The time of the turn's last message, since the caller gave none.
    assert made == Fingerprint("a", **said, made_at=9 * SECOND)
    assert await fingerprint(database, "a") == made
    (stored,) = await database.read(artifacts.by_tags, ANN, ["turn:a"], "s", None, 10)
    assert stored.tags == (
        "artifact:turn.fingerprint.v1",
        "assistant_signal",
        "assistant_signal:other",
        "assistant_signal:promo_code",
        "turn:a",
    )
    assert (stored.text, stored.version, stored.sequence) == (made.to_text(), 1, 1)
    assert (stored.said_at, stored.updated_at) == (9 * SECOND, clock.now)
    assert (await submit(database, "a", made_at=3 * SECOND)).made_at == 3 * SECOND
    assert (await submit(database, "a", topics=("three",))).made_at == 3 * SECOND


async def test_submits_of_one_turn_are_merged(database: Database) -> None:
    await say(database, "a")
    await submit(database, "a", objective="first", topics=("x", "y"), facts=(signal("old", 1, "low"),))

    await submit(database, "a", objective="second", topics=("y", "z"), facts=(signal("new", 2, "high"),))
    await submit(database, "a", assertions=(signal("k", 1, "must"),))

    now = await fingerprint(database, "a")
    assert (now.objective, now.topics) == ("first", ("x", "y", "z"))
    assert (now.facts, now.assertions) == ((signal("new", 2, "high"),), (signal("k", 1, "must"),))


async def test_what_an_extractor_finds_out_fills_gaps_alone(database: Database) -> None:
    await say(database, "a b", at=9 * SECOND)
    facts = (signal("said", 1, "low"),)
    await submit(database, "a", objective="said", facts=facts)

    assert await fill(database, "a", objective="found", facts=(signal("found"),), topics=("t",), made_at=77 * SECOND)
    assert not await fill(database, "a", objective="found again", facts=(signal("found"),))
    # Of a turn about which nobody has said anything yet; at the turn's own time.
    assert await fill(database, "b", objective="found", made_at=77 * SECOND)

    assert await fingerprint(database, "a") == Fingerprint("a", "said", ("t",), facts=facts, made_at=9 * SECOND)
    assert await fingerprint(database, "b") == Fingerprint("b", "found", made_at=9 * SECOND)
    assert await version(database) == 3


async def test_a_repeat_is_no_change(database: Database, clock: Clock) -> None:
    await say(database, "a b")
    said: dict[str, Any] = {"objective": "aim", "topics": ("x",), "facts": (signal("k", {"options": [1]}, "low"),)}
    await submit(database, "a", **said)
    await submit(database, "b", **said)
    before = await rows_of(database)
    clock.advance(60)

    await submit(database, "a", **said)
    assert not await fill(database, "a", **said)

    assert await rows_of(database) == before
    # In Python they are equal.
    await submit(database, "a", facts=(signal("k", True, "low"),))
    await submit(database, "a", facts=(signal("k", 1, "low"),))
    assert json.loads((await fingerprint(database, "a")).to_text())["facts"][0]["value"] == 1
    assert await version(database) == 4


async def test_promotions_are_as_they_were_said_last(database: Database) -> None:
    """The keys, and so the tags, stay the same: what is kept beside the tags changes all the same."""
    await say(database, "a")
    for value in ("first", {"min": 1.0}, 1, True):
        await submit(database, "a", assistant_signals=(signal("hotel", value),))
        for keys in ((), ("hotel",)):
            ((_, found),) = await database.read(fingerprints.signals, ANN, keys=keys, limit=10)
            there = await fingerprint(database, "a")
            assert (found.turn_id, found.made_at) == ("a", there.made_at)
            assert replace(there, assistant_signals=found.signals).to_text() == there.to_text()
            # In Python 1 equals true.
            assert repr(found.signals[0].value) == repr(plain(value))
    # Kept once, whatever number of tags there is.
    tags = (await rows_of(database))["turn_tags"]
    assert [row["tag"] for row in tags if row["promoted"]] == ["assistant_signal"]


async def test_signals_that_are_replaced_are_found_no_more(database: Database) -> None:
    await say(database, "a")
    await submit(database, "a", assistant_signals=(signal("old"), signal("both")))
    await submit(database, "a", assistant_signals=(signal("both"), signal("new")))

    async def found(*keys: str) -> list[str]:
        return [one.turn_id for _, one in await database.read(fingerprints.signals, ANN, keys=keys, limit=10)]

    assert (await found("old"), await found("new"), await found("BOTH")) == ([], ["a"], ["a"])
    # One that was found by several keys comes once.
    assert await found("new", "both", "old") == ["a"]


async def test_only_the_first_turn_names_the_session(database: Database) -> None:
    await say(database, "a b")
    await submit(database, "b", objective="aim", conversation_title="Of the second")
    assert (await fingerprint(database, "b")).conversation_title == ""
    assert (await database.read(sessions.get, ANN, "s")).title == ""

    await submit(database, "a", conversation_title="Tea")
    assert not await fill(database, "a", conversation_title="Coffee")
    await submit(database, "a", conversation_title="Water", objective="aim")

    assert (await fingerprint(database, "a")).conversation_title == "Tea"
    assert (await database.read(sessions.get, ANN, "s")).title == "Tea"
    await database.write(sessions.create, ANN, "t", "Mine")
    await say(database, "a", session="t")
    await submit(database, "a", session="t", conversation_title="Theirs")
    assert (await database.read(sessions.get, ANN, "t")).title == "Mine"


async def test_nothing_found_out_of_a_turn_is_no_fingerprint(database: Database) -> None:
    await say(database, "a b")
    assert not await fill(database, "b", conversation_title="Of the second")
    assert not await fill(database, "a")
    assert (await database.read(fingerprints.of, ANN, "s", ["a", "b"]), await version(database)) == ({}, 0)
    assert await fill(database, "a", conversation_title="Tea")
    assert (await fingerprint(database, "a")).conversation_title == "Tea"


def long_signals(count: int, severity: str) -> tuple[Any, ...]:
    return tuple(signal(f"k{number}", "\N{EURO SIGN}" * 300, severity) for number in range(count))


async def test_what_is_said_bit_by_bit_is_bounded_too(database: Database) -> None:
    await say(database, "a b")
    await submit(database, "a", assertions=long_signals(16, "must"))
    before = await rows_of(database)

    with pytest.raises(FingerprintTooLong) as refused:
        await submit(database, "a", facts=long_signals(16, "low"))

    assert refused.value.size > refused.value.most == MAX_BYTES
    assert await rows_of(database) == before
    # An extractor's is taken as far as it fits; what was said stays.
    assert await fill(
        database, "a", objective="aim", facts=(signal("k", 1, "low"),), exceptions=long_signals(16, "avoid")
    )
    now = await fingerprint(database, "a")
    assert (len(now.assertions), now.exceptions, now.objective) == (16, (), "aim")
    assert len(now.to_text().encode()) <= MAX_BYTES
    assert await fill(database, "b", assertions=long_signals(16, "must"), facts=long_signals(16, "low"))
    assert len((await fingerprint(database, "b")).to_text().encode()) <= MAX_BYTES


async def test_no_part_that_an_extractor_adds_makes_it_longer_than_it_may_be(database: Database) -> None:
    """What was said leaves little room: each of these is too long by itself."""
    wide = "\N{SNOWMAN}"
    parts: dict[str, Any] = {
        "objective": wide * 300,
        "topics": tuple(f"{wide * 60}{number}" for number in range(8)),
        "ctx_retrieval_queries": tuple(Query("user", wide * 300, f"{number}") for number in range(2)),
        "conversation_title": wide * 200,
        "facts": (signal("k", wide * 300, "low"),),
        "assistant_signals": (signal("k", wide * 300),),
    }
    await say(database, "a b c")
    full = long_signals(16, "must")
    room = MAX_BYTES - len(Fingerprint("a", assertions=full, made_at=SECOND).to_text().encode()) - 100
    assert room > 0
    full = (*full[:-1], signal("k15", full[-1].value + "x" * room, "must"))
    said_so = await submit(database, "a", assertions=full)
    assert MAX_BYTES - 200 < len(said_so.to_text().encode()) <= MAX_BYTES

    for name, part in parts.items():
        assert not await fill(database, "a", **{name: part}), name
    assert not await fill(database, "a", **parts)
    assert await fingerprint(database, "a") == said_so
    # What does fit is taken.
    assert await fill(database, "a", **parts | {"objective": "aim"})
    assert await fingerprint(database, "a") == replace(said_so, objective="aim")
    assert await fill(database, "c", **parts)
    assert (await fingerprint(database, "c")).facts == parts["facts"]


async def test_of_submits_at_one_time_none_is_lost(new_store: NewStore) -> None:
    """On two drivers, each with its own connections."""
    async with two_servers(new_store) as servers:
        await say(servers[0], "a")
        lists = ("assertions", "exceptions", "facts", "assistant_signals")
        said: list[dict[str, Any]] = [{name: (signal(name),), "objective": name} for name in lists]

        await asyncio.gather(
            *(submit(servers[number % 2], "a", topics=(f"t{number}",)) for number in range(8)),
            *(submit(servers[number % 2], "a", **one) for number, one in enumerate(said)),
            *(fill(servers[number], "a", ctx_retrieval_queries=(Query("", f"q{number}"),)) for number in range(2)),
        )

        now = await fingerprint(servers[1], "a")
        assert sorted(now.topics) == [f"t{number}" for number in range(8)]
        assert all(getattr(now, name) == (signal(name),) for name in lists)
        assert now.objective in lists
        assert len(now.ctx_retrieval_queries) == 1
        # All but the second of the extractors changed something.
        assert await version(servers[0]) == 13


async def test_numbers_of_changes_are_those_of_their_commits(new_store: NewStore) -> None:
    """Whoever has read up to a number has missed nothing below it."""
    count = 60
    async with two_servers(new_store) as servers:
        names = [f"t{number}" for number in range(count)]
        await say(servers[0], " ".join(names))
        written = asyncio.Event()

        async def numbers(tx: Tx) -> tuple[int, list[int]]:
            changed = await fingerprints.uncovered(tx, ANN, "s", 1000)
            return await fingerprints.turn_version(tx, ANN, "s"), [number for number, _ in changed]

        async def write() -> None:
            async with asyncio.TaskGroup() as group:
                for number, name in enumerate(names):
                    group.create_task(submit(servers[number % 2], name, objective="aim"))
            written.set()

        writing = asyncio.create_task(write())
        seen = []
        while not written.is_set():
            seen.append(await servers[1].read_global(numbers))
        await writing
        seen.append(await servers[1].read_global(numbers))

        assert all(found == list(range(1, last + 1)) for last, found in seen)
        assert [last for last, _ in seen] == sorted(last for last, _ in seen)
        assert seen[-1][0] == count


async def test_the_delta_is_what_changed_since(database: Database) -> None:
    await say(database, "a b c d")
    for turn_id in "abcd":
        await submit(database, turn_id, objective="aim")
    assert await database.read(fingerprints.delta, ANN, "s", 0) == (4, ["d", "c", "b", "a"])
    assert await database.read(fingerprints.delta, ANN, "s", 3) == (1, ["d"])
    assert await database.read(fingerprints.delta, ANN, "s", 4) == (0, [])

    # Older turns that change again are in it, in the order of turns and not of changes.
    await submit(database, "c", topics=("new",))
    await submit(database, "a", topics=("new",))
    await submit(database, "d", objective="again")

    assert await database.read(fingerprints.delta, ANN, "s", 4) == (2, ["c", "a"])
    assert await database.read(fingerprints.delta, ANN, "s", 5) == (1, ["a"])


async def test_caps_keep_the_newest(database: Database) -> None:
    names = [f"t{number:03}" for number in range(300)]
    await say(database, " ".join(names))

    async def all_of(tx: Tx, space: Space) -> None:
        for turn_id in names:
            of = await turns.get(tx, space, "s", turn_id)
            await fingerprints.submit(tx, space, of, Fingerprint(turn_id, "aim", made_at=tx.now()))

    await database.write(all_of, ANN)

    assert await database.read(fingerprints.delta, ANN, "s", 0) == (256, names[:-26:-1])
    assert await database.read(fingerprints.delta, ANN, "s", 100) == (200, names[:-26:-1])
    assert await database.read(fingerprints.delta, ANN, "s", 290) == (10, names[:-11:-1])
    # All made in one moment: the order of turns is left.
    found = await database.read(fingerprints.signals, ANN, limit=5)
    assert found == []
    await database.write(with_signals, ANN, names)
    found = await database.read(fingerprints.signals, ANN, limit=5)
    assert [one.turn_id for _, one in found] == names[:-6:-1]


async def with_signals(tx: Tx, space: Space, names: list[str]) -> None:
    for turn_id in names:
        of = await turns.get(tx, space, "s", turn_id)
        await fingerprints.submit(tx, space, of, Fingerprint(turn_id, assistant_signals=(signal("key"),)))


async def test_after_a_year_a_fingerprint_is_no_news(database: Database, clock: Clock) -> None:
    await say(database, "a b c")
    for turn_id, days in zip("abc", (364, 366, 1), strict=True):
        made_at = clock.now - days * DAY
        await submit(database, turn_id, assistant_signals=(signal("key"),), made_at=made_at)

    assert await database.read(fingerprints.delta, ANN, "s", 0) == (2, ["c", "a"])
    for keys in ((), ("key",)):
        found = await database.read(fingerprints.signals, ANN, keys=keys, limit=10)
        assert [one.turn_id for _, one in found] == ["c", "a"]
    # It is still there by its name, and for the buckets.
    assert (await fingerprint(database, "b")).turn_id == "b"
    assert await database.read(fingerprints.left, ANN, "s") == 3


async def test_what_is_covered_is_left_alone_until_it_changes(database: Database, clock: Clock) -> None:
    await say(database, "a b c")
    for turn_id in "abc":
        clock.advance(1)
        await submit(database, turn_id, objective="aim")

    async def uncovered(limit: int = 10) -> list[tuple[int, str]]:
        found = await database.read(fingerprints.uncovered, ANN, "s", limit)
        return [(number, one.turn_id) for number, one in found]

    assert await uncovered() == [(1, "a"), (2, "b"), (3, "c")]
    assert await uncovered(2) == [(1, "a"), (2, "b")]
    assert await database.read(fingerprints.covered_at, ANN, "s") == 0

    clock.advance(60)
    await database.write(fingerprints.cover, ANN, "s", 2)
    assert await uncovered() == [(3, "c")]
    assert await database.read(fingerprints.left, ANN, "s") == 1
    # Up to when turns are covered, not when somebody did it.
    assert await database.read(fingerprints.covered_at, ANN, "s") == clock.now - 61 * SECOND
    # A job that ends late takes nothing back.
    await database.write(fingerprints.cover, ANN, "s", 1)
    assert await uncovered() == [(3, "c")]
    await submit(database, "a", topics=("new",))
    assert await uncovered() == [(3, "c"), (4, "a")]
    await database.write(fingerprints.cover, ANN, "s", 4)
    assert (await uncovered(), await database.read(fingerprints.left, ANN, "s")) == ([], 0)
    assert await database.read(fingerprints.covered_at, ANN, "s") == clock.now


@pytest.mark.parametrize("session", ["", "s"])
@pytest.mark.parametrize("keys", [(), ("odd key", "even")])
async def test_pages_of_signals_miss_and_repeat_nothing(
    database: Database, clock: Clock, session: str, keys: tuple[str, ...]
) -> None:
    # Names say nothing of the order of turns.
    names = [f"t{number * 7 % 30:02}" for number in range(30)]
    expected = []
    for of in "st":
        await say(database, " ".join(names), session=of)
        for number, name in enumerate(names):
            # Many share a moment, so that pages end within one.
            made_at = clock.now - number * 3 % 5 * SECOND
            said = (signal("Odd-Key"), signal("extra")) if number % 2 else (signal("even"),)
            if number % 10 == 9:
                said = (signal("unasked"),)
            await submit(database, name, session=of, assistant_signals=said, made_at=made_at)
            if session in ("", of) and not (keys and number % 10 == 9):
                expected.append((made_at, of, number, name))

    seen: list[tuple[str, str]] = []
    after = None
    while found := await database.read(fingerprints.signals, ANN, session_id=session, keys=keys, after=after, limit=7):
        seen += [(of, one.turn_id) for of, one in found]
        of, last = found[-1]
        after = (last.made_at, of, last.turn_id)

    assert seen == [(of, name) for _, of, _, name in sorted(expected, reverse=True)]
