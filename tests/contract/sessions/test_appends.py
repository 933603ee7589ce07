"""Appends of many callers at once: the same comes of them as if they had come one after another, on every driver."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runekeep_schemas.auto_commit_rules import AutoCommit
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.common.idempotent_requests import RequestKey
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.records import Message
from runekeep_storage.sessions import appends, archives, sessions
from runekeep_storage.sessions.appends import Append, AppendResult
from runekeep_storage.sessions.commits import Commit
from tests.support.appending import RULES, nothing
from tests.support.storage.commits import Server
from tests.support.storage.databases import ANN, BOB, Clock, NewStore, text
from tests.support.storage.statements import Statements
from tests.support.storage.write_groups import again, at_once

USERS, SESSIONS = ("ann", "bob"), ("free", "ruled", "missing")
RULED = AutoCommit(message_count=4, keep_recent_count=1, idle=60_000_000)
OF_SPACE = "WHERE account = $1 AND user_id = $2"
STATE = (
    f"SELECT session_id, last_sequence, archived_sequence, live_tokens, said_at, idle_at FROM sessions {OF_SPACE}"
    " ORDER BY session_id",
    f"SELECT session_id, sequence, message_id, turn_id, role, parts, tokens, created_at FROM messages {OF_SPACE}"
    " ORDER BY session_id, sequence",
    f"SELECT session_id, turn_id, sequence, last_sequence FROM turns {OF_SPACE} ORDER BY session_id, turn_id",
    f"SELECT session_id, archive_index, first_sequence, last_sequence FROM archives {OF_SPACE}"
    " ORDER BY session_id, archive_index",
    f"SELECT session_id, tool_id, blob FROM tool_outputs {OF_SPACE} ORDER BY session_id, tool_id",
    f"SELECT session_id, request_id, digest, response FROM requests {OF_SPACE} ORDER BY request_id",
)


@dataclass(frozen=True)
class Call:
    """An append as a caller makes it. `said`: ids and words; an id of "" is made by the server."""

    user: str
    session: str
    said: tuple[tuple[str, str], ...]
    request_id: str
    turn: str
    tool: str


calls = st.builds(
    Call,
    user=st.sampled_from(USERS),
    session=st.sampled_from(SESSIONS),
    said=st.lists(
        st.tuples(st.sampled_from(["", "", "m1", "m2"]), st.sampled_from(["yes", "no"])), min_size=1, max_size=3
    ).map(tuple),
    request_id=st.sampled_from(["", "", "r1", "r2"]),
    turn=st.sampled_from(["", "t1"]),
    tool=st.sampled_from(["", "", "x"]),
)


def encode(appended: AppendResult) -> bytes:
    is_committed = isinstance(appended.commit, Commit)
    told = [[one.message_id, one.sequence] for one in appended.messages]
    return json.dumps([told, appended.live, is_committed]).encode()


class Callers:
    """Calls of an account's users, made with what the server does around an append."""

    def __init__(self, database: Database, account: str) -> None:
        self.database = database
        self.account = account
        self.server = Server(database)
        self._made = count(1)

    async def begin(self) -> None:
        for user in USERS:
            space = Space(self.account, user)
            await self.database.write(sessions.create, space, "free")
            await self.database.write(sessions.create, space, "ruled", "", "{}", RULED.to_json())

    def ask(self, call: Call) -> Callable[[], Awaitable[bytes]]:
        space = Space(self.account, call.user)
        said = [
            text(name or f"made-{next(self._made)}", words, turn_id=call.turn) for name, words in call.said
        ]  # fmt: skip

        body = json.dumps([call.session, call.said, call.turn, call.tool])
        item = Append(
            call.session,
            said,
            frozenset(name for name, _ in call.said if name),
            {call.tool: (f"blob-{call.said[0][1]}", 5)} if call.tool else {},
            self.server.commits.rules,
            "",
            RequestKey("AddMessages", call.request_id, body, call.session) if call.request_id else None,
            encode,
        )

        async def append() -> bytes:
            (outcome,) = await self.database.write_jointly(appends.add_groups, space, [item])
            if isinstance(outcome, Exception):
                raise outcome
            return encode(outcome) if isinstance(outcome, AppendResult) else outcome

        return append

    async def state(self) -> list[Any]:
        async def work(tx: Tx) -> list[Any]:
            found: list[Any] = []
            for user in USERS:
                for statement in STATE:
                    found.append([tuple(row) for row in await tx.fetch(statement, self.account, user)])
            return found

        return await self.database.read_global(work)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def test_what_comes_of_them_is_what_comes_of_one_after_another(
    new_store: NewStore, clock: Clock, runner: asyncio.Runner
) -> None:
    database = new_store().connect()
    number = count(1)
    on_sqlite = isinstance(database, SqliteDatabase)

    async def compare(asked: list[Call]) -> None:
        place = next(number)
        together, singly = Callers(database, f"joint-{place}"), Callers(database, f"single-{place}")
        await together.begin()
        await singly.begin()
        clock.advance(1)
        before = again()
        jointly = await at_once(database, *[together.ask(call) for call in asked])
        assert again() == before
        one_by_one = []
        for call in asked:
            one_by_one += await asyncio.gather(singly.ask(call)(), return_exceptions=True)
        assert [told(one) for one in jointly] == [told(one) for one in one_by_one]
        assert await together.state() == await singly.state()

    @settings(
        max_examples=120 if on_sqlite else 40, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.lists(calls, min_size=2, max_size=24))
    def hold(asked: list[Call]) -> None:
        runner.run(compare(asked))

    runner.run(database.open())
    try:
        hold()
    finally:
        runner.run(database.close())


