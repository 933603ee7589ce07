"""What a search is narrowed by and says of itself, over the wire."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2
from runekeep.v1 import memory_service_pb2 as pb
from tests.support.callers import Caller, failure, said
from tests.support.changes import put, remove, written
from tests.support.server_process import ServerProcess

DISHES = """\
name: dishes
description: A dish that the user cooks.
directory: "viking://user/{user_space}/memories/dishes"
filename_template: "{dish}.md"
time_field: cooked
fields:
  - name: dish
    description: What it is called.
    merge_op: immutable
  - name: cooked
    description: When, as far as it is known.
  - name: tags
    description: Apart by commas.
  - name: content
    description: Numbered steps.
"""


def at(*parts: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(datetime(*parts, tzinfo=UTC))  # type: ignore[arg-type, misc]
    return stamp


@pytest.fixture
async def caller(own_server: Callable[..., ServerProcess], tmp_path: Path) -> AsyncIterator[Caller]:
    types = tmp_path / "types"
    types.mkdir()
    (types / "dishes.yaml").write_text(DISHES)
    server = own_server({"RUNEKEEP_TYPES_DIRS": str(types)})
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield Caller(channel, "ann")


async def found(caller: Caller, query: str = "soup", **fields: Any) -> list[str]:
    """Names of memories, texts of messages, sorted."""
    answer = await caller.memories.FindMemories(pb.FindMemoriesRequest(query=query, limit=100, **fields))
    return sorted(
        one.memory.uri.rpartition("/")[2] if one.HasField("memory") else one.passage.text.partition("): ")[2]
        for one in answer.results
    )


def dish(name: str, **fields: str) -> pb.MemoryMutation:
    return put("dishes", dish=name, content=f"soup of {name}", **fields)


async def test_times_and_tags_of_a_type_with_a_time_of_its_own(caller: Caller) -> None:
    answer = await written(
        caller,
        dish("leek", cooked="2023-05-20", tags="winter, quick"),
        dish("pea", cooked="2023-05", tags="quick"),
        dish("kale", cooked="2023"),
        dish("beet", cooked="some day in spring"),
    )
    leek, pea, kale, beet = answer.memories
    assert [one.event_time.ToJsonString() for one in (leek, pea, kale)] == [
        "2023-05-20T00:00:00Z",
        "2023-05-01T00:00:00Z",
        "2023-01-01T00:00:00Z",
    ]
    assert (list(leek.tags), list(kale.tags), beet.HasField("event_time")) == (["winter", "quick"], [], False)

    rest = {"min_revision": answer.revision}
    assert await found(caller, start_time=at(2023, 5, 1), end_time=at(2023, 6, 1), **rest) == ["leek.md", "pea.md"]
    assert await found(caller, end_time=at(2023, 5, 1), **rest) == ["kale.md"]
    assert await found(caller, start_time=at(2024, 1, 1), **rest) == ["beet.md"], "by its change"
    assert await found(caller, tags=["quick"], **rest) == ["leek.md", "pea.md"]
    assert await found(caller, tags=["quick", "winter"], **rest) == ["leek.md"]


async def test_the_past_is_searched_with_what_was_archived_by_then(caller: Caller) -> None:
    first = await written(caller, dish("leek"), dish("pea"))
    session = await caller.session()
    await caller.add(session, said("soup for two"))
    await caller.commit(session)
    then = await written(caller, remove(first.memories[0].uri, 1), dish("kale"))
    await caller.add(session, said("soup for three"))
    await caller.commit(session)

    await caller.searchable()
    now = ["kale.md", "pea.md", "soup for three", "soup for two"]
    assert await found(caller) == now
    assert await found(caller, as_of=common_pb2.AsOf(revision=first.revision)) == ["leek.md", "pea.md"]
    assert await found(caller, as_of=common_pb2.AsOf(revision=then.revision)) == ["kale.md", "pea.md", "soup for two"]
    assert await found(caller, as_of=common_pb2.AsOf(time=then.memories[1].update_time)) == [
        "kale.md",
        "pea.md",
        "soup for two",
    ]
    assert await found(caller, as_of=common_pb2.AsOf(time=at(2020, 1, 1))) == []
    later = Timestamp()
    later.GetCurrentTime()
    assert await found(caller, as_of=common_pb2.AsOf(time=later)) == now


async def test_sessions_by_name_and_by_uri(caller: Caller) -> None:
    for name in ("one", "two"):
        await caller.session(session_id=name)
        await caller.add(name, said(f"soup in {name}"), said(f"soup by kim in {name}", peer="kim"))
        await caller.commit(name)

    await caller.searchable()
    both = ["soup by kim in one", "soup in one"]
    assert await found(caller, sessions=["one"]) == await found(caller, sessions=[caller.uri("sessions/one")]) == both
    assert await found(caller, peers=["kim"]) == ["soup by kim in one", "soup by kim in two"]
    assert await found(caller, peers=[""], sessions=["two"]) == ["soup in two"]


async def test_parts_are_told_when_they_are_asked_for(caller: Caller) -> None:
    revision = (await written(caller, dish("leek"))).revision
    request = pb.FindMemoriesRequest(query="soup", min_revision=revision)

    (plain,) = (await caller.memories.FindMemories(request)).results
    request.explain = True
    (explained,) = (await caller.memories.FindMemories(request)).results

    assert not plain.detail.parts
    assert explained.score == plain.score == pytest.approx(sum(part.added for part in explained.detail.parts))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"start_time": Timestamp(seconds=2**60)}, "start_time"),
        ({"end_time": Timestamp(seconds=-(2**60))}, "end_time"),
        ({"sessions": ["viking://user/bob/sessions/s"]}, "sessions[0]"),
        ({"as_of": common_pb2.AsOf(time=at(2020, 1, 1)), "min_revision": 1}, "as_of"),
        ({"as_of": common_pb2.AsOf(revision=99)}, "as_of.revision"),
    ],
    ids=["start", "end", "session of another user", "past and future", "revision to come"],
)
async def test_what_cannot_be_asked(caller: Caller, fields: dict[str, Any], field: str) -> None:
    refused = await failure(caller.memories.FindMemories(pb.FindMemoriesRequest(query="soup", **fields)))

    assert refused.seen[0] == "INVALID_ARGUMENT"
    assert refused.fields == [field]
