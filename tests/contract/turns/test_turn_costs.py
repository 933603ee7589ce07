"""What is asked of turn memory costs the same with fifty turns in a session and with three thousand, on every driver.

Counts of reactions and of what is not covered are not here: they go through what they count.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runekeep_schemas.turns.feedback import Reaction
from runekeep_schemas.turns.fingerprint import Fingerprint, promotion_text
from runekeep_schemas.turns.selection import Selection
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.records import Turn
from runekeep_storage.sessions import sessions
from runekeep_storage.turns import artifacts as turn_artifacts
from runekeep_storage.turns import feedback, fingerprints, selections, turns
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, ON_SQLITE, SECOND, Clock, NewStore, text
from tests.support.storage.query_costs import Cost, Measured
from tests.support.storage.turns import TABLES, signal

FEW, MANY = 50, 3000
FILLED = ((ANN, "s"), (ANN, "other"), (BOB, "s"))
FINGERPRINT, REACTION = "artifact:turn.fingerprint.v1", "artifact:turn.log.reaction"
SMALL_PAGES, SMALL_ROWS = 400, MANY // 4
"""Whatever the same costs with few turns: PostgreSQL goes through a table of few pages where it looks up, in one of
many, each row by its key."""
KEYS = 40
"""Keys of signals: each turn has one of them, and one that all have."""

NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST($4 AS BIGINT))"
SPACE = "$1, $2, $3"
PROMOTED_ONES = (signal("every"), signal("some?"))
PROMOTED = promotion_text(PROMOTED_ONES)
SEEN = Fingerprint("t?", "aim", assistant_signals=PROMOTED_ONES, made_at=SECOND).to_text()
SAID = Reaction("f?", "t?", "ok", "good", "machine", 0.9, "t?", SECOND).to_text()

Work = Callable[..., Awaitable[Any]]


async def fill(tx: Tx, space: Space, session: str, count: int) -> None:
    """Turns as calls make them: of two messages each, with a fingerprint, the user's reaction and a machine's."""
    # Those of the other session are all newer: nobody finds the ones of this by going through the user's.
    since = tx.now() - (MANY if session == "s" else 0)
    await sessions.get_or_create(tx, space, session)
    first = (space.account, space.user, session, count)
    await tx.execute(
        f"{NUMBERS} INSERT INTO messages (account, user_id, session_id, sequence, message_id, turn_id, parts)"
        f" SELECT {SPACE}, i, 'm' || CAST(i AS TEXT), 't' || CAST((i + 1) / 2 AS TEXT), '[]' FROM n",
        *first[:3],
        2 * count,
    )
    await tx.execute(
        f"{NUMBERS} INSERT INTO turns (account, user_id, session_id, turn_id, sequence, last_sequence)"
        f" SELECT {SPACE}, 't' || CAST(i AS TEXT), 2 * i - 1, 2 * i FROM n",
        *first,
    )
    artifacts = (
        (FINGERPRINT, "'t'", "i", "''", SEEN, f"'every', 'some' || CAST(i % {KEYS} AS TEXT)"),
        (REACTION, "'f'", "0", "'machine'", SAID, ""),
        (REACTION, "'user:t'", "0", "'user'", SAID.replace("machine", "user"), ""),
    )
    for kind, name, version, origin, body, keys in artifacts:
        named = f"{name} || CAST(i AS TEXT)"
        await tx.execute(
            f"{NUMBERS} INSERT INTO turn_artifacts (account, user_id, session_id, kind, name, turn_id, sequence, text,"
            f" version, origin, reaction, said_at) SELECT {SPACE}, $5, {named}, 't' || CAST(i AS TEXT), 2 * i - 1,"
            f" REPLACE($6, '?', CAST(i AS TEXT)), {version}, {origin}, 'ok', CAST($7 AS BIGINT) + i FROM n",
            *first,
            kind,
            body,
            since,
        )
        tags = ["$5", "'turn:t' || CAST(i AS TEXT)", *([] if keys else [f"'origin:' || {origin}"])]
        tags += ["'assistant_signal'", *(f"'assistant_signal:' || {key}" for key in keys.split(", "))] if keys else []
        for tag in tags:
            await tx.execute(
                f"{NUMBERS} INSERT INTO turn_tags (account, user_id, session_id, tag, kind, name, sequence, said_at,"
                f" promoted) SELECT {SPACE}, {tag}, $5, {named}, 2 * i - 1, CAST($6 AS BIGINT) + i,"
                " REPLACE($7, '?', CAST(i AS TEXT)) FROM n",
                *first,
                kind,
                since,
                PROMOTED if tag == "'assistant_signal'" else "",
            )
    await tx.execute(
        "UPDATE sessions SET turn_version = CAST($4 AS BIGINT), covered_version = CAST($4 AS BIGINT) - 10,"
        " last_sequence = CAST($4 AS BIGINT) * 2"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3",
        *first,
    )


@asynccontextmanager
async def filled(new_store: NewStore, count: int, *, analyzed: bool = True) -> AsyncIterator[Database]:
    database = new_store().connect()
    await database.open()

    async def work(tx: Tx) -> None:
        for space, session in FILLED:
            await fill(tx, space, session, count)
        if analyzed:
            for table in TABLES:
                # As PostgreSQL finds out by itself in time.
                await tx.execute(f"ANALYZE {table}")

    try:
        await database.write_global(work)
        yield database
    finally:
        await database.close()


def last(count: int) -> Turn:
    return Turn("s", f"t{count}", 2 * count - 1, 2 * count, 0, 0, "")


def reads(count: int, now: int) -> dict[str, tuple[Work, tuple[Any, ...], dict[str, Any]]]:
    """Of a session with that many turns; each has as much to give for any number of them."""
    deep = now - MANY + count // 2
    some = [f"t{count - number}" for number in range(0, 40, 4)]
    of = last(count)
    return {
        "turn": (turns.get, ("s", of.turn_id), {}),
        "turns by id": (turns.find, ("s", some), {}),
        "last turns": (turns.before, ("s", of.sequence, 20), {}),
        "last turns with fingerprints": (turns.before, ("s", of.sequence, 20, True), {}),
        "turns of an archive": (turns.between, ("s", 2 * count - 39, 2 * count), {}),
        "messages of a turn": (turns.messages, (of, 8), {}),
        "fingerprints": (fingerprints.of, ("s", some), {}),
        "delta": (fingerprints.delta, ("s", count - 40), {}),
        "version": (fingerprints.turn_version, ("s",), {}),
        "covered": (fingerprints.covered_at, ("s",), {}),
        "uncovered": (fingerprints.uncovered, ("s", 20), {}),
        "signals": (fingerprints.signals, (), {"limit": 10}),
        "signals of a session": (fingerprints.signals, (), {"limit": 10, "session_id": "s"}),
        "signals of keys": (fingerprints.signals, (), {"limit": 2, "keys": ["every", "some1", "some2", "none"]}),
        "signals further on": (fingerprints.signals, (), {"limit": 10, "after": (deep, "s", f"t{count // 2}")}),
        "signals of a session further on": (
            fingerprints.signals,
            (),
            {"limit": 10, "after": (deep, "s", f"t{count // 2}"), "session_id": "s"},
        ),
        "feedback": (feedback.page, ("", [], 0, 0, None, 10), {}),
        "feedback of a session": (feedback.page, ("s", [], 0, 0, None, 10), {}),
        "feedback further on": (feedback.page, ("", [], 0, 0, (deep, "s", "f"), 10), {}),
        "feedback of a session further on": (feedback.page, ("s", [], 0, 0, (deep, "s", "f"), 10), {}),
        "feedback before": (feedback.page, ("s", [], 1, deep, None, 10), {}),
        "feedback of turns": (feedback.page, ("s", some, 0, 0, None, 10), {}),
        "counts of turns": (feedback.counts, ("s", some, 0, 0), {}),
        "selection": (selections.get, ("s",), {}),
        "artifacts": (turn_artifacts.by_tags, ([FINGERPRINT], "", None, 10), {}),
        "artifacts of a session": (turn_artifacts.by_tags, ([REACTION], "s", None, 10), {}),
        "artifacts of a turn": (turn_artifacts.by_tags, ([FINGERPRINT, f"turn:{of.turn_id}"], "s", None, 10), {}),
        "artifacts further on": (
            turn_artifacts.by_tags,
            ([FINGERPRINT], "", (deep, "s", FINGERPRINT, f"t{count // 2}"), 10),
            {},
        ),
    }


async def extracted(tx: Tx, space: Space, turn: Turn, said: Fingerprint) -> bool:
    there = await fingerprints.of(tx, space, turn.session_id, [turn.turn_id])
    return await fingerprints.fill(tx, space, turn, there.get(turn.turn_id), said)


def writes(count: int) -> dict[str, tuple[Work, tuple[Any, ...], dict[str, Any]]]:
    of = last(count)
    reaction = Reaction("new", "", "ok", "good", "user", 0.9, "", 0)
    by_machine = Reaction("new", "", "ok", "good", "machine", 0.9, "", 0)
    new = Fingerprint(of.turn_id, topics=("new",), assistant_signals=(signal("new"),))
    return {
        "message": (add_messages, ("s", [text("new", "hi", turn_id=of.turn_id)], {}), {}),
        "summary": (turns.set_summary, ("s", of.turn_id, "{}"), {}),
        "submit": (fingerprints.submit, (of, new), {}),
        "title": (fingerprints.submit, (of, Fingerprint(of.turn_id, conversation_title="Tea")), {}),
        "fill": (extracted, (of, Fingerprint(of.turn_id, topics=("more",))), {}),
        "cover": (fingerprints.cover, ("s", count - 5), {}),
        "user's reaction": (feedback.put, ("s", of, reaction), {}),
        "machine's reaction": (feedback.put, ("s", of, by_machine), {}),
        "clear": (feedback.clear, ("s", "t7"), {}),
        "selection": (selections.put, ("s", Selection(last_reconciled_at=SECOND)), {}),
    }


async def measured(tx: Tx, work: Work, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Cost, Any]:
    cost = Cost()
    return cost, await work(Measured(tx, cost), ANN, *args, **options)


def size(answer: Any) -> Any:
    return len(answer) if isinstance(answer, list | dict) else None


async def test_each_call_costs_the_same_with_few_and_with_many_turns(new_store: NewStore, clock: Clock) -> None:
    costs: list[dict[str, tuple[Cost, Any]]] = []
    for count in (FEW, MANY):
        async with filled(new_store, count) as database:
            found = {name: await database.read_global(measured, *one) for name, one in reads(count, clock.now).items()}
            if count == MANY:
                await delta_is_read_to_its_cap(database)
                await two_tags_cost_what_one_of_them_has(database)
            # Changes one after the other, as they come.
            for name, one in writes(count).items():
                found[f"write {name}"] = await database.write_global(measured, *one)
            costs.append(found)

    for name, (few, answer) in costs[0].items():
        many, other = costs[1][name]
        assert size(answer) == size(other) != 0, name
        if not many.rows:
            # SQLite, which takes the same plan for any number of them.
            assert 0 < many.steps <= 2 * few.steps, (name, few, many)
        assert many.steps <= max(2 * few.steps, SMALL_PAGES), (name, few, many)
        assert many.rows <= max(few.rows, SMALL_ROWS), (name, few, many)


async def delta_is_read_to_its_cap(database: Database) -> None:
    """A delta that was never looked at."""
    some, (forty, _) = await database.read_global(measured, fingerprints.delta, ("s", MANY - 40), {})
    every, (most, shown) = await database.read_global(measured, fingerprints.delta, ("s", 0), {})
    assert (forty, most, len(shown)) == (40, 256, 25)
    assert every.steps <= 2 * 256 / 40 * some.steps


async def two_tags_cost_what_one_of_them_has(database: Database) -> None:
    """No artifact has both: each of the rarer one is looked up once."""
    cost, found = await database.read_global(
        measured, turn_artifacts.by_tags, ([FINGERPRINT, REACTION], "", None, 10), {}
    )
    assert found == []
    if cost.rows:
        # Of the plan: rows that its parts give and throw away, some for each of the tag.
        assert cost.rows <= 10 * 2 * MANY, cost
    assert cost.steps <= 100 * 2 * MANY, cost


async def test_two_tags_cost_no_more_where_nothing_was_counted(new_store: NewStore) -> None:
    """By a PostgreSQL that knows nothing of the table yet."""
    async with filled(new_store, MANY, analyzed=False) as database:
        await two_tags_cost_what_one_of_them_has(database)


OWN = ("k", "n", "p", "t", "u", "s", "f", "l", *(f"b{number}" for number in range(4)))
"""Names of what statements make for themselves."""
ONE_ROW = ("sessions", "s", "l")
"""Tables whose whole key is user and session, by their names in statements; `l` is `leftovers`."""
COMMON = (
    "(account=? AND user_id=?)",
    "(account=? AND user_id=? AND tag=?)",
    "(account=? AND user_id=? AND session_id=?)",
    "(account=? AND user_id=? AND session_id=? AND kind=?)",
)


@pytest.fixture
async def unanalyzed(request: pytest.FixtureRequest, new_store: NewStore) -> AsyncIterator[Database]:
    async with filled(new_store, FEW, analyzed=False) as database:
        yield database


@ON_SQLITE
async def test_no_table_is_gone_through(unanalyzed: Database, clock: Clock) -> None:
    """SQLite has no statistics unless somebody makes them: what it takes without is what runs."""
    plans: dict[str, list[str]] = {}
    for name, one in reads(FEW, clock.now).items():
        cost, _ = await unanalyzed.read_global(measured, *one)
        plans[name] = cost.plans
    for name, one in writes(FEW).items():
        cost, _ = await unanalyzed.write_global(measured, *one)
        plans[f"write {name}"] = cost.plans

    taken = set()
    for name, steps in plans.items():
        for step in steps:
            verb, table, *_ = step.split()
            # Through values and rows that the statement itself has cut to a few.
            assert verb != "SCAN" or table in OWN or "CONSTANT ROW" in step, (name, step)
            if verb == "SEARCH" and table not in ONE_ROW:
                # By more than what they all have in common.
                assert step[step.index("(") :] not in COMMON, (name, step)
                taken.add(step)
        if "USE TEMP B-TREE FOR ORDER BY" in steps:
            # What a page gives, and the reactions to the turns that were asked for.
            assert name.startswith(("signals", "feedback", "messages of a turn")), (name, steps)
    assert any("turn_tags_of_artifact" in step for step in taken)
