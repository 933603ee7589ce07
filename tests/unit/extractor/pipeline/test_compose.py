"""What pieces of a conversation give, put together: each row of the table in `compose`."""

import random

import pytest

from runekeep.v1 import memory_service_pb2
from runekeep_extractor.pipeline.compose import Composer
from runekeep_extractor.pipeline.targets import Targets
from tests.doubles.fixed_job import SPACE, FixedJob, message
from tests.support.worker import delete, edit, write

MESSAGES = [message(1, "a"), message(2, "b"), message(3, "c", peer_id="anna"), message(4, "d")]
TEA = f"{SPACE}/memories/preferences/Tea.md"
TOOL = f"{SPACE}/memories/tools/search.md"


def composed(*pieces, known=(), types=()):
    job = FixedJob(MESSAGES, peers=["anna"])
    job.memory_types += types
    composer = Composer(Targets(job), dict.fromkeys(known, "preferences"))
    for piece in pieces:
        composer.add(piece)
    return composer.operations


def tea(content: str, at: int, **options):
    return write("preferences", topic="Tea", content=content, ranges=[(at, at)], **options)


def fields_of(operation) -> dict[str, object]:
    values = operation.write.fields
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}


def ranges_of(operation) -> list[tuple[int, int]]:
    return [(one.start_sequence, one.end_sequence) for one in operation.ranges]


def test_write_and_write_are_one_write():
    first, later = tea("Likes tea.", 1, reason="said", abstract="Tea."), tea("Likes green tea.", 2, reason="said more")
    (made,) = composed([first], [later])
    assert fields_of(made) == {"topic": "Tea", "content": "Likes green tea."}
    assert (ranges_of(made), made.reason, made.write.abstract) == ([(1, 2)], "said; said more", "Tea.")


def test_a_later_piece_renames_what_an_earlier_one_wrote():
    event = write("events", event_name="Anna moves", event_time="2026-05", content="To Lisbon.", ranges=[(1, 1)])
    later = edit(f"{SPACE}/memories/events/2026-05_Anna moves.md", rename={"event_time": "2026-06"}, ranges=[(2, 2)])
    (made,) = composed([event], [later])
    assert fields_of(made) == {"event_name": "Anna moves", "event_time": "2026-06", "content": "To Lisbon."}
    assert ranges_of(made) == [(1, 2)]


def test_numbers_of_two_writes_are_added():
    one = write("tools", tool_name="search", total_calls=2, best_for="words", ranges=[(1, 1)])
    more = write("tools", tool_name="search", total_calls=3, fail_count=1, ranges=[(4, 4)])
    (made,) = composed([one], [more])
    assert fields_of(made) == {"tool_name": "search", "total_calls": 5, "fail_count": 1, "best_for": "words"}
    assert ranges_of(made) == [(1, 1), (4, 4)]


def test_of_what_is_only_added_both_stay_unless_they_are_equal():
    one = write("events", event_name="Moved", content="To Lisbon.", ranges=[(1, 1)])
    same = write("events", event_name="Moved", content="To Lisbon.", ranges=[(2, 2)])
    other = write("events", event_name="Moved", content="To Porto.", ranges=[(2, 2)])
    assert composed([one], [other]) == [one, other]
    (made,) = composed([one], [same])
    assert ranges_of(made) == [(1, 2)]


def test_an_edit_changes_what_an_earlier_piece_wrote():
    changed = edit(TEA, content=[("tea", "green tea")], abstract="Green tea.", ranges=[(2, 2)])
    (made,) = composed([tea("Likes tea.", 1)], [changed])
    assert fields_of(made) == {"topic": "Tea", "content": "Likes green tea."}
    assert (made.write.abstract, ranges_of(made)) == ("Green tea.", [(1, 2)])
    (counted,) = composed(
        [write("tools", tool_name="search", total_calls=2, ranges=[(1, 1)])],
        [edit(TOOL, total_calls=1, best_for="words", ranges=[(2, 2)])],
    )
    assert fields_of(counted) == {"tool_name": "search", "total_calls": 3, "best_for": "words"}


def test_blocks_that_do_not_fit_stay_for_the_server_to_refuse():
    wrong = edit(TEA, content=[("coffee", "tea")], ranges=[(2, 2)])
    first = tea("Likes tea.", 1)
    assert composed([first], [wrong]) == [first, wrong]
    whole = edit(TEA, content="Likes tea.", ranges=[(1, 1)])
    assert composed([whole], [wrong]) == [whole, wrong]


def test_edit_and_edit_are_one_edit():
    first = edit(TEA, content=[("a", "b")], ranges=[(1, 1)])
    later = edit(TEA, content=[("a", "b"), ("c", "d")], abstract="Short.", ranges=[(2, 2)])
    (made,) = composed([first], [later], known=[TEA])
    blocks = [(one.search, one.replace) for one in made.edit.patches[0].search_replace.blocks]
    assert blocks == [("a", "b"), ("c", "d")], "the block that comes again is the one given before"
    assert made.edit.patches[1].value.string_value == "Short."
    assert ranges_of(made) == [(1, 2)]


