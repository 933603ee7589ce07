"""Reactions to turns, on every driver."""

import asyncio

import pytest

from runekeep_schemas.turns.feedback import Reaction, artifact_name
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import NotFound, TooManyReactions
from runekeep_storage.turns import artifacts, feedback, turns
from runekeep_storage.turns.feedback import Counts
from tests.support.storage.databases import ANN, SECOND, Clock, NewStore
from tests.support.storage.turns import react, rows_of, say, submit, two_servers

REACTION = "artifact:turn.log.reaction"


async def texts(database: Database, *turn_ids: str, session: str = "s") -> list[str]:
    found = await database.read(feedback.page, ANN, session, turn_ids, 0, 0, None, 1000)
    return [one.reaction.text for one in found]


async def test_a_reaction_comes_back_as_it_is_stored(database: Database, clock: Clock) -> None:
    await say(database, "a b")
    await submit(database, "a", objective="aim")

    mine = await react(database, "a", "fine", reaction="neutral")
    clock.advance(1)
    theirs = await react(database, "b", "wrong", name="f1", reaction="not_ok", at=5 * SECOND)

    # The user is certain, and speaks of the turn itself.
    assert mine == Reaction("by-user-fine", "a", "neutral", "fine", "user", 1.0, "a", clock.now - SECOND)
    assert theirs == Reaction("f1", "b", "not_ok", "wrong", "machine", 0.9, "b", 5 * SECOND)
    found = await database.read(feedback.page, ANN, "s", [], 0, 0, None, 10)
    assert found == [feedback.Said("s", mine, "aim"), feedback.Said("s", theirs, "")]
    stored = await database.read(artifacts.by_tags, ANN, [REACTION], "s", None, 10)
    assert [(one.name, one.tags, one.text, one.origin, one.reaction) for one in stored] == [
        ("user:a", (REACTION, "origin:user", "turn:a"), mine.to_text(), "user", "neutral"),
        ("f1", (REACTION, "origin:machine", "turn:b"), theirs.to_text(), "machine", "not_ok"),
    ]
    with pytest.raises(NotFound):
        await react(database, "c")


async def test_the_user_has_one_reaction_to_a_turn_and_machines_have_many(database: Database, clock: Clock) -> None:
    await say(database, "a b")
    for words in ("one", "two", "three"):
        clock.advance(1)
        await react(database, "a", words)
        await react(database, "a", words, name=f"f-{words}")
    await react(database, "b", "other")

    assert sorted(await texts(database, "a")) == ["one", "three", "three", "two"]
    assert await texts(database, "b") == ["other"]
    assert sorted(await texts(database, "a", "b")) == ["one", "other", "three", "three", "two"]
    tags = (await rows_of(database))["turn_tags"]
    assert len([row for row in tags if row["name"] == "user:a"]) == 3


async def test_concurrent_replacements_leave_exactly_one_and_never_none(new_store: NewStore) -> None:
    """On two drivers, each with its own connections, and a reader that looks on."""
    count = 60
    async with two_servers(new_store) as servers:
        await say(servers[0], "a")
        await react(servers[0], "a", "first")
        written = asyncio.Event()

        async def look(tx: Tx) -> tuple[list[str], list[str], int]:
            found = await feedback.page(tx, ANN, "s", [], 0, 0, None, 10)
            tagged = await artifacts.by_tags(tx, ANN, ["turn:a", "origin:user"], "s", None, 10)
            counted = await feedback.counts(tx, ANN, "s", ["a"], 0, 0)
            return [one.reaction.to_text() for one in found], [one.text for one in tagged], counted.user

        async def write() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(count):
                    # Times that go up and down: tags move with them.
                    at = (number * 7 % 11 + 1) * SECOND
                    group.create_task(react(servers[number % 2], "a", f"say {number}", at=at))
            written.set()

        writing = asyncio.create_task(write())
        seen = []
        while not written.is_set():
            seen.append(await servers[1].read_global(look))
        await writing
        seen.append(await servers[1].read_global(look))

        assert all(len(paged) == 1 and paged == tagged and counted == 1 for paged, tagged, counted in seen)
        assert "say" in seen[-1][0][0]
        left = await rows_of(servers[0])
        assert len(left["turn_artifacts"]) == 1 and len(left["turn_tags"]) == 3


async def test_what_the_user_said_can_be_cleared(database: Database) -> None:
    await say(database, "a b")
    for turn_id in "ab":
        await react(database, turn_id, "mine")
        await react(database, turn_id, "theirs", name=f"f-{turn_id}")

    assert await database.write(feedback.clear, ANN, "s", "a")
    assert not await database.write(feedback.clear, ANN, "s", "a")
    assert not await database.write(feedback.clear, ANN, "s", "nothing")

    assert await texts(database, "a") == ["theirs"]
    assert sorted(await texts(database, "b")) == ["mine", "theirs"]
    assert all(row["name"] != "user:a" for row in (await rows_of(database))["turn_tags"])


