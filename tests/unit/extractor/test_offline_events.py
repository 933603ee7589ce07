"""Events of the offline engine: their dates and names, and how they are corrected."""

import pytest

from extractor.offline import OfflineEngine
from runekeep.v1 import common_pb2
from tests.doubles.fixed_job import message
from tests.unit.extractor.embedding_job import EmbeddingJob, Space

KILN = "The new kiln arrives on 16 March."
CORRECTED = "Correction: the new kiln arrives on 20 March, not on 16 March."
OLD = "viking://user/default/memories/events/2026-03-16_The new kiln arrives.md"
NEW = "memories/events/2026-03-20_The new kiln arrives.md"


@pytest.fixture(params=["embedder", "rules"])
def extract(request):
    """Runs an engine on messages, with the space's memories known."""
    embedder = request.getfixturevalue("embedder") if request.param == "embedder" else None

    async def run(messages, space, **options):
        job = EmbeddingJob(messages, space.memories(), **options)
        job.embedder = embedder
        return await OfflineEngine().extract(job)

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
    assert {operation.reason for operation in output.operations} == {"corrected in the conversation"}
    assert [(r.start_sequence, r.end_sequence) for r in gone.ranges] == [(2, 2)]
    assert written.write.fields["event_time"].string_value == "2026-03-20"
    space.apply(output)
    assert events(space) == [NEW]


async def test_a_correction_is_corrected_in_turn(extract):
    space = Space()
    again = "I was wrong, the new kiln arrives on 23 March, not on 20 March."
    for sequence, text in enumerate((KILN, CORRECTED, again), 1):
        space.apply(await extract([message(sequence, text, speaker="Mara", day=2 + sequence)], space))
    assert events(space) == ["memories/events/2026-03-23_The new kiln arrives.md"]


@pytest.mark.parametrize(
    "text",
    [
        "Correction: it arrives on 20 March, not on 16 March.",
        "The new kiln arrives on 20 March instead of 16 March.",
        "I was wrong, the new kiln arrives on 20 March.",
        "Scratch that: the new kiln, made in Italy, arrives on 20 March and not on 16 March.",
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


async def test_a_name_tells_the_speaker_only_where_its_place_does_not(extract):
    said = [
        message(1, "I signed up for a pottery class on 9 March.", speaker="Ana"),
        message(2, "I booked your flight to Lisbon for 2026-06-01.", role=common_pb2.ROLE_ASSISTANT),
        message(3, "I started a new job in Lima on 9 March.", speaker="Bo", peer_id="bo"),
    ]
    space = Space()
    space.apply(await extract(said, space, peers=["bo"]))
    assert events(space) == [
        "memories/events/2026-03-09_I signed up for a pottery class.md",
        "memories/events/2026-06-01_Assistant - I booked your flight to Lisbon for 2026-06-01.md",
        "peers/bo/memories/events/2026-03-09_I started a new job in Lima.md",
    ]
    several = Space()
    said[2] = message(3, "I started a new job in Lima on 9 March.", speaker="Bo")
    several.apply(await extract(said, several))
    assert "memories/events/2026-03-09_Bo - I started a new job in Lima.md" in events(several)


async def test_what_happened_in_passing_is_left_out(extract):
    said = [message(1, "I found my first contract. We adopted a puppy on 9 March.", speaker="Ana")]
    space = Space()
    space.apply(await extract(said, space))
    assert events(space) == ["memories/events/2026-03-09_We adopted a puppy.md"]
