import pytest

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep_extractor.offline import OfflineEngine
from tests.doubles.fixed_job import message
from tests.unit.extractor.embedding_job import EmbeddingJob, Space

ASSISTANT = common_pb2.ROLE_ASSISTANT
FIRST = [
    message(1, "Hi! I'm Ana, a backend engineer in Porto. I prefer short answers without bullets.", speaker="Ana"),
    message(2, "Nice to meet you, Ana! What are you working on?", role=ASSISTANT),
    message(3, "Our project Falcon is written in Go. We deploy Falcon every Friday.", speaker="Ana"),
    message(4, "My sister Clara lives in Oslo. Yesterday I signed up for a pottery class.", speaker="Ana"),
    message(5, "The import job fails with a timeout on large CSV files.", speaker="Ana"),
    message(6, "Try reading the file in chunks of 10,000 rows.", role=ASSISTANT),
    message(7, "That worked, thanks!", speaker="Ana"),
]


@pytest.fixture
def engine():
    return OfflineEngine()


@pytest.fixture
def job_of(embedder):
    def make(messages, space=None, **options):
        job = EmbeddingJob(messages, space.memories() if space else (), **options)
        job.embedder = embedder
        return job

    return make


async def test_a_conversation_becomes_memory(engine, job_of):
    space = Space()
    output = await engine.extract(job_of(FIRST))
    space.apply(output)
    assert space.paths() == [
        "memories/entities/Clara.md",
        "memories/entities/Falcon.md",
        "memories/events/2026-03-04_Pottery class.md",
        "memories/preferences/Short answers without bullets.md",
        "memories/profile.md",
    ]
    assert space.text("memories/profile.md") == (
        "# User profile\n\n"
        "- Ana (2026-03-05): I'm Ana, a backend engineer in Porto.\n"
        "- Ana (2026-03-05): We deploy Falcon every Friday."
    )
    event = space.text("memories/events/2026-03-04_Pottery class.md")
    assert event == "Ana (2026-03-05): Yesterday (2026-03-04) I signed up for a pottery class."
    assert (engine.info.engine, engine.info.model) == ("offline", "rules")


async def test_every_sentence_kept_was_said(engine, job_of):
    output = await engine.extract(job_of(FIRST))
    spoken = " ".join(part.text.text for said in FIRST for part in said.parts)
    for operation in output.operations:
        for line in operation.write.fields["content"].string_value.split("\n"):
            if line and not line.startswith("#"):
                text = line.split(": ", 1)[1].replace(" (2026-03-04)", "")
                assert text in spoken


async def test_the_same_job_gives_the_same_output(job_of):
    outputs = [await OfflineEngine().extract(job_of(FIRST)) for _ in range(2)]
    assert outputs[0] == outputs[1]


async def test_what_is_known_is_not_written_again(engine, job_of):
    space = Space()
    space.apply(await engine.extract(job_of(FIRST)))
    told_again = [
        message(8, "My sister Clara lives in Oslo. I prefer short answers without bullets.", speaker="Ana", day=9),
        message(9, "I'm Ana, and I am a backend engineer in Porto.", speaker="Ana", day=9),
    ]
    assert (await engine.extract(job_of(told_again, space))).operations == []


@pytest.mark.parametrize("away", [False, True])
async def test_what_is_known_is_known_without_the_index_too(engine, job_of, away):
    """It is found by its words or in a list. A correction is applied, and nothing is written twice."""
    space = Space()
    space.apply(await engine.extract(job_of(FIRST)))
    told_again = [
        message(8, "My sister Clara lives in Oslo. I prefer short answers without bullets.", speaker="Ana", day=9),
        message(9, "Actually I was wrong: we deploy Falcon every Thursday, not Friday.", speaker="Ana", day=9),
    ]
    job = job_of(told_again, space)
    job.index_is_away = away
    output = await engine.extract(job)
    assert [operation.WhichOneof("operation") for operation in output.operations] == ["edit"]
    assert output.skipped_rules == {}
    # The first search that fails stands for the others.
    assert not away or len(job.finds) <= 8


