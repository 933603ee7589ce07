"""What counts as near: measured with the embedder that servers run by default."""

import pytest

from runekeep.v1 import common_pb2, extractor_service_pb2
from runekeep_extractor.pipeline.existing_memories import ListedMemories, list_spaces
from runekeep_extractor.pipeline.similar_memories import Candidate, find_near, least_likeness, said_by
from runekeep_extractor.pipeline.targets import Target, Targets
from runekeep_extractor.rpc.calls import SearchAway
from runekeep_schemas.documents.filenames import memory_uri
from runekeep_schemas.documents.render import index_text
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Space
from runekeep_storage.embedders.text_form import TextForm
from runekeep_storage.embedders.vectors import from_bytes
from tests.doubles.fixed_job import SPACE, memory, message, wire_type
from tests.support.worker import delete, edit, write
from tests.unit.extractor.embedding_job import EmbeddingJob
from tests.unit.extractor.near_pairs import APART, NEAR, Pair

TYPES = Registry.load()
FORM = TextForm()
MORNING = [message(1, "I drink green tea."), message(2, "Me too.", peer_id="anna"), message(3, "And so on.")]
TEA = memory("preferences/Hot drinks.md", "preferences", {"topic": "Hot drinks", "content": "Prefers green tea."})


async def likeness(embedder, pairs: tuple[Pair, ...]) -> list[float]:
    texts = []
    for name, *memories in pairs:
        kind = wire_type(TYPES[name])
        for fields in memories:
            values = {field: common_pb2.FieldValue(string_value=text) for field, text in fields.items()}
            texts.append(said_by(kind, values, ""))
    vectors = [from_bytes(vector) for vector in await embedder.embed(texts)]
    pair_of = zip(vectors[::2], vectors[1::2], strict=True)
    return [sum(a * b for a, b in zip(one, other, strict=True)) for one, other in pair_of]


def least(pair: Pair) -> float:
    name, first, second = pair
    target = Target("", "", write(name, **first))
    there = {field: common_pb2.FieldValue(string_value=text) for field, text in second.items()}
    return least_likeness(Candidate("c1", 0, target, wire_type(TYPES[name]), ""), there)


async def test_the_thresholds_tell_labelled_pairs_apart(embedder):
    near, apart = await likeness(embedder, NEAR), await likeness(embedder, APART)
    asked = [
        [score >= least(pair) for score, pair in zip(*both, strict=True)] for both in ((near, NEAR), (apart, APART))
    ]
    assert [(len(one), sum(one)) for one in asked] == [(29, 28), (32, 0)]
    entity, like = ({"entity_name": f"{name} (trainer)", "content": "x"} for name in ("Lasse", "Bartosz"))
    assert least(("entities", entity, like)) > least(("entities", entity, {**entity, "entity_name": "Lasse K."}))


def test_what_is_compared_is_what_the_server_indexes_so_that_it_is_embedded_once():
    """Of types with a content of its own, as long as no abstract is given."""
    space, checked = Space("acme", "default"), set()
    long = {"experience_name": "Two\n names ", "content": "A long one.\n " * 250}
    for name, *memories in (*NEAR, *APART, ("experiences", long)):
        kind = TYPES[name]
        if "content" not in memories[0]:
            continue
        for fields in memories:
            wire = {field: common_pb2.FieldValue(string_value=text) for field, text in fields.items()}
            indexed = index_text(kind, fields, memory_uri(kind, fields, "default"))
            # By this the server knows a text that it has embedded.
            said, stored = (FORM.apply(text, query=False) for text in (said_by(wire_type(kind), wire, ""), indexed))
            assert FORM.cache_key(space, said, query=False) == FORM.cache_key(space, stored, query=False)
            checked.add(name)
    assert checked == {"preferences", "entities", "events", "patterns", "experiences"}


@pytest.fixture
def job_of(embedder):
    def make(*memories, **options) -> EmbeddingJob:
        job = EmbeddingJob(MORNING, memories, **options)
        job.embedder = embedder
        return job

    return make


def tea(topic="Tea", content="Drinks only green tea.", **options) -> extractor_service_pb2.MemoryOperation:
    return write("preferences", topic=topic, content=content, ranges=options.pop("ranges", [(1, 1)]), **options)


async def near_of(job, *operations, known=(), listed=None):
    known = dict.fromkeys(known, "preferences")
    nearness = await find_near(job, Targets(job), operations, known, listed or ListedMemories())
    uris = {name: one.uri for name, one in nearness.memories.items()}
    uris |= {one.id: one.id for one in nearness.candidates}
    return [[uris[name] for name in one.near] for one in nearness.candidates]


