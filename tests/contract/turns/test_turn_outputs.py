"""Outputs about turns on a store of every driver: applied whole and once, on buckets as they are at that moment."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from runekeep_schemas.turns.buckets import Bucket
from runekeep_schemas.turns.feedback import MACHINE, Reaction
from runekeep_schemas.turns.fingerprint import Fingerprint, Signal
from runekeep_schemas.turns.selection import Offer, Selection
from runekeep_schemas.turns.summary import Summary
from runekeep_server.apply.output import Output, Unusable
from runekeep_server.apply.turn_outputs import MAX_APPLY_ATTEMPTS, TurnApplier
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database
from runekeep_storage.errors import LeaseLost, VersionConflict
from runekeep_storage.jobs import jobs, tasks
from runekeep_storage.memories import turn_outputs
from runekeep_storage.memories.apply import Applied
from runekeep_storage.memories.turn_outputs import TurnFindings, TurnJobEnd
from runekeep_storage.records import Job
from runekeep_storage.store import Store
from runekeep_storage.turns import buckets, feedback, fingerprints, selections
from runekeep_storage.turns import jobs as turn_jobs
from runekeep_storage.turns.buckets import Stored
from runekeep_storage.turns.jobs import Reconciliation
from runekeep_storage.turns.memories import TurnMemory
from tests.support.storage.databases import ANN, MADE, claim
from tests.support.storage.turns import fill, say, submit, turn
from tests.support.turn_calls import signal

pytestmark = pytest.mark.postgres_long

Keep = Callable[..., Awaitable[Stored]]


def output(
    job: Job, *changes: pb.BucketChanges, output_id: str = "o", turn_memories: Sequence[pb.TurnMemory] = ()
) -> Output:
    return Output(
        lease=job.lease,
        output_id=output_id,
        operations=(),
        summary=common_pb2.Summary(),
        usage=[],
        extractor=common_pb2.ExtractorInfo(engine="test"),
        dropped_items=0,
        made=MADE,
        turn_memories=turn_memories,
        bucket_changes=changes,
    )


def ending(job: Job) -> TurnJobEnd:
    return TurnJobEnd(job.lease, "o", {}, [], MADE)


def told(*turn_ids: str) -> pb.BucketChanges:
    """Adds one bucket, or folds into it: its name is what makes it one. As far as the last of these turns, as the
    engines say it."""
    city = turn_pb.BucketSignal(signal=signal("city", "Oslo"), support_turn_ids=turn_ids)
    part = turn_pb.TimelineSlice(objective_hint="travel", facts=[city])
    last = turn_ids[-1] if turn_ids else ""
    return pb.BucketChanges(added=[turn_pb.MemoryBucket(name="Trips", timeline=[part])], last_covered_turn_id=last)


class Owner:
    """Renames every bucket of the session each time that a blob was kept, as often as it is told to."""

    def __init__(self, database: Database, kept: FolderBlobs, keep: Keep) -> None:
        self.times = 0
        self.names: list[str] = []
        self._database = database
        self._blobs = kept
        self._keep = keep

    async def keep(self, *args: Any) -> Stored:
        stored = await self._keep(*args)
        if self.times:
            self.times -= 1
            self.names.append(f"Renamed {len(self.names)}")
            for one in await buckets.load(self._database, self._blobs, ANN, "s"):
                await self._rename(one, self.names[-1])
        return stored

    async def _rename(self, one: Stored, name: str) -> None:
        after = await self._keep(self._database, self._blobs, ANN, replace(one.bucket, name=name))
        await self._database.write(buckets.write, ANN, "s", after.bucket, after.blob, after.hosted_uri, base=one.blob)


@pytest.fixture
def kept(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


@pytest.fixture
def owner(database: Database, kept: FolderBlobs, monkeypatch: pytest.MonkeyPatch) -> Owner:
    edits = Owner(database, kept, buckets.keep)
    monkeypatch.setattr(buckets, "keep", edits.keep)
    return edits


@pytest.fixture
def applier(database: Database, kept: FolderBlobs) -> TurnApplier:
    return TurnApplier(cast(Store, SimpleNamespace(all_spaces=database, blobs=kept)), withhold_secrets=True)


async def reconciling(database: Database, *turn_ids: str) -> Job:
    """A bucket job whose worker has its input: these new turns."""
    for turn_id in turn_ids:
        await say(database, turn_id)
        await submit(database, turn_id, objective=f"Of {turn_id}")
    job = await asked(database)
    assert await given(database, job) == list(turn_ids)
    return job


async def asked(database: Database) -> Job:
    await database.write(turn_jobs.queue_reconcile, ANN, "s", "", 10)
    return await claim(database)


async def given(database: Database, job: Job) -> list[str]:
    """Turns that its worker is given when it asks for its input."""
    return [one.turn_id for one in await database.write(turn_outputs.take_uncovered, ANN, job.lease)]


async def the_bucket(database: Database, kept: FolderBlobs) -> Bucket:
    (one,) = await buckets.load(database, kept, ANN, "s")
    return one.bucket


async def left(database: Database) -> int:
    return await database.read(fingerprints.left, ANN, "s")


async def test_an_edit_between_the_fold_and_the_write_is_folded_under(
    database: Database, kept: FolderBlobs, applier: TurnApplier, owner: Owner
) -> None:
    first = await reconciling(database, "t1")
    await applier.apply(first, output(first, told("t1")))
    job = await reconciling(database, "t2")
    owner.times = MAX_APPLY_ATTEMPTS - 1
    applied = await applier.apply(job, output(job, told("t2")))
    assert isinstance(applied, Applied) and owner.times == 0
    bucket = await the_bucket(database, kept)
    assert bucket.name == owner.names[-1], "the edit is kept"
    (fact,) = bucket.timeline[0].facts
    assert (fact.weight, fact.support_turn_ids) == (0.6, ("t1", "t2")), "weighed once, however often it was prepared"
    assert await left(database) == 0


async def test_a_bucket_that_keeps_moving_is_a_conflict_and_covers_nothing(
    database: Database, kept: FolderBlobs, applier: TurnApplier, owner: Owner
) -> None:
    first = await reconciling(database, "t1")
    await applier.apply(first, output(first, told("t1")))
    job = await reconciling(database, "t2")
    owner.times = MAX_APPLY_ATTEMPTS
    with pytest.raises(VersionConflict):
        await applier.apply(job, output(job, told("t2")))
    bucket = await the_bucket(database, kept)
    assert (bucket.name, bucket.timeline[0].facts[0].support_turn_ids) == (owner.names[-1], ("t1",))
    assert await left(database) == 1
    assert (await database.read_global(jobs.held, job.lease)).job_id == job.job_id, "another attempt may follow"


@pytest.mark.parametrize("changed", ["t1", "t2", "t3"])
async def test_a_turn_that_changes_meanwhile_takes_nothing_from_the_output(
    database: Database, kept: FolderBlobs, applier: TurnApplier, changed: str
) -> None:
    """As when a turn's own job fills in while the model thinks about its buckets."""
    job = await reconciling(database, "t1", "t2", "t3")
    assert await fill(database, changed, topics=("late",))
    assert isinstance(await applier.apply(job, output(job, told("t1", "t2", "t3"))), Applied)
    (fact,) = (await the_bucket(database, kept)).timeline[0].facts
    assert fact.support_turn_ids == ("t1", "t2", "t3")
    following = await asked(database)
    assert await given(database, following) == [changed], "only it is for the next"
    # The same found again in it, as it was found before.
    assert isinstance(await applier.apply(following, output(following, told(changed))), Applied)
    assert await left(database) == 0
    (fact,) = (await the_bucket(database, kept)).timeline[0].facts
    assert fact.weight == 0.5