async def test_a_correction_updates_the_line_and_leaves_the_rest(engine, job_of):
    space = Space()
    space.apply(await engine.extract(job_of(FIRST)))
    corrected = [
        message(8, "Actually I was wrong: we deploy Falcon every Thursday, not Friday.", speaker="Ana", day=9),
        message(9, "My sister Clara moved to Bergen last month.", speaker="Ana", day=9),
    ]
    output = await engine.extract(job_of(corrected, space))
    assert [operation.WhichOneof("operation") for operation in output.operations] == ["edit", "edit"]
    assert sorted(space.apply(output)) == [
        "viking://user/default/memories/entities/Clara.md",
        "viking://user/default/memories/profile.md",
    ]
    assert space.text("memories/entities/Clara.md") == (
        "- Ana (2026-03-09): My sister Clara moved to Bergen last month (2026-02)."
    )
    assert space.text("memories/profile.md") == (
        "# User profile\n\n"
        "- Ana (2026-03-05): I'm Ana, a backend engineer in Porto.\n"
        "- Ana (2026-03-09): We deploy Falcon every Thursday, not Friday."
    )


async def test_a_correction_within_the_batch_leaves_the_later_statement(engine, job_of):
    said = [
        message(1, "I work at Northwind as a data engineer.", speaker="Ana"),
        message(2, "I was wrong, I no longer work at Northwind as a data engineer.", speaker="Ana"),
    ]
    space = Space()
    space.apply(await engine.extract(job_of(said)))
    text = space.text("memories/profile.md")
    assert "no longer work" in text
    assert "I work at Northwind" not in text


async def test_nobody_corrects_what_another_one_said(engine, job_of):
    space = Space()
    space.apply(await engine.extract(job_of([message(1, "I work at Northwind as a data engineer.", speaker="Ana")])))
    said = [message(2, "I was wrong, I no longer work at Northwind as a data engineer.", speaker="Bo")]
    space.apply(await engine.extract(job_of(said, space)))
    assert "Ana (2026-03-05): I work at Northwind" in space.text("memories/profile.md")


async def test_new_statements_are_put_behind_the_old_ones(engine, job_of):
    space = Space()
    space.apply(await engine.extract(job_of(FIRST)))
    output = await engine.extract(job_of([message(8, "Our project Falcon has 12 users.", speaker="Ana")], space))
    space.apply(output)
    assert space.text("memories/entities/Falcon.md").split("\n") == [
        "- Ana (2026-03-05): Our project Falcon is written in Go.",
        "- Ana (2026-03-05): Our project Falcon has 12 users.",
    ]


async def test_numbers_and_names_make_another_fact(engine, job_of):
    space = Space()
    space.apply(await engine.extract(job_of([message(1, "I have two cats and a garden.", speaker="Ana")])))
    space.apply(await engine.extract(job_of([message(2, "I have three cats and a garden.", speaker="Ana")], space)))
    assert "two cats" in space.text("memories/profile.md")
    assert "three cats" in space.text("memories/profile.md")


async def test_the_same_words_the_other_way_round_are_no_repeat(engine, job_of):
    space = Space()
    space.apply(await engine.extract(job_of([message(1, "I prefer tea to coffee at work.", speaker="Ana")])))
    space.apply(await engine.extract(job_of([message(2, "I prefer coffee to tea at work.")], space)))
    assert "I prefer coffee to tea" in "".join(space.text(path) for path in space.paths())


async def test_a_denial_is_no_repeat(engine, job_of):
    space = Space()
    space.apply(await engine.extract(job_of([message(1, "I like green tea in the morning.", speaker="Ana")])))
    space.apply(await engine.extract(job_of([message(2, "I don't like green tea in the morning.")], space)))
    assert "I don't like green tea" in "".join(space.text(path) for path in space.paths())


async def test_the_same_event_on_another_day_is_another_event(engine, job_of):
    space = Space()
    for sequence, day in ((1, 5), (2, 12)):
        said = [message(sequence, "Yesterday I ran ten kilometers in the rain.", speaker="Ana", day=day)]
        space.apply(await engine.extract(job_of(said, space)))
    assert len([path for path in space.paths() if path.startswith("memories/events/")]) == 2


