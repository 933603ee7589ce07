"""LoadTurnContext over a store and an index of its own: what it costs, and what it answers while parts are away."""

from typing import Any, cast

import pytest

from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_schemas.turns.feedback import Reaction
from runekeep_schemas.turns.fingerprint import Fingerprint, Signal
from runekeep_server.turns import context
from runekeep_server.turns import search as turn_search
from runekeep_server.turns.texts import HEAD, TAIL
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.index.base import IndexHits, IndexQuery, IndexUnavailable
from runekeep_storage.records import Message
from runekeep_storage.search import live_messages
from runekeep_storage.sessions import sessions
from runekeep_storage.store import Store
from runekeep_storage.turns import feedback, fingerprints, turns
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, ON_SQLITE, commit
from tests.support.storage.search import Search
from tests.support.storage.statements import Noted

AUDIENCES = [number for number in pb.ContextAudience.values() if number]
SESSION = "chat"


async def said(database: Database, space: Space, turn_id: str, text: str, role: str = "user") -> None:
    async def add(tx: Tx, space: Space) -> None:
        await sessions.get_or_create(tx, space, SESSION)
        message = Message(f"m-{turn_id}", role, ({"type": "text", "text": text},), turn_id=turn_id)
        await add_messages(tx, space, SESSION, [message], {})

    await database.write(add, space)


async def remembered(database: Database, space: Space, first: int, last: int) -> None:
    """Turns, each with a fingerprint, a promotion and a reaction to it."""

    async def add(tx: Tx, space: Space) -> None:
        for number in range(first, last + 1):
            turn = await turns.get(tx, space, SESSION, f"t{number}")
            promoted = (Signal("hotel", number, "mention"),)
            await fingerprints.submit(tx, space, turn, Fingerprint(turn.turn_id, "wants", assistant_signals=promoted))
            reaction = Reaction(f"r{number}", turn.turn_id, "ok", "fine", "machine", 0.9, "", tx.now())
            await feedback.put(tx, space, SESSION, turn, reaction)

    for number in range(first, last + 1):
        await said(database, space, f"t{number}", f"speaks of {number}")
    await database.write(add, space)


def store_of(search: Search, database: Database | None = None) -> Store:
    """As far as a context needs one."""

    class Parts:
        finder = search.finder

    Parts.database = database or search.database  # type: ignore[attr-defined]
    return cast(Store, Parts)


async def load(
    store: Store, space: Space, current: str, audience: int = pb.CONTEXT_AUDIENCE_GATE, **fields: Any
) -> pb.LoadTurnContextResponse:
    request = pb.LoadTurnContextRequest(
        session=SESSION,
        current_turn_id=current,
        audience=audience,  # type: ignore[arg-type]  # a number of the enum
        **fields,
    )
    return await context.load(store, space, request, buckets_enabled=True)


def found(answer: pb.LoadTurnContextResponse) -> set[str]:
    return {one.turn.turn_id for one in answer.candidates if one.matched_queries}


def query(text: str) -> list[pb.ContextQuery]:
    return [pb.ContextQuery(query=text)]


async def test_a_context_takes_one_snapshot_and_as_many_statements_at_any_length(search: Search) -> None:
    noted = Noted(search.database)
    seen: dict[int, list[list[int]]] = {audience: [] for audience in AUDIENCES}
    for first, last in ((1, 40), (41, 300)):
        await remembered(search.database, ANN, first, last)
        for audience in AUDIENCES:
            noted.reads.clear()
            answer = await load(store_of(search, noted), ANN, f"t{last}", audience, render=True)
            assert len(answer.turn_memories) == 25 and answer.text
            seen[audience].append([one.number for one in noted.reads])
    for number, (short, long) in seen.items():
        assert len(short) == 1 and short == long, number
        assert 5 <= short[0] <= 20


@pytest.fixture
async def archived(search: Search) -> Search:
    """A turn that speaks of boats is in the index, one of cars is archived, one of planes is not, one comes last."""
    await said(search.database, ANN, "boat", "I sail boats")
    await commit(search.database, ANN, SESSION, "c-1")
    search.relay.start()
    await search.caught_up(ANN)
    await search.relay.stop()
    await said(search.database, ANN, "car", "I drive cars")
    await commit(search.database, ANN, SESSION, "c-2")
    await said(search.database, ANN, "plane", "I fly planes")
    await said(search.database, ANN, "last", "Enough")
    return search


async def test_what_the_index_lacks_is_found_from_the_rows(archived: Search) -> None:
    store = store_of(archived)
    for word, turn in (("boats", "boat"), ("cars", "car"), ("planes", "plane")):
        answer = await load(store, ANN, "now", last_turns=1, ctx_retrieval_queries=query(word))
        assert turn in found(answer) and not answer.unanswered_queries


