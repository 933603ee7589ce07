"""Turns, their artifacts and tags, and what was chosen, on every driver."""

from dataclasses import replace

import pytest

from runekeep_schemas.turns.selection import Selection
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import AlreadyExists, NotFound
from runekeep_storage.records import Artifact, Turn
from runekeep_storage.spaces import pending_deletions
from runekeep_storage.turns import artifacts, feedback, fingerprints, selections, turns
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, CAT, SECOND, Clock, commit, text
from tests.support.storage.turns import TABLES, fill, react, rows_of, say, signal, submit, turn

FINGERPRINT = "artifact:turn.fingerprint.v1"
REACTION = "artifact:turn.log.reaction"
ACTIVE_SET = "conversation.active_set.v1"


async def ids_before(database: Database, sequence: int, limit: int, fingerprinted_only: bool = False) -> list[str]:
    found = await database.read(turns.before, ANN, "s", sequence, limit, fingerprinted_only)
    return [one.turn_id for one in found]


async def test_a_turn_reaches_from_its_first_message_to_its_last(database: Database, clock: Clock) -> None:
    await say(database, "- a a b", at=5 * SECOND)
    await say(database, "b a", at=9 * SECOND)

    assert await turn(database, "a") == Turn("s", "a", 2, 6, 5 * SECOND, 9 * SECOND, "")
    assert await turn(database, "b") == Turn("s", "b", 4, 5, 5 * SECOND, 9 * SECOND, "")
    # A message of no turn makes none.
    assert set(await database.read(turns.find, ANN, "s", ["a", "b", "c", ""])) == {"a", "b"}
    with pytest.raises(NotFound) as refused:
        await database.read(turns.get, ANN, "s", "c")
    assert (refused.value.kind, refused.value.name) == ("turn", "c")


async def test_times_of_a_turn_are_those_of_its_messages_in_their_order(database: Database, clock: Clock) -> None:
    """Callers say when a message was said, and may say it in any order."""
    await say(database, "a", at=9 * SECOND)
    await say(database, "a", at=5 * SECOND)
    await say(database, "b")

    assert await turn(database, "a") == Turn("s", "a", 1, 2, 9 * SECOND, 5 * SECOND, "")
    assert (await turn(database, "b")).started_at == clock.now


async def test_messages_that_are_there_already_change_no_turn(database: Database, clock: Clock) -> None:
    said = await say(database, "a b a")
    before = await rows_of(database)
    clock.advance(60)

    # One repeated under another turn's name, and one that stops its batch.
    again = [replace(one, sequence=0) for one in reversed(said)]
    await database.write(add_messages, ANN, "s", [*again, replace(again[1], turn_id="c")], {})
    with pytest.raises(AlreadyExists):
        await database.write(
            add_messages, ANN, "s", [text("m4", "new", turn_id="a"), text("m1", "other", turn_id="a")], {}
        )

    after = await rows_of(database)
    assert {table: after[table] for table in TABLES if table != "sessions"} == {
        table: before[table] for table in TABLES if table != "sessions"
    }


async def test_turns_come_newest_first_by_their_first_message(database: Database) -> None:
    await say(database, "a b a c b d")
    for turn_id in "da":
        await submit(database, turn_id, objective="aim")
    await react(database, "c")

    assert await ids_before(database, 100, 10) == ["d", "c", "b", "a"]
    assert await ids_before(database, 6, 2) == ["c", "b"]
    assert await ids_before(database, 1, 10) == []
    assert await ids_before(database, 100, 10, True) == ["d", "a"]
    assert await ids_before(database, 6, 10, True) == ["a"]
    assert await ids_before(database, 100, 1, True) == ["d"]


async def test_turns_of_a_stretch_of_messages(database: Database) -> None:
    await say(database, "a b a c - a d")

    async def between(first: int, last: int) -> list[str]:
        return [one.turn_id for one in await database.read(turns.between, ANN, "s", first, last)]

    assert await between(1, 7) == ["a", "b", "c", "d"]
    # A turn that began before the stretch is in it, with the order that its first message gives it.
    assert await between(4, 6) == ["a", "c"]
    # One that reaches over it with no message in it is not.
    assert await between(4, 5) == ["c"]
    assert await between(5, 5) == []


