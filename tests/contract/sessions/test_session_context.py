"""The context of a session over every driver: what is told, and what it costs to find out."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runekeep.v1 import session_service_pb2 as pb
from runekeep_common import tokens
from runekeep_server.sessions import context
from runekeep_storage.database import Database, Row, Tx
from runekeep_storage.records import Message
from runekeep_storage.sessions import sessions
from runekeep_storage.sessions.context import Room
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, NewStore, commit, talk, text
from tests.support.storage.query_costs import Cost, Measured, assert_as_cheap

pytestmark = pytest.mark.postgres_long

FEW, MANY = 60, 1500
OVERVIEW = "# What was said\n\nMuch."


MUCH = 2**23


def message_tokens(parts: Any) -> int:
    return tokens.tokens_of_stored(tokens.stored_parts(parts))


async def load(
    database: Database, budget: int = 0, session_id: str = "s", most_bytes: int = MUCH
) -> pb.GetSessionContextResponse:
    return await context.load(database, ANN, session_id, budget, most_bytes)


async def archived(database: Database, session_id: str, state: str, *words: str) -> None:
    """An archive in that state, whatever became of its job."""
    await talk(database, ANN, session_id, *words)
    index = await commit(database, ANN, session_id, f"{session_id}-{words[0]}")

    async def work(tx: Tx) -> None:
        await tx.execute(
            "UPDATE archives SET state = $1, overview = $2 WHERE account = $3 AND user_id = $4 AND session_id = $5"
            " AND archive_index = $6",
            state, OVERVIEW if state == "done" else "", ANN.account, ANN.user, session_id, index,
        )  # fmt: skip

    await database.write_global(work)


async def erase(database: Database, session_id: str, *sequences: int) -> None:
    async def work(tx: Tx) -> None:
        for sequence in sequences:
            await tx.execute(
                "UPDATE messages SET erased = 1, parts = '[]', tokens = 0 WHERE account = $1 AND user_id = $2"
                " AND session_id = $3 AND sequence = $4",
                ANN.account, ANN.user, session_id, sequence,
            )  # fmt: skip

    await database.write_global(work)


def words(messages: Any) -> list[str]:
    return [message.parts[0].text.text for message in messages]


def told(answer: pb.GetSessionContextResponse) -> tuple[str, list[str], list[str]]:
    return answer.overview, words(answer.pending_messages), words(answer.live_messages)


async def test_all_of_it_is_told_in_the_order_of_time(database: Database) -> None:
    await talk(database, BOB, "s", "of another user")
    await archived(database, "s", "failed", "one", "two")
    await archived(database, "s", "done", "three")
    await archived(database, "s", "pending", "four")
    await archived(database, "s", "pending", "five", "six")
    await talk(database, ANN, "s", "seven", "eight")
    answer = await load(database)
    assert told(answer) == (OVERVIEW, ["one", "two", "four", "five", "six"], ["seven", "eight"])
    assert answer.overview_uri == "viking://user/ann/sessions/s/history/archive_002"
    assert (answer.omitted_messages, answer.overview_omitted) == (0, False)
    shown = [*answer.pending_messages, *answer.live_messages]
    parts = [[{"type": "text", "text": message.parts[0].text.text}] for message in shown]
    assert answer.tokens == tokens.count(OVERVIEW) + sum(map(message_tokens, parts))
    assert [message.sequence for message in shown] == [1, 2, 4, 5, 6, 7, 8]


async def test_a_new_session_has_nothing_to_tell(database: Database) -> None:
    await database.write(sessions.create, ANN, "s")
    assert await load(database) == pb.GetSessionContextResponse()


async def test_what_is_short_goes_to_live_messages_then_to_pending_ones_then_to_the_overview(
    database: Database,
) -> None:
    await archived(database, "s", "done", "zero")
    await archived(database, "s", "pending", *(f"archived {number}" for number in range(4)))
    await talk(database, ANN, "s", *(f"living {number}" for number in range(4)))
    everything = await load(database)
    (one,) = {message_tokens([{"type": "text", "text": f"living {number}"}]) for number in range(4)}
    seen = []
    for budget in range(1, everything.tokens + 1):
        answer = await load(database, budget)
        assert answer.tokens <= budget
        live, pending = len(answer.live_messages), len(answer.pending_messages)
        seen.append((live, pending))
        # The newest, without a gap; and nothing older than what has no room.
        assert told(answer)[2] == told(everything)[2][4 - live :]
        assert told(answer)[1] == told(everything)[1][4 - pending :]
        assert live == min(budget // one, 4) and (live == 4 or not pending)
        assert answer.omitted_messages == 8 - live - pending
        assert answer.overview_omitted is (answer.overview == "")
        assert answer.overview_uri
    assert seen == sorted(seen) and seen[0] == (0, 0) and seen[-1] == (4, 4)
    assert everything.overview == OVERVIEW and told(await load(database, everything.tokens)) == told(everything)


async def test_one_message_that_is_too_long_leaves_no_gap(database: Database) -> None:
    await archived(database, "s", "pending", "before")
    await talk(database, ANN, "s", "short", "long " * 100, "newest")
    answer = await load(database, 100)
    assert told(answer) == ("", [], ["newest"]) and answer.omitted_messages == 3
    assert told(await load(database, 3)) == ("", [], [])


async def test_what_one_answer_can_carry_is_a_bound_of_its_own(database: Database) -> None:
    """Long names, which have no tokens, and numbers, which take more bytes in an answer than in the store."""
    await database.write(sessions.create, ANN, "s")
    part = {"type": "text", "text": "a"}
    said = [Message(f"{number:0>200}", "user", (part,), peer_id="p" * 128, speaker="Ü" * 128) for number in range(300)]
    await database.write(add_messages, ANN, "s", said, {})
    whole = await load(database, 1_000_000)
    assert len(whole.live_messages) == 300 and whole.ByteSize() > 150_000
    for most_bytes in (0, 1000, 20_000, 100_000):
        answer = await load(database, 1_000_000, most_bytes=most_bytes)
        shown = len(answer.live_messages)
        assert answer.ByteSize() <= most_bytes + 100 and shown + answer.omitted_messages == 300
        assert list(answer.live_messages) == list(whole.live_messages)[300 - shown :]
        assert answer.tokens * 300 == whole.tokens * shown and (shown + 1) * whole.ByteSize() > 250 * most_bytes
    # No more is read for it, either.
    _, bodies, _, _ = await database.read_global(cost, "s", Room(1_000_000, 20_000))
    assert 20 < bodies < 20_000 / (200 + 128 + 256)

    used = {"type": "tool", "tool_id": "t", "tool_name": "n", "skill_name": "", "input": {"n": [1] * 5000}}
    used |= {"output": "", "status": "completed", "duration_ms": 0, "total_tokens": 0}
    await archived(database, "t", "done", "zero")
    await archived(database, "t", "pending", "before")
    await database.write(
        add_messages, ANN, "t", [Message(f"n{number}", "assistant", (used,)) for number in range(4)], {}
    )
    whole = await load(database, 1_000_000, "t")
    assert whole.ByteSize() > 2 * 3 * whole.tokens and whole.overview and whole.pending_messages
    answer = await load(database, 1_000_000, "t", whole.ByteSize() // 2)
    # It was read, and found to be too much; nor is anything older told then.
    assert 0 < len(answer.live_messages) < 4 and answer.ByteSize() <= whole.ByteSize() // 2 + 100
    assert not answer.pending_messages and answer.omitted_messages == 5 - len(answer.live_messages)
    little = await load(database, 1_000_000, "t", 10)
    assert (little.overview, little.overview_omitted, little.tokens) == ("", True, 0) and little.overview_uri


async def test_erased_messages_are_neither_told_nor_missed(database: Database) -> None:
    await archived(database, "s", "done", "one", "two")
    await archived(database, "s", "failed", "three", "four")
    await talk(database, ANN, "s", "five", "six")
    await erase(database, "s", 1, 3, 5)
    answer = await load(database)
    assert told(answer) == (OVERVIEW, ["four"], ["six"]) and answer.omitted_messages == 0
    assert (await load(database, 1)).omitted_messages == 2


part = st.one_of(
    st.builds(lambda words: {"type": "text", "text": words}, st.text(max_size=200)),
    st.just({"type": "context", "uri": "viking://user/memories/profile.md", "abstract": "é" * 40}),
)
batch = st.tuples(st.sampled_from(["done", "failed", "pending", ""]), st.lists(st.lists(part, min_size=1), max_size=4))


async def test_whatever_is_said_the_budget_holds_and_is_used(new_store: NewStore) -> None:
    database = new_store().connect()
    await database.open()
    made = 0

    async def tried(batches: list[tuple[str, list[list[dict[str, str]]]]], budget: int) -> None:
        nonlocal made
        made += 1
        name, said, belong, first_live = f"s{made}", 0, set[int](), 1
        await database.write(sessions.create, ANN, name)
        for state, contents in batches:
            messages = [Message(f"{name}-{said + number}", "user", tuple(of)) for number, of in enumerate(contents)]
            await database.write(add_messages, ANN, name, messages, {})
            said += len(messages)
            if state and said >= first_live:
                await archived(database, name, state, f"closing {said}")
                said += 1
                belong |= set(range(first_live, said + 1)) if state != "done" else set()
                first_live = said + 1
        belong |= set(range(first_live, said + 1))
        answer = await load(database, budget, name)
        shown = [*answer.pending_messages, *answer.live_messages]
        sequences = [message.sequence for message in shown]
        assert sequences == sorted(belong)[len(belong) - len(shown) :]
        assert answer.omitted_messages == len(belong) - len(shown)
        stored = await database.read(sessions.messages_between, ANN, name, 1, said)
        costs = {one.sequence: message_tokens(one.parts) for one in stored}
        used = sum(costs[sequence] for sequence in sequences)
        assert answer.tokens == used + tokens.count(answer.overview) <= (budget or 8000)
        missed = sorted(belong - set(sequences))
        assert not missed or used + costs[missed[-1]] > budget

    loop = asyncio.get_running_loop()

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(batch, max_size=6), st.integers(1, 600))
    def examples(batches: Any, budget: int) -> None:
        asyncio.run_coroutine_threadsafe(tried(batches, budget), loop).result()

    await asyncio.to_thread(examples)
    await database.close()


class Reading(Measured):
    """Counts rows that come with their bodies."""

    def __init__(self, tx: Any, cost: Cost) -> None:
        super().__init__(tx, cost)
        self.bodies = 0

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        rows = await super().fetch(sql, *args)
        self.bodies += sum("parts" in dict(row) for row in rows)
        return rows


async def cost(tx: Tx, session_id: str, room: Room) -> tuple[Cost, int, list[int], int]:
    """With the sequences of what is told, and how many messages belong to it."""
    spent = Cost()
    reading = Reading(tx, spent)
    found = await context.read(reading, ANN, session_id, room)
    return spent, reading.bodies, [row["sequence"] for row in (*found.pending, *found.live)], found.everything


async def fill(database: Database, session_id: str, archives: int) -> None:
    """So many archives of one message each, of which the last three are not extracted."""
    await talk(database, ANN, session_id, *("words" for _ in range(archives)), "live")

    async def work(tx: Tx) -> None:
        for index in range(1, archives + 1):
            await tx.execute(
                "INSERT INTO archives (account, user_id, session_id, archive_index, first_sequence, last_sequence,"
                " state, overview) VALUES ($1, $2, $3, $4, $4, $4, $5, $6)",
                ANN.account, ANN.user, session_id, index, "pending" if index > archives - 3 else "done", OVERVIEW,
            )  # fmt: skip
        await tx.execute(
            "UPDATE sessions SET archived_sequence = $1 WHERE account = $2 AND user_id = $3 AND session_id = $4",
            archives, ANN.account, ANN.user, session_id,
        )  # fmt: skip
        if not hasattr(tx._connection, "set_progress_handler"):  # type: ignore[attr-defined]  # SQLite's has it
            for table in ("archives", "messages", "sessions"):
                await tx.execute(f"ANALYZE {table}")

    await database.write_global(work)


async def test_a_long_past_costs_nothing_and_what_has_no_room_is_not_read(new_store: NewStore) -> None:
    costs = []
    for archives in (FEW, MANY):
        database = new_store().connect()
        await database.open()
        await fill(database, "s", archives)
        spent, bodies, told, everything = await database.read_global(cost, "s", Room(8000, MUCH))
        assert bodies == len(told) == everything == 4
        costs.append(spent)
        for room in (Room(20, MUCH), Room(8000, 60)):
            _, bodies, told, everything = await database.read_global(cost, "s", room)
            assert bodies == 1 and told == [archives + 1] and everything == 4
        await database.close()
    assert_as_cheap(*costs)


async def test_thousands_of_commits_that_failed_are_looked_at_only_as_far_as_there_is_room(
    database: Database,
) -> None:
    await talk(database, ANN, "s", *("words" for _ in range(MANY)))

    async def work(tx: Tx) -> None:
        for index in range(1, MANY + 1):
            await tx.execute(
                "INSERT INTO archives (account, user_id, session_id, archive_index, first_sequence, last_sequence,"
                " state, overview) VALUES ($1, $2, 's', $3, $3, $3, $4, '')",
                ANN.account, ANN.user, index, ("done", "failed", "pending")[index % 3],
            )  # fmt: skip
        await tx.execute("UPDATE sessions SET archived_sequence = $1 WHERE account = $2", MANY, ANN.account)

    await database.write_global(work)
    one = message_tokens([{"type": "text", "text": "words"}])
    _, bodies, sequences, everything = await database.read_global(cost, "s", Room(5 * one, MUCH))
    assert sequences == [1493, 1495, 1496, 1498, 1499] and (bodies, everything) == (5, MANY * 2 // 3)
    answer = await load(database, 1_000_000)
    assert [message.sequence for message in answer.pending_messages] == [
        number for number in range(1, MANY + 1) if number % 3
    ]
    assert not answer.overview_uri and not answer.overview_omitted


async def test_a_session_of_the_same_name_begins_anew(database: Database) -> None:
    await talk(database, ANN, "s", "one")
    await talk(database, ANN, "t", "of another session")
    assert told(await load(database))[2] == ["one"]
    await database.write(add_messages, ANN, "s", [text("m9", "two")], {})
    assert told(await load(database))[2] == ["one", "two"]
