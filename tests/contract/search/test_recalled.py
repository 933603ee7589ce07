"""What a session was given, over every driver: while it counts, and when it goes."""

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.documents.uris import space_root
from runekeep_schemas.recall_budget import Level
from runekeep_server.memories import recall, recall_text
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure.deletion import delete_session, delete_user
from runekeep_storage.errors import NotFound
from runekeep_storage.records import Message
from runekeep_storage.search import recalled
from runekeep_storage.search.recalled import NEWEST, Given, SessionPosition
from runekeep_storage.search.requests import FindAnswer, FindRequest
from runekeep_storage.search.searcher import Searcher
from runekeep_storage.sessions import sessions
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, CAT, ON_SQLITE, SECOND, Clock, commit, revise, talk, text, uri
from tests.support.storage.deletions import dump
from tests.support.storage.search import Search, write

TEA, MILK = Given(1, 2), Given(3, 4)


async def keep(
    database: Database, told: dict[str, Given], space: Space = ANN, session_id: str = "s"
) -> SessionPosition:
    async def work(tx: Tx, space: Space) -> SessionPosition:
        now = await recalled.standing(tx, space, session_id)
        await recalled.keep(tx, space, session_id, now, told)
        return now

    return await database.write(work, space)


async def given(database: Database, *names: str, space: Space = ANN, session_id: str = "s") -> dict[str, Given]:
    async def work(tx: Tx) -> dict[str, Given]:
        now = await recalled.standing(tx, space, session_id)
        found = await recalled.given(tx, space, session_id, now, names)
        versions = await recalled.versions(tx, space, session_id, now)
        assert {name: one.version for name, one in found.items()}.items() <= versions.items()
        return found

    return await database.read_global(work)


async def test_what_is_given_counts_until_the_messages_of_then_are_archived(database: Database) -> None:
    await talk(database, ANN, "s", "one", "two")
    await keep(database, {"tea": TEA})
    await talk(database, ANN, "s", "three")
    await keep(database, {"milk": MILK})
    assert await given(database, "tea", "milk", "cake") == {"tea": TEA, "milk": MILK}
    assert await given(database, "milk") == {"milk": MILK}

    await commit(database, ANN, "s", "t1", keep_recent=2)
    assert await given(database, "tea", "milk") == {"tea": TEA, "milk": MILK}, "message two is live"
    await commit(database, ANN, "s", "t2", keep_recent=1)
    assert await given(database, "tea", "milk") == {"milk": MILK}
    await commit(database, ANN, "s", "t3")
    assert await given(database, "tea", "milk") == {}


async def test_what_is_given_before_anything_is_said_counts_until_the_next_message_is_archived(
    database: Database,
) -> None:
    await database.write(sessions.create, ANN, "s")
    assert await keep(database, {"tea": TEA}) == SessionPosition(0, 0)
    for number in range(2):
        assert await given(database, "tea") == {"tea": TEA}
        await talk(database, ANN, "s", "words")
        assert await given(database, "tea") == {"tea": TEA}
        await commit(database, ANN, "s", f"t{number}")
        assert await given(database, "tea") == {}
        await keep(database, {"tea": TEA})


async def test_what_is_given_again_counts_as_it_was_given_last(database: Database) -> None:
    await talk(database, ANN, "s", "one")
    await keep(database, {"tea": TEA, "milk": MILK})
    await talk(database, ANN, "s", "two")
    await keep(database, {"tea": Given(2, 1)})
    assert await given(database, "tea", "milk") == {"tea": Given(2, 1), "milk": MILK}
    await commit(database, ANN, "s", "t1", keep_recent=1)
    assert await given(database, "tea", "milk") == {"tea": Given(2, 1)}


