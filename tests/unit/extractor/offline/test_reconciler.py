"""What the engine without a model selects for a turn by the words that it shares with earlier ones, and which reactions
it finds by their cues."""

import pytest

from runekeep.v1 import task_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.engine.turn_records import fingerprint_to_wire
from runekeep_extractor.offline import OfflineEngine
from runekeep_extractor.offline.turn_jobs import reactions_of, selection_of
from runekeep_schemas.turns.fingerprint import Fingerprint, Signal
from tests.doubles.fixed_job import FixedJob
from tests.unit.extractor.turn_talk import candidate, said

OK, NOT_OK = pb.REACTION_OK, pb.REACTION_NOT_OK
NO_NUTS = Signal("ingredients", {"exclude": ["nuts"]}, "do_not", "conversation")

TRIP = Fingerprint("trip", objective="Find a hotel in Lisbon", topics=("hotel", "Lisbon"))
TAX = Fingerprint("tax", objective="Hand in the tax return", topics=("tax",))
DIET = Fingerprint("diet", objective="Plan the meals", topics=("meals",), exceptions=(NO_NUTS,))
VIEWS = {
    "diet": "user: Plan my meals, never with nuts | answer: Porridge.",
    "trip": "user: A hotel in Lisbon near the river | answer: Hotel Aurora.",
    "tax": "user: Which form for the tax return? | answer: Form 7.",
}
BUCKETS = [
    pb.MemoryBucket(bucket_id="obj-lisbon", name="Lisbon", topic_centroid=["lisbon", "hotel"]),
    pb.MemoryBucket(bucket_id="obj-garden", name="Garden", topic_centroid=["tomatoes"]),
]


def job(text: str, *, newest: str = "tax", **options) -> FixedJob:
    """A turn under way in which the user says this; of the three turns before it that one is the newest."""
    order = [newest, *(name for name in ("tax", "trip", "diet") if name != newest)]
    prints = {one.turn_id: one for one in (TRIP, TAX, DIET)}
    context = pb.LoadTurnContextResponse(
        candidates=[candidate(name, view=VIEWS[name]) for name in order],
        turn_memories=[pb.TurnFingerprint(turn_id="now"), *(fingerprint_to_wire(prints[name]) for name in order)],
        buckets=BUCKETS,
    )
    return FixedJob(
        [said(9, text, "now")],
        kind=task_service_pb2.TASK_KIND_TURN_FINGERPRINT,
        turn_id="now",
        context=context,
        extract_selection=True,
        **options,
    )


def selected(text: str, **options) -> tuple[list[str], list[str], list[str]]:
    made = selection_of(job(text, **options))
    return list(made.local_memories_turn_ids), list(made.turn_ids), list(made.memory_bucket_ids)


def test_what_shares_words_is_selected_and_what_holds_from_now_on():
    assert selected("Is the hotel in Lisbon still free in August?") == (["trip", "diet"], ["trip"], ["obj-lisbon"])
    assert selected("How long may the tax return of my company take?") == (["tax", "diet"], ["tax"], [])
    assert selected("Write a poem about snow and lanterns in harbours, long and sad") == (["diet"], [], [])


@pytest.mark.parametrize("text", ["And the second one?", "What about breakfast?", "Why?"])
def test_what_goes_on_selects_the_newest_turn(text):
    memories, turns, _ = selected(text, newest="trip")
    assert memories[0] == "trip" and turns[0] == "trip"


def test_the_nearest_come_first_and_at_most_five_memories():
    prints = [Fingerprint(f"t{number}", objective=f"Lisbon hotel offer {number}") for number in range(9)]
    near = Fingerprint("near", objective="Lisbon hotel breakfast")
    made = job("Does the hotel in Lisbon serve breakfast?")
    del made.context.turn_memories[:]
    made.context.turn_memories.extend(map(fingerprint_to_wire, [*prints, near]))
    assert list(selection_of(made).local_memories_turn_ids) == ["near", "t0", "t1", "t2", "t3"]


@pytest.mark.parametrize(
    ("text", "reaction", "quoted"),
    [
        ("Too heavy. And what about dessert?", NOT_OK, "Too heavy."),
        ("Thanks, but that's not what I asked for.", NOT_OK, "Thanks, but that's not what I asked for."),
        ("It doesn't work, the page stays empty.", NOT_OK, "It doesn't work, the page stays empty."),
        ("Great, rinsing the filter worked!", OK, "Great, rinsing the filter worked!"),
        ("Thanks! Now book it.", OK, "Thanks!"),
        ("Perfect", OK, "Perfect"),
        ("Plan a dinner for six, no nuts.", None, ""),
        ("No ferns please, I never liked them.", None, ""),
        ("My boss said it was too expensive.", None, ""),
        ("Is that right?", None, ""),
        ("Great plans need great care, so write down the steps.", None, ""),
    ],
)
def test_reactions_by_their_cues(text, reaction, quoted):
    found = reactions_of([said(1, text)])
    assert [(one.reaction, one.text) for one in found] == ([(reaction, quoted)] if reaction else [])
    assert all(one.confidence >= 0.7 and one.origin == pb.FEEDBACK_ORIGIN_MACHINE and not one.turn_id for one in found)


def test_what_the_assistant_says_is_no_reaction():
    assert reactions_of([said(1, "Thanks! That worked.", assistant=True)]) == []


async def test_one_output_holds_what_is_asked_for():
    engine = OfflineEngine()
    output = await engine.fingerprint(job("Too far away. Is there a hotel nearer to the river in Lisbon?"))
    assert output.selection is not None and list(output.selection.turn_ids) == ["trip"] and output.feedback == []
    (memory,) = output.turn_memories
    assert memory.fingerprint.objective and not memory.HasField("summary"), "half a turn has none"

    wanted = job("Too far away. Another hotel in Lisbon, please.", extract_feedback=True)
    assert [one.text for one in (await engine.fingerprint(wanted)).feedback] == ["Too far away."]
    del wanted.context.candidates[:]
    assert (await engine.fingerprint(wanted)).feedback == [], "nothing was said before"