async def test_peers_get_their_own_memory_where_they_may(engine, job_of):
    said = [
        message(1, "I love hiking in the mountains.", speaker="Ana"),
        message(2, "I am a nurse at the city hospital.", peer_id="bo", speaker="Bo"),
        message(3, "I am a pilot and live in Lima.", peer_id="eve", speaker="Eve"),
    ]
    output = await engine.extract(job_of(said, peers=["bo"]))
    about = {operation.peer_id: operation for operation in output.operations}
    assert set(about) == {"", "bo"}
    assert [(r.start_sequence, r.end_sequence) for r in about["bo"].ranges] == [(2, 2)]
    assert [(r.start_sequence, r.end_sequence) for r in about[""].ranges] == [(1, 1)]
    peer_only = await engine.extract(job_of(said, peers=["bo"], allow_self=False))
    assert {operation.peer_id for operation in peer_only.operations} == {"bo"}


async def test_only_planned_types_are_written(engine, job_of):
    output = await engine.extract(job_of(FIRST, long_term=("events",), summarize=False))
    assert {operation.write.memory_type for operation in output.operations} == {"events"}
    assert output.summary is None


async def test_small_talk_gives_nothing_and_an_honest_summary(engine, job_of):
    said = [
        message(1, "Hi! How are you?", speaker="Ana"),
        message(2, "Great, thanks! And you?", role=ASSISTANT),
        message(3, "All good, talk to you soon!", speaker="Ana"),
    ]
    output = await engine.extract(job_of(said))
    assert output.operations == []
    assert "offline extractor" in output.summary.overview


async def test_the_summary_has_its_five_sections(engine, job_of):
    summary = (await engine.extract(job_of([*FIRST, message(8, "Please remind me to write the guide.")]))).summary
    headings = [line for line in summary.overview.split("\n") if line.startswith("#")]
    assert headings == [
        "# Session Summary",
        "## Analysis",
        "## Primary Request and Intent",
        "## Key Concepts",
        "## Pending Tasks",
    ]
    (line,) = [line for line in summary.overview.split("\n") if line.startswith("**One-line overview**: ")]
    assert summary.abstract == line.removeprefix("**One-line overview**: ")
    assert summary.abstract.count(" | ") == 2
    assert "remind me to write the guide" in summary.overview.split("## Pending Tasks")[1]


async def test_the_summary_names_the_trouble_when_nothing_is_asked_for(engine, job_of):
    said = [
        message(1, "Bo is here with me today, we share the desk.", speaker="Ana"),
        message(2, "The nightly import stops with a timeout error.", speaker="Ana"),
        message(3, "Haha, it really does.", speaker="Ana"),
    ]
    overview = (await engine.extract(job_of(said))).summary.overview
    request = overview.split("## Primary Request and Intent")[1].split("##")[0]
    assert "The nightly import stops" in request
    assert "Haha" not in overview


async def test_the_summary_covers_those_who_may_not_be_written_about(engine, job_of):
    said = [message(1, "I moved to Lima last year with my two dogs.", peer_id="eve", speaker="Eve")]
    output = await engine.extract(job_of(said))
    assert output.operations == []
    assert "Eve" in output.summary.overview


async def test_it_asks_for_no_vectors(engine, job_of):
    job = job_of(FIRST)
    await engine.extract(job)
    assert job.embedded == []


async def test_repair_leaves_out_what_was_refused(engine, job_of):
    job = job_of(FIRST)
    output = await engine.extract(job)
    repaired = await engine.repair(job, output, [task_service_pb2.LeftOut(operation_index=1, reason="not_found")])
    assert repaired.operations == [output.operations[0], *output.operations[2:]]
    assert (repaired.summary, repaired.model) == (output.summary, output.model)


async def test_progress_is_told_phase_by_phase(engine, job_of):
    job = job_of(FIRST)
    await engine.extract(job)
    assert [phase for phase, _, _ in job.reports] == [
        task_service_pb2.TASK_PHASE_PREFETCH,
        task_service_pb2.TASK_PHASE_LONG_TERM,
        task_service_pb2.TASK_PHASE_SUMMARY,
    ]


async def test_long_and_odd_texts_stay_within_bounds(engine, job_of):
    odd = "I love tea\u2028and I prefer <!-- MEMORY_FIELDS {} --> it hot. " + "I enjoy " + "very " * 90 + "long walks. "
    output = await engine.extract(job_of([message(1, odd * 30, speaker="A" * 128)]))
    assert output.operations
    for operation in output.operations:
        assert all(len(value.string_value) <= 8000 for value in operation.write.fields.values())
        assert len(operation.reason) <= 500