async def test_both_ends_of_a_turn_without_those_between(database: Database) -> None:
    await say(database, "a b a b a b a b a b a")
    of = await turn(database, "a")

    async def numbers(most: int) -> list[int]:
        return [one.sequence for one in await database.read(turns.messages, ANN, of, most)]

    assert await numbers(2) == [1, 3, 9, 11]
    # Where the ends meet, nothing comes twice.
    assert await numbers(4) == [1, 3, 5, 7, 9, 11]
    assert await numbers(100) == [1, 3, 5, 7, 9, 11]
    (first, _) = await database.read(turns.messages, ANN, of, 1)
    assert first == text("m1", "word 1", turn_id="a", at=of.started_at, sequence=1)


async def test_a_summary_takes_the_place_of_the_one_before(database: Database) -> None:
    await say(database, "a b")
    await database.write(turns.set_summary, ANN, "s", "a", '{"notes":"one"}')
    await database.write(turns.set_summary, ANN, "s", "a", '{"notes":"two"}')
    await say(database, "a")

    assert (await turn(database, "a")).summary == '{"notes":"two"}'
    assert (await turn(database, "b")).summary == ""
    with pytest.raises(NotFound):
        await database.write(turns.set_summary, ANN, "s", "c", "{}")


async def test_turns_stay_when_their_messages_are_archived(database: Database) -> None:
    await say(database, "a b a")
    await submit(database, "a", objective="aim")
    before = await rows_of(database)

    await commit(database, ANN, "s", "task")

    after = await rows_of(database)
    assert {table: after[table] for table in TABLES[1:]} == {table: before[table] for table in TABLES[1:]}
    assert [one.sequence for one in await database.read(turns.messages, ANN, await turn(database, "a"), 5)] == [1, 3]


def artifact(name: str, *tags: str, **columns: object) -> Artifact:
    return replace(Artifact("s", "kind", name, "a", 1, f"text of {name}", tags), **columns)  # type: ignore[arg-type]


async def tagged(database: Database, *tags: str, session: str = "", space: Space = ANN) -> list[str]:
    return [one.name for one in await database.read(artifacts.by_tags, space, tags, session, None, 100)]


async def test_an_artifact_is_replaced_whole_and_its_tags_with_it(database: Database, clock: Clock) -> None:
    first = artifact("one", "x", "y", said_at=5, origin="user", reaction="ok", blob="b", hosted_uri="u", version=3)
    await database.write(artifacts.put, ANN, first)
    await database.write(artifacts.put, ANN, artifact("other", "x", said_at=4))
    assert await tagged(database, "x") == ["one", "other"]
    stored = await database.read(artifacts.by_tags, ANN, ["y"], "", None, 10)
    assert stored == [replace(first, updated_at=clock.now)]

    clock.advance(1)
    second = artifact("one", "z", "y", "y", said_at=3, text="new")
    await database.write(artifacts.put, ANN, second)

    assert await database.read(artifacts.by_tags, ANN, ["z"], "", None, 10) == [
        replace(second, tags=("y", "z"), updated_at=clock.now)
    ]
    # Neither under a tag that it has lost nor twice under one that it kept.
    assert await tagged(database, "x") == ["other"]
    assert await tagged(database, "y") == ["one"]
    tags = (await rows_of(database))["turn_tags"]
    assert sorted((row["name"], row["tag"], row["said_at"]) for row in tags) == [
        ("one", "y", 3),
        ("one", "z", 3),
        ("other", "x", 4),
    ]


async def test_what_is_removed_leaves_no_tag(database: Database) -> None:
    for name in ("one", "two"):
        await database.write(artifacts.put, ANN, artifact(name, "x", name))

    assert await database.write(artifacts.remove, ANN, "s", "kind", "one")
    assert not await database.write(artifacts.remove, ANN, "s", "kind", "one")

    assert await tagged(database, "x") == ["two"]
    left = await rows_of(database)
    assert {row["name"] for table in ("turn_artifacts", "turn_tags") for row in left[table]} == {"two"}


async def test_artifacts_that_have_all_of_the_tags(database: Database) -> None:
    async def many_of_them(tx: Tx, space: Space) -> None:
        for number in range(300):
            name = f"n{number:03}"
            tags = ["all", "even" if number % 2 == 0 else "odd", name]
            await artifacts.put(tx, space, artifact(name, *tags, said_at=number))

    await database.write(many_of_them, ANN)

    assert await tagged(database, "all", "n007") == ["n007"]
    assert await tagged(database, "n007", "odd", "all", "n007") == ["n007"]
    assert await tagged(database, "n007", "even") == []
    assert await tagged(database, "all", "nothing") == []
    assert (await tagged(database, "all", "odd"))[:3] == ["n299", "n297", "n295"]
    many = [f"tag {number}" for number in range(40)]
    await database.write(artifacts.put, ANN, artifact("many", *many))
    assert await tagged(database, *many[:8]) == ["many"]


