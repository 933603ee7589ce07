"""Memory buckets as their owner lists, edits and is shown them, over the wire."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from runekeep.v1 import extractor_service_pb2 as worker_pb
from runekeep.v1 import session_service_pb2, task_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from tests.support.callers import Caller, failure, unique
from tests.support.server_process import ServerProcess
from tests.support.turn_calls import reconcile
from tests.support.turns import bucketed, fingerprinted, load, select
from tests.support.worker import Worker

ENABLED, DISABLED = pb.BUCKET_STATE_ENABLED, pb.BUCKET_STATE_DISABLED


async def listed(caller: Caller, session: str, **fields: Any) -> Any:
    return await caller.turns.ListMemoryBuckets(pb.ListMemoryBucketsRequest(session=session, **fields))


async def update(caller: Caller, session: str, bucket_id: str, *paths: str, **fields: Any) -> Any:
    bucket = pb.MemoryBucket(session=session, bucket_id=bucket_id, **fields)
    request = pb.UpdateMemoryBucketRequest(bucket=bucket, update_mask=FieldMask(paths=paths))
    return (await caller.turns.UpdateMemoryBucket(request)).bucket


async def test_buckets_are_listed_with_their_whole_timelines(caller: Caller) -> None:
    session = await caller.session()
    before = await listed(caller, session)
    assert not before.buckets and not before.HasField("last_covered_time")
    await bucketed(caller, session, "Trip to Greece", "Office")
    answer = await listed(caller, session)
    assert {one.name for one in answer.buckets} == {"Trip to Greece", "Office"}
    assert answer.last_covered_time.seconds
    trip = next(one for one in answer.buckets if one.name == "Trip to Greece")
    assert trip.bucket_id.startswith("obj-trip-to-greece-") and trip.session == caller.uri(f"sessions/{session}")
    assert trip.state == ENABLED and trip.hosted_uri and trip.update_time.seconds
    ((budget,),) = [list(part.assertions) for part in trip.timeline]
    assert budget.signal.key == "budget" and 0.05 <= budget.weight <= 1 and len(budget.support_turn_ids) == 1
    assert (await failure(listed(caller, "nowhere"))).resource == ("session", "nowhere")


async def test_a_bucket_is_read_whole_at_its_hosted_uri(caller: Caller) -> None:
    session = await caller.session()
    await bucketed(caller, session, "Trip to Greece", "Office")
    listed_ids = sorted(one.bucket_id for one in (await listed(caller, session)).buckets)
    folder = caller.uri(f"sessions/{session}/buckets")
    for bucket in (await listed(caller, session)).buckets:
        assert bucket.hosted_uri == f"{folder}/{bucket.bucket_id}/bucket.json"
        for uri in (bucket.hosted_uri, bucket.hosted_uri.replace(caller.uri("sessions/"), "viking://session/")):
            read = json.loads((await caller.read(uri)).text)
            assert (read["bucket_id"], read["name"], read["enabled"]) == (bucket.bucket_id, bucket.name, True)
            ((budget,),) = [part["assertions"] for part in read["timeline"]]
            (said,) = bucket.timeline[0].assertions
            assert (budget["key"], budget["value"], budget["weight"]) == ("budget", 500, said.weight)
            assert budget["support_turn_ids"] == list(said.support_turn_ids)
    request = pb.ListTurnArtifactsRequest(session=session, tags=["conversation.memory.bucket.v1"])
    artifacts = (await caller.turns.ListTurnArtifacts(request)).artifacts
    assert {one.hosted_uri for one in artifacts} == {f"{folder}/{one}/bucket.json" for one in listed_ids}

    assert [one.name for one in (await caller.listing(folder)).entries] == listed_ids
    for node_limit in (1, 200):
        names, token = [], ""
        while True:
            page = await caller.listing(
                caller.uri(f"sessions/{session}"), depth=3, node_limit=node_limit, page_token=token
            )
            names += [one.uri.removeprefix(f"{folder}/") for one in page.entries if one.uri.startswith(f"{folder}/")]
            if not (token := page.next_page_token):
                break
        assert names == [name for one in listed_ids for name in (one, f"{one}/bucket.json")]
    missing = await failure(caller.read(f"{folder}/obj-other-00000000/bucket.json"))
    assert missing.seen[0] == "NOT_FOUND"


async def test_a_bucket_is_renamed_and_disabled(caller: Caller) -> None:
    session = await caller.session()
    (bucket, other) = await bucketed(caller, session, "Greece", "Office")
    name = bucket.bucket_id
    changed = await update(caller, session, name, "name", "short_desc", name="Crete", short_desc="", state=DISABLED)
    assert (changed.name, changed.short_desc, changed.state, changed.bucket_id) == ("Crete", "", ENABLED, name)
    assert list(changed.timeline) == list(bucket.timeline)
    assert changed.update_time.ToNanoseconds() > bucket.update_time.ToNanoseconds()
    # The latest change first.
    assert (await listed(caller, session)).buckets[0] == changed
    disabled = await update(caller, session, name, "state", state=DISABLED, name="Rome")
    assert (disabled.name, disabled.state) == ("Crete", DISABLED)
    assert [one.name for one in (await listed(caller, session)).buckets] == [other.name]
    assert name in [one.bucket_id for one in (await listed(caller, session, show_disabled=True)).buckets]
    assert (await update(caller, session, name, "state", state=ENABLED)).state == ENABLED


@pytest.mark.parametrize(
    ("paths", "fields", "path"),
    [
        ((), {}, "update_mask"),
        (("name", "timeline"), {"name": "a"}, "update_mask.paths[1]"),
        (("state",), {}, "bucket.state"),
        (("name",), {"name": " "}, "bucket.name"),
    ],
)
async def test_a_change_that_cannot_be_made(
    caller: Caller, paths: tuple[str, ...], fields: dict[str, Any], path: str
) -> None:
    session = await caller.session()
    failed = await failure(update(caller, session, "obj-1", *paths, **fields))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == [path]


async def test_a_bucket_that_is_not_there(caller: Caller) -> None:
    session = await caller.session()
    failed = await failure(update(caller, session, "obj-1", "name", name="a"))
    assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND") and failed.resource == ("bucket", "obj-1")
    assert (await failure(update(caller, "nowhere", "obj-1", "name", name="a"))).resource == ("session", "nowhere")
    assert (await failure(update(caller, session, "", "name", name="a"))).fields == ["bucket.bucket_id"]


async def test_two_changes_at_once_are_both_kept(caller: Caller) -> None:
    session = await caller.session()
    (bucket,) = await bucketed(caller, session, "Greece")
    name = bucket.bucket_id
    await asyncio.gather(
        update(caller, session, name, "name", name="Crete"),
        update(caller, session, name, "short_desc", short_desc="Islands"),
        update(caller, session, name, "state", state=DISABLED),
    )
    (stored,) = (await listed(caller, session, show_disabled=True)).buckets
    assert (stored.name, stored.short_desc, stored.state) == ("Crete", "Islands", DISABLED)


async def test_a_secret_is_withheld_from_a_name(caller: Caller) -> None:
    session = await caller.session()
    (bucket,) = await bucketed(caller, session, "Greece")
    token = "ghp_" + "a1B2" * 10
    changed = await update(caller, session, bucket.bucket_id, "name", "short_desc", name=token, short_desc=token)
    assert (changed.name, changed.short_desc) == ("[withheld: token]", "[withheld: token]")


async def test_reconciling_is_queued_once_and_only_for_what_is_new(caller: Caller) -> None:
    session = await caller.session()
    assert await reconcile(caller, session) == ""
    await fingerprinted(caller, session, "t1", "a")
    task = await reconcile(caller, session)
    assert task and task == await reconcile(caller, session)
    found = await caller.task(task)
    assert found.kind == task_service_pb2.TASK_KIND_BUCKET_RECONCILE and not found.turn_id
    assert (await failure(reconcile(caller, "nowhere"))).resource == ("session", "nowhere")


async def test_who_is_shown_buckets(caller: Caller) -> None:
    session = await caller.session()
    buckets = {one.name: one.bucket_id for one in await bucketed(caller, session, "Greece", "Office")}
    more = {one.name: one.bucket_id for one in await bucketed(caller, session, "Tea")}
    await update(caller, session, buckets["Office"], "state", state=DISABLED)

    async def shown(audience: str) -> set[str]:
        return {one.name for one in (await load(caller, session, "now", audience)).buckets}

    for audience, names in {
        "gate": {"Greece", "Tea"},
        "reconciler": {"Greece", "Tea"},
        "downstream": {"Greece", "Tea"},
        "final_answer": set(),
    }.items():
        assert await shown(audience) == names, audience
    offer = (await load(caller, session, "now", "reconciler")).offer
    wanted = [more["Tea"][:7], buckets["Office"]]
    chosen = await select(caller, session, offer, memory_bucket_ids=wanted)
    assert list(chosen.selection.memory_bucket_ids) == [more["Tea"]] and list(chosen.dropped) == [buckets["Office"]]
    assert await shown("gate") == {"Greece", "Tea"} and await shown("downstream") == {"Tea"}
    # Without an offer, too.
    assert (await select(caller, session, memory_bucket_ids=wanted)).selection.memory_bucket_ids == [more["Tea"]]
    await update(caller, session, more["Tea"], "state", state=DISABLED)
    assert await shown("downstream") == set()
    card = (await load(caller, session, "now")).buckets[0]
    (whole,) = (one for one in (await listed(caller, session)).buckets if one.name == "Greece")
    assert card.hosted_uri == whole.hosted_uri and card.timeline == whole.timeline[-1:]


async def test_buckets_go_with_their_session(caller: Caller) -> None:
    session = await caller.session(session_id="s")
    await bucketed(caller, session, "Greece")
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session))
    await caller.session(session_id="s")
    answer = await listed(caller, session, show_disabled=True)
    assert not answer.buckets and not answer.HasField("last_covered_time")


@pytest.mark.parametrize(
    "setting",
    [{"MEMORY_RECONCILE_ENABLED": "0"}, {"LONG_MEMORIES_LOG": "1"}, {"RUNEKEEP_LONG_MEMORIES_LOG": "true"}],
)
async def test_a_server_without_buckets(
    own_server: Callable[[dict[str, str]], ServerProcess], setting: dict[str, str]
) -> None:
    server = own_server({})
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, unique("user"))
        session = await caller.session()
        await bucketed(caller, session, "Greece")
        await fingerprinted(caller, session, "t2", "more")
        assert len((await load(caller, session, "now")).buckets) == 1
        waiting = await reconcile(caller, session)
        committed = await caller.commit(session)
    server.stop()
    without = own_server(setting)
    async with grpc.aio.insecure_channel(without.address) as channel:
        caller = Caller(channel, caller.user)
        failed = await failure(reconcile(caller, session))
        assert failed.seen == ("FAILED_PRECONDITION", "BUCKETS_DISABLED")
        answer = await load(caller, session, "now")
        assert not answer.buckets and len(answer.turn_memories) == 2
        # What there is stays, and is its owner's.
        assert len((await listed(caller, session)).buckets) == 1
        async with Worker(channel) as worker:
            job = await worker.take()
            assert job.task_id == committed.task_id, "what was queued before is given to nobody, and holds up nothing"
            assert (await worker.deliver(job.lease)).outcome == worker_pb.JOB_OUTCOME_APPLIED
        task = await caller.task(waiting)
        assert (task.state, task.attempt) == (task_service_pb2.TASK_STATE_CANCELLED, 0)
        assert "buckets are switched off" in task.error.message
        again = await failure(caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=waiting)))
        assert again.seen == ("FAILED_PRECONDITION", "BUCKETS_DISABLED")
    without.stop()