def told(outcome: Any) -> tuple[str, str]:
    return type(outcome).__name__, str(outcome)


async def test_sixteen_callers_take_as_many_statements_as_one(database: Database) -> None:
    spaces = [Space("acme", f"user-{number:02}") for number in range(16)]
    for space in spaces:
        await database.write(sessions.create, space, "s")

    async def statements(some: list[Space]) -> int:
        async def work(tx: Tx, space: Space) -> int:
            counting: Any = Statements(tx)
            said = text(f"{len(some)}", "hi", turn_id="t")
            items = [
                (one, append(said, RequestKey("AddMessages", f"{one.user}-{len(some)}", "body", "s"))) for one in some
            ]
            outcomes = await appends.add(counting, items)
            assert [type(outcome) for outcome in outcomes] == [AppendResult] * len(some)
            return int(counting.number)

        return await database.write(work, spaces[0])

    # The request's id and the session are looked up; a message, a turn, the session and the answer are written.
    assert await statements(spaces[:1]) == await statements(spaces) == 6


def append(message: Message, key: RequestKey | None = None) -> Append:
    return Append("s", [message], frozenset(), {}, RULES, "", key, nothing)


async def test_a_commit_that_one_of_them_makes_due_has_nothing_of_those_behind_it(database: Database) -> None:
    callers = Callers(database, ANN.account)
    await callers.begin()
    call = Call("ann", "ruled", (("", "one"), ("", "two")), "", "", "")

    answers = await at_once(database, *[callers.ask(call) for _ in range(3)])

    # Four are due, of which the newest stays; with the two behind it three are live.
    assert [json.loads(answer) for answer in answers] == [
        [[["made-1", 1], ["made-2", 2]], 2, False],
        [[["made-3", 3], ["made-4", 4]], 1, True],
        [[["made-5", 5], ["made-6", 6]], 3, False],
    ]
    archive = await database.read(archives.get, ANN, "ruled", 1)
    assert (archive.first_sequence, archive.last_sequence) == (1, 3)


async def test_no_caller_is_told_of_the_messages_of_another(database: Database) -> None:
    """One id in the sessions of two users, asked for at once, and again."""
    callers = Callers(database, ANN.account)
    await callers.begin()
    ann, bob = (Call(user, "free", (("m1", user),), "r1", "", "") for user in USERS)

    for _ in range(2):
        answers = await at_once(database, callers.ask(ann), callers.ask(bob))
        assert [json.loads(answer) for answer in answers] == [[[["m1", 1]], 1, False]] * 2
    for space in (ANN, BOB):
        found: list[Message] = await database.read(sessions.messages_between, space, "free", 0, 100)
        assert [message.parts[0]["text"] for message in found] == [space.user]
    other = replace(ann, request_id="r3", said=(("m1", "bob"),))
    (refused,) = await at_once(database, callers.ask(other))
    assert told(refused) == ("AlreadyExists", "a message named m1 exists")


async def test_each_of_a_group_has_its_own_outcome(database: Database) -> None:
    await database.write(sessions.create, ANN, "s")
    brought = [replace(append(text("m1", words)), brought=frozenset({"m1"})) for words in ("one", "another")]
    group = [*brought, replace(append(text("m2", "two")), session_id="none"), append(text("m3", "three"))]
    outcomes: list[Any] = await database.write_jointly(appends.add_groups, ANN, group)
    assert [type(one).__name__ for one in outcomes] == ["AppendResult", "AlreadyExists", "NotFound", "AppendResult"]
    found: list[Message] = await database.read(sessions.messages_between, ANN, "s", 0, 100)
    assert [message.message_id for message in found] == ["m1", "m3"]
    assert [one.sequence for one in outcomes[3].messages] == [2]


async def test_large_appends_are_made_by_themselves(database: Database) -> None:
    """So that none has to wait longer for a statement than if it came alone."""
    await database.write(sessions.create, ANN, "s")

    async def statements(tx: Tx, space: Space, *sizes: int) -> int:
        counting: Any = Statements(tx)
        said = [text(f"{sizes}-{number}", "x" * size) for number, size in enumerate(sizes)]
        items = [(space, append(one)) for one in said]
        assert len(await appends.add(counting, items)) == len(sizes)
        return int(counting.number)

    few = await database.write(statements, ANN, 5, 5, 5, 5)
    assert await database.write(statements, ANN, 2**21) == few
    assert await database.write(statements, ANN, 5, 2**20, 2**20, 5) == 4 * few
    found: list[Message] = await database.read(sessions.messages_between, ANN, "s", 0, 100)
    assert [len(message.parts[0]["text"]) for message in found] == [5] * 4 + [2**21, 5, 2**20, 2**20, 5]


async def test_what_a_tool_was_given_counts_too(database: Database) -> None:
    await database.write(sessions.create, ANN, "s")

    async def statements(tx: Tx, space: Space, name: str, size: int) -> int:
        counting: Any = Statements(tx)
        given = {"type": "tool", "tool_id": "", "tool_name": "write", "input": {"text": "x" * size}, "output": ""}
        said = [replace(text(f"{name}-{number}", ""), parts=(given,)) for number in range(2)]
        items = [(space, append(one)) for one in said]
        assert len(await appends.add(counting, items)) == 2
        return int(counting.number)

    together = await database.write(statements, ANN, "small", 5)
    assert await database.write(statements, ANN, "large", 2**20) == 2 * together
