"""How turns are put to the themes of a session by the words that they share."""

import pytest

from runekeep.v1 import task_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.engine.turn_records import signal_to_wire
from runekeep_extractor.offline import OfflineEngine
from runekeep_extractor.offline.turn_jobs import reconciled
from runekeep_schemas.turns.fingerprint import Signal
from tests.doubles.fixed_job import FixedJob


def turn(turn_id: str, *topics: str, objective: str = "", at: int = 0, **lists) -> pb.CandidateTurn:
    """A turn whose fingerprint has these topics; `lists` are of `Signal`."""
    made = pb.CandidateTurn(turn=pb.Turn(turn_id=turn_id))
    made.turn.start_time.FromSeconds(1_000 + at)
    made.turn.end_time.FromSeconds(1_010 + at)
    fingerprint = made.turn.fingerprint
    fingerprint.topics[:] = topics
    fingerprint.objective = objective
    for name, signals in lists.items():
        getattr(fingerprint, name).extend(map(signal_to_wire, signals))
    return made


def bucket(bucket_id: str, name: str, *topics: str, **fields) -> pb.MemoryBucket:
    return pb.MemoryBucket(bucket_id=bucket_id, name=name, topic_centroid=topics, **fields)


BUDGET = Signal("budget", {"max": 500}, "must")
ROOM = Signal("room", "quiet room", "prefer")
TRIP = bucket("obj-trip-1", "Trip to Lisbon", "lisbon", "hotel", "flight", objective_text="Plan a trip")
GARDEN = bucket("obj-garden-2", "The garden", "tomatoes", "watering", state=pb.BUCKET_STATE_DISABLED)


def test_a_turn_goes_to_the_bucket_whose_words_it_shares():
    changes = reconciled(
        [GARDEN, TRIP],
        [
            turn("t1", "hotels", "lisbon", objective="Find a hotel", assertions=[BUDGET, ROOM]),
            turn("t2", "flight", "lisbon", objective="Book the flight", at=60, assertions=[BUDGET]),
        ],
    )
    [changed] = changes.changed
    assert changed.bucket_id == "obj-trip-1"
    assert list(changed.topic_centroid) == ["lisbon", "hotel", "flight", "hotels"]
    assert (changed.name, changed.objective_text, changed.state) == ("", "", 0), "what is empty stays as it is"
    [piece] = changed.timeline
    assert (piece.start_time.seconds, piece.end_time.seconds) == (1_000, 1_070)
    assert piece.objective_hint == "Book the flight"
    assert {one.signal.key: list(one.support_turn_ids) for one in piece.assertions} == {
        "room": ["t1"],
        "budget": ["t1", "t2"],
    }
    assert {one.signal.key: one.last_seen_time.seconds for one in piece.assertions} == {"room": 1_010, "budget": 1_070}
    assert (list(changes.added), list(changes.disabled)) == ([], [])
    assert changes.last_covered_turn_id == "t2"


def test_a_new_theme_gets_a_bucket_when_something_was_stated():
    changes = reconciled(
        [TRIP],
        [
            turn("t1", "invoices", "tax office", objective="Sort my invoices", facts=[Signal("vat", "DE12", "high")]),
            turn("t2", "weather"),
            turn(
                "t3", "tax", "invoices", objective="Write to the tax office", exceptions=[Signal("tone", "x", "avoid")]
            ),
        ],
    )
    assert list(changes.changed) == []
    [added] = changes.added
    assert (added.bucket_id, added.name, added.objective_text) == ("", "invoices", "Sort my invoices")
    assert list(added.topic_centroid) == ["invoices", "tax office", "tax"]
    [piece] = added.timeline
    assert [len(piece.assertions), len(piece.exceptions), len(piece.facts)] == [0, 1, 1]
    assert changes.last_covered_turn_id == "t3"


def test_what_says_no_more_than_small_talk_makes_no_bucket():
    changes = reconciled([], [turn("t1", "weather"), turn("t2", assertions=[BUDGET]), turn("t3")])
    assert (list(changes.changed), list(changes.added)) == ([], [])
    assert changes.last_covered_turn_id == "t3"


def test_one_word_in_common_is_not_enough_among_many():
    many = ("terrace", "beans", "compost", "watering", "slugs")
    changes = reconciled([GARDEN, TRIP], [turn("t1", "lisbon", *many[:3], facts=[ROOM_FACT])])
    assert [one.name for one in changes.added] == ["lisbon"]
    assert reconciled([GARDEN, TRIP], [turn("t1", "lisbon")]).changed[0].bucket_id == "obj-trip-1"


ROOM_FACT = Signal("room", "north side", "high")


def test_a_disabled_bucket_still_takes_its_theme_and_stays_disabled():
    changes = reconciled([GARDEN], [turn("t1", "tomatoes", "watering", facts=[ROOM_FACT])])
    assert [(one.bucket_id, one.state) for one in changes.changed] == [("obj-garden-2", 0)]
    assert (list(changes.added), list(changes.disabled)) == ([], [])


def test_what_one_job_cannot_take_is_left_for_the_next():
    buckets = [bucket(f"obj-{n}", f"Theme {n}", f"theme{n}word", f"other{n}word") for n in range(6)]
    turns = [turn(f"t{n}", f"theme{n}word", f"other{n}word", facts=[ROOM_FACT]) for n in range(6)]
    changes = reconciled(buckets, turns)
    assert [one.bucket_id for one in changes.changed] == ["obj-0", "obj-1", "obj-2", "obj-3"]
    assert changes.last_covered_turn_id == "t3"
    changes = reconciled([], turns)
    assert [one.name for one in changes.added] == ["theme0word", "theme1word"]
    assert changes.last_covered_turn_id == "t1"


def test_a_session_with_all_its_buckets_gets_no_more():
    buckets = [bucket(f"obj-{n}", f"Theme {n}", f"word{n}") for n in range(64)]
    changes = reconciled(buckets, [turn("t1", "something", "else", facts=[ROOM_FACT]), turn("t2", "word5")])
    assert list(changes.added) == []
    assert [one.bucket_id for one in changes.changed] == ["obj-5"]
    assert changes.last_covered_turn_id == "t2"


def test_no_two_buckets_of_one_name():
    there = bucket("obj-x", "Saunas", "a quite different word")
    changes = reconciled([there], [turn("t1", "saunas", "kiln", "clay", "wheel", facts=[ROOM_FACT])])
    assert [one.name for one in changes.added] == ["saunas, kiln"]


def test_no_turns_are_no_change():
    changes = reconciled([TRIP], [])
    assert (list(changes.changed), list(changes.added), changes.last_covered_turn_id) == ([], [], "")


@pytest.mark.parametrize("times", [1, 2])
async def test_a_job_gives_the_same_changes_however_often(times):
    turns = [turn("t1", "lisbon", "hotel", assertions=[BUDGET]), turn("t2", "kiln", "clay", facts=[ROOM_FACT])]
    job = FixedJob([], kind=task_service_pb2.TASK_KIND_BUCKET_RECONCILE, turns=turns, buckets=[TRIP, GARDEN])
    outputs = [await OfflineEngine().reconcile(job) for _ in range(times)]
    assert all(one.bucket_changes == outputs[0].bucket_changes for one in outputs)
    assert [one.bucket_id for one in outputs[0].bucket_changes.changed] == ["obj-trip-1"]
    assert [one.name for one in outputs[0].bucket_changes.added] == ["kiln"]
    assert (outputs[0].operations, outputs[0].turn_memories) == ([], [])
    assert job.reports[0][0] == task_service_pb2.TASK_PHASE_BUCKETS
