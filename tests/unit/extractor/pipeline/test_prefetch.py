"""What the model is shown of the memories that are there, and what is asked of the server to find it."""

import pytest

from runekeep.v1 import extractor_service_pb2, memory_service_pb2
from runekeep_extractor.pipeline.prefetch import Existing, prefetch
from runekeep_extractor.rpc.calls import SearchAway
from tests.doubles.fixed_job import SPACE, FixedJob, memory, message

TALK = [
    message(1, "I drink tea in the garden, every morning."),
    message(2, "On Sundays I mend the old violin."),
    message(3, "And tea again in the evening."),
]
PROFILE = memory("profile.md", "profile", {"content": "Lives in Porto."})
ROOM = 80_000


def events(count: int, text: str = "Went out.", start: int = 0) -> list[memory_service_pb2.Memory]:
    return some("events", "event_name", count, text, start)


def some(kind: str, name: str, count: int, text: str, start: int = 0) -> list[memory_service_pb2.Memory]:
    """Each changed a second after the one before it."""
    made = [
        memory(f"{kind}/{number:03}.md", kind, {name: f"{kind} {number}", "content": text})
        for number in range(start, start + count)
    ]
    for number, one in enumerate(made, start):
        one.update_time.FromSeconds(1_700_000_000 + number)
    return made


def entities(count: int, text: str) -> list[memory_service_pb2.Memory]:
    return some("entities", "entity_name", count, text)


def preferences(count: int, text: str = "Likes it.") -> list[memory_service_pb2.Memory]:
    return some("preferences", "topic", count, text)


async def found_in(job: FixedJob, room: int = ROOM) -> Existing:
    async def silent(done: int, steps: int) -> None:
        pass

    return await prefetch(job, TALK, room, silent)


def shown(existing: Existing, kind: str) -> list[str]:
    """Names of the memories of that type that are shown in full, in order."""
    lines = [line for line in existing.memories if f"/{kind}/" in line]
    return [line.partition(f"/{kind}/")[2].partition(".md")[0] for line in lines]


async def test_where_few_memories_are_all_are_shown_without_a_search():
    job = FixedJob(TALK, [PROFILE, *events(40), *preferences(30)])
    existing = await found_in(job)
    assert job.finds == [] and job.read_uris == []
    assert "Lives in Porto." in existing.memories[0]
    assert shown(existing, "events") == [f"{number:03}" for number in range(39, -1, -1)], "what changed last first"
    assert len(shown(existing, "preferences")) == 30
    assert existing.others == [] and not existing.truncated
    assert set(existing.known) == set(job.memories)


@pytest.mark.parametrize(
    ("text", "room"), [("住在波尔图。" * 1000, 9000), ("住在波尔图。" * 1000, 2000), ("Porto. " * 1000, 2000)]
)
async def test_a_long_profile_is_cut_and_shown(text, room):
    existing = await found_in(FixedJob(TALK, [memory("profile.md", "profile", {"content": text})]), room)
    (record,) = existing.memories
    assert text[:50] in record and '"cut_fields": ["content"]' in record
    assert min(room, 4000) - 10 < len(record.encode()) <= min(room, 4200)


async def test_a_type_with_many_memories_is_searched_for_and_one_with_few_is_not():
    job = FixedJob(TALK, [*events(90, "Drank tea."), *preferences(12)])
    existing = await found_in(job)
    assert {tuple(request.memory_types) for request in job.finds} == {("events",)}
    assert len(shown(existing, "preferences")) == 12
    assert 4 <= len(shown(existing, "events")) <= 12
    assert len(existing.others) == 102 - len(existing.memories), "the rest is listed in short"


async def test_of_two_types_with_many_memories_both_are_searched_for():
    job = FixedJob(TALK, [*events(70), *preferences(13)])
    await found_in(job)
    assert {tuple(request.memory_types) for request in job.finds} == {("preferences", "events")}


async def test_memories_that_are_few_and_long_are_searched_for():
    """What need not be shown is shown only where it takes no more than the listing may."""
    long = "A long story about tea. " * 40
    assert 13 * len(long) < ROOM // 3 < 40 * len(long)
    job = FixedJob(TALK, [*entities(13, long), *preferences(1)])
    await found_in(job)
    assert job.finds == []
    job = FixedJob(TALK, [*entities(40, long), *preferences(1)])
    existing = await found_in(job)
    assert {tuple(request.memory_types) for request in job.finds} == {("entities",)}
    assert shown(existing, "preferences") == ["000"]


async def test_where_not_even_those_of_few_types_fit_all_types_are_searched():
    long = "A long story about tea. " * 150
    job = FixedJob(TALK, [*entities(12, long), *preferences(12, long)])
    room = 60_000
    assert 24 * len(long) > room
    existing = await found_in(job, room)
    assert {tuple(request.memory_types) for request in job.finds} == {("preferences", "entities")}
    assert len(shown(existing, "entities")) >= 4, "what is like the messages is left out of no type"


async def test_where_those_of_few_types_do_not_fit_no_type_is_searched_for_twice():
    long = "A long story about tea. " * 150
    job = FixedJob(TALK, [*events(60, "Drank tea."), *preferences(12, long)])
    existing = await found_in(job, 20_000)
    asked = [(request.query, kind) for request in job.finds for kind in request.memory_types]
    assert {kind for _, kind in asked} == {"events", "preferences"}
    assert len(asked) == len(set(asked))
    assert shown(existing, "preferences") and not existing.memories[0].count("/events/"), "types keep their order"


