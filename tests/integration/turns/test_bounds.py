"""Bounds of turn memory's requests and answers, over the wire: what is too large is refused before it is looked at, and
what has grown large is answered in parts."""

import base64
import json
from collections.abc import AsyncIterator, Callable

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from runekeep import AsyncClient
from runekeep.v1 import extractor_service_pb2, session_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from tests.support.callers import Caller, failure, unique
from tests.support.server_process import ServerProcess
from tests.support.turn_calls import buckets_of, reconcile, submit, talk
from tests.support.turns import fingerprint, fingerprinted, load, paged, react, select, signal
from tests.support.worker import Worker, bucket_changes

OwnServer = Callable[[dict[str, str]], ServerProcess]


@pytest.fixture
async def small(own_server: OwnServer) -> AsyncIterator["Small"]:
    """A caller of a server whose pages are of 32 KiB."""
    server = own_server({"RUNEKEEP_MAX_MESSAGE_BYTES": str(64 * 1024)})
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield Small(channel, unique("user"), address=server.address)


class Small(Caller):
    """With the address of its server."""

    def __init__(self, channel: grpc.aio.Channel, user: str, *, address: str) -> None:
        super().__init__(channel, user)
        self.address = address


def numbers(count: int) -> pb.TurnSignal:
    """A signal whose value is a list of so many numbers."""
    made = pb.TurnSignal(key="k")
    made.value.list_value.values.add().number_value = 1
    made.value.list_value.values.extend([made.value.list_value.values[0]] * count)
    return made


# Requests


async def test_a_submission_that_is_too_large(caller: Caller) -> None:
    session = await caller.session()
    await talk(caller, session, "t1")
    failed = await failure(submit(caller, session, "t1", fingerprint=fingerprint("a", facts=[numbers(50_000)])))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["fingerprint.facts.value"]
    assert "65536 fields" in failed.message
    failed = await failure(submit(caller, session, "t1", fingerprint=fingerprint("a", facts=[numbers(25_000)])))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["fingerprint.facts"]
    assert "262144" in failed.message
    # Below that, a value by itself.
    failed = await failure(submit(caller, session, "t1", fingerprint=fingerprint("a", facts=[numbers(5_000)])))
    assert failed.fields == ["fingerprint.facts[0].value"] and "1 KiB" in failed.message
    # The largest of all that the contract allows is taken.
    texts = ["ü" * 300] * 16
    summary = pb.TurnSummary(user_inquiry="ü" * 500, done=texts, not_done=texts, assumptions=texts, risks=texts)
    facts = [signal(f"k{number}", "x" * 900) for number in range(16)]
    answer = await submit(caller, session, "t1", fingerprint=fingerprint("a", facts=facts), summary=summary)
    assert len(answer.turn.fingerprint.facts) == 16 and answer.turn.summary == summary


async def test_of_many_violations_in_a_large_request_the_first_is_told(caller: Caller) -> None:
    session = await caller.session()
    failed = await failure(submit(caller, session, "t1", fingerprint=fingerprint(topics=["", "", ""])))
    assert len(failed.fields) == 3
    failed = await failure(submit(caller, session, "t1", fingerprint=fingerprint(topics=[""] * 20_000)))
    assert failed.fields == ["fingerprint.topics"]


async def test_a_timeline_that_nobody_reads_is_not_taken(caller: Caller) -> None:
    session = await caller.session()
    bucket = pb.MemoryBucket(session=session, bucket_id="obj-1", name="a", timeline=[pb.TimelineSlice()] * 200_000)
    request = pb.UpdateMemoryBucketRequest(bucket=bucket, update_mask=FieldMask(paths=["name"]))
    failed = await failure(caller.turns.UpdateMemoryBucket(request))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["bucket.timeline"]


