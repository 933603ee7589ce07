"""Jobs under any order of events: a model of what may happen beside the store, under a clock that the model moves."""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.leases.failure_policy import AttemptEnd, AttemptFailure, FailurePolicy
from runekeep_server.settings import Settings
from runekeep_storage.database import Space, Tx
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.errors import LeaseLost, NotFound, WrongTaskState
from runekeep_storage.jobs import claiming, jobs, retention
from runekeep_storage.jobs.claiming import Holder
from runekeep_storage.jobs.lease_holders import digest_of, new_secret
from runekeep_storage.jobs.worker_records import MAX_LOST
from runekeep_storage.memories import apply
from runekeep_storage.records import Job, LeaseId
from tests.support.storage.databases import ANN, BOB, CAT, SECOND, TERMS, Clock, NewStore, commit, prepared, talk
from tests.support.storage.state_machines import StoreMachine, hold_machine

DAN = Space("third", "dan")
SPACES = (ANN, BOB, CAT, DAN)
OPEN = ("pending", "leased")
LIMITS = Settings(max_attempts=3, max_lost_leases=2, max_conflicts=2)
WAITED_OUT = (pb.FAILURE_CLASS_RATE_LIMITED, pb.FAILURE_CLASS_MODEL_UNAVAILABLE)
FINAL = (pb.FAILURE_CLASS_MODEL_REFUSED, pb.FAILURE_CLASS_INPUT_TOO_LARGE)
CLASSES = (*WAITED_OUT, *FINAL, pb.FAILURE_CLASS_REJECTED_OUTPUT, pb.FAILURE_CLASS_CONFLICT)
KEPT = 3600 * SECOND
"""Age at which an ended task is forgotten here."""
DAY = 86_400

PLACE = st.integers(0, len(SPACES) - 1)
SESSION = st.sampled_from(["s", "t"])
PRIORITY = st.sampled_from([0, 0, 7])
ANY = st.integers(0, 5)
"""Picks one of what there is; 0 is the newest."""
LEASE = st.tuples(st.sampled_from(["held", "held", "given", "made up", "stolen", "guessed"]), ANY)
"""Returns a lease: one that is held, if there is one; one that was given earlier; one whose token nobody had yet; or
one that is held, but shown by another principal or without its secret."""
HOLDER = "key:a"


@dataclass
class Known:
    """What the model knows of a job. `of` is its session: one made anew under the same name is another one."""

    space: Space
    of: object
    priority: int
    created: int
    state: str = "pending"
    token: int = 0
    started: int = 0
    attempts: int = 0
    lost: int = 0
    blamed: int = 0
    conflicts: int = 0
    not_before: int = 0
    expires: int = 0
    ends: int = 0
    ended: int = 0
    applied: tuple[LeaseId, str] | None = None


@dataclass
class Account:
    weight: int = 1
    vtime: int = 0
    vstart: int = 0