@pytest.mark.parametrize("again", [1, 2, 3])
async def test_the_deeper_telling_of_a_version_stays_with_the_message_of_then(database: Database, again: int) -> None:
    await talk(database, ANN, "s", "one")
    await keep(database, {"tea": TEA})
    await talk(database, ANN, "s", "two")
    await keep(database, {"tea": Given(TEA.version, again)})
    assert await given(database, "tea") == {"tea": Given(TEA.version, max(again, TEA.level))}
    await commit(database, ANN, "s", "t1", keep_recent=1)
    assert await given(database, "tea") == ({} if again < TEA.level else {"tea": Given(TEA.version, again)})


async def test_rows_that_count_no_more_go_with_the_next_answer(database: Database) -> None:
    await talk(database, ANN, "s", "one")
    many = {f"m{number}": Given(number, 1) for number in range(1, 138)}
    await keep(database, many)
    assert await given(database, *many) == many
    await commit(database, ANN, "s", "t1")
    assert len((await dump(database, ANN))["recalled"]) == len(many)
    await keep(database, {"tea": TEA})
    assert [row["name"] for row in (await dump(database, ANN))["recalled"]] == ["tea"]


async def test_what_one_session_is_given_is_its_own_and_goes_with_it(database: Database) -> None:
    everybody = [(space, name) for space in (ANN, BOB, CAT) for name in ("s", "t")]
    for space, name in everybody:
        await talk(database, space, name, "one")
    for space, name in everybody:
        assert await given(database, "tea", space=space, session_id=name) == {}
        await keep(database, {"tea": TEA}, space, name)

    await database.write(delete_session, ANN, "s", "over")
    with pytest.raises(NotFound):
        await given(database, "tea")
    await talk(database, ANN, "s", "anew")
    assert await given(database, "tea") == {}
    await database.write(delete_user, BOB, "over")
    assert "recalled" not in await dump(database, BOB)
    for space, name in ((ANN, "t"), (CAT, "s"), (CAT, "t")):
        assert await given(database, "tea", space=space, session_id=name) == {"tea": TEA}


SHOWN = {"type": "context", "uri": "viking://user/memories/profile.md", "abstract": "who"}
PROFILE = "viking://user/ann/memories/profile.md"


def message(name: str, *parts: dict[str, str], role: str = "user", said: int = 0) -> Message:
    return Message(name, role, parts or ({"type": "text", "text": f"says {name}"},), created_at=said)


async def add(database: Database, *messages: Message, space: Space = ANN) -> SessionPosition:
    await database.write(add_messages, space, "s", list(messages), {})
    return await database.read(recalled.standing, space, "s")


async def test_the_newest_live_messages_are_looked_at(database: Database) -> None:
    await talk(database, ANN, "s", "one")
    await add(database, message("shown", SHOWN))
    await commit(database, ANN, "s", "t1")

    async def looked_at(now: SessionPosition) -> tuple[list[str], bool]:
        said = await database.read(recalled.newest_of_user, ANN, "s", now, 2)
        shown = await database.read(recalled.shown, ANN, "s", now)
        return [json.loads(parts)[0].get("text", "") for parts in said], bool(shown)

    assert await looked_at(await add(database)) == ([], False), "what is archived is not live"
    now = await add(
        database,
        message("a"),
        message("b", SHOWN),
        message("c"),
        message("d", role="assistant"),
        message("e"),
    )
    assert await looked_at(now) == (["says e", "says c"], True)
    now = await add(database, *(message(f"f{number}", role="assistant") for number in range(NEWEST)))
    assert await looked_at(now) == ([], False)
    now = await add(database, text("g", 'says "type":"context"'))
    assert await looked_at(now) == (['says "type":"context"'], False)