async def test_a_memory_of_the_same_type_and_owner_is_near(job_of):
    of_anna = memory("preferences/Tea.md", "preferences", {"topic": "Teas", "content": "Drinks only green tea."})
    of_anna.uri = f"{SPACE}/peers/anna/memories/preferences/Teas.md"
    entity = memory("entities/Tea.md", "entities", {"entity_name": "Tea", "content": "Drinks only green tea."})
    assert await near_of(job_of(TEA, of_anna, entity, peers=["anna"]), tea()) == [[TEA.uri]]


async def test_a_write_for_several_owners_is_compared_in_each_space(job_of):
    of_anna = memory("preferences/Teas.md", "preferences", {"topic": "Teas", "content": "Drinks only green tea."})
    of_anna.uri = f"{SPACE}/peers/anna/memories/preferences/Teas.md"
    job = job_of(TEA, of_anna, peers=["anna"])
    assert await near_of(job, tea(ranges=[(1, 3)])) == [[TEA.uri], [of_anna.uri]]
    parts = Targets(job).of(tea(ranges=[(1, 3)]))
    assert [part.operation.peer_id for part in parts] == ["", "anna"]
    ranges = [[(one.start_sequence, one.end_sequence) for one in part.operation.ranges] for part in parts]
    assert ranges == [[(1, 1), (3, 3)], [(2, 2)]]


async def test_the_memory_itself_is_left_to_the_server(job_of):
    itself = memory("preferences/Tea.md", "preferences", {"topic": "Tea", "content": "Drinks green tea."})
    assert await near_of(job_of(itself, TEA), tea()) == [[]]
    assert await near_of(job_of(TEA), tea(), known=[f"{SPACE}/memories/preferences/Tea.md"]) == [[]]


async def test_a_memory_that_another_operation_is_about_is_no_item(job_of):
    change = edit(TEA.uri, content=[("green", "black")], ranges=[(1, 1)])
    assert await near_of(job_of(TEA), tea(), change) == [[]]
    assert await near_of(job_of(TEA), tea(), delete(TEA.uri, ranges=[(1, 1)])) == [[]]


async def test_new_memories_are_compared_with_those_before_them(job_of):
    twice = [tea(), tea("Hot drinks", "Prefers green tea to all other drinks."), tea("Editor", "Uses Neovim.")]
    assert await near_of(job_of(), *twice) == [[], ["c1"], []]


async def test_an_event_of_the_same_name_is_near_unless_it_is_the_same(job_of):
    fields = {"event_name": "Moved to Lisbon", "event_time": "2026-02-27", "content": "Moved from Porto to Lisbon."}
    event = memory("events/2026-02-27_Moved to Lisbon.md", "events", fields)
    again = write("events", ranges=[(1, 1)], **fields)
    told_anew = write("events", ranges=[(1, 1)], **fields | {"content": "In February the user moved to Lisbon."})
    assert await near_of(job_of(event), again) == [[]]
    assert await near_of(job_of(event), told_anew) == [[event.uri]]


CROWD = [
    memory(f"preferences/{topic}.md", "preferences", {"topic": topic, "content": content})
    for topic, content in [
        ("Painting at night", "Melanie paints at night when the kids sleep, to relax."),
        ("Painting landscapes", "Melanie likes painting landscapes, lakes above all, to relax."),
        ("Painting with kids", "Melanie paints with her kids at weekends, which relaxes her."),
        ("Painting materials", "Melanie paints with water colours, and likes to relax so."),
        ("Painting and music", "Melanie paints to music, which she finds relaxing."),
        ("Painting gifts", "Melanie paints pictures as gifts for friends, and relaxes so."),
    ]
]  # fmt: skip


async def test_in_a_crowd_of_like_memories_only_what_stands_out_is_near(job_of):
    job = job_of(*CROWD)
    another = write(
        "preferences", topic="Painting course", content="Melanie relaxes in a painting course.", ranges=[(1, 1)]
    )
    assert await near_of(job, another) == [[]]
    double = write("preferences", topic="Painting landscapes at lakes", ranges=[(1, 1)],
                   content="Melanie likes to paint landscapes, above all lakes, to relax.")  # fmt: skip
    assert await near_of(job, double) == [[CROWD[1].uri]]