@dataclass
class Model:
    jobs: dict[str, Known] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    lanes: dict[Space, list[str]] = field(default_factory=lambda: {space: [] for space in SPACES})
    accounts: defaultdict[str, Account] = field(default_factory=lambda: defaultdict(Account))
    sessions: dict[tuple[Space, str], object] = field(default_factory=dict)
    succeeded: defaultdict[Space, set[str]] = field(default_factory=lambda: defaultdict(set))
    lost: list[str] = field(default_factory=list)
    """Jobs that the only worker lost, newest last. It makes up for none, because only a server records that."""

    def due(self, now: int) -> str | None:
        """The job that a claim must give: least virtual time, then priority, then age; heads of lanes alone."""
        heads = [
            job_id
            for job_id in (lane[0] for lane in self.lanes.values() if lane)
            if self.jobs[job_id].state == "pending" and self.jobs[job_id].not_before <= now
        ]

        def turn(job_id: str) -> tuple[Any, ...]:
            job = self.jobs[job_id]
            account = job.space.account
            return self.accounts[account].vtime, account, -job.priority, job.created, job_id

        return min(heads, key=turn, default=None)

    def serve(self, job_id: str) -> None:
        """Start-time fair queueing: a claim starts no earlier than any claim before it, so that sleeping is neither
        credit nor debt, and costs by weight."""
        account = self.accounts[self.jobs[job_id].space.account]
        account.vstart = max(account.vtime, *(one.vstart for one in self.accounts.values()), 0)
        account.vtime = account.vstart + claiming.SHARE // account.weight

    def over(self, job_id: str, state: str, now: int) -> None:
        job = self.jobs[job_id]
        job.state, job.ended = state, now
        job.token += 1
        self.lanes[job.space].remove(job_id)

    def requeued(self, job_id: str, counts: str | None) -> None:
        job = self.jobs[job_id]
        job.state = "pending"
        job.token += 1
        job.attempts -= counts != "attempts"
        job.lost += counts == "lost"
        job.conflicts += counts == "conflicts"

    def after_failure(self, job: Known, failure_class: int, retryable: bool, now: int) -> str | None:
        """What a failure that a worker told of counts as; `given_up` when it was the last."""
        if failure_class in WAITED_OUT:
            return "given_up" if now - job.created > LIMITS.job_max_age_seconds * SECOND else None
        if failure_class in FINAL or not retryable:
            return "given_up"
        if failure_class == pb.FAILURE_CLASS_CONFLICT:
            return "given_up" if job.conflicts + 1 >= LIMITS.max_conflicts else "conflicts"
        return "given_up" if job.attempts >= LIMITS.max_attempts else "attempts"

    def after_expiry(self, job_id: str, now: int) -> str | None:
        """Returns what follows for the job when its lease expires; call it in the order in which leases expired. A job
        that the worker lost before, beside others, is not to blame; None: the loss does not count as an attempt either.
        """
        job = self.jobs[job_id]
        counts = job_id not in self.lost or len(self.lost) < 2
        lost = [*(one for one in self.lost if one != job_id), job_id][-MAX_LOST:]
        is_old = now - job.created > LIMITS.job_max_age_seconds * SECOND
        if now >= job.ends:
            self.lost = lost
            if not counts:
                return "given_up" if is_old else None
            return "given_up" if job.attempts >= LIMITS.max_attempts else "attempts"
        job.blamed += counts
        if job.blamed >= LIMITS.max_lost_leases or (is_old and job.lost + 1 >= LIMITS.max_lost_leases):
            # The same worker lost it every time, and there is no other.
            if job.blamed:
                self.lost = [one for one in self.lost if one != job_id]
            return "given_up"
        self.lost = lost
        return "lost"


