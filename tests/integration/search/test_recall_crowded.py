"""Recall where much was given before, or one type has most of what there is: what is new is told all the same."""

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2
from runekeep.v1 import memory_service_pb2 as pb
from tests.integration.conftest import Callers
from tests.support.callers import Caller, said
from tests.support.changes import put, written
from tests.support.exports import exported, imported
from tests.support.recalls import (
    ABSTRACT,
    FULL,
    OVERVIEW,
    URI,
    in_session,
    names,
    omitted,
    preference,
    ready,
    recall,
)


async def many(caller: Caller, count: int) -> set[str]:
    """So many memories of a line each, to be found; their names."""
    topics = [f"kind{number:03}" for number in range(count)]
    for start in range(0, count, 50):
        lines = ((topic, f"Likes {topic} tea.") for topic in topics[start : start + 50])
        mutations = [put("preferences", topic=f"Tea {topic}", content=line, abstract=line) for topic, line in lines]
        await written(caller, *mutations)
    await caller.searchable()
    return set(topics)


async def test_what_was_given_takes_no_place_of_what_is_new(caller: Caller) -> None:
    """Of each memory there is more to tell than there will ever be room for."""
    long = [preference(f"t{number:02}", more=600) for number in range(24)]
    await written(caller, *long)
    await caller.searchable()
    session = await in_session(caller)
    told: list[str] = []
    for places in (5, 5, 5, 5, 4):
        answer = await recall(caller, session=session, token_budget=400, limit=5)
        new = set(names(answer)) - set(told)
        assert len(new) == places
        told += new
    assert len(told) == 24


async def test_a_session_is_given_everything_in_the_end(caller: Caller) -> None:
    topics = await many(caller, 230)
    session = await in_session(caller)
    told: list[str] = []
    for _ in range(6):
        told += names(await recall(caller, session=session, token_budget=20_000, limit=40))
    assert sorted(told) == sorted(topics)
    last = await recall(caller, session=session, limit=40)
    assert not last.entries and omitted(last) == (100, 0, 0), "more of it nobody counts"


@pytest.mark.parametrize("most", [0, 5])
async def test_a_quota_on_passages_leaves_room_for_memories(caller: Caller, most: int) -> None:
    """More of them than a search has candidates of its own."""
    oolong = put(
        "preferences",
        topic="Beverages",
        content="Robin likes an oolong tea in the evening, with a biscuit and a view over the harbour",
        abstract="oolong tea in the evening",
    )
    revision = (await written(caller, oolong)).revision
    for part in range(4):
        words = (f"I drank tea number {part} {number} and the tea was good" for number in range(90))
        await caller.committed(*map(said, words))
    await caller.searchable()
    quotas = [pb.RecallQuota(memory_type="passages", max_items=most)]
    answer = await recall(caller, "tea I drank", quotas=quotas, min_revision=revision)
    kinds = [entry.kind for entry in answer.entries]
    assert kinds == [pb.FOUND_KIND_MEMORY] + [pb.FOUND_KIND_PASSAGE] * most


async def test_a_quota_on_a_type_leaves_room_for_others(caller: Caller) -> None:
    topics = await many(caller, 130)
    event = put(
        "events", event_name="Harbour", event_time="2024-05-03", content="A walk, and some tea at the end of it."
    )
    await written(caller, event)
    await caller.searchable()
    for most in (0, 3):
        quotas = [pb.RecallQuota(memory_type="preferences", max_items=most)]
        answer = await recall(caller, "likes tea", quotas=quotas, limit=10)
        assert [entry.memory_type for entry in answer.entries].count("preferences") == most
        assert [entry.memory_type for entry in answer.entries].count("events") == 1
    # Given ones use no quota up.
    session, told = await in_session(caller), set[str]()
    for _ in range(3):
        told |= set(names(await recall(caller, "likes tea", session=session, quotas=quotas, limit=10))) & topics
    assert len(told) == 9


async def test_a_shallow_repeat_does_not_make_a_session_forget_that_it_was_told_more(caller: Caller) -> None:
    await ready(caller, "green")
    session = await in_session(caller)
    assert names(await recall(caller, session=session)) == {"green": FULL}
    assert names(await recall(caller, session=session, repeat=True, max_level=URI)) == {"green": URI}
    assert names(await recall(caller, session=session)) == {}


def context(uri: str, abstract: str, seconds: int) -> common_pb2.Message:
    """A message that shows a memory, made at a time of the caller's own."""
    return common_pb2.Message(
        role=common_pb2.ROLE_ASSISTANT,
        parts=[common_pb2.Part(context=common_pb2.ContextPart(uri=uri, abstract=abstract))],
        create_time=Timestamp(seconds=seconds),
    )


@pytest.mark.parametrize("seconds", [1000, 4_102_444_800])
async def test_when_a_context_came_is_for_the_server_to_say(caller: Caller, seconds: int) -> None:
    await ready(caller, "green")
    uri = caller.uri("memories/preferences/Tea green.md")
    session = await in_session(caller)
    await caller.add(session, context(uri, "Likes tea.", seconds))
    assert names(await recall(caller, session=session, max_level=ABSTRACT)) == {}
    revision = (await written(caller, preference("green", 1, more=10))).revision
    answer = await recall(caller, session=session, max_level=ABSTRACT, min_revision=revision)
    assert names(answer) == {"green": ABSTRACT}, "it changed after it was shown"


async def test_a_context_without_an_abstract_shows_a_uri_and_no_more(caller: Caller) -> None:
    await ready(caller, "green")
    session = await in_session(caller)
    await caller.add(session, context(caller.uri("memories/preferences/Tea green.md"), "", 1000))
    assert names(await recall(caller, session=session, max_level=URI)) == {}
    assert names(await recall(caller, session=session, max_level=ABSTRACT)) == {"green": ABSTRACT}


async def test_a_context_of_what_was_told_whole_takes_nothing_back(caller: Caller) -> None:
    await ready(caller, "green")
    session = await in_session(caller)
    assert names(await recall(caller, session=session, max_level=OVERVIEW)) == {"green": OVERVIEW}
    await caller.add(session, context(caller.uri("memories/preferences/Tea green.md"), "Likes tea.", 1000))
    assert names(await recall(caller, session=session, max_level=OVERVIEW)) == {}
    assert names(await recall(caller, session=session)) == {"green": FULL}
    await caller.add(session, context(caller.uri("memories/preferences/Tea green.md"), "Likes tea.", 1000))
    assert names(await recall(caller, session=session)) == {}


async def test_what_messages_show_goes_with_an_export(caller: Caller, callers: Callers) -> None:
    await ready(caller, "green", "black")
    session = await in_session(caller)
    await caller.add(session, context(caller.uri("memories/preferences/Tea green.md"), "Likes tea.", 1000))
    other = callers()
    archive = await exported(caller)
    revision = (await imported(other, archive)).revision
    answer = await recall(other, session=session, max_level=ABSTRACT, min_revision=revision)
    assert names(answer) == {"black": ABSTRACT} and omitted(answer) == (1, 0, 0)