async def test_a_worker_that_came_less_far_covers_what_it_looked_at(
    database: Database, applier: TurnApplier, kept: FolderBlobs
) -> None:
    job = await reconciling(database, "t1", "t2", "t3")
    await submit(database, "t2", topics=("late",))
    assert await given(database, job) == ["t1", "t3"], "asked again, it is given what is the same"
    assert isinstance(await applier.apply(job, output(job, told("t1", "t2"))), Applied)
    assert await given(database, await asked(database)) == ["t3", "t2"]


async def test_turns_that_were_not_in_the_input_are_covered_by_nobody(database: Database, applier: TurnApplier) -> None:
    job = await reconciling(database, "t1")
    await say(database, "t2")
    await submit(database, "t2", objective="later")
    assert isinstance(await applier.apply(job, output(job, told("t2"))), Unusable)
    assert isinstance(await applier.apply(job, output(job, pb.BucketChanges())), Applied)
    assert await left(database) == 1


async def test_a_bucket_holds_no_secret(database: Database, kept: FolderBlobs, applier: TurnApplier) -> None:
    key = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    part = turn_pb.TimelineSlice(
        objective_hint=f"use {key}",
        assertions=[turn_pb.BucketSignal(signal=signal("tool", {"options": [key, "b"]}), support_turn_ids=["t1"])],
        exceptions=[turn_pb.BucketSignal(signal=signal(f"no {key}", 1), support_turn_ids=["t1"])],
        facts=[turn_pb.BucketSignal(signal=signal("password", "Hunter2Pass9"), support_turn_ids=["t1"])],
    )
    bucket = turn_pb.MemoryBucket(
        # Behind what is cut away, so that half of it would stay.
        name=f"{'x' * 108} {key}",
        short_desc="the password is Hunter2Pass9",
        topic_centroid=[key],
        objective_text=f"log in with {key}",
        timeline=[part],
    )
    job = await reconciling(database, "t1")
    assert isinstance(await applier.apply(job, output(job, pb.BucketChanges(added=[bucket]))), Applied)
    made = await the_bucket(database, kept)
    assert key[:12] not in made.to_text() and "Hunter2Pass9" not in made.to_text()
    assert "[withheld: " in made.name and len(made.timeline[0].facts) == 1

    job = await reconciling(database, "t2")
    bucket.bucket_id = made.bucket_id
    assert isinstance(await applier.apply(job, output(job, pb.BucketChanges(changed=[bucket]))), Applied)
    (stored,) = await database.read(buckets.rows, ANN, "s")
    for text in ((await the_bucket(database, kept)).to_text(), stored.text):
        assert key[:12] not in text and "Hunter2Pass9" not in text