class JobsMachine(StoreMachine):
    """Rules are what callers, workers, reapers and sweeps may do at any time, with tokens of any age."""

    def __init__(self, new_store: NewStore, clock: Clock, runner: asyncio.Runner) -> None:
        super().__init__(new_store, clock, runner)
        self.policy = FailurePolicy(LIMITS)
        self.model = Model()
        self.leases: list[LeaseId] = []

    def lease(self, which: tuple[str, int]) -> LeaseId:
        kind, pick = which
        held = [lease for lease in self.leases if self.held(lease)]
        among = held if kind == "held" and held else self.leases
        lease = among[-1 - pick % len(among)]
        match kind:
            case "made up":
                return replace(lease, token=lease.token + 1)
            case "stolen":
                return replace(lease, holder="key:b")
            case "guessed":
                return replace(lease, digest=digest_of(b"guess"))
        return lease

    def is_own(self, lease: LeaseId) -> bool:
        return any(one == lease and (one.holder, one.digest) == (lease.holder, lease.digest) for one in self.leases)

    def space_of(self, job_id: str) -> Space:
        known = self.model.jobs.get(job_id)
        return known.space if known else ANN

    def held(self, lease: LeaseId) -> Known | None:
        job = self.model.jobs.get(lease.job_id)
        is_held = job is not None and job.state == "leased" and job.token == lease.token and self.is_own(lease)
        return job if is_held else None

    def any_job(self, pick: int) -> tuple[str, Space]:
        """A job that was ever queued, forgotten or not, with a space that asks for it."""
        ids = sorted({*self.model.jobs, *self.model.forgotten}, key=lambda job_id: int(job_id[1:]))
        job_id = ids[-1 - pick % len(ids)]
        return job_id, self.space_of(job_id)

    def attempt_over(self, ended: AttemptEnd, counts: str | None, wait: float) -> None:
        """`wait`: most seconds that the next attempt may be put off."""
        job_id = ended.job.job_id
        assert ended.given_up == (counts == "given_up")
        if ended.given_up:
            self.model.over(job_id, "failed", self.clock.now)
            return

        async def not_before(tx: Tx) -> int:
            row = await tx.fetchrow("SELECT not_before FROM jobs WHERE job_id = $1", job_id)
            assert row is not None
            return int(row["not_before"])

        self.model.requeued(job_id, counts)
        job = self.model.jobs[job_id]
        job.not_before = self.read_global(not_before)
        assert self.clock.now <= job.not_before <= self.clock.now + wait * SECOND

    @initialize(places=st.lists(PLACE, min_size=3, max_size=8))
    def begin(self, places: list[int]) -> None:
        for place in places:
            self.enqueue(place, "s", 0)
        self.claim()

    @rule(place=PLACE, session=SESSION, priority=PRIORITY)
    def add(self, place: int, session: str, priority: int) -> None:
        self.enqueue(place, session, priority)

    def enqueue(self, place: int, session: str, priority: int) -> None:
        space, job_id = SPACES[place], f"t{len(self.model.jobs) + len(self.model.forgotten)}"
        self.run(talk(self.database, space, session, "hello"))
        self.run(commit(self.database, space, session, job_id))

        async def prioritize(tx: Tx, space: Space) -> None:
            await tx.execute(
                "UPDATE jobs SET priority = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3",
                *(space.account, space.user, job_id, priority),
            )

        self.write(prioritize, space)
        of = self.model.sessions.setdefault((space, session), object())
        self.model.accounts[space.account]
        self.model.jobs[job_id] = Known(space, of, priority, self.clock.now)
        self.model.lanes[space].append(job_id)

    @precondition(lambda self: self.model.accounts)
    @rule(pick=ANY, weight=st.sampled_from([1, 2, 4]))
    def weigh(self, pick: int, weight: int) -> None:
        accounts = sorted(self.model.accounts)
        account = accounts[pick % len(accounts)]

        async def work(tx: Tx) -> None:
            await tx.execute("UPDATE accounts SET weight = $2 WHERE account = $1", account, weight)

        self.write_global(work)
        self.model.accounts[account].weight = weight

    @precondition(lambda self: any(self.model.lanes.values()))
    @rule(times=st.integers(1, 4))
    def claims(self, times: int) -> None:
        for _ in range(times):
            self.claim()

    def claim(self) -> None:
        due = self.model.due(self.clock.now)
        holder = Holder(HOLDER, digest_of(new_secret()))
        claimed = self.write_global(partial(claiming.claim, holder=holder), "w1", TERMS)
        if claimed is None:
            assert due is None
            return
        job: Job = claimed[0]
        assert job.job_id == due
        known = self.model.jobs[due]
        known.state = "leased"
        known.token += 1
        known.started += 1
        known.attempts += 1
        assert (job.token, job.attempts, claimed[1]) == (known.token, known.attempts, known.started)
        assert job.revision == len(self.model.succeeded[known.space])
        known.expires, known.ends = self.clock.now + TERMS.first, self.clock.now + TERMS.attempt
        self.model.serve(due)
        self.leases.append(job.lease)

    @rule(seconds=st.sampled_from([1, 9, 40, 300, 300, 700, DAY + 1]))
    def time_goes_by(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.leases)
    @rule(which=LEASE)
    def heartbeat(self, which: tuple[str, int]) -> None:
        lease = self.lease(which)
        job = self.held(lease)
        try:
            self.write(jobs.renew, self.space_of(lease.job_id), lease, TERMS)
        except LeaseLost:
            assert job is None
        else:
            assert job is not None
            job.expires = min(self.clock.now + TERMS.renewed, job.ends)

    @precondition(lambda self: any(job.state == "leased" for job in self.model.jobs.values()))
    @rule()
    def reap(self) -> None:
        now = self.clock.now
        late = {job_id: job.expires for job_id, job in self.model.jobs.items() if job.state == "leased"}
        ended: list[AttemptEnd] = self.write_global(self.policy.reap)
        assert {one.job.job_id for one in ended} == {job_id for job_id, expires in late.items() if expires < now}
        assert [late[one.job.job_id] for one in ended] == sorted(late[one.job.job_id] for one in ended)
        for one in ended:
            counts = self.model.after_expiry(one.job.job_id, now)
            self.attempt_over(one, counts, 0 if counts == "lost" else LIMITS.backoff_max_seconds)

    @precondition(lambda self: self.leases)
    @rule(which=LEASE, failure_class=st.sampled_from(CLASSES), retryable=st.booleans())
    def fail(self, which: tuple[str, int], failure_class: int, retryable: bool) -> None:
        lease = self.lease(which)
        job, failure = self.held(lease), AttemptFailure(failure_class, "failed", is_retryable=retryable)
        try:
            ended = self.write(self.policy.fail, self.space_of(lease.job_id), lease, failure)
        except LeaseLost:
            assert job is None
        else:
            assert job is not None
            counts = self.model.after_failure(job, failure_class, retryable, self.clock.now)
            self.attempt_over(ended, counts, LIMITS.backoff_max_seconds)

    @precondition(lambda self: self.leases)
    @rule(which=LEASE, claims=st.booleans())
    def release(self, which: tuple[str, int], claims: bool) -> None:
        lease = self.lease(which)
        job = self.held(lease)

        async def work(tx: Tx) -> AttemptEnd:
            held = await jobs.held(tx, lease)
            await jobs.requeue(tx, held, None, delay=0, counts=None)
            return AttemptEnd(held, given_up=False)

        try:
            ended = self.write_global(work)
        except LeaseLost:
            assert job is None
        else:
            assert job is not None
            self.attempt_over(ended, None, 0)
            if claims:
                # So that an old token often meets a job that is leased again.
                self.claim()

    @precondition(lambda self: self.leases)
    @rule(which=LEASE, output=st.sampled_from(["a", "b"]))
    def complete(self, which: tuple[str, int], output: str) -> None:
        lease = self.lease(which)
        job = self.held(lease)
        known = self.model.jobs.get(lease.job_id)
        applied_before = known.applied if known else None
        try:
            applied = self.write(apply.apply, self.space_of(lease.job_id), prepared(lease, output_id=output))
        except LeaseLost:
            assert job is None
            assert applied_before != (lease, output) or not self.is_own(lease)
        else:
            assert applied.again == (job is None)
            if job is None:
                assert applied_before == (lease, output) and self.is_own(lease)
            else:
                self.model.over(lease.job_id, "succeeded", self.clock.now)
                self.model.succeeded[job.space].add(lease.job_id)
                job.applied = (lease, output)
                assert applied.revision == len(self.model.succeeded[job.space])

    @precondition(lambda self: self.model.jobs or self.model.forgotten)
    @rule(pick=ANY)
    def cancel(self, pick: int) -> None:
        job_id, space = self.any_job(pick)
        known = self.model.jobs.get(job_id)
        try:
            self.write(jobs.cancel, space, job_id, "")
        except NotFound:
            assert known is None
        except WrongTaskState:
            assert known is not None and known.state not in OPEN
        else:
            assert known is not None and known.state in OPEN
            self.model.over(job_id, "cancelled", self.clock.now)

    @precondition(lambda self: self.model.jobs or self.model.forgotten)
    @rule(pick=ANY)
    def retry(self, pick: int) -> None:
        job_id, space = self.any_job(pick)
        job = self.model.jobs.get(job_id)
        try:
            self.write(jobs.retry, space, job_id)
        except NotFound:
            assert job is None or job.of not in self.model.sessions.values()
        except WrongTaskState:
            assert job is not None and job.state not in ("failed", "cancelled")
        else:
            assert job is not None and job.state in ("failed", "cancelled")
            assert job.of in self.model.sessions.values(), "a session that was deleted came back"
            job.state, job.not_before, job.created, job.ended = "pending", 0, self.clock.now, 0
            job.started = job.attempts = job.lost = job.blamed = job.conflicts = 0
            self.model.lanes[space].append(job_id)

    @precondition(lambda self: self.model.sessions)
    @rule(pick=ANY)
    def delete_session(self, pick: int) -> None:
        names = list(self.model.sessions)
        space, session = names[-1 - pick % len(names)]
        of = self.model.sessions.pop((space, session))
        open_jobs = {job_id for job_id in self.model.lanes[space] if self.model.jobs[job_id].of is of}
        cancelled: list[Job] = self.write(delete_session, space, session, "deleted")
        assert {job.job_id for job in cancelled} == open_jobs
        for job_id in open_jobs:
            self.model.over(job_id, "cancelled", self.clock.now)

    @precondition(lambda self: any(job.state not in OPEN for job in self.model.jobs.values()))
    @rule()
    def forget(self) -> None:
        old = {
            job_id
            for job_id, job in self.model.jobs.items()
            if job.state not in OPEN and job.ended < self.clock.now - KEPT
        }
        counts = list(iter(lambda: self.write_global(retention.forget_ended, KEPT), 0))
        assert sum(counts) == len(old) and all(count <= retention.BATCH for count in counts)
        for job_id in old:
            del self.model.jobs[job_id]
        self.model.forgotten |= old

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        rows = self.read_global(rows_of, "jobs", "account, user_id, lane_sequence")
        self.check_jobs(rows)
        ready = Counter(row["account"] for row in rows if row["is_ready"])
        assert {row["account"]: (row["ready_jobs"], row["vtime"]) for row in self.read_global(rows_of, "accounts")} == {
            name: (ready[name], account.vtime) for name, account in self.model.accounts.items()
        }
        spaces = self.read_global(rows_of, "spaces")
        revisions = {Space(row["account"], row["user_id"]): row["revision"] for row in spaces}
        commits: defaultdict[Space, list[Any]] = defaultdict(list)
        for row in self.read_global(rows_of, "commits", "account, user_id, revision"):
            commits[Space(row["account"], row["user_id"])].append(row)
        for space in SPACES:
            assert {row["job_id"] for row in commits[space]} == self.model.succeeded[space]
            assert [row["revision"] for row in commits[space]] == list(range(1, revisions.get(space, 0) + 1))
        self.check_tasks()
        ends = {"succeeded": "done", "failed": "failed", "cancelled": "failed"}
        archived = {row["task_id"]: row["state"] for row in self.read_global(rows_of, "archives")}
        assert {job_id: state for job_id, state in archived.items() if job_id in self.model.jobs} == {
            job_id: ends.get(job.state, "pending")
            for job_id, job in self.model.jobs.items()
            if job.of in self.model.sessions.values()
        }

    def check_jobs(self, rows: list[Any]) -> None:
        lanes: defaultdict[Space, list[Any]] = defaultdict(list)
        for row in rows:
            if row["state"] in OPEN:
                lanes[Space(row["account"], row["user_id"])].append(row)
            else:
                assert not row["is_head"] and not row["is_ready"]
        for space in SPACES:
            lane = lanes[space]
            assert [row["job_id"] for row in lane] == self.model.lanes[space]
            assert [row["is_head"] for row in lane] == [1] * bool(lane) + [0] * (len(lane) - 1)
            assert not [row["job_id"] for row in lane[1:] if row["state"] == "leased"]
            for row in lane:
                may_be_ready = row["is_head"] and row["state"] == "pending" and row["not_before"] <= self.clock.now
                assert may_be_ready or not row["is_ready"]
        columns = ("state", "lease_epoch", "attempts", "lost_leases", "conflicts", "not_before", "created_at")
        assert {row["job_id"]: tuple(row[column] for column in columns) for row in rows if row["state"] in OPEN} == {
            job_id: (job.state, job.token, job.attempts, job.lost, job.conflicts, job.not_before, job.created)
            for job_id, job in self.model.jobs.items()
            if job.state in OPEN
        }
        assert {row["job_id"]: (row["state"], row["lease_epoch"]) for row in rows} == {
            job_id: (job.state, job.token) for job_id, job in self.model.jobs.items()
        }
        assert {row["job_id"]: row["lease_expires"] for row in rows if row["state"] == "leased"} == {
            job_id: job.expires for job_id, job in self.model.jobs.items() if job.state == "leased"
        }

    def check_tasks(self) -> None:
        watched = {"leased": "running", "succeeded": "completed"}
        rows = self.read_global(rows_of, "tasks")
        assert {row["task_id"]: (row["state"], row["attempt"], row["ended_at"]) for row in rows} == {
            job_id: (watched.get(job.state, job.state), job.started, job.ended)
            for job_id, job in self.model.jobs.items()
        }
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for row in self.read_global(rows_of, "task_events", "account, user_id, task_id, sequence"):
            numbers[row["task_id"]].append(row["sequence"])
        assert numbers == {row["task_id"]: list(range(1, row["last_event"] + 1)) for row in rows}


async def rows_of(tx: Tx, table: str, order: str = "account") -> list[Any]:
    return await tx.fetch(f"SELECT * FROM {table} ORDER BY {order}")


def test_jobs_keep_their_rules_in_any_order_of_events(new_store: NewStore, clock: Clock, share: int) -> None:
    with asyncio.Runner() as runner:
        hold_machine(partial(JobsMachine, new_store, clock), new_store, examples=60 // share, runner=runner)
