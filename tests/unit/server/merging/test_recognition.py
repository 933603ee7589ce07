"""What a second output has again of the first one, and what it leaves out."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.apply.repair import NeedsRepair
from runekeep_server.merging.outcome import Outcome
from runekeep_server.merging.recognition import Trait, left_out
from tests.support.worker import delete, edit, write

PLACE = "viking://user/ann/memories/preferences"
Told = tuple[pb.MemoryOperation, str, str]


def tea(content: str, topic: str = "Tea", uri: bool = True) -> Told:
    operation = write("preferences", topic=topic, content=content) if topic else write("preferences", content=content)
    return operation, f"{PLACE}/{topic}.md" if uri and topic else "", "preferences"


def change(name: str, content: str, memory_type: str = "preferences") -> Told:
    uri = f"{PLACE}/{name}.md"
    return edit(uri, content=content), uri, memory_type


def nowhere(content: str) -> Told:
    """An edit whose URI is none, so that nothing is known of it but what it says."""
    return edit("viking://nowhere", content=content), "", ""


def entity(name: str) -> Told:
    return write("entities", entity_name=name), f"viking://user/ann/memories/entities/{name}.md", "entities"


def gone(name: str) -> Told:
    return delete(f"{PLACE}/{name}.md"), f"{PLACE}/{name}.md", "preferences"


def event(name: str, content: str) -> Told:
    """All of one day."""
    operation = write("events", event_name=name, event_time="2026-01-01", content=content)
    return operation, f"viking://user/ann/memories/events/2026/01/01/{name}.md" if name else "", "events"


Left = tuple[list[int], list[int]]
"""Places of the refused and of the right ones, among their like."""


def named(right: list[Told], refused: list[Told], second: list[Told], reason: str = "field_invalid") -> Left:
    """The refused ones come first in the output."""
    first = [Trait.of(*one) for one in (*refused, *right)]
    places = left_out(first, dict.fromkeys(range(len(refused)), reason), [Trait.of(*one) for one in second])
    return [at for at in places if at < len(refused)], [at - len(refused) for at in places if at >= len(refused)]


# Right ones, refused ones, the second output, and what it leaves out.
CASES: dict[str, tuple[list[Told], list[Told], list[Told], Left]] = {
    "nothing comes back": ([], [tea("x"), nowhere("y")], [], ([0, 1], [])),
    "sent again as it was": ([], [tea("x"), nowhere("y")], [nowhere("y"), tea("x")], ([], [])),
    "mended at its place": ([entity("a")], [change("Tea", "x")], [entity("a"), change("Tea", "y")], ([], [])),
    "mended by another kind of operation": ([], [change("Tea", "x", "")], [tea("y")], ([], [])),
    "said of another place": ([], [nowhere("y")], [change("Tea", "y")], ([], [])),
    "found by its directory": ([], [change("Tae", "x", "")], [change("Tea", "y")], ([], [])),
    "found by its type": ([], [tea("x", topic="")], [tea("y")], ([], [])),
    "of two without a place one is mended": ([], [tea("x", topic=""), tea("y", topic="")], [tea("y")], ([0], [])),
    "dropped while another one is new": ([entity("a")], [tea("x")], [entity("a"), entity("b")], ([0], [])),
    "dropped while a right one is about the same": ([tea("x")], [change("Tea", "y")], [tea("x")], ([0], [])),
    "dropped while a right one is of its type": ([tea("x")], [tea("y", topic="")], [tea("x")], ([0], [])),
    "dropped while a right one of its type is worded otherwise": (
        [tea("x")], [tea("y", topic="")], [tea("x, mostly")], ([0], []),
    ),
    "dropped while a right one of its type is named otherwise": (
        [tea("x")], [tea("y", topic="")], [tea("x", topic="Green tea")], ([0], []),
    ),
    "dropped while a right one of its day is worded otherwise": (
        [event("Tea party", "x")], [event("", "y")], [event("Tea party", "x, mostly")], ([0], []),
    ),
    "dropped while a right one of its day is named otherwise": (
        [event("Tea party", "x")], [event("", "y")], [event("A tea party", "x")], ([0], []),
    ),
    "mended while a right one of its day is worded otherwise": (
        [event("Tea party", "x")], [event("", "y")], [event("Walk", "y"), event("Tea party", "z")], ([], []),
    ),
    "the reason of a right one is worded otherwise": (
        [(write("preferences", topic="Tea", content="x", reason="said"), f"{PLACE}/Tea.md", "preferences")],
        [change("Tea", "y")],
        [(write("preferences", topic="Tea", content="x", reason="heard"), f"{PLACE}/Tea.md", "preferences")],
        ([0], []),
    ),
    "the same twice, of which one was right": ([gone("Tea")], [gone("Tea")], [gone("Tea")], ([0], [])),
    "right ones are left out": ([tea("x"), entity("a")], [], [], ([], [0, 1])),
    "a right one is left out for one that is mended": (
        [event("Tea party", "x")], [tea("y", topic="")], [tea("y")], ([], [0]),
    ),
    "a right one is left out for one of its type that is mended": (
        [tea("x")], [tea("y", topic="")], [tea("y", "Jam")], ([], [0]),
    ),
    "a right one is left out for another of its type": (
        [tea("x"), entity("a")], [], [entity("a"), tea("y", "Cake")], ([], [0]),
    ),
    "of the same twice one is left out": ([gone("Tea"), gone("Tea")], [], [gone("Tea")], ([], [1])),
}  # fmt: skip


@pytest.mark.parametrize(("right", "refused", "second", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_left_out_is_named(right: list[Told], refused: list[Told], second: list[Told], expected: Left) -> None:
    assert named(right, refused, second) == expected


def test_several_that_were_to_be_put_into_one_are_mended_by_that_one() -> None:
    right, refused = [tea("x"), change("Tea", "w")], [tea("y"), change("Tea", "z")]
    assert named(right, refused, [tea("w x y z")], "given_twice") == ([], [])
    assert named(right, refused, right, "given_twice") == ([0, 1], [])
    assert named(right, refused, [refused[0]], "given_twice") == ([1], [0, 1]), "one of them stands for itself alone"
    assert named(right, refused, [tea("w x y z")]) == ([1], [0, 1]), "who was not asked to do so left some out"


def test_what_took_others_into_itself_stands_for_none_of_its_type() -> None:
    first = [Trait.of(*one) for one in (tea("x"), tea("y"), tea("z", topic=""))]
    assert left_out(first, {1: "given_twice", 2: "field_invalid"}, [Trait.of(*tea("x y"))]) == [2]


FATE = st.sampled_from(["right", "worded", "renamed", "lost", "again", "mended", "dropped"])
RIGHT = ("right", "worded", "renamed", "lost")


def second_of(fate: str, number: int, first: Told) -> Told:
    match fate:
        case "worded" | "mended":
            return tea(f"{fate} {number}", f"T{number}")
        case "renamed":
            return tea(f"said {number}", f"N{number}")
        case _:
            return first


@given(fates=st.lists(FATE, max_size=8), known=st.booleans(), seed=st.randoms(use_true_random=False))
def test_each_operation_that_is_left_out_is_named_once(fates: list[str], known: bool, seed: object) -> None:
    """Whatever the order of the second output, and whatever it does to those that were right. Of refused operations
    whose place is not known the number is right.
    """
    first = [tea(f"said {number}", f"T{number}" if known or fate in RIGHT else "") for number, fate in enumerate(fates)]
    second = [
        second_of(fate, number, first[number]) for number, fate in enumerate(fates) if fate not in ("lost", "dropped")
    ]
    seed.shuffle(second)  # type: ignore[attr-defined]  # any of the messages
    refused = [
        {"operation_index": number, "reason": "field_invalid", "message": "wrong", "uri": "", "memory_type": ""}
        for number, fate in enumerate(fates)
        if fate not in RIGHT
    ]
    told = repaired([Trait.of(*one) for one in first], second, refused)
    assert all(entry["operation_index"] == -1 for entry in told), "it is no place in the output that is applied"
    lost = [place_of(entry) for entry in told if entry["reason"] == "left_out_by_repair"]
    assert lost == [number for number, fate in enumerate(fates) if fate == "lost"]
    not_mended = [entry for entry in told if entry["reason"] == "field_invalid"]
    assert all(entry["message"].endswith(", not mended: wrong") for entry in not_mended)
    places = [place_of(entry) for entry in not_mended]
    dropped = [number for number, fate in enumerate(fates) if fate == "dropped"]
    assert len(lost) + len(places) == len(told)
    assert len(places) == len(set(places)) == len(dropped)
    assert all(fates[place] not in RIGHT for place in places)
    if known:
        assert places == dropped


def test_what_had_nowhere_to_go_is_lost_by_nobody() -> None:
    first = [Trait.of(*tea("x")), Trait.of(*entity("a")), Trait.of(*entity("b"))]
    (told,) = repaired(first, [], [], skipped=[1, 2])
    assert (told["reason"], told["uri"]) == ("left_out_by_repair", f"{PLACE}/Tea.md")


def repaired(
    first: list[Trait], second: list[Told], refused: list[dict[str, Any]], skipped: list[int] | None = None
) -> list[dict[str, Any]]:
    """Entries of what is given up, by way of what the store keeps."""
    repair = NeedsRepair.from_json(NeedsRepair("o", first, refused, skipped or []).as_json())
    return repair.given_up(Outcome(traits=[Trait.of(*one) for one in second]))


def place_of(entry: dict[str, Any]) -> int:
    found = re.match(r"operation (\d+) of the first output", entry["message"])
    assert found
    return int(found[1])
