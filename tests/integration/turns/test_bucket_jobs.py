"""Bucket jobs: what a worker is given, how its answer is folded in once, and what is covered by it."""

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from tests.support.callers import Caller
from tests.support.turn_calls import buckets_of, reconcile, signal, submit, talk
from tests.support.worker import JobInput, Worker, bucket_changes, turn_memory

SERVER_SETTINGS = {"RUNEKEEP_MAX_ATTEMPTS": "2"}

USAGE = common_pb2.TokenUsage(model="m", phase="buckets", calls=1, input_tokens=70, output_tokens=9)


async def fingerprinted(caller: Caller, session: str, *turn_ids: str) -> None:
    for turn_id in turn_ids:
        await talk(caller, session, turn_id)
        await submit(caller, session, turn_id, fingerprint=turn_pb.TurnFingerprint(objective=f"Of {turn_id}"))


def bucket(*signals: turn_pb.BucketSignal, bucket_id: str = "", name: str = "", hint: str = "") -> turn_pb.MemoryBucket:
    timeline = [turn_pb.TimelineSlice(objective_hint=hint, facts=signals)] if signals else []
    return turn_pb.MemoryBucket(bucket_id=bucket_id, name=name, timeline=timeline)


def fact(key: str, value: object, *turn_ids: str) -> turn_pb.BucketSignal:
    return turn_pb.BucketSignal(signal=signal(key, value), support_turn_ids=turn_ids)


def turn_ids(given: JobInput) -> list[str]:
    return [one.turn.turn_id for one in given.turns]