async def test_half_of_a_secret_is_none_the_less_one(database: Database, applier: TurnApplier) -> None:
    """What is cut to its length is cut after secrets are out of it."""
    await say(database, "t1")
    await database.write(turn_jobs.queue_fingerprint, ANN, await turn(database, "t1"), "", "", 10)
    job = await claim(database)
    secret = "postgres://admin:Hunter2Pass9@db.example.com/prod"
    kept_half = len("postgres://admin:Hunter2Pass9")
    memory = pb.TurnMemory(
        turn_id="t1",
        fingerprint=turn_pb.TurnFingerprint(objective=f"{'x ' * 135}{secret}"),
        summary=turn_pb.TurnSummary(notes=f"{'x' * (1000 - kept_half - 2)} {secret} and more"),
    )
    assert isinstance(await applier.apply(job, output(job, turn_memories=[memory])), Applied)
    there = (await database.read(fingerprints.of, ANN, "s", ["t1"]))["t1"]
    noted = Summary.from_text((await turn(database, "t1")).summary).notes
    assert "Hunter" not in there.objective and len(there.objective) <= 300
    assert "Hunter" not in noted and "x" * 900 in noted and len(noted) <= 1000


async def test_a_repeat_folds_nothing_in(database: Database, kept: FolderBlobs, applier: TurnApplier) -> None:
    job = await reconciling(database, "t1")
    # It names no turn, so that the rules of folding alone would let it gain weight.
    await applier.apply(job, output(job, told()))
    assert (await database.write(turn_outputs.apply_buckets, ANN, ending(job), [], 0)).again
    with pytest.raises(LeaseLost):
        await applier.apply(job, output(job, told(), output_id="another"))
    assert (await the_bucket(database, kept)).timeline[0].facts[0].weight == 0.5