@pytest.mark.parametrize("session", ["", "s"])
async def test_pages_of_a_tag_miss_and_repeat_nothing(database: Database, session: str) -> None:
    expected = []
    for number in range(40):
        # Many share a moment, so that pages end within one, and names say nothing of the order.
        one = artifact(f"n{number * 7 % 40:02}", "x", said_at=number // 9, session_id="st"[number % 2])
        if number % 3 == 0:
            one = replace(one, kind="another")
        await database.write(artifacts.put, ANN, one)
        if session in ("", one.session_id):
            expected.append((one.said_at, one.session_id, one.kind, one.name))

    seen: list[tuple[int, str, str, str]] = []
    after = None
    while found := await database.read(artifacts.by_tags, ANN, ["x"], session, after, 7):
        seen += [(one.said_at, one.session_id, one.kind, one.name) for one in found]
        after = seen[-1]

    assert seen == sorted(expected, reverse=True)


async def test_named_artifacts_are_those_of_one_kind(database: Database) -> None:
    for one in (artifact("one"), artifact("two"), artifact("one", kind="another"), artifact("one", session_id="t")):
        await database.write(artifacts.put, ANN, one)

    found = await database.read(artifacts.named, ANN, "s", "kind", ["one", "two", "three"])

    assert {name: (one.session_id, one.kind) for name, one in found.items()} == {
        "one": ("s", "kind"),
        "two": ("s", "kind"),
    }
    assert await database.read(artifacts.get, ANN, "s", "kind", "three") is None


async def test_no_selection_is_not_an_empty_one(database: Database) -> None:
    await say(database, "a b")
    for turn_id in "ab":
        await submit(database, turn_id, objective="aim")
    assert await database.read(selections.get, ANN, "s") is None

    chosen = Selection(("a",), ("a", "b"), ("obj-x-1",), "b", 7 * SECOND, 1)
    assert await database.write(selections.put, ANN, "s", chosen) == chosen
    assert await database.read(selections.get, ANN, "s") == chosen

    empty = Selection(last_reconciled_at=8 * SECOND, memory_version=2)
    await database.write(selections.put, ANN, "s", empty)
    assert await database.read(selections.get, ANN, "s") == empty
    (one,) = await database.read(artifacts.by_tags, ANN, [ACTIVE_SET], "s", None, 10)
    assert (one.name, one.turn_id, one.said_at, one.text) == ("", "", 8 * SECOND, empty.to_text())


async def test_a_selection_cannot_hide_what_is_still_to_change(database: Database) -> None:
    """The version comes back by way of the caller."""
    await say(database, "a b")
    await submit(database, "a", objective="aim")

    await database.write(selections.put, ANN, "s", Selection(memory_version=2**62, last_reconciled_at=SECOND))

    chosen = await database.read(selections.get, ANN, "s")
    assert chosen is not None and chosen.memory_version == 1
    await submit(database, "b", objective="aim")
    assert await database.read(fingerprints.delta, ANN, "s", chosen.memory_version) == (1, ["b"])
    with pytest.raises(NotFound):
        await database.write(selections.put, ANN, "nowhere", Selection())


async def test_what_is_left_of_a_deleted_session_is_not_seen(database: Database) -> None:
    for session in ("s", "t"):
        await say(database, "a b", session=session)
        await submit(database, "a", session=session, objective="aim", assistant_signals=(signal("key"),))
        await react(database, "a", session=session)
    await database.write(selections.put, ANN, "s", Selection(last_reconciled_at=SECOND))
    of = await turn(database, "a")
    await database.write(pending_deletions.leave, ANN, "s")

    with pytest.raises(NotFound):
        await database.read(turns.get, ANN, "s", "a")
    with pytest.raises(NotFound):
        await database.write(turns.set_summary, ANN, "s", "a", "{}")
    assert await database.read(turns.find, ANN, "s", ["a"]) == {}
    assert await ids_before(database, 100, 10) == await ids_before(database, 100, 10, True) == []
    assert await database.read(turns.between, ANN, "s", 1, 10) == []
    assert await database.read(turns.messages, ANN, of, 10) == []
    assert await database.read(fingerprints.of, ANN, "s", ["a"]) == {}
    assert await database.read(fingerprints.delta, ANN, "s", 0) == (0, [])
    assert await database.read(selections.get, ANN, "s") is None
    everywhere = await database.read(fingerprints.signals, ANN, limit=10)
    assert [session for session, _ in everywhere] == ["t"]
    assert [one.session_id for one in await database.read(feedback.page, ANN, "", [], 0, 0, None, 10)] == ["t"]
    assert (await database.read(feedback.counts, ANN, "", [], 0, 0)).total == 1
    assert (await database.read(feedback.counts, ANN, "s", ["a"], 0, 0)).total == 0
    tagged_ = await database.read(artifacts.by_tags, ANN, [FINGERPRINT], "", None, 10)
    assert [one.session_id for one in tagged_] == ["t"]


async def test_the_same_names_in_other_spaces_are_other_turns(database: Database) -> None:
    """Two users of one account, the same user name in another account, and one besides."""
    spaces = (ANN, BOB, CAT, Space("other", "ann"))
    for number, space in enumerate(spaces):
        await say(database, "a b " + "c " * number, space=space)
        mine = f"of {space}"
        made_at = (1_700_000_000 - number) * SECOND
        await submit(
            database, "a", space=space, objective=mine, assistant_signals=(signal("key", mine),), made_at=made_at
        )
        await react(database, "a", mine, space=space)
        await react(database, "a", mine, name="f", space=space)
        await database.write(
            selections.put, space, "s", Selection(current_turn_id=mine, last_reconciled_at=SECOND, memory_version=1)
        )
        await database.write(turns.set_summary, space, "s", "b", mine)

    for number, space in enumerate(spaces):
        mine = f"of {space}"
        assert (await turn(database, "b", space=space)).summary == mine
        found = await database.read(turns.before, space, "s", 1000, 10)
        assert len(found) == 2 + (number > 0)
        assert [one.turn_id for one in await database.read(turns.before, space, "s", 1000, 10, True)] == ["a"]
        assert {one.turn_id for one in await database.read(turns.between, space, "s", 1, 100)} == {
            one.turn_id for one in found
        }
        assert len(await database.read(turns.messages, space, found[0], 50)) == max(1, number)
        assert (await database.read(fingerprints.of, space, "s", ["a"]))["a"].objective == mine
        assert [one.objective for _, one in await database.read(fingerprints.uncovered, space, "s", 10)] == [mine]
        assert await database.read(fingerprints.left, space, "s") == 1
        assert await database.read(fingerprints.delta, space, "s", 0) == (1, ["a"])
        assert await database.read(fingerprints.turn_version, space, "s") == 1
        for session in ("", "s"):
            said = await database.read(fingerprints.signals, space, session_id=session, limit=10)
            assert [[signal.value for signal in one.signals] for _, one in said] == [[mine]]
            keyed = await database.read(fingerprints.signals, space, session_id=session, keys=["key"], limit=10)
            assert keyed == said
            reactions = await database.read(feedback.page, space, session, [], 0, 0, None, 10)
            assert [(one.reaction.text, one.objective) for one in reactions] == [(mine, mine)] * 2
            assert (await database.read(feedback.counts, space, session, [], 0, 0)).total == 2
            stored = await database.read(artifacts.by_tags, space, ["turn:a"], session, None, 10)
            assert len(stored) == 3 and all(mine in one.text for one in stored)
        reactions = await database.read(feedback.page, space, "s", ["a", "b"], 0, 0, None, 10)
        assert [one.reaction.text for one in reactions] == [mine, mine]
        chosen = await database.read(selections.get, space, "s")
        assert chosen is not None and chosen.current_turn_id == mine

    others = "NOT (account = 'acme' AND user_id = 'ann')"
    before = await rows_of(database, others)
    hers = await rows_of(database)
    await say(database, "a d")
    await submit(database, "a", topics=("new",), assistant_signals=(signal("other"),))
    await fill(database, "b", objective="filled")
    await react(database, "a", "changed")
    await react(database, "a", "more", name="g")
    await database.write(feedback.clear, ANN, "s", "a")
    await database.write(artifacts.remove, ANN, "s", REACTION, "f")
    await database.write(selections.put, ANN, "s", Selection())
    await database.write(turns.set_summary, ANN, "s", "b", "new")
    await database.write(fingerprints.cover, ANN, "s", 1)
    assert await rows_of(database, others) == before
    assert await rows_of(database) != hers