async def test_a_chunk_of_work_is_measured_before_it_is_checked(caller: Caller, channel: grpc.aio.Channel) -> None:
    task = await caller.committed()
    async with Worker(channel) as worker:
        job = await worker.take()
        assert job.task_id == task.task_id
        topics = ["x"] * 60_000 + ["x" * 100_000]
        memory = extractor_service_pb2.TurnMemory(turn_id="t1", fingerprint=pb.TurnFingerprint(topics=topics))
        items = [extractor_service_pb2.OutputItem(turn_memory=memory)]
        await worker.send(output=extractor_service_pb2.OutputChunk(lease=job.lease, output_id="o", items=items))
        ended = await worker.end()
    assert ended is not None and ended.seen == ("FAILED_PRECONDITION", "PROTOCOL_VIOLATION"), ended
    assert "max_chunk_bytes" in ended.message


@pytest.mark.parametrize("counted", [-1, 512, 513, 2**61])
async def test_a_forged_page_of_assistant_signals(caller: Caller, counted: int) -> None:
    session = await caller.session()
    for name in ("t1", "t2", "t3"):
        await fingerprinted(caller, session, name, "a", assistant_signals=[signal("hotel", name)])
    request = pb.ListAssistantSignalsRequest(page_size=1)
    token = (await caller.turns.ListAssistantSignals(request)).next_page_token
    parts = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert parts[-1] == 1
    forged = json.dumps([*parts[:-1], counted]).encode()
    request.page_token = base64.urlsafe_b64encode(forged).decode().rstrip("=")
    failed = await failure(caller.turns.ListAssistantSignals(request))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["page_token"]


# Answers


async def test_a_page_ends_where_an_answer_is_full(small: Caller) -> None:
    session = await small.session()
    names = [f"t{number:02}" for number in range(12)]
    promoted = [signal(f"hotel{number}", "x" * 900) for number in range(8)]
    for name in names:
        await fingerprinted(small, session, name, "a", assistant_signals=promoted)
    first = await small.turns.ListTurns(pb.ListTurnsRequest(session=session, page_size=12))
    assert 1 < len(first.turns) < 12 and first.next_page_token
    found = await paged(small.turns.ListTurns, pb.ListTurnsRequest(session=session, page_size=12), "turns")
    assert [one.turn_id for one in found] == names[::-1]
    found = await paged(
        small.turns.ListAssistantSignals, pb.ListAssistantSignalsRequest(session=session, page_size=12), "turns"
    )
    assert [one.turn_id for one in found] == names[::-1]
    request = pb.ListTurnArtifactsRequest(tags=["artifact:turn.fingerprint.v1"], session=session, page_size=12)
    found = await paged(small.turns.ListTurnArtifacts, request, "artifacts")
    assert [one.turn_id for one in found] == names[::-1]


async def test_of_large_buckets_the_newest_slices_are_answered(small: Small) -> None:
    session = await small.session()
    async with Worker(small.channel) as worker:
        for number in range(1, 7):
            turn_id = f"t{number}"
            await fingerprinted(small, session, turn_id, f"goal {number}")
            task_id = await reconcile(small, session)
            job = await worker.take()
            assert job.task_id == task_id
            there = {one.name: one.bucket_id for one in (await worker.input(job.lease)).buckets}
            facts = [
                pb.BucketSignal(signal=signal(f"{turn_id}.{fact}", "x" * 800), support_turn_ids=[turn_id])
                for fact in range(10)
            ]
            slice_ = pb.TimelineSlice(objective_hint=f"goal {number}", facts=facts)
            if there:
                changes = bucket_changes(
                    changed=[pb.MemoryBucket(bucket_id=there["Trip"], timeline=[slice_])], last_covered_turn_id=turn_id
                )
            else:
                changes = bucket_changes(added=[pb.MemoryBucket(name="Trip", timeline=[slice_])])
            verdict = await worker.deliver_items(job.lease, changes)
            assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_APPLIED, verdict
    (bucket,) = await buckets_of(small, session)
    hints = [one.objective_hint for one in bucket.timeline]
    assert hints == [f"goal {number}" for number in range(7 - len(hints), 7)] and 1 < len(hints) < 6
    # Older slices come on the pages behind it.
    pages = await paged(small.turns.ListMemoryBuckets, pb.ListMemoryBucketsRequest(session=session), "buckets")
    assert len(pages) == 2 and pages[0] == bucket
    assert [one.objective_hint for page in pages[::-1] for one in page.timeline] == [f"goal {n}" for n in range(1, 7)]
    async with AsyncClient(small.address, account=small.account, user=small.user) as client:
        (whole,) = (await client.session(session).buckets())["buckets"]
    assert [one["objective_hint"] for one in whole["timeline"]] == [f"goal {number}" for number in range(1, 7)]
    # A change is answered with the card, whatever has grown behind it, and so is its repeat.
    request = pb.UpdateMemoryBucketRequest(
        request_id="r1",
        bucket=pb.MemoryBucket(session=session, bucket_id=bucket.bucket_id, name="Greece"),
        update_mask=FieldMask(paths=["name"]),
    )
    changed = await small.turns.UpdateMemoryBucket(request)
    assert changed.bucket.name == "Greece" and await small.turns.UpdateMemoryBucket(request) == changed
    (card,) = (await load(small, session, "now")).buckets
    assert changed.bucket.timeline == card.timeline and len(card.timeline[0].facts) == 4


