"""Events of the offline engine: their dates and names, and how they are corrected."""

import pytest

from runekeep_extractor.offline import OfflineEngine
from tests.doubles.fixed_job import FixedJob, message
from tests.unit.extractor.embedding_job import Space

KILN = "The new kiln arrives on 16 March."
CORRECTED = "Correction: the new kiln arrives on 20 March, not on 16 March."
OLD = "viking://user/default/memories/events/2026-03-16_Kiln.md"
NEW = "memories/events/2026-03-20_Kiln.md"


@pytest.fixture
def extract():
    """Runs an engine on messages, with the space's memories known."""

    async def run(messages, space, **options):
        return await OfflineEngine().extract(FixedJob(messages, space.memories(), **options))

    return run


def events(space):
    return [path for path in space.paths() if "/events/" in path]


async def test_a_dated_statement_is_an_event_on_its_day(extract):
    space = Space()
    output = await extract([message(1, KILN, speaker="Mara", day=2)], space)
    (operation,) = output.operations
    assert operation.write.fields["event_time"].string_value == "2026-03-16"
    assert space.apply(output) == [OLD]
    assert space.text(OLD.removeprefix("viking://user/default/")) == (
        "Mara (2026-03-02): The new kiln arrives on 16 March (2026-03-16)."
    )


async def test_a_corrected_event_is_deleted_and_written_anew(extract):
    space = Space()
    space.apply(await extract([message(1, KILN, speaker="Mara", day=2)], space))
    output = await extract([message(2, CORRECTED, speaker="Mara", day=11)], space)
    assert [operation.WhichOneof("operation") for operation in output.operations] == ["delete", "write"]
    gone, written = output.operations
    assert gone.delete.uri == OLD
    assert gone.reason == "corrected in the conversation"
    assert [(r.start_sequence, r.end_sequence) for r in gone.ranges] == [(2, 2)]
    assert written.write.fields["event_time"].string_value == "2026-03-20"
    space.apply(output)
    assert events(space) == [NEW]


async def test_a_correction_is_corrected_in_turn(extract):
    space = Space()
    again = "I was wrong, the new kiln arrives on 23 March, not on 20 March."
    for sequence, text in enumerate((KILN, CORRECTED, again), 1):
        space.apply(await extract([message(sequence, text, speaker="Mara", day=2 + sequence)], space))
    assert events(space) == ["memories/events/2026-03-23_Kiln.md"]


@pytest.mark.parametrize(
    "text",
    [
        "The new kiln arrives on 20 March instead of 16 March.",
        "I was wrong, the new kiln arrives on 20 March.",
    ],
)
async def test_corrections_come_in_several_wordings(extract, text):
    space = Space()
    space.apply(await extract([message(1, KILN, speaker="Mara", day=2)], space))
    space.apply(await extract([message(2, text, speaker="Mara", day=11)], space))
    (left,) = events(space)
    assert left.startswith("memories/events/2026-03-20_")


async def test_what_the_same_batch_corrects_is_not_written(extract):
    space = Space()
    said = [message(1, KILN, speaker="Mara", day=2), message(2, CORRECTED, speaker="Mara", day=2)]
    output = await extract(said, space)
    assert [operation.WhichOneof("operation") for operation in output.operations] == ["write"]
    space.apply(output)
    assert events(space) == [NEW]


@pytest.mark.parametrize(
    "text",
    [
        # Another thing on that day, another day of that thing, no correction at all, another kiln.
        "Correction: the dentist comes on 20 March, not on 16 March.",
        "Correction: the new glaze arrives on 20 March, not on 16 March.",
        "Correction: the new kiln arrives on 20 March, not on 18 March.",
        "The old kiln actually broke on 5 March.",
        "Correction: the old kiln was sold on 5 March.",
        "I no longer need the kiln that stands in the studio.",
    ],
)
async def test_on_weak_likeness_no_event_is_deleted(extract, text):
    space = Space()
    space.apply(await extract([message(1, KILN, speaker="Mara", day=2)], space))
    output = await extract([message(2, text, speaker="Mara", day=11)], space)
    assert "delete" not in {operation.WhichOneof("operation") for operation in output.operations}


async def test_nobody_corrects_the_events_of_another(extract):
    space = Space()
    space.apply(await extract([message(1, KILN, speaker="Mara", day=2)], space))
    output = await extract([message(2, CORRECTED, peer_id="ines", speaker="Ines", day=11)], space, peers=["ines"])
    assert {operation.peer_id for operation in output.operations} == {"ines"}
    space.apply(output)
    assert OLD.removeprefix("viking://user/default/") in events(space)


async def test_an_event_that_says_more_than_what_was_corrected_stays(extract):
    space = Space()
    output = await extract([message(1, KILN, speaker="Mara", day=2)], space)
    content = output.operations[0].write.fields["content"]
    content.string_value += "\nMara (2026-03-02): The old one goes to Lotte."
    space.apply(output)
    output = await extract([message(2, CORRECTED, speaker="Mara", day=11)], space)
    assert [operation.WhichOneof("operation") for operation in output.operations] == ["write"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("I signed up for a pottery class on 9 March.", "2026-03-09_Pottery class"),
        ("Yesterday I signed the lease for a second room.", "2026-03-04_Lease for a second room"),
        ("I started a new job in Lima on 9 March.", "2026-03-09_Job in Lima"),
        ("We decided to export all orders as UTF-8 from April on.", "Orders"),
        ("We got married in 2019!", "2019_Wedding"),
        ("I lost my job at the mill.", "Job at the mill"),
    ],
)
async def test_a_name_is_the_noun_phrase_of_what_it_is_about(extract, text, name):
    space = Space()
    space.apply(await extract([message(1, text, speaker="Ana")], space))
    assert events(space) == [f"memories/events/{name}.md"]


async def test_what_happened_in_passing_is_left_out(extract):
    said = [message(1, "I found my first contract. We adopted a puppy on 9 March.", speaker="Ana")]
    space = Space()
    space.apply(await extract(said, space))
    assert events(space) == ["memories/events/2026-03-09_Puppy.md"]