async def test_an_output_whose_last_step_fails_leaves_nothing(
    database: Database, kept: FolderBlobs, applier: TurnApplier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a turn said, buckets and what they cover are of the transaction that ends the job."""

    class Broken(Exception):
        """The end of the job cannot be written."""

    async def broken(*args: object) -> None:
        raise Broken

    folding = await reconciling(database, "t1")
    of_turn = await turn(database, "t1")
    await database.write(turn_jobs.queue_fingerprint, ANN, of_turn, "", "", 10)
    noting = await claim(database)
    found = TurnMemory("t1", Fingerprint("t1", facts=(Signal("city", "Oslo", "low"),)), Summary(notes="n"))
    monkeypatch.setattr(jobs, "succeed", broken)
    with pytest.raises(Broken):
        await applier.apply(folding, output(folding, told("t1")))
    with pytest.raises(Broken):
        await database.write(turn_outputs.apply_turn, ANN, ending(noting), TurnFindings(found))
    assert await buckets.load(database, kept, ANN, "s") == []
    assert await left(database) == 1
    assert (await turn(database, "t1")).summary == ""
    there = (await database.read(fingerprints.of, ANN, "s", ["t1"]))["t1"]
    assert (there.objective, there.facts) == ("Of t1", ())

    monkeypatch.undo()
    await database.write(turn_outputs.apply_turn, ANN, ending(noting), TurnFindings(found))
    await applier.apply(folding, output(folding, told("t1")))
    assert (await turn(database, "t1")).summary != ""
    assert (await the_bucket(database, kept)).name == "Trips"
    assert await left(database) == 1, "the fingerprint has changed since it was looked at"


async def test_a_selection_and_reactions_are_stored_with_the_fingerprint_and_once(database: Database) -> None:
    for name in ("t1", "t2", "t3"):
        await say(database, name)
        await submit(database, name, objective=f"Of {name}")
    both = Reconciliation(selection=True, feedback=True)
    await database.write(turn_jobs.queue_fingerprint, ANN, await turn(database, "t3"), "", "", 10, both)
    job = await claim(database)
    assert turn_jobs.reconciliation_of(job.plan) == both and turn_outputs.offered(job) is None
    offer = Offer("s", ("t1", "t2"), memory_version=3)
    await database.write(turn_outputs.take_context, ANN, job.lease, offer.encode())
    assert turn_outputs.offered(await database.read_global(jobs.get, job.job_id)) == offer

    chosen = Selection(("t1",), ("t2",), current_turn_id="t3", memory_version=3)
    reactions = [Reaction("", name, "not_ok", "Too heavy", MACHINE, 0.9, "", 0) for name in ("", "t1", "t3", "unknown")]
    end = replace(ending(job), result={"dropped_items": 1})
    for again in (False, True):
        applied = await database.write(
            turn_outputs.apply_turn, ANN, end, TurnFindings(selection=chosen, reactions=reactions)
        )
        assert applied.again == again
    task = await database.read(tasks.get, ANN, job.job_id)
    result = json.loads(task.result)
    assert (result["selection_stored"], result["feedback"], result["dropped_items"]) == (True, 2, 3)
    stored = await database.read(selections.get, ANN, "s")
    assert stored is not None and replace(stored, last_reconciled_at=0) == chosen and stored.last_reconciled_at
    said = await database.read(feedback.page, ANN, "s", (), 0, 0, None, 10)
    assert sorted((one.reaction.turn_id, one.reaction.from_turn_id) for one in said) == [("t1", "t3"), ("t2", "t3")]