async def test_what_is_nearly_the_same_is_near_even_among_doubles(job_of):
    doubles = [
        memory(f"preferences/{topic}.md", "preferences", {"topic": topic, "content": "Drinks only green tea."})
        for topic in ("Teas", "Green tea", "The tea")
    ]
    (near,) = await near_of(job_of(*doubles), tea())
    assert set(near) == {double.uri for double in doubles}


@pytest.mark.parametrize(
    ("there", "here", "near"),
    [("2026-02-27", "2026-02", True), ("2026-02-27", "", True), ("2026-02-27", "2026-03-06", False)],
)
async def test_the_same_on_two_days_is_two_happenings(job_of, there, here, near):
    fields = {"event_name": "Swam 2 km", "content": "The user swam two kilometres in the lake."}
    event = memory("events/Swam.md", "events", fields | {"event_time": there})
    again = fields | ({"event_time": here} if here else {}) | {"event_name": "Swam two kilometres"}
    assert await near_of(job_of(event), write("events", ranges=[(1, 1)], **again)) == [[event.uri] if near else []]


@pytest.mark.parametrize(
    "operation",
    [
        tea(ranges=[(2, 2)]),
        tea(peer="nobody"),
        write("preferences", content="Drinks only green tea."),
        write("no_such_type", topic="Tea"),
    ],
)
async def test_what_the_server_will_leave_out_is_not_compared(job_of, operation):
    assert await near_of(job_of(TEA), operation) == []


async def test_without_an_embedder_nothing_is_near(job_of):
    job = job_of(TEA)
    job.embedder = None
    assert await near_of(job, tea()) == [[]]


async def listed(job) -> ListedMemories:
    roots = [f"{SPACE}/memories", *(f"{SPACE}/peers/{peer}/memories" for peer in job.assignment.plan.allowed_peer_ids)]
    return await list_spaces(job, roots, 80, 12)


async def test_of_few_memories_that_are_at_hand_none_is_searched_for(job_of):
    of_anna = memory("preferences/Teas.md", "preferences", {"topic": "Teas", "content": "Drinks only green tea."})
    of_anna.uri = f"{SPACE}/peers/anna/memories/preferences/Teas.md"
    entity = memory("entities/Tea.md", "entities", {"entity_name": "Tea", "content": "Drinks only green tea."})
    job = job_of(TEA, of_anna, entity, peers=["anna"])
    assert await near_of(job, tea(ranges=[(1, 3)]), listed=await listed(job)) == [[TEA.uri], [of_anna.uri]]
    assert job.finds == [] and job.read_uris == []


async def test_the_memory_itself_is_known_without_a_search(job_of):
    itself = memory("preferences/Tea.md", "preferences", {"topic": "Tea", "content": "Drinks green tea."})
    job = job_of(itself, TEA)
    assert await near_of(job, tea(), listed=await listed(job)) == [[]]
    assert job.finds == []


async def test_what_is_more_than_a_search_gives_is_searched_for(job_of):
    more = [*CROWD, memory("preferences/Tea drinks.md", "preferences", {"topic": "Drinks", "content": "Likes tea."})]
    another = write("preferences", topic="Painting gifts", content="Paints gifts.", ranges=[(1, 1)])
    for memories, searches in ((CROWD, 0), (more, 1)):
        job = job_of(*memories)
        await near_of(job, another, listed=await listed(job))
        assert len(job.finds) == searches


async def test_what_is_compared_with_nothing_is_not_embedded(job_of):
    entity = memory("entities/Tea.md", "entities", {"entity_name": "Tea", "content": "Drinks only green tea."})
    job = job_of(entity)
    event = write("events", ranges=[(1, 1)], event_name="Walk", event_time="2026-02-27", content="Went for a walk.")
    assert await near_of(job, tea(), event, listed=await listed(job)) == [[], []]
    assert job.embedded == []
    assert await near_of(job, tea(), event, tea("Hot", "Prefers green tea."), listed=await listed(job))
    assert sorted(job.embedded) == ["Hot\nPrefers green tea.", "Tea\nDrinks only green tea."]


async def test_without_the_index_a_new_memory_is_compared_with_all_that_are_listed(job_of):
    more = [*CROWD, TEA]
    job = job_of(*more)
    assert await near_of(job, tea(), listed=await listed(job)) == [[TEA.uri]] and len(job.finds) == 1
    job = job_of(*more)
    job.index_is_away = True
    assert await near_of(job, tea(), listed=await listed(job)) == [[TEA.uri]]
    with pytest.raises(SearchAway):
        await near_of(job, tea())
