"""Appends, commits and changes of rules in any order: what is live is counted exactly, and committed when it is due."""

import asyncio
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from runekeep_common.tokens import stored_parts, tokens_of_stored
from runekeep_schemas.auto_commit_rules import AutoCommit
from runekeep_storage.database import Space, Tx
from runekeep_storage.jobs import jobs
from runekeep_storage.records import Message, Session
from runekeep_storage.sessions import archives, commits, sessions
from runekeep_storage.sessions.commits import Commit
from tests.support.storage.commits import Server
from tests.support.storage.databases import ANN, CAT, SECOND, Clock, NewStore, text
from tests.support.storage.state_machines import StoreMachine, hold_machine

SPACES = (ANN, CAT)
MAX_OPEN = 2
SPACE = st.integers(0, len(SPACES) - 1)
RULES = st.builds(
    AutoCommit,
    pending_tokens=st.sampled_from([0, 0, 30, 100]),
    message_count=st.sampled_from([0, 0, 6, 9]),
    idle=st.sampled_from([0, SECOND, 60 * SECOND]),
    keep_recent_count=st.integers(0, 5),
)
SAID = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "tea", "茶を飲む" * 5])), min_size=1, max_size=4)
"""Which message, so that some come again, and what it says more."""


def in_tokens(messages: list[Message]) -> int:
    return sum(tokens_of_stored(stored_parts(one.parts)) for one in messages)


class AutoCommitMachine(StoreMachine):
    """One session for each space. The model: its messages by sequence, what is archived, and its rules."""

    def __init__(self, new_store: NewStore, clock: Clock, runner: asyncio.Runner) -> None:
        super().__init__(new_store, clock, runner)
        self.server = Server(self.database, max_open_commits_per_user=MAX_OPEN)
        self.messages: dict[Space, list[Message]] = {space: [] for space in SPACES}
        self.archived = dict.fromkeys(SPACES, 0)
        self.followed = {space: AutoCommit() for space in SPACES}
        self.said_at = dict.fromkeys(SPACES, 0)

    def live(self, space: Space) -> list[Message]:
        return self.messages[space][self.archived[space] :]

    def full(self, space: Space) -> bool:
        open_jobs: int = self.read(jobs.open_jobs, space, jobs.COMMIT)
        return open_jobs >= MAX_OPEN

    @initialize()
    def begin(self) -> None:
        for space in SPACES:
            self.write(sessions.create, space, "s")

    @rule(place=SPACE, said=SAID)
    def add(self, place: int, said: list[tuple[int, str]]) -> None:
        space = SPACES[place]
        known = {message.message_id for message in self.messages[space]}
        batch, new = [], []
        for number, more in said:
            message = text(f"m{number}-{more}", f"said {number} {more}")
            batch.append(message)
            if message.message_id not in known:
                known.add(message.message_id)
                new.append(message)
        full = self.full(space)
        added = self.run(self.server.append(space, "s", *batch))
        done = added.commit if isinstance(added.commit, Commit) else None
        self.messages[space] += new
        live = self.live(space)
        assert added.live == (done.live if done is not None else len(live))
        due = bool(new) and self.followed[space].due(in_tokens(live), len(live))
        assert (done is not None) == (due and not full)
        if done is not None:
            assert done.live == self.followed[space].keep_recent_count
            self.archived[space] = len(self.messages[space]) - self.followed[space].keep_recent_count
        if new:
            self.said_at[space] = self.clock.now

    @rule(place=SPACE, keep=st.integers(0, 8))
    def commit(self, place: int, keep: int) -> None:
        space = SPACES[place]
        if self.full(space):
            return

        async def work(tx: Tx, space: Space) -> Commit | None:
            return await commits.create(tx, space, "s", self.server.commits.rules, keep_recent=keep, traceparent="")

        done = self.write(work, space)
        assert (done is not None) == (len(self.live(space)) > keep)
        self.archived[space] = max(self.archived[space], len(self.messages[space]) - keep)

    @rule(place=SPACE, rules=RULES)
    def update(self, place: int, rules: AutoCommit) -> None:
        space = SPACES[place]

        async def work(tx: Tx, space: Space) -> Session:
            return await sessions.update(tx, space, "s", auto_commit=rules)

        assert self.write(work, space).auto_commit == rules.to_json()
        self.followed[space] = rules

    @rule(place=SPACE)
    def open_commits_end(self, place: int) -> None:
        space = SPACES[place]
        for job_id in self.read(jobs.open_of, space):
            self.write(jobs.cancel, space, job_id, "")

    @rule(seconds=st.sampled_from([0.5, 1, 31, 60]))
    def time_goes_by(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def look(self) -> None:
        now = self.clock.now
        due = [space for space in SPACES if 0 < self.row(space)["idle_at"] <= now]
        full = {space: self.full(space) for space in SPACES}
        self.run(self.server.idle.look())
        for space in due:
            if not full[space]:
                self.archived[space] = len(self.messages[space])
        assert not [space for space in SPACES if 0 < self.row(space)["idle_at"] <= now]

    def row(self, space: Space) -> Any:
        async def work(tx: Tx) -> Any:
            return await tx.fetchrow(
                "SELECT * FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = 's'",
                space.account,
                space.user,
            )

        return self.read_global(work)

    @invariant()
    def what_is_live_is_counted_exactly(self) -> None:
        for space in SPACES:
            row, live = self.row(space), self.live(space)
            assert row["last_sequence"] == len(self.messages[space])
            assert row["archived_sequence"] == self.archived[space]
            stored = self.read(sessions.messages_between, space, "s", self.archived[space] + 1, 2**31)
            assert [one.message_id for one in stored] == [one.message_id for one in live]
            assert row["live_tokens"] == in_tokens(live)

    @invariant()
    def every_message_is_archived_at_most_once(self) -> None:
        for space in SPACES:
            found = self.read(archives.page, space, "s", 2**31, 1000)
            taken = [number for one in found for number in range(one.first_sequence, one.last_sequence + 1)]
            assert sorted(taken) == list(range(1, self.archived[space] + 1))

    @invariant()
    def who_idles_is_known(self) -> None:
        for space in SPACES:
            rules, idle_at = self.followed[space], self.row(space)["idle_at"]
            if not (rules.idle and self.live(space)):
                assert idle_at == 0
            else:
                # Never before its time.
                assert idle_at >= self.said_at[space] + rules.idle


def test_any_order_of_appends_commits_and_changes(new_store: NewStore, clock: Clock, share: int) -> None:
    machine = partial(AutoCommitMachine, new_store, clock)
    with asyncio.Runner() as runner:
        hold_machine(machine, new_store, examples=40 // share, runner=runner)
