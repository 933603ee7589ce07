"""An update that would drop most of a memory is refused by the server, and a changed mind is not."""

import grpc
import pytest

from tests.integration.memories.test_apply_merge import Space
from tests.support.callers import Caller
from tests.support.worker import edit, write

FACTS = "\n".join(f"Fact{n} says that thing{n} is kept at place{n} because reason{n} was given." for n in range(10))
BO = "memories/entities/Bo.md"
DRINK = "memories/preferences/Morning drink.md"


@pytest.fixture
def space(caller: Caller, channel: grpc.aio.Channel) -> Space:
    return Space(caller, channel)


async def test_a_long_memory_is_not_lost_to_a_short_one(space: Space) -> None:
    await space.apply(write("entities", entity_name="Bo", content=FACTS))
    (refused,) = await space.refused(write("entities", entity_name="Bo", content="A dog."))
    assert refused.reason == "field_invalid"
    assert "content" in refused.message and "must stay" in refused.message
    kept = await space.memory(BO)
    assert (kept.fields["content"].string_value, kept.version) == (FACTS, 1)
    await space.apply(edit(space.caller.uri(BO), content=[("Fact3 says", "Fact3 denies")]))
    assert "Fact3 denies" in (await space.memory(BO)).fields["content"].string_value


async def test_a_changed_mind_is_taken(space: Space) -> None:
    await space.apply(write("preferences", topic="Morning drink", content="Black tea with milk, every day."))
    result = await space.apply(write("preferences", topic="Morning drink", content="Coffee, no longer tea."))
    assert result.total_updates == 1
    assert (await space.memory(DRINK)).fields["content"].string_value == "Coffee, no longer tea."
