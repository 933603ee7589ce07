"""Memories that go with a list: all of a type, or none."""

from collections.abc import Sequence

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_server.memories.listed_memories import Key, with_room


def memory(kind: str, number: int, size: int) -> pb.Memory:
    uri = f"viking://user/anna/memories/{kind}/{number}.md"
    return pb.Memory(uri=uri, memory_type=kind, version=1, content="x" * size)


class Shelf:
    """Where the memories are read from."""

    def __init__(self, memories: Sequence[pb.Memory]) -> None:
        self.memories = {(one.uri, one.version): one for one in memories}
        self.entries = [pb.DirectoryEntry(uri=m.uri, version=m.version, memory_type=m.memory_type) for m in memories]
        self.asked: list[int] = []

    async def read(self, keys: Sequence[Key]) -> dict[Key, pb.Memory]:
        self.asked.append(len(keys))
        return {key: self.memories[key] for key in keys if key in self.memories}

    async def measure(self, keys: Sequence[Key]) -> dict[Key, int]:
        return {key: len(self.memories[key].content) for key in keys if key in self.memories}

    async def given(self, room: int) -> list[pb.Memory]:
        return await with_room(self.entries, self.read, self.measure, room)


async def test_types_that_an_answer_has_no_room_for_are_left_out_whole() -> None:
    many = [memory("cases", 1, 400), memory("events", 1, 300), memory("cases", 2, 400), memory("tools", 1, 100)]
    shelf = Shelf(many)
    assert await shelf.given(2_000) == many
    assert await shelf.given(800) == [many[1], many[3]], "of cases not even the first"
    assert await shelf.given(250) == [many[3]]
    assert shelf.asked == [4, 4, 1], "in one statement, and none of a type of which one is too large by itself"
    assert await shelf.given(0) == [] and len(shelf.asked) == 3


async def test_an_answer_is_no_larger_than_its_room() -> None:
    one = memory("events", 1, 300)
    shelf = Shelf([one])
    alone = pb.WriteMemoriesResponse(memories=[one]).ByteSize()
    assert await shelf.given(one.ByteSize()) == [], "its tag and length take some too"
    assert await shelf.given(alone + 3) == [one]


async def test_what_has_no_room_is_not_read() -> None:
    few = [memory("tools", number, 100) for number in range(3)]
    shelf = Shelf([memory("cases", number, 1_000) for number in range(100)] + few)
    assert await shelf.given(10_000) == few
    assert sum(shelf.asked) <= 32 + len(few)


async def test_a_type_across_several_statements_is_given_whole() -> None:
    many = [memory(("cases", "tools")[number % 2], number, 10) for number in range(100)]
    shelf = Shelf(many)
    assert await shelf.given(100_000) == many
    assert len(shelf.asked) == 4


async def test_what_is_gone_takes_no_room() -> None:
    many = [memory("cases", number, 100) for number in range(40)]
    shelf = Shelf(many)
    del shelf.memories[many[33].uri, 1]
    assert await shelf.given(100_000) == many[:33] + many[34:]
