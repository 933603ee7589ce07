"""The faults of the system that turn memory was modelled on, as its design lists them: here each has its test, against
a real server. docs/design/reliability.md is about those of the rest.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as worker_pb
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_common import failpoints
from tests.support.callers import Caller, failure, said
from tests.support.server_process import ServerProcess
from tests.support.turn_calls import buckets_of, extract, reconcile, submit, talk, turn_of
from tests.support.turn_saves import KEYS, TRIP, TurnJob, failing_saves, keys
from tests.support.turns import fingerprint, fingerprinted, load, paged, react, select, signal
from tests.support.worker import Worker, bucket_changes, turn_memory

Servers = Callable[..., ServerProcess]
UNAVAILABLE = ("UNAVAILABLE", "DEPENDENCY_UNAVAILABLE")


def memories(answer: Any) -> list[str]:
    return [one.turn_id for one in answer.turn_memories]


async def failures(*calls: Any) -> list[tuple[str, str]]:
    """How the calls failed, which all of them must, as (code, reason)."""
    return [failed.seen for failed in await asyncio.gather(*map(failure, calls))]


async def stored(caller: Caller, session: str, tag: str) -> list[str]:
    """Texts of the artifacts with that tag."""
    request = pb.ListTurnArtifactsRequest(tags=[tag], session=session)
    return [one.text for one in await paged(caller.turns.ListTurnArtifacts, request, "artifacts")]


async def reactions(caller: Caller, session: str = "", **fields: Any) -> Any:
    return await caller.turns.ListFeedback(pb.ListFeedbackRequest(session=session, **fields))


# Assertions stored as facts


@pytest.mark.parametrize("way", ["submitted", "extracted", "committed"])
async def test_assertions_are_not_stored_as_facts(caller: Caller, channel: grpc.aio.Channel, way: str) -> None:
    """Whoever says it: each list comes back as itself, in the stored form and in the text for agents too."""
    session = await caller.session()
    await talk(caller, session, "t1", "a trip, please")
    if way == "submitted":
        await submit(caller, session, "t1", fingerprint=TRIP)
    else:
        await (extract(caller, session, "t1") if way == "extracted" else caller.commit(session))
        async with Worker(channel) as worker:
            verdict = await worker.deliver_items((await worker.take()).lease, turn_memory("t1", TRIP))
            assert verdict.outcome == worker_pb.JOB_OUTCOME_APPLIED
    assert keys((await turn_of(caller, session, "t1")).fingerprint) == KEYS
    (text,) = await stored(caller, session, "artifact:turn.fingerprint.v1")
    assert {name: [one["key"] for one in json.loads(text)[name]] for name in KEYS} == KEYS
    shown = await load(caller, session, "t1", render=True)
    assert keys(shown.turn_memories[0]) == KEYS
    row = (
        " A=['budget=500 (must)', 'class=second (allow)'];"
        " E=['airline=Foo (do_not)']; F=['city=Oslo (high)', 'month=May (medium)'];"
    )
    assert row in shown.text


async def test_assertions_do_not_become_facts_in_buckets(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "a trip, please")
    await submit(caller, session, "t1", fingerprint=TRIP)
    await reconcile(caller, session)
    told = pb.TimelineSlice(
        **{name: [pb.BucketSignal(signal=one) for one in getattr(TRIP, name)] for name in KEYS}  # type: ignore[arg-type]  # lists by their names
    )
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        (given,) = (await worker.input(lease)).turns
        assert keys(given.turn.fingerprint) == KEYS
        await worker.deliver_items(lease, bucket_changes(added=[pb.MemoryBucket(name="Trips", timeline=[told])]))
    (whole,) = await buckets_of(caller, session)
    (card,) = (await load(caller, session, "t1")).buckets
    for bucket in (whole, card):
        assert {name: sorted(of) for name, of in keys(bucket.timeline[0]).items()} == KEYS


# A failed save marked as done


@pytest.mark.parametrize("kind", ["turn", "bucket", "commit"])
async def test_a_task_whose_save_fails_is_not_done(
    server: ServerProcess, caller: Caller, channel: grpc.aio.Channel, kind: str
) -> None:
    job = await TurnJob.queued(caller, kind)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.input(lease)
        with failing_saves(server):
            verdict = await worker.deliver_items(lease, job.output, output_id="o-1")
            assert verdict.outcome == worker_pb.JOB_OUTCOME_TRY_AGAIN
            await worker.release(lease)
            lease = await job.is_not_done(worker)
        verdict = await worker.deliver_items(lease, job.output, output_id="o-2")
        assert verdict.outcome == worker_pb.JOB_OUTCOME_APPLIED
    await job.is_done()


@pytest.mark.parametrize(
    ("point", "kind"),
    [
        (failpoints.TURN_BEFORE_COMMIT, "turn"),
        (failpoints.BUCKET_BLOB_WRITTEN, "bucket"),
        (failpoints.BUCKET_BEFORE_COMMIT, "bucket"),
        (failpoints.APPLY_BEFORE_COMMIT, "commit"),
    ],
)
async def test_a_task_whose_server_dies_while_it_saves_is_not_done(
    own_server: Servers, tmp_path: Path, point: str, kind: str
) -> None:
    fired = tmp_path / "fired"
    server = own_server({"RUNEKEEP_FAILPOINT": f"{point}:KILL", "RUNEKEEP_FAILPOINT_LOG": str(fired)})
    async with grpc.aio.insecure_channel(server.address) as channel:
        job = await TurnJob.queued(Caller(channel, "anna"), kind)
        async with Worker(channel) as worker:
            lease = (await worker.take()).lease
            await worker.input(lease)
            await worker.chunk(lease, "o-1", 0, [job.output])
            await worker.send(complete=worker_pb.JobComplete(lease=lease, output_id="o-1", chunk_count=1))
            await worker.end()
        assert fired.read_text().startswith(point)
        server.kill()
    again = own_server()
    async with grpc.aio.insecure_channel(again.address) as channel:
        job = TurnJob(kind, Caller(channel, "anna"), job.session, job.task_id)
        async with Worker(channel, resume=[lease]) as worker:
            await worker.release(lease)
            lease = await job.is_not_done(worker)
            verdict = await worker.deliver_items(lease, job.output, output_id="o-2")
            assert verdict.outcome == worker_pb.JOB_OUTCOME_APPLIED
        await job.is_done()
    again.stop()


async def test_a_call_whose_save_fails_says_so_and_changes_nothing(server: ServerProcess, caller: Caller) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1", "Book a trip")
    await talk(caller, session, "t2", "and a room")
    before = [await turn_of(caller, session, name) for name in ("t1", "t2")]
    room = pb.SubmitTurnRequest(
        session=session,
        turn_id="t2",
        fingerprint=fingerprint("Book a room", conversation_title="A room"),
        summary=pb.TurnSummary(done=["asked for dates"]),
        extract=True,
        request_id="r-1",
    )
    with failing_saves(server):
        failed = await failures(
            caller.turns.SubmitTurn(room),
            select(caller, session, turn_ids=["t1"]),
            react(caller, session, "t1", reaction=pb.REACTION_OK),
            react(caller, session, "t1", machine=True, reaction=pb.REACTION_OK),
        )
    assert failed == [UNAVAILABLE] * 4
    assert [await turn_of(caller, session, name) for name in ("t1", "t2")] == before
    shown = await load(caller, session, "t2")
    assert not shown.HasField("selection") and not shown.feedback and shown.delta_count == 1
    tasks = await caller.tasks.ListTasks(task_service_pb2.ListTasksRequest())
    assert not tasks.tasks, "what it was to extract is not queued either"
    # The same request, once it can be done, is not taken for one that was.
    answer = await caller.turns.SubmitTurn(room)
    assert answer.task_id and answer.turn.fingerprint.objective == "Book a room"
    assert await turn_of(caller, session, "t2") == answer.turn


# No fingerprint for failed turns


async def test_a_turn_that_failed_keeps_its_fingerprint(caller: Caller, channel: grpc.aio.Channel) -> None:
    """The agent fell over a tool and never answered; later turns still know what the user wanted."""
    session = await caller.session()
    broken = common_pb2.ToolPart(tool_name="book", status=common_pb2.TOOL_STATUS_ERROR, output="no connection")
    for name in ("own", "found", "filled"):
        await talk(caller, session, name, "a trip, please")
        tool = common_pb2.Message(turn_id=name, role=common_pb2.ROLE_ASSISTANT, parts=[common_pb2.Part(tool=broken)])
        await caller.add(session, tool)
    await submit(caller, session, "own", fingerprint=TRIP)
    # A task about it that is given up takes nothing away.
    given_up = await extract(caller, session, "own")
    found = await extract(caller, session, "found")
    async with Worker(channel) as worker:
        for _ in range(2):
            job = await worker.take()
            if job.task_id == given_up:
                await worker.fail(job.lease, worker_pb.FAILURE_CLASS_MODEL_REFUSED, retryable=False)
                continue
            assert job.task_id == found
            given = await worker.input(job.lease)
            assert [message.parts[0].WhichOneof("part") for message in given.messages] == ["text", "tool"]
            verdict = await worker.deliver_items(job.lease, turn_memory("found", TRIP))
            assert verdict.outcome == worker_pb.JOB_OUTCOME_APPLIED
        assert (await caller.task(given_up)).state == task_service_pb2.TASK_STATE_FAILED
        await caller.commit(session)
        lease = (await worker.take()).lease
        assert [one.turn.turn_id for one in (await worker.input(lease)).turns] == ["own", "found", "filled"]
        verdict = await worker.deliver_items(lease, turn_memory("filled", TRIP))
        assert verdict.outcome == worker_pb.JOB_OUTCOME_APPLIED
    await talk(caller, session, "next", "and now?")
    listed = await paged(caller.turns.ListTurns, pb.ListTurnsRequest(session=session, fingerprinted_only=True), "turns")
    assert [one.turn_id for one in listed] == ["filled", "found", "own"]
    assert all(keys(one.fingerprint) == KEYS for one in listed)
    assert memories(await load(caller, session, "next")) == ["filled", "found", "own"]


# Reactions stored as a language's repr


@pytest.mark.parametrize("origin", ["user", "machine"])
async def test_reactions_are_not_stored_as_a_repr(caller: Caller, origin: str) -> None:
    """The stored form is JSON behind its prefix, and what was said comes back to the letter."""
    texts = ('It\'s "late"', "back\\slash\\n", "two\nlines", "None, True, {'a': 1}", "[turn.log.reaction]{}", "Käse 🧀")
    kinds = {"ok": pb.REACTION_OK, "not_ok": pb.REACTION_NOT_OK, "neutral": pb.REACTION_NEUTRAL, "none": 0}
    session = await caller.session()
    made = []
    for number, text in enumerate(texts):
        await talk(caller, session, f"t{number}", "a trip, please")
        name = list(kinds)[number % len(kinds)]
        made.append(
            (
                name,
                await react(
                    caller, session, f"t{number}", machine=origin == "machine", reaction=kinds[name], text=text
                ),
            )
        )
    assert list((await reactions(caller, session)).feedback) == [one for _, one in reversed(made)]
    assert [one.text for _, one in made] == list(texts)
    bodies = {}
    for text in await stored(caller, session, f"origin:{origin}"):
        assert text.startswith("[turn.log.reaction]")
        body = json.loads(text.removeprefix("[turn.log.reaction]"))
        bodies[body["turn_id"]] = body
    for name, one in made:
        body = bodies.pop(one.turn_id)
        assert (body["reaction"], body["text"], body["origin"]) == (name, one.text, origin)
        assert (body["feedback_id"], body["confidence"]) == (one.feedback_id, one.confidence)
    assert not bodies


# Replace done as delete-then-insert


async def test_what_cannot_be_replaced_stays(server: ServerProcess, caller: Caller) -> None:
    """The store takes deletions and no new rows: whoever deletes first has nothing left."""
    session = await caller.session()
    await fingerprinted(caller, session, "t1", "Book a trip", topics=["travel"], assistant_signals=[signal("a", 1)])
    await react(caller, session, "t1", reaction=pb.REACTION_OK, text="fine")
    await select(caller, session, turn_ids=["t1"])

    async def all_of_it() -> list[Any]:
        artifacts = await caller.turns.ListTurnArtifacts(pb.ListTurnArtifactsRequest(tags=["turn:t1"], session=session))
        promoted = await caller.turns.ListAssistantSignals(pb.ListAssistantSignalsRequest(session=session))
        return [artifacts, promoted, await load(caller, session, "t1"), await reactions(caller, session)]

    before = await all_of_it()
    assert len(before[0].artifacts) == 2 and len(before[1].turns) == 1
    with failing_saves(server):
        failed = await failures(
            react(caller, session, "t1", reaction=pb.REACTION_NOT_OK, text="too dear"),
            select(caller, session),
            submit(caller, session, "t1", fingerprint=fingerprint(topics=["rail"], assistant_signals=[signal("b", 2)])),
        )
    assert failed == [UNAVAILABLE] * 3
    assert await all_of_it() == before
    # Each of them can be replaced, and is then one as before.
    await react(caller, session, "t1", reaction=pb.REACTION_NOT_OK, text="too dear")
    await select(caller, session)
    shown = await load(caller, session, "t1")
    assert [one.text for one in shown.feedback] == ["too dear"] and not shown.selection.turn_ids


async def test_nobody_sees_the_moment_of_a_replacement(caller: Caller) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1", "Book a trip")
    await react(caller, session, "t1", reaction=pb.REACTION_OK)
    await select(caller, session, turn_ids=["t1"])
    done = asyncio.Event()

    async def watch() -> set[tuple[int, int, bool, int]]:
        seen = set()
        while not done.is_set():
            shown, listed = await load(caller, session, "t1"), await reactions(caller, session)
            seen.add((len(shown.feedback), listed.counts.total, shown.HasField("selection"), len(shown.turn_memories)))
        return seen

    watching = asyncio.create_task(watch())
    for number in range(30):
        await asyncio.gather(
            react(caller, session, "t1", reaction=pb.REACTION_NOT_OK, text=f"{number}"),
            select(caller, session, turn_ids=["t1"] if number % 2 else []),
            submit(caller, session, "t1", fingerprint=fingerprint(facts=[signal("number", number)])),
        )
    done.set()
    assert await watching == {(1, 1, True, 1)}


# A cap that kept the oldest


async def test_where_there_is_more_than_a_cap_the_newest_are_kept(caller: Caller) -> None:
    """All are submitted in the order of the turns, oldest first: a cap of the first that come would keep those."""
    session = await caller.session()
    turns = [f"t{number:03}" for number in range(1, 521)]
    for start in range(0, len(turns), 100):
        await caller.add(session, *(said("hello", turn=name) for name in turns[start : start + 100]))
    for name in turns:
        made = fingerprint(name, assistant_signals=[signal("hotel", name)])
        await submit(caller, session, name, fingerprint=made)
    newest = turns[::-1]

    shown = await load(caller, session, turns[-1], "final_answer")
    assert shown.delta_count == 256 and memories(shown) == newest[:25]
    assert [one.turn_id for one in shown.assistant_signals] == newest[:512]
    promoted = await paged(
        caller.turns.ListAssistantSignals, pb.ListAssistantSignalsRequest(session=session, page_size=200), "turns"
    )
    assert [one.turn_id for one in promoted] == newest[:512]
    gate = await load(caller, session, turns[-1])
    assert [one.turn.turn_id for one in gate.candidates] == newest[1:4]

    for name, number in (("t001", 60), ("t002", 45)):
        for count in range(number):
            await react(caller, session, name, machine=True, reaction=pb.REACTION_OK, text=f"{name} {count:02}")
    said_last = [f"t002 {count:02}" for count in reversed(range(45))]
    said_last += [f"t001 {count:02}" for count in reversed(range(5, 60))]
    gate = await load(caller, session, turns[-1])
    assert [one.text for one in gate.feedback] == said_last
    assert [one.text for one in (await reactions(caller, session, page_size=100)).feedback] == said_last


# An empty selection that did not clear the stored one


@pytest.mark.parametrize("offered", [True, False])
async def test_an_empty_selection_clears_the_one_that_is_stored(caller: Caller, offered: bool) -> None:
    session = await caller.session()
    for name in ("t1", "t2", "t3"):
        await fingerprinted(caller, session, name, f"wants {name}")
    offer = (await load(caller, session, "t3", "reconciler")).offer if offered else ""
    await select(caller, session, offer, local_memories_turn_ids=["t1"], turn_ids=["t2"], current_turn_id="t3")
    assert memories(await load(caller, session, "t3", "downstream")) == ["t3", "t1"]

    chosen = (await select(caller, session, offer, current_turn_id="t3")).selection
    for audience in ("downstream", "final_answer"):
        shown = await load(caller, session, "t3", audience)
        assert memories(shown) == ["t3"], "not as if nothing had ever been chosen"
        assert shown.HasField("selection") and shown.selection == chosen
        assert not (chosen.local_memories_turn_ids or chosen.turn_ids or chosen.memory_bucket_ids)
    assert not any(one.selected for one in (await load(caller, session, "t3")).candidates)
    (text,) = await stored(caller, session, "conversation.active_set.v1")
    body = json.loads(text)
    assert (body["local_memories_turn_ids"], body["turn_ids"], body["memory_bucket_ids"]) == ([], [], [])


# Times rounded to the minute so that order ties


def moment(microsecond: int) -> Timestamp:
    """All of one second in May 2026."""
    return Timestamp(seconds=1_777_972_530, nanos=microsecond * 1000)


async def test_turns_of_one_minute_keep_their_order(caller: Caller) -> None:
    """By the order of the messages, not by a clock: those of devices tie, and go backwards."""
    session = await caller.session()
    names = ["b", "d", "a", "c"]
    for name, at in zip(names, (7, 7, 5, 6), strict=True):
        message = said("hello", turn=name)
        message.create_time.CopyFrom(moment(at))
        await caller.add(session, message)
        await submit(caller, session, name, fingerprint=fingerprint(name))
        turn = await turn_of(caller, session, name)
        assert turn.start_time == turn.end_time == turn.fingerprint.made_time == moment(at), "to the microsecond"
    newest = names[::-1]
    shown = await load(caller, session, "c", last_turns=20)
    assert memories(shown) == newest
    assert [one.turn.turn_id for one in shown.candidates] == newest[1:]
    listed = await paged(caller.turns.ListTurns, pb.ListTurnsRequest(session=session, page_size=1), "turns")
    assert [one.turn_id for one in listed] == newest

    # A change within the minute of the choice, and within that of the offer, is a change since then.
    offer = (await load(caller, session, "c", "reconciler")).offer
    await submit(caller, session, "d", fingerprint=fingerprint(topics=["late"]))
    await select(caller, session, offer, turn_ids=["b"])
    await submit(caller, session, "b", fingerprint=fingerprint(topics=["late"]))
    assert (await load(caller, session, "c")).delta_count == 2
    await select(caller, session)
    assert (await load(caller, session, "c")).delta_count == 0


async def test_reactions_of_one_minute_keep_their_order(caller: Caller) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "hello")
    made = [
        await react(caller, session, "t1", machine=True, reaction=pb.REACTION_OK, text=f"{number}")
        for number in range(12)
    ]
    assert [one.text for one in (await load(caller, session, "t1")).feedback] == [one.text for one in reversed(made)]
    times = [one.create_time.ToMicroseconds() for one in made]
    assert len(set(times)) == len(times) and times == sorted(times)
    period = await reactions(caller, session, start_time=made[3].create_time, end_time=made[7].create_time)
    assert [one.text for one in period.feedback] == ["6", "5", "4", "3"] and period.counts.total == 4
    listed = await paged(caller.turns.ListFeedback, pb.ListFeedbackRequest(session=session, page_size=1), "feedback")
    assert listed == made[::-1]


async def test_promotions_of_one_minute_keep_their_order(caller: Caller) -> None:
    first, second = await caller.session(session_id="s1"), await caller.session(session_id="s2")
    hotel = [signal("hotel", "Ritz", "recommend")]
    for session, name, at in (
        (second, "x", 3),
        (first, "y", 1),
        (first, "x", 4),
        (second, "y", 2),
        # As old as another: the later turn goes first, then the later session.
        (second, "v", 3),
        (first, "z", 3),
    ):
        await fingerprinted(caller, session, name, "a room", made_time=moment(at), assistant_signals=hotel)
    expected = [("s1", "x"), ("s2", "v"), ("s2", "x"), ("s1", "z"), ("s2", "y"), ("s1", "y")]
    for size in (1, 2, 0):
        request = pb.ListAssistantSignalsRequest(page_size=size)
        found = await paged(caller.turns.ListAssistantSignals, request, "turns")
        assert [(one.session.rpartition("/")[2], one.turn_id) for one in found] == expected
    shown = (await load(caller, first, "z", "final_answer")).assistant_signals
    assert [(one.session.rpartition("/")[2], one.turn_id) for one in shown] == expected