async def test_what_messages_show_is_dated_by_when_they_came(database: Database, clock: Clock) -> None:
    await database.write(sessions.create, ANN, "s")
    black, green = (f"{space_root('ann')}/memories/preferences/{name}.md" for name in ("Black", "Green"))
    bare = {"type": "context", "uri": black, "abstract": " "}
    long_ago, in_a_century = 1, clock() + 100 * 365 * 86_400 * SECOND
    first = clock()
    await add(database, message("a", SHOWN, bare, said=in_a_century))
    clock.advance(60)
    foreign = ({**SHOWN, "uri": uri} for uri in ("viking://user/bob/memories/profile.md", "https://a.test", "viking:"))
    now = await add(
        database,
        message("b", {**SHOWN, "uri": green}, {**bare, "uri": green}, said=long_ago),
        message("c", {**bare, "uri": PROFILE}, *foreign),
    )
    second = clock()
    assert await database.read(recalled.shown, ANN, "s", now) == {
        (PROFILE, Level.ABSTRACT): first,
        (PROFILE, Level.URI): second,
        (black, Level.URI): first,
        (green, Level.ABSTRACT): second,
    }
    clock.advance(60)
    now = await add(database, message("d", SHOWN))
    shown = await database.read(recalled.shown, ANN, "s", now)
    assert shown[PROFILE, Level.ABSTRACT] == clock(), "it was shown again"
    # A clock that goes back, or another server's, does not make it older.
    clock.advance(-3600)
    now = await add(database, message("e", SHOWN))
    assert await database.read(recalled.shown, ANN, "s", now) == shown


async def test_looking_for_what_is_shown_reads_no_parts(database: Database) -> None:
    """Of long messages that takes a second."""
    await database.write(sessions.create, ANN, "s")
    now = await add(database, message("a", SHOWN))

    async def spoil(tx: Tx) -> None:
        await tx.execute("UPDATE messages SET parts = 'no JSON'")

    await database.write_global(spoil)
    assert await database.read(recalled.shown, ANN, "s", now)


@ON_SQLITE
async def test_entries_are_written_out_beside_the_loop(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty of a megabyte take a third of a second."""
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "likes tea"))
    search.relay.start()
    await search.caught_up(ANN)
    threads = []

    write_out = recall_text.of_memory

    def of_memory(*what: Any) -> Any:
        threads.append(threading.current_thread())
        return write_out(*what)

    monkeypatch.setattr(recall_text, "of_memory", of_memory)
    store: Any = SimpleNamespace(
        database=search.database, registry=search.registry, finder=search.finder, embedder=None
    )
    answer = await recall.recall(store, ANN, pb.RecallRequest(query="likes"))
    assert [entry.text for entry in answer.entries if entry.memory_type] == ["- [1] tea: likes tea"]
    assert threads and threading.main_thread() not in threads


async def test_what_is_erased_after_the_search_is_not_told_and_not_kept(search: Search) -> None:
    """A repeat of the request would bring it back."""
    names = ("tea", "milk", "cake")
    await revise(search.database, ANN, "t1", *(write(ANN, name, 0, 1, f"likes {name}") for name in names))
    await talk(search.database, ANN, "s", "likes tea", "likes milk")
    await talk(search.database, ANN, "other", "likes tea")
    await commit(search.database, ANN, "s", "t2")
    await commit(search.database, ANN, "other", "t3")
    search.relay.start()
    await search.caught_up(ANN)

    async def erase(tx: Tx, space: Space) -> None:
        await tx.execute("DELETE FROM memories WHERE account = $1 AND uri = $2", space.account, uri(space, "tea"))
        await tx.execute("DELETE FROM passages WHERE account = $1 AND session_id = 's' AND sequence = 1", space.account)

    class Late(Searcher):
        async def find(self, space: Space, request: FindRequest) -> FindAnswer:
            answer = await search.finder.find(space, request)
            assert len(answer.results) == 7
            await search.database.write(erase, space)
            await search.database.write(delete_session, space, "other", "over")
            return answer

    late = Late(search.database, search.attachment, search.embedders, search.finder.ranking, search.relay.hurry)
    store: Any = SimpleNamespace(database=search.database, registry=search.registry, finder=late, embedder=None)
    request = pb.RecallRequest(query="likes", session="s", request_id="r1")
    answer = await recall.recall(store, ANN, request)
    assert sorted(entry.text.split()[-1] for entry in answer.entries) == ["cake", "hello", "milk"]
    assert await recall.recall(store, ANN, request) == answer
    assert len((await dump(search.database, ANN))["recalled"]) == 3
