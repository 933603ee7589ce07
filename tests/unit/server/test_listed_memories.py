"""Memories that go with a list: all of a type, or none."""

from runekeep.v1 import memory_service_pb2 as pb
from server.listed_memories import with_room


def memory(kind: str, number: int, size: int) -> pb.Memory:
    return pb.Memory(uri=f"viking://user/anna/memories/{kind}/{number}.md", memory_type=kind, content="x" * size)


def test_types_that_an_answer_has_no_room_for_are_left_out_whole() -> None:
    many = [memory("cases", 1, 400), memory("events", 1, 300), memory("cases", 2, 400), memory("tools", 1, 100)]
    assert with_room(many, 2_000) == many
    assert with_room(many, 800) == [many[1], many[3]], "of cases not even the first"
    assert with_room(many, 250) == [many[3]]
    assert with_room(many, 0) == []


def test_an_answer_is_no_larger_than_its_room() -> None:
    one = memory("events", 1, 300)
    alone = pb.WriteMemoriesResponse(memories=[one]).ByteSize()
    assert with_room([one], one.ByteSize()) == [], "its tag and length take some too"
    assert with_room([one], alone + 3) == [one]