# Who is shown what, and which turns are searched


async def test_what_was_not_chosen_is_in_no_candidate_either(caller: Caller) -> None:
    session = await caller.session()
    for number in range(1, 5):
        await fingerprinted(caller, session, f"t{number}", f"goal {number}", facts=[signal("pin", number)])
    for audience in ("gate", "downstream"):
        answer = await load(caller, session, "t4", audience)
        assert all(one.turn.HasField("fingerprint") for one in answer.candidates), audience
    await select(caller, session, local_memories_turn_ids=["t1"], turn_ids=["t2"])
    for audience in ("downstream", "final_answer"):
        answer = await load(caller, session, "t4", audience)
        shown = {one.turn_id for one in answer.turn_memories}
        assert shown == {"t1", "t4"} and answer.current.turn.HasField("fingerprint")
        with_one = {one.turn.turn_id for one in answer.candidates if one.turn.HasField("fingerprint")}
        assert with_one == ({"t1"} if audience == "downstream" else set())
    answer = await load(caller, session, "t4", "reconciler")
    assert all(one.turn.HasField("fingerprint") for one in answer.candidates)


async def test_later_turns_hide_no_earlier_one(caller: Caller) -> None:
    session = await caller.session()
    await talk(caller, session, "right", "the walnut plan in detail")
    await talk(caller, session, "other", "weather")
    await talk(caller, session, "asking", "I liked it")
    for number in range(6):
        await talk(caller, session, f"later{number}", "walnut plan")
    # An earlier turn that went on later is an earlier one.
    await talk(caller, session, "other", "back to the pecan")
    queries = [pb.ContextQuery(query="walnut plan"), pb.ContextQuery(query="pecan")]
    answer = await load(caller, session, "asking", last_turns=1, ctx_retrieval_queries=queries)
    found = {one.turn.turn_id: list(one.matched_queries) for one in answer.candidates if one.matched_queries}
    assert found == {"right": ["walnut plan"], "other": ["pecan"]}
    said = await react(caller, session, machine=True, from_turn_id="asking", match_queries=queries[:1])
    assert said.turn_id == "right"


@pytest.mark.parametrize("queries", [[], ["walnuts"]])
async def test_a_reaction_to_what_is_deleted_is_repeated_alike(caller: Caller, queries: list[str]) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "walnuts")
    await talk(caller, session, "t2", "I liked it")
    said = pb.Feedback(origin=pb.FEEDBACK_ORIGIN_MACHINE, confidence=0.9, text="said so", from_turn_id="t2")
    request = pb.SubmitFeedbackRequest(
        session=session,
        feedback=said,
        request_id="r1",
        match_queries=[pb.ContextQuery(query=query) for query in queries],
    )
    first = await caller.turns.SubmitFeedback(request)
    assert await caller.turns.SubmitFeedback(request) == first
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session))
    failed = await failure(caller.turns.SubmitFeedback(request))
    assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND") and failed.resource == ("request", "r1")