@ON_SQLITE
async def test_without_the_index_a_load_answers_and_says_what_it_lacks(
    archived: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: IndexQuery) -> IndexHits:
        raise IndexUnavailable("taken down by the test")

    monkeypatch.setattr(archived.index, "query", away)
    answer = await load(store_of(archived), ANN, "now", last_turns=1, ctx_retrieval_queries=query("boats cars planes"))
    assert found(answer) == {"car", "plane"}
    assert list(answer.unanswered_queries) == ["boats cars planes"]


@ON_SQLITE
async def test_without_the_embedder_words_are_found_and_the_query_is_named(archived: Search) -> None:
    archived.embedder.down = True
    answer = await load(store_of(archived), ANN, "now", last_turns=1, ctx_retrieval_queries=query("boats"))
    assert found(answer) == {"boat"} and list(answer.unanswered_queries) == ["boats"]


@ON_SQLITE
async def test_an_embedder_that_hangs_holds_no_load_up(archived: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_search, "SECONDS", 0.05)
    archived.embedder.go.clear()
    answer = await load(store_of(archived), ANN, "now", last_turns=1, ctx_retrieval_queries=query("boats planes"))
    assert found(answer) == {"plane"} and list(answer.unanswered_queries) == ["boats planes"]


@ON_SQLITE
async def test_a_load_that_asks_nothing_needs_neither(archived: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_: IndexQuery) -> IndexHits:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(archived.index, "query", away)
    archived.embedder.down = True
    answer = await load(store_of(archived), ANN, "now")
    assert len(answer.candidates) == 3 and not answer.unanswered_queries


async def test_more_beside_the_index_than_is_looked_through(archived: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_messages, "PAGE", 1)
    monkeypatch.setattr(live_messages, "MAX_PAGES", 2)
    answer = await load(store_of(archived), ANN, "now", last_turns=1, ctx_retrieval_queries=query("cars planes"))
    assert "plane" in found(answer) and "car" not in found(answer)
    assert list(answer.unanswered_queries) == ["cars planes"]


@pytest.mark.parametrize(
    ("bounds", "turns", "whole"),
    [
        ({"PAGE": 2, "MAX_PAGES": 2}, {"boat", "car", "plane"}, True),
        ({"PAGE": 3, "MAX_PAGES": 1}, {"car", "plane"}, False),
        ({"PAGE": 1, "MAX_PAGES": 3}, {"car", "plane"}, False),
        ({"PAGE": 2, "MAX_PAGES": 9, "MAX_CHARACTERS": 10}, {"plane"}, False),
    ],
)
async def test_a_long_session_without_a_commit(
    search: Search, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int], turns: set[str], whole: bool
) -> None:
    """What is beyond the bounds is in no index either: the query is named."""
    for name, most in bounds.items():
        monkeypatch.setattr(live_messages, name, most)
    for turn, words in (
        ("boat", "I sail boats"),
        ("car", "I drive cars"),
        ("plane", "I fly planes"),
        ("end", "Enough"),
    ):
        await said(search.database, ANN, turn, words)
    wanted = query("boats cars planes")
    answer = await load(store_of(search), ANN, "now", last_turns=1, ctx_retrieval_queries=wanted)
    assert found(answer) == turns
    assert list(answer.unanswered_queries) == ([] if whole else ["boats cars planes"])


async def test_a_context_is_of_its_own_user(archived: Search) -> None:
    await said(archived.database, BOB, "boat", "I sail boats, too")
    await said(archived.database, BOB, "own", "Enough")
    answer = await load(store_of(archived), BOB, "now", last_turns=20, ctx_retrieval_queries=query("boats cars planes"))
    assert {one.turn.turn_id for one in answer.candidates} == {"boat", "own"} and found(answer) == {"boat"}
    assert "too" in answer.candidates[-1].compressed_view


async def test_the_newest_assistant_signals_that_an_answer_holds(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    await remembered(search.database, ANN, 1, 30)
    final = pb.CONTEXT_AUDIENCE_FINAL_ANSWER
    whole = await load(store_of(search), ANN, "t30", final)
    assert len(whole.assistant_signals) == 30
    room = sum(one.ByteSize() + 6 for one in whole.assistant_signals[:4])
    monkeypatch.setattr(context, "SIGNAL_BYTES", room)
    answer = await load(store_of(search), ANN, "t30", final, render=True)
    assert list(answer.assistant_signals) == list(whole.assistant_signals[:4])
    # And no others as text.
    told = [line for line in answer.sections[-1].text.splitlines() if line.startswith("- turn_id=")]
    assert [line.split(" ")[1] for line in told] == [f"turn_id={one.turn_id}" for one in answer.assistant_signals]


async def test_of_long_messages_a_load_reads_the_ends(search: Search) -> None:
    long = "walnuts and more " * 20_000
    await said(search.database, ANN, "asked", long)
    noted = Noted(search.database)
    answer = await load(store_of(search, noted), ANN, "now")
    assert answer.candidates[0].compressed_view == f"user: {long[:499].rstrip()}…"
    assert 0 < max(one.longest for one in noted.reads) <= max(HEAD, TAIL)