async def test_what_is_new_is_folded_into_buckets(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1", "t2")
    first = await reconcile(caller, session)
    async with Worker(channel) as worker:
        job = await worker.take()
        assert (job.kind, job.task_id) == (task_service_pb2.TASK_KIND_BUCKET_RECONCILE, first)
        assert (job.archive_uri, job.turn_id, job.HasField("plan")) == ("", "", False)
        given = await worker.input(job.lease)
        assert (given.kinds, turn_ids(given)) == (["turns"], ["t1", "t2"])
        assert [one.turn.fingerprint.objective for one in given.turns] == ["Of t1", "Of t2"]

        await worker.progress(job.lease, task_service_pb2.TASK_PHASE_BUCKETS, 50)
        changes = bucket_changes(added=[bucket(fact("city", "Oslo", "t1"), name="Trips", hint="travel")])
        verdict = await worker.deliver_items(job.lease, changes, usage=[USAGE])
        assert (verdict.outcome, verdict.revision) == (pb.JOB_OUTCOME_APPLIED, 0)
        task = await caller.task(first)
        assert (task.kind, task.state) == (job.kind, task_service_pb2.TASK_STATE_COMPLETED)
        assert (task.archive_uri, task.turn_id, task.HasField("result")) == ("", "", False)
        result = task.turn_result
        assert (result.buckets_added, result.buckets_changed, result.turns_left) == (1, 0, 0)
        assert (result.extractor.engine, list(result.usage)) == ("scripted", [USAGE])
        (made,) = await buckets_of(caller, session)
        assert (made.name, made.hosted_uri != "") == ("Trips", True)
        ((city,),) = [part.facts for part in made.timeline]
        assert (city.signal.key, city.weight, list(city.support_turn_ids)) == ("city", 0.5, ["t1"])

        assert await reconcile(caller, session) == "", "nothing is new"
        await fingerprinted(caller, session, "t3")
        second = await reconcile(caller, session)
        lease = (await worker.take()).lease
        given = await worker.input(lease)
        assert (given.kinds, turn_ids(given)) == (["buckets", "turns"], ["t3"])
        assert list(given.buckets) == [made]
        again = bucket(fact("city", "Oslo", "t3"), bucket_id=made.bucket_id)
        added = bucket(fact("drink", "tea", "t3"), name="Taste")
        await worker.deliver_items(lease, bucket_changes(changed=[again], added=[added]))
        result = (await caller.task(second)).turn_result
        assert (result.buckets_added, result.buckets_changed, result.turns_left) == (1, 1, 0)
    by_name = {one.name: one for one in await buckets_of(caller, session)}
    assert sorted(by_name) == ["Taste", "Trips"]
    (city,) = by_name["Trips"].timeline[0].facts
    assert (city.weight, list(city.support_turn_ids)) == (0.6, ["t1", "t3"])


async def test_a_worker_reads_the_last_slices_and_the_fold_keeps_all(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    async with Worker(channel) as worker:
        for number in range(4):
            await fingerprinted(caller, session, f"t{number}")
            await reconcile(caller, session)
            lease = (await worker.take()).lease
            given = await worker.input(lease)
            shown = [part.objective_hint for one in given.buckets for part in one.timeline]
            assert shown == [f"goal {earlier}" for earlier in range(number)][-2:]
            told = bucket(fact("step", number, f"t{number}"), name="Trips", hint=f"goal {number}")
            changes = bucket_changes(added=[told])
            if given.buckets:
                told.bucket_id = given.buckets[0].bucket_id
                changes = bucket_changes(changed=[told])
            await worker.deliver_items(lease, changes)
    (made,) = await buckets_of(caller, session)
    assert [part.objective_hint for part in made.timeline] == [f"goal {number}" for number in range(4)]


async def test_the_same_output_again_weighs_nothing(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1")
    await reconcile(caller, session)
    # Of no turn: only that the output comes once keeps it from gaining weight.
    changes = bucket_changes(added=[bucket(fact("city", "Oslo"), name="Trips")])
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        outcomes = [(await worker.deliver_items(lease, changes, output_id="o")).outcome for _ in range(2)]
    assert outcomes == [pb.JOB_OUTCOME_APPLIED, pb.JOB_OUTCOME_ALREADY_APPLIED]
    (made,) = await buckets_of(caller, session)
    assert made.timeline[0].facts[0].weight == 0.5


async def test_what_is_said_while_the_job_runs_is_for_the_next(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1", "t2")
    first = await reconcile(caller, session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        await submit(caller, session, "t1", fingerprint=turn_pb.TurnFingerprint(facts=[signal("late", True)]))
        await fingerprinted(caller, session, "t3")
        assert turn_ids(await worker.input(lease)) == ["t2"], "what was given once, as far as it is the same"
        second = await reconcile(caller, session)
        assert second not in ("", first), "what runs has its input"
        assert (await worker.deliver_items(lease)).outcome == pb.JOB_OUTCOME_APPLIED
        assert (await caller.task(first)).turn_result.turns_left == 2
        job = await worker.take()
        assert job.task_id == second
        assert turn_ids(await worker.input(job.lease)) == ["t1", "t3"]
        await worker.deliver_items(job.lease)
    assert await reconcile(caller, session) == ""


async def test_a_worker_says_how_far_it_looked(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1", "t2", "t3")
    first = await reconcile(caller, session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.deliver_items(lease, bucket_changes(last_covered_turn_id="t2"))
        assert (await caller.task(first)).turn_result.turns_left == 1
        await reconcile(caller, session)
        lease = (await worker.take()).lease
        assert turn_ids(await worker.input(lease)) == ["t3"]
        await worker.deliver_items(lease, bucket_changes())


async def test_another_attempt_is_given_what_is_there_by_then(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1")
    await reconcile(caller, session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        await worker.release(lease)
        await fingerprinted(caller, session, "t2")
        lease = (await worker.take()).lease
        assert turn_ids(await worker.input(lease)) == ["t1", "t2"]
        await worker.deliver_items(lease)
    assert await reconcile(caller, session) == ""


async def test_an_edit_of_the_owner_meanwhile_is_kept(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1")
    await reconcile(caller, session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        trips = turn_pb.MemoryBucket(name="Trips", short_desc="Where to go.")
        await worker.deliver_items(lease, bucket_changes(added=[trips, bucket(name="Taste")]))
        await fingerprinted(caller, session, "t2")
        task_id = await reconcile(caller, session)
        lease = (await worker.take()).lease
        given = {one.name: one for one in (await worker.input(lease)).buckets}
        mine = turn_pb.MemoryBucket(
            session=session,
            bucket_id=given["Trips"].bucket_id,
            name="My trips",
            short_desc="Mine.",
            state=turn_pb.BUCKET_STATE_DISABLED,
        )
        mask = FieldMask(paths=["name", "short_desc", "state"])
        await caller.turns.UpdateMemoryBucket(turn_pb.UpdateMemoryBucketRequest(bucket=mine, update_mask=mask))
        changed = bucket(fact("city", "Oslo", "t2"), bucket_id=given["Trips"].bucket_id, name="Trips")
        changed.short_desc = given["Trips"].short_desc
        changes = bucket_changes(changed=[changed], disabled=[given["Taste"].bucket_id, "obj-nobody"])
        assert (await worker.deliver_items(lease, changes)).outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(task_id)).turn_result
    assert (result.buckets_changed, result.buckets_disabled, result.dropped_items) == (1, 1, 1)
    there = {one.name: one for one in await buckets_of(caller, session)}
    assert sorted(there) == ["My trips", "Taste"]
    assert there["My trips"].short_desc == "Mine."
    assert {one.state for one in there.values()} == {turn_pb.BUCKET_STATE_DISABLED}
    assert there["My trips"].timeline[0].facts[0].signal.key == "city"


@pytest.mark.parametrize(
    ("items", "read", "fields", "why"),
    [
        pytest.param([bucket_changes(), bucket_changes()], True, {}, "more than once", id="twice"),
        pytest.param([turn_memory("t1")], True, {}, "holds turn memories", id="turn-memory"),
        pytest.param([], True, {"dropped_items": 2}, "2 parts were dropped", id="nothing-readable"),
        pytest.param(
            [bucket_changes(last_covered_turn_id="t9")], True, {}, "not in the job's input", id="another-turn"
        ),
        pytest.param([bucket_changes()], False, {}, "not in the job's input", id="without-its-input"),
    ],
)
async def test_an_output_that_is_of_no_use_is_rejected_and_covers_nothing(
    caller: Caller,
    channel: grpc.aio.Channel,
    items: list[pb.OutputItem],
    read: bool,
    fields: dict[str, int],
    why: str,
) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1")
    task_id = await reconcile(caller, session)
    async with Worker(channel) as worker:
        for outcome in (pb.JOB_OUTCOME_REQUEUED, pb.JOB_OUTCOME_FAILED):
            lease = (await worker.take()).lease
            if read:
                assert turn_ids(await worker.input(lease)) == ["t1"]
            verdict = await worker.deliver_items(lease, *items, usage=[USAGE], **fields)
            assert verdict.outcome == outcome
            assert why in verdict.status.message
        task = await caller.task(task_id)
        assert (task.state, task.HasField("result")) == (task_service_pb2.TASK_STATE_FAILED, False)
        assert task.turn_result.usage[0].input_tokens == 2 * USAGE.input_tokens

        await caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=task_id))
        lease = (await worker.take()).lease
        assert turn_ids(await worker.input(lease)) == ["t1"]
        assert (await worker.deliver_items(lease)).outcome == pb.JOB_OUTCOME_APPLIED


async def test_it_waits_for_the_commits_before_it(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1")
    committed = await caller.commit(session)
    task_id = await reconcile(caller, session)
    assert await reconcile(caller, session) == task_id, "the one that waits is given again"
    async with Worker(channel) as worker:
        await worker.ready(2)
        job = await worker.assignment()
        assert job.task_id == committed.task_id
        await worker.deliver(job.lease)
        job = await worker.assignment()
        assert job.task_id == task_id
        await worker.input(job.lease)
        await worker.deliver_items(job.lease)