async def test_machines_add_a_hundred_reactions_to_a_turn_and_no_more(database: Database) -> None:
    await say(database, "a b")

    async def many(tx: Tx, space: Space) -> None:
        of = await turns.get(tx, space, "s", "a")
        for number in range(100):
            said = Reaction(f"f{number}", "", "ok", "good", "machine", 0.9, "", 0)
            await feedback.put(tx, space, "s", of, said)

    await database.write(many, ANN)
    before = await rows_of(database)

    with pytest.raises(TooManyReactions) as refused:
        await react(database, "a", name="one more")

    assert (refused.value.turn_id, refused.value.most) == ("a", 100)
    assert await rows_of(database) == before
    # One that is there already, the user's, and another turn's are not in the way.
    await react(database, "a", "changed", name="f7")
    await react(database, "a", "mine")
    await react(database, "b", name="one more")
    assert (await database.read(feedback.counts, ANN, "s", ["a"], 0, 0)).total == 101
    assert await database.write(artifacts.remove, ANN, "s", REACTION, "f7")
    await react(database, "a", name="one more to a")


async def test_counts_are_of_all_that_match(database: Database) -> None:
    await say(database, "a b")
    await say(database, "a", session="t")
    await react(database, "a", reaction="ok", at=10)
    await react(database, "a", reaction="not_ok", name="f1", at=20)
    await react(database, "a", reaction="not_ok", name="f2", at=30)
    await react(database, "b", reaction="neutral", at=40)
    await react(database, "b", reaction="none", name="f3", at=50)
    await react(database, "a", reaction="ok", at=60, session="t")

    async def counted(session: str, turn_ids: list[str], start: int = 0, end: int = 0) -> Counts:
        counts = await database.read(feedback.counts, ANN, session, turn_ids, start, end)
        # The pages hold what is counted.
        found = await database.read(feedback.page, ANN, session, turn_ids, start, end, None, 100)
        assert len(found) == counts.total
        return counts

    assert await counted("", []) == Counts(total=6, user=3, machine=3, ok=2, not_ok=2, neutral=2)
    assert await counted("s", []) == Counts(total=5, user=2, machine=3, ok=1, not_ok=2, neutral=2)
    assert await counted("s", ["b"]) == Counts(total=2, user=1, machine=1, ok=0, not_ok=0, neutral=2)
    assert await counted("s", ["a", "b", "c"]) == await counted("s", [])
    assert await counted("s", [], 20, 50) == Counts(total=3, user=1, machine=2, ok=0, not_ok=2, neutral=1)
    assert await counted("s", ["a"], 30) == Counts(total=1, user=0, machine=1, ok=0, not_ok=1, neutral=0)
    assert await counted("", [], 50) == Counts(total=2, user=1, machine=1, ok=1, not_ok=0, neutral=1)
    assert await counted("s", [], 100) == Counts(0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("session, turn_ids", [("", ()), ("s", ()), ("s", tuple(f"t{number}" for number in range(40)))])
async def test_pages_of_reactions_miss_and_repeat_nothing(
    database: Database, session: str, turn_ids: tuple[str, ...]
) -> None:
    expected = []
    for of in "st":
        await say(database, " ".join(f"t{number}" for number in range(50)), session=of)
        for number in range(50):
            # Many share a moment, so that pages end within one.
            at = (number * 3 % 7 + 1) * SECOND
            name = f"f{number * 7 % 50:02}" if number % 4 else ""
            made = await react(database, f"t{number}", name=name, session=of, at=at)
            if session in ("", of) and made.turn_id in (turn_ids or (made.turn_id,)) and 2 <= at // SECOND < 7:
                expected.append((at, of, artifact_name(made)))

    seen: list[tuple[int, str, str]] = []
    after = None
    while found := await database.read(feedback.page, ANN, session, turn_ids, 2 * SECOND, 7 * SECOND, after, 6):
        seen += [(one.reaction.created_at, one.session_id, artifact_name(one.reaction)) for one in found]
        after = seen[-1]

    assert seen == sorted(expected, reverse=True)
    # A place that lies behind the end of the time asked for begins at that end.
    late = (100 * SECOND, "z", "z")
    found = await database.read(feedback.page, ANN, session, turn_ids, 2 * SECOND, 7 * SECOND, late, 1000)
    assert len(found) == len(expected)
