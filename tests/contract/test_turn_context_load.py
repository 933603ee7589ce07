"""LoadTurnContext over a store and an index of its own: what it costs, and what it answers while parts are away."""

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import pytest

from runekeep.v1 import turn_memory_service_pb2 as pb
from schemas.turns.feedback import Reaction
from schemas.turns.fingerprint import Fingerprint, Signal
from server import turn_context, turn_search
from server.turn_texts import HEAD, TAIL
from storage import feedback, fingerprints, live_messages, sessions, turns
from storage.database import Database, Row, Space, Tx
from storage.index.base import IndexHits, IndexQuery, IndexUnavailable
from storage.records import Message
from storage.shut_spaces import OpenSpaces
from storage.store import Store
from tests.contract.search_fixtures import Search
from tests.contract.store_fixtures import ANN, BOB, commit
from tests.support.appending import add_messages

P = ParamSpec("P")
T = TypeVar("T")

AUDIENCES = [number for number in pb.ContextAudience.values() if number]
SESSION = "chat"


class Counting(OpenSpaces):
    """`statements` of each read, one after the other."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.statements: list[int] = []

    async def read(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        counted = 0

        class CountingTx:
            def __init__(self, tx: Tx) -> None:
                self._tx = tx

            async def fetch(self, sql: str, *args: Any) -> list[Row]:
                nonlocal counted
                counted += 1
                return await self._tx.fetch(sql, *args)

            async def fetchrow(self, sql: str, *args: Any) -> Row | None:
                nonlocal counted
                counted += 1
                return await self._tx.fetchrow(sql, *args)

            def now(self) -> int:
                return self._tx.now()

        async def counting(tx: Tx, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await work(cast(Tx, CountingTx(tx)), *args, **kwargs)

        answer = await self._database.read(counting, *args, **kwargs)
        self.statements.append(counted)
        return answer


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
    return await turn_context.load(store, space, request, buckets_enabled=True)


def found(answer: pb.LoadTurnContextResponse) -> set[str]:
    return {one.turn.turn_id for one in answer.candidates if one.matched_queries}


def query(text: str) -> list[pb.ContextQuery]:
    return [pb.ContextQuery(query=text)]


async def test_a_context_takes_one_snapshot_and_as_many_statements_at_any_length(search: Search) -> None:
    counting = Counting(search.database)
    seen: dict[int, list[list[int]]] = {audience: [] for audience in AUDIENCES}
    for first, last in ((1, 40), (41, 300)):
        await remembered(search.database, ANN, first, last)
        for audience in AUDIENCES:
            counting.statements.clear()
            answer = await load(store_of(search, counting), ANN, f"t{last}", audience, render=True)
            assert len(answer.turn_memories) == 25 and answer.text
            seen[audience].append(list(counting.statements))
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


async def test_without_the_index_a_load_answers_and_says_what_it_lacks(
    archived: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: IndexQuery) -> IndexHits:
        raise IndexUnavailable("taken down by the test")

    monkeypatch.setattr(archived.index, "query", away)
    answer = await load(store_of(archived), ANN, "now", last_turns=1, ctx_retrieval_queries=query("boats cars planes"))
    assert found(answer) == {"car", "plane"}
    assert list(answer.unanswered_queries) == ["boats cars planes"]


async def test_without_the_embedder_words_are_found_and_the_query_is_named(archived: Search) -> None:
    archived.embedder.down = True
    answer = await load(store_of(archived), ANN, "now", last_turns=1, ctx_retrieval_queries=query("boats"))
    assert found(answer) == {"boat"} and list(answer.unanswered_queries) == ["boats"]


async def test_an_embedder_that_hangs_holds_no_load_up(archived: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_search, "SECONDS", 0.05)
    archived.embedder.go.clear()
    answer = await load(store_of(archived), ANN, "now", last_turns=1, ctx_retrieval_queries=query("boats planes"))
    assert found(answer) == {"plane"} and list(answer.unanswered_queries) == ["boats planes"]


async def test_a_load_that_asks_nothing_needs_neither(archived: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_: IndexQuery) -> IndexHits:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(archived.index, "query", away)
    archived.embedder.down = True
    answer = await load(store_of(archived), ANN, "now")
    assert len(answer.candidates) == 3 and not answer.unanswered_queries


async def test_more_beside_the_index_than_is_looked_through(archived: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_messages, "PAGE", 1)
    monkeypatch.setattr(live_messages, "MOST_PAGES", 2)
    answer = await load(store_of(archived), ANN, "now", last_turns=1, ctx_retrieval_queries=query("cars planes"))
    assert "plane" in found(answer) and "car" not in found(answer)
    assert list(answer.unanswered_queries) == ["cars planes"]


@pytest.mark.parametrize(
    ("bounds", "turns", "whole"),
    [
        ({"PAGE": 2, "MOST_PAGES": 2}, {"boat", "car", "plane"}, True),
        ({"PAGE": 3, "MOST_PAGES": 1}, {"car", "plane"}, False),
        ({"PAGE": 1, "MOST_PAGES": 3}, {"car", "plane"}, False),
        ({"PAGE": 2, "MOST_PAGES": 9, "MOST_CHARACTERS": 10}, {"plane"}, False),
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
    monkeypatch.setattr(turn_context, "SIGNAL_BYTES", room)
    answer = await load(store_of(search), ANN, "t30", final, render=True)
    assert list(answer.assistant_signals) == list(whole.assistant_signals[:4])
    # And no others as text.
    told = [line for line in answer.sections[-1].text.splitlines() if line.startswith("- turn_id=")]
    assert [line.split(" ")[1] for line in told] == [f"turn_id={one.turn_id}" for one in answer.assistant_signals]


async def test_of_long_messages_a_load_reads_the_ends(search: Search) -> None:
    long = "walnuts and more " * 20_000
    await said(search.database, ANN, "asked", long)
    read: list[int] = []

    class Measuring(OpenSpaces):
        async def read(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
            class MeasuringTx:
                def __init__(self, tx: Tx) -> None:
                    self.fetchrow, self.now, self._tx = tx.fetchrow, tx.now, tx

                async def fetch(self, sql: str, *args: Any) -> list[Row]:
                    rows = await self._tx.fetch(sql, *args)
                    read.extend(len(value) for row in rows for value in dict(row).values() if isinstance(value, str))
                    return rows

            async def measured(tx: Tx, /, *args: P.args, **kwargs: P.kwargs) -> T:
                return await work(cast(Tx, MeasuringTx(tx)), *args, **kwargs)

            return await self._database.read(measured, *args, **kwargs)

    answer = await load(store_of(search, Measuring(search.database)), ANN, "now")
    assert answer.candidates[0].compressed_view == f"user: {long[:499].rstrip()}…"
    assert 0 < max(read) <= max(HEAD, TAIL)