@pytest.mark.parametrize(
    ("first", "later", "value"),
    [
        ("Likes tea.", "Likes green tea.", "Likes green tea."),
        ("Likes tea.", [("tea", "green tea")], "Likes green tea."),
        ([("x", "y")], "Likes green tea.", "Likes green tea."),
    ],
)
def test_a_whole_value_of_an_edit(first, later, value):
    (made,) = composed([edit(TEA, content=first, ranges=[(1, 1)])], [edit(TEA, content=later, ranges=[(2, 2)])])
    (patch,) = made.edit.patches
    assert patch.value.string_value == value


def test_numbers_of_two_edits_are_added():
    (made,) = composed([edit(TOOL, total_calls=2)], [edit(TOOL, total_calls=3)])
    assert made.edit.patches[0].value.int64_value == 5


def test_of_numbers_that_do_not_add_up_the_later_holds():
    rated = memory_service_pb2.MemoryType(
        name="ratings",
        fields=[
            memory_service_pb2.MemoryField(
                name="stars",
                type=memory_service_pb2.FIELD_TYPE_INT64,
                merge_op=memory_service_pb2.MERGE_OP_REPLACE,
            )
        ],
    )
    (made,) = composed([edit(TEA, stars=2)], [edit(TEA, stars=5)], types=[rated])
    assert made.edit.patches[0].value.int64_value == 5


PROFILE = "Name: Ana\nLives in Oslo"


@pytest.mark.parametrize(
    ("later", "made"),
    [
        ("- Has a dog", f"{PROFILE}\n- Has a dog"),
        ("Lives in Oslo\n- Has a dog", "Lives in Oslo\n- Has a dog"),
        ("Has a dog\n\nBorn in Bergen", f"{PROFILE}\nHas a dog\n\nBorn in Bergen"),
        ("name: Ana Silva\nLives in Bergen\n- Has a dog", "name: Ana Silva\nLives in Bergen\n- Has a dog"),
        ("", PROFILE),
    ],
)
def test_a_later_text_that_tells_only_what_is_new_loses_nothing(later, made):
    first = write("profile", content=PROFILE, ranges=[(1, 1)])
    (one,) = composed([first], [write("profile", content=later, ranges=[(2, 2)])])
    assert fields_of(one)["content"] == made


def test_lines_that_are_there_are_not_repeated():
    first = write("profile", content="# User profile\n- Ana\n- Lives in Oslo", ranges=[(1, 1)])
    later = write("profile", content="# User profile\n- Has a dog", ranges=[(2, 2)])
    (one,) = composed([first], [later])
    assert fields_of(one)["content"] == "# User profile\n- Ana\n- Lives in Oslo\n- Has a dog"


OF_ALICE = f"{SPACE}/peers/alice/memories/preferences/Coffee.md"


def test_a_memory_of_a_peer_stays_the_peers():
    messages = [message(1, "a"), message(2, "b", peer_id="alice"), message(3, "c", peer_id="bob"), message(4, "d")]
    job = FixedJob(messages, peers=["alice", "bob"])

    def coffee(content, ranges, **options):
        return write("preferences", topic="Coffee", content=content, ranges=ranges, **options)

    composer = Composer(Targets(job), {})
    composer.add([coffee("Likes it.", [(2, 2)])])
    composer.add([coffee("Likes it black.", [(2, 4)], peer="alice")])
    (made,) = composer.operations
    assert (made.peer_id, ranges_of(made)) == ("alice", [(2, 4)]), "also what others say about alice"

    composer.add([edit(OF_ALICE, content=[("black", "white")], ranges=[(4, 4)])])
    (made,) = composer.operations
    assert (made.peer_id, fields_of(made)["content"]) == ("alice", "Likes it white.")

    of_user = edit(f"{SPACE}/memories/preferences/Coffee.md", content=[("white", "red")], ranges=[(2, 3)])
    composer.add([of_user])
    assert composer.operations == [made, of_user], "words of peers alone change nothing of the user's"


OWNERS = ("", "alice", "bob")


