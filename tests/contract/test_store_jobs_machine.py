"""Jobs under any order of events: a model of what may happen beside the store, under a clock that the model moves."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from runekeep.v1 import extractor_service_pb2 as pb
from server.settings import Settings
from server.work.failures import Ended, FailurePolicy
from storage import apply, jobs
from storage.database import Tx
from storage.errors import LeaseLost, WrongTaskState
from storage.records import Job, LeaseId
from tests.contract.store_fixtures import ANN, BOB, CAT, TERMS, Clock, NewStore, commit, prepared, talk

SPACES = (ANN, BOB, CAT)
OPEN = ("pending", "leased")
CLASSES = (
    pb.FAILURE_CLASS_RATE_LIMITED,
    pb.FAILURE_CLASS_MODEL_REFUSED,
    pb.FAILURE_CLASS_REJECTED_OUTPUT,
    pb.FAILURE_CLASS_CONFLICT,
)
ANY = st.integers(0, 5)
"""Picks one of what there is; 0 is the newest."""


@dataclass
class Known:
    """What the model knows of a job. `applied`: the lease and output that ended it."""

    lane: list[str]
    state: str = "pending"
    token: int = 0
    not_before: int = 0
    expires: int = 0
    ends: int = 0
    applied: tuple[LeaseId, str] | None = None


class JobsMachine(RuleBasedStateMachine):
    """Rules are what callers, workers and reapers may do at any time, with tokens of any age."""

    def __init__(self, new_store: NewStore, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.policy = FailurePolicy(Settings(max_attempts=3, max_lost_leases=2, max_conflicts=2))
        self.lanes: dict[str, list[str]] = {space.user: [] for space in SPACES}
        self.jobs: dict[str, Known] = {}
        self.leases: list[LeaseId] = []
        self.runner = asyncio.Runner()
        self.database = new_store().connect()
        self.runner.run(self.database.open())

    def teardown(self) -> None:
        self.runner.run(self.database.close())
        self.runner.close()

    def write(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        async def run() -> Any:
            return await self.database.write(work, *arguments)

        return self.runner.run(run())

    def lease(self, pick: int) -> LeaseId:
        return self.leases[-1 - pick % len(self.leases)]

    def held(self, lease: LeaseId) -> Known | None:
        job = self.jobs[lease.job_id]
        return job if job.state == "leased" and job.token == lease.token else None

    def over(self, job_id: str, state: str) -> None:
        self.jobs[job_id].state = state
        self.jobs[job_id].token += 1
        self.jobs[job_id].lane.remove(job_id)

    def attempt_over(self, ended: Ended) -> None:
        job_id = ended.job.job_id
        if ended.given_up:
            self.over(job_id, "failed")
            return

        async def not_before(tx: Tx) -> int:
            row = await tx.fetchrow("SELECT not_before FROM jobs WHERE job_id = $1", job_id)
            assert row is not None
            return int(row["not_before"])

        job = self.jobs[job_id]
        job.state, job.token, job.not_before = "pending", job.token + 1, self.write(not_before)
        assert job.not_before >= self.clock.now

    @rule(place=st.integers(0, len(SPACES) - 1))
    def enqueue(self, place: int) -> None:
        space, job_id = SPACES[place], f"t{len(self.jobs)}"
        self.runner.run(talk(self.database, space, f"s-{job_id}", "hello"))
        self.runner.run(commit(self.database, space, f"s-{job_id}", job_id))
        self.jobs[job_id] = Known(self.lanes[space.user])
        self.jobs[job_id].lane.append(job_id)

    @rule(times=st.integers(1, 3))
    def claims(self, times: int) -> None:
        self.claim(times)

    def claim(self, times: int) -> None:
        for _ in range(times):
            due = {
                lane[0]
                for lane in self.lanes.values()
                if lane and self.jobs[lane[0]].state == "pending" and self.jobs[lane[0]].not_before <= self.clock.now
            }
            claimed = self.write(jobs.claim, "w1", TERMS)
            if claimed is None:
                assert not due
                return
            job: Job = claimed[0]
            assert job.job_id in due
            known = self.jobs[job.job_id]
            assert job.token > known.token
            known.state, known.token = "leased", job.token
            known.expires, known.ends = job.lease_expires, job.attempt_ends
            self.leases.append(job.lease)

    @rule(seconds=st.sampled_from([1, 9, 40, 300, 700]))
    def time_goes_by(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.leases)
    @rule(pick=ANY)
    def renew(self, pick: int) -> None:
        lease = self.lease(pick)
        job = self.held(lease)
        try:
            self.write(jobs.renew, lease, TERMS)
        except LeaseLost:
            assert job is None
        else:
            assert job is not None
            job.expires = min(self.clock.now + TERMS.renewed, job.ends)

    @rule()
    def reap(self) -> None:
        late = {id for id, job in self.jobs.items() if job.state == "leased" and job.expires < self.clock.now}
        ended: list[Ended] = self.write(self.policy.reap)
        assert {one.job.job_id for one in ended} == late
        for one in ended:
            self.attempt_over(one)

    @precondition(lambda self: self.leases)
    @rule(pick=ANY, failure_class=st.sampled_from(CLASSES), retryable=st.booleans())
    def fail(self, pick: int, failure_class: int, retryable: bool) -> None:
        lease = self.lease(pick)
        job = self.held(lease)
        try:
            ended = self.write(self.policy.failed, lease, failure_class, "failed", retryable, 0.0)
        except LeaseLost:
            assert job is None
        else:
            assert job is not None
            self.attempt_over(ended)

    @precondition(lambda self: self.leases)
    @rule(pick=ANY, claims=st.booleans())
    def release(self, pick: int, claims: bool) -> None:
        lease = self.lease(pick)
        job = self.held(lease)

        async def work(tx: Tx) -> Ended:
            held = await jobs.held(tx, lease)
            await jobs.requeue(tx, held, None, delay=0, counts=None)
            return Ended(held, given_up=False)

        try:
            ended = self.write(work)
        except LeaseLost:
            assert job is None
        else:
            assert job is not None
            self.attempt_over(ended)
            if claims:
                # So that an old token often meets a job that is leased again.
                self.claim(1)

    @precondition(lambda self: self.leases)
    @rule(pick=ANY, output=st.sampled_from(["a", "b"]))
    def complete(self, pick: int, output: str) -> None:
        lease = self.lease(pick)
        job = self.held(lease)
        before = self.jobs[lease.job_id]
        try:
            applied = self.write(apply.apply, prepared(lease, output_id=output))
        except LeaseLost:
            assert job is None
            assert before.applied != (lease, output)
        else:
            assert applied.again == (job is None)
            if job is None:
                assert before.applied == (lease, output)
            else:
                self.over(lease.job_id, "succeeded")
                job.applied = (lease, output)

    @precondition(lambda self: self.jobs)
    @rule(pick=ANY)
    def cancel(self, pick: int) -> None:
        job_id, space = self.any_job(pick)
        try:
            self.write(jobs.cancel, space, job_id, "")
        except WrongTaskState:
            assert self.jobs[job_id].state not in OPEN
        else:
            assert self.jobs[job_id].state in OPEN
            self.over(job_id, "cancelled")

    @precondition(lambda self: self.jobs)
    @rule(pick=ANY)
    def retry(self, pick: int) -> None:
        job_id, space = self.any_job(pick)
        job = self.jobs[job_id]
        try:
            self.write(jobs.retry, space, job_id)
        except WrongTaskState:
            assert job.state not in ("failed", "cancelled")
        else:
            assert job.state in ("failed", "cancelled")
            job.state, job.not_before = "pending", 0
            job.lane.append(job_id)

    def any_job(self, pick: int) -> tuple[str, Any]:
        job_id = f"t{len(self.jobs) - 1 - pick % len(self.jobs)}"
        return job_id, next(space for space in SPACES if self.jobs[job_id].lane is self.lanes[space.user])

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        rows, accounts, commits, tasks, revisions = self.write(snapshot)
        lanes: dict[str, list[Any]] = {space.user: [] for space in SPACES}
        for row in rows:
            if row["state"] in OPEN:
                lanes[row["user_id"]].append(row)
            else:
                assert not row["is_head"]
        for user, lane in lanes.items():
            assert [row["job_id"] for row in lane] == self.lanes[user]
            assert [row["is_head"] for row in lane] == [1] * bool(lane) + [0] * (len(lane) - 1)
            assert [row["job_id"] for row in lane[1:] if row["state"] == "leased"] == []
        assert {row["job_id"]: (row["state"], row["lease_epoch"]) for row in rows} == {
            job_id: (job.state, job.token) for job_id, job in self.jobs.items()
        }
        assert {row["account"]: row["open_jobs"] for row in accounts if row["open_jobs"]} == {
            account: count
            for account in {space.account for space in SPACES}
            if (count := sum(len(self.lanes[space.user]) for space in SPACES if space.account == account))
        }
        assert {row["job_id"] for row in commits} == {id for id, job in self.jobs.items() if job.state == "succeeded"}
        for space in SPACES:
            made = [row["revision"] for row in commits if row["user_id"] == space.user]
            assert made == list(range(1, revisions.get(space.user, 0) + 1))
        watched = {"leased": "running", "succeeded": "completed"}
        assert {row["task_id"]: row["state"] for row in tasks} == {
            job_id: watched.get(job.state, job.state) for job_id, job in self.jobs.items()
        }
        assert all(row["last_event"] == row["events"] for row in tasks)


async def snapshot(tx: Tx) -> tuple[Any, ...]:
    """In one transaction: jobs in lane order, accounts, commits in revision order, tasks, revisions by user."""
    revisions = await tx.fetch("SELECT user_id, revision FROM spaces")
    return (
        await tx.fetch("SELECT * FROM jobs ORDER BY account, user_id, lane_sequence"),
        await tx.fetch("SELECT account, open_jobs FROM accounts"),
        await tx.fetch("SELECT user_id, revision, job_id FROM commits ORDER BY user_id, revision"),
        await tx.fetch(
            "SELECT task_id, state, last_event, (SELECT COUNT(*) FROM task_events e WHERE e.account = t.account"
            " AND e.user_id = t.user_id AND e.task_id = t.task_id) AS events FROM tasks t"
        ),
        {row["user_id"]: row["revision"] for row in revisions},
    )


def test_jobs_keep_their_rules_in_any_order_of_events(new_store: NewStore, clock: Clock) -> None:
    run_state_machine_as_test(
        lambda: JobsMachine(new_store, clock),
        settings=settings(
            max_examples=40, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