async def test_a_type_of_which_peers_have_many_is_searched_for():
    of_peers = events(12)
    for number, one in enumerate(of_peers):
        one.uri = f"{SPACE}/peers/anna/memories/events/{number}.md"
    job = FixedJob(TALK, [*events(12), *of_peers, *preferences(60)], peers=["anna"])
    existing = await found_in(job)
    assert {tuple(request.memory_types) for request in job.finds} == {("preferences", "events")}
    assert len(existing.known) == 84


class OlderServer(FixedJob):
    """Its server does not know that a listing may come with memories."""

    async def list(self, uri: str = "", **options: int) -> extractor_service_pb2.ListForJobResponse:
        listing = (await super().list(uri, **options)).listing
        return extractor_service_pb2.ListForJobResponse(listing=listing)


async def test_a_server_that_gives_no_memories_with_a_listing_is_searched():
    job = OlderServer(TALK, [PROFILE, *events(2, "Drank tea."), *preferences(2)])
    existing = await found_in(job)
    assert {tuple(request.memory_types) for request in job.finds} == {("profile", "preferences", "events")}
    assert job.read_uris == [PROFILE.uri]
    assert shown(existing, "events") == ["000", "001"]


@pytest.mark.parametrize("erased", ["events/001.md", "profile.md"])
async def test_a_memory_that_went_between_two_reads_makes_its_type_one_to_search_for(erased):
    class Erasing(FixedJob):
        async def list(self, uri: str = "", **options: int) -> extractor_service_pb2.ListForJobResponse:
            answer = await super().list(uri, **options)
            there = [one for one in answer.memories if not one.uri.endswith(erased)]
            return extractor_service_pb2.ListForJobResponse(listing=answer.listing, memories=there)

    job = Erasing(TALK, [PROFILE, *events(2), *preferences(2)])
    await found_in(job)
    assert {tuple(request.memory_types) for request in job.finds} == {(erased.partition("/")[0].removesuffix(".md"),)}


async def test_directories_below_those_of_types_are_not_taken_for_nothing():
    deep = memory("events/2026/001.md", "events", {"event_name": "Went out", "content": "Drank tea."})
    job = FixedJob(TALK, [deep, *preferences(2)])
    await found_in(job)
    assert {tuple(request.memory_types) for request in job.finds} == {tuple(kind.name for kind in job.memory_types)}


async def test_without_the_index_a_space_that_can_be_listed_is_listed():
    """Types of up to 100 memories, as many as the contract lists; the latest change comes first."""
    job = FixedJob(TALK, [*events(90, "Drank tea."), *preferences(12)])
    job.index_is_away = True
    existing = await found_in(job)
    assert job.finds, "a search is better where there is one"
    assert shown(existing, "preferences") == [f"{number:03}" for number in range(11, -1, -1)]
    assert shown(existing, "events")[:2] == ["089", "088"]
    assert len(existing.memories) + len(existing.others) == 102
    assert existing.listed.within("events", f"{SPACE}/memories/events", 100) is not None


async def test_without_the_index_few_long_memories_are_shown_as_far_as_there_is_room():
    long = "A long story about tea. " * 150
    job = FixedJob(TALK, [*entities(12, long), *preferences(12, long)])
    job.index_is_away = True
    existing = await found_in(job, 60_000)
    assert shown(existing, "preferences")[:2] == ["011", "010"] and existing.truncated
    assert len(existing.memories) + len(existing.others) == 24


async def test_without_the_index_a_space_that_is_too_large_to_be_listed_waits():
    job = FixedJob(TALK, [*events(101, "Drank tea."), *preferences(12)])
    job.index_is_away = True
    with pytest.raises(SearchAway):
        await found_in(job)


async def test_what_the_talk_names_comes_first_and_tools_only_if_they_were_called():
    """Found by its name among many, whatever a search finds; add-only memories by their abstracts, no empty fields."""
    talk = message(1, "Tomas can't come to the fair in March.")
    called = talk.parts.add().tool
    called.tool_name = "send_mail"
    tools = [
        memory(f"tools/{name}.md", "tools", {"tool_name": name, "best_for": "", "total_calls": 3})
        for name in ("send_mail", "fly_drone")
    ]
    tomas = memory(
        "entities/Tomas Weber (brother).md", "entities", {"entity_name": "Tomas Weber", "content": "Brother."}
    )
    fair = memory("events/2026_Fair.md", "events", {"event_name": "Fair", "content": "A long story."})
    fair.abstract = "There is a fair."
    job = FixedJob([talk], [*entities(40, "Likes tea."), *preferences(5), *tools, tomas, fair])

    async def silent(done: int, steps: int) -> None:
        pass

    existing = await prefetch(job, job.messages, 12_000, silent)
    assert "Tomas Weber" in existing.memories[0]
    told = "\n".join(existing.memories + existing.others)
    assert "send_mail" in told and "fly_drone" not in told
    assert "There is a fair." in told and "A long story." not in told
    assert "best_for" not in told and "total_calls" not in told