def reached(job: FixedJob, operation) -> set[tuple[str, int]]:
    """The server's routing table, told anew: owners, each with the messages of theirs that are named (0 for none)."""
    plan = job.assignment.plan
    owner_of = {one.sequence: one.peer_id for one in job.messages}
    enabled = set(plan.allowed_peer_ids) | ({""} if plan.allow_self else set())
    kind = operation.WhichOneof("operation")
    uri = "" if kind == "write" else getattr(operation, kind).uri
    owner = uri.partition("/peers/")[2].partition("/")[0]
    named = {number for low, high in ranges_of(operation) for number in range(low, high + 1)} & owner_of.keys()
    execution = operation.write.memory_type == "experiences" or "/experiences/" in uri
    bad = any(low > high or not {low, high} <= owner_of.keys() for low, high in ranges_of(operation))
    peer = operation.peer_id
    if execution:
        ways = {("", number) for number in named or {0}}
    elif bad or (peer and (peer not in owner_of.values() or (kind != "write" and peer != owner))):
        ways = set()
    elif about := peer or owner:
        ways = {(about, number) for number in named or {0}}
    else:
        ways = {(owner_of[number], number) for number in named} if operation.ranges else {("", 0)}
    return {(one, number) for one, number in ways if one in enabled and (kind == "write" or one == owner)}


@pytest.mark.parametrize("seed", range(60))
def test_what_is_put_together_reaches_nobody_whom_its_parts_do_not_reach(seed):
    chance = random.Random(seed)
    spoken = [chance.choice(OWNERS) for _ in range(8)]
    # One number is missing, as when a message was taken out.
    messages = [message(number, "a", peer_id=peer) for number, peer in enumerate(spoken, start=1) if number != 5]
    peers = {one.peer_id for one in messages if one.peer_id}
    job = FixedJob(messages, peers=sorted(chance.sample(sorted(peers), chance.randint(0, len(peers)))))
    job.assignment.plan.allow_self = chance.random() < 0.8
    uris = [f"{SPACE}{part}/memories/preferences/Tea.md" for part in ("", *(f"/peers/{one}" for one in OWNERS[1:]))]
    experience = f"{SPACE}/memories/experiences/Tea.md"

    def one():
        starts = [chance.randint(1, 8) for _ in range(chance.randint(0, 3))]
        options = {
            "peer": chance.choice(["", "", *OWNERS]),
            "ranges": [(at, min(at + chance.randint(0, 3), 9 if chance.random() < 0.1 else 8)) for at in starts],
        }
        match chance.choice(["write", "write", "edit", "delete", "experience", "experience edit"]):
            case "write":
                return write("preferences", topic="Tea", content="Likes tea.", **options)
            case "experience":
                return write("experiences", experience_name="Tea", content="Likes tea.", **options)
            case "experience edit":
                return edit(experience, content="Likes tea.", **options)
            case "edit":
                return edit(chance.choice(uris), content="Likes green tea.", **options)
        return delete(chance.choice(uris), **options)

    known = {**dict.fromkeys(uris, "preferences"), experience: "experiences"} if chance.random() < 0.5 else {}
    for _ in range(20):
        composer = Composer(Targets(job), known)
        given = [one() for _ in range(3)]
        for operation in given:
            composer.add([operation])
        ways = {way for operation in given for way in reached(job, operation)}
        made = {way for operation in composer.operations for way in reached(job, operation)}
        assert {way for way in made if way[1]} <= ways
        assert {owner for owner, _ in made} <= {owner for owner, _ in ways}
        if not any(operation.HasField("delete") for operation in given):
            assert {owner for owner, _ in made} == {owner for owner, _ in ways}, "and nobody less"


def test_a_delete_ends_what_came_before():
    gone = delete(TEA, ranges=[(4, 4)])
    assert composed([tea("Likes tea.", 1)], [gone]) == []
    assert composed([tea("Likes tea.", 1)], [gone], known=[TEA]) == [gone]
    (made,) = composed([edit(TEA, content="x", ranges=[(1, 1)])], [gone], known=[TEA])
    assert (made.delete.uri, ranges_of(made)) == (TEA, [(1, 1), (4, 4)])
    (made,) = composed([delete(TEA, ranges=[(1, 1)])], [gone], known=[TEA])
    assert ranges_of(made) == [(1, 1), (4, 4)]


def test_after_a_delete_an_edit_has_the_last_word_and_a_write_is_another_memory():
    gone, anew = delete(TEA, ranges=[(1, 1)]), tea("Likes tea.", 2)
    changed = edit(TEA, content="x", ranges=[(2, 2)])
    assert composed([gone], [changed], known=[TEA]) == [changed]
    assert composed([gone], [anew], known=[TEA]) == [gone, anew]


def test_other_memories_and_the_operations_of_one_piece_stay_as_they_are():
    other = write("preferences", topic="Coffee", content="None.", ranges=[(1, 1)])
    both = [tea("Likes tea.", 1), tea("Likes green tea.", 1)]
    assert composed([*both, other]) == [*both, other]
    of_anna = tea("Likes tea.", 3)
    assert composed([tea("Likes tea.", 1)], [of_anna], [other]) == [tea("Likes tea.", 1), of_anna, other]


def test_three_pieces_about_one_memory():
    pieces = [[tea(f"Likes tea {number}.", number)] for number in (1, 2, 4)]
    (made,) = composed(*pieces)
    assert (fields_of(made)["content"], ranges_of(made)) == ("Likes tea 4.", [(1, 2), (4, 4)])
