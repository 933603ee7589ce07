"""The dedup table row by row, and how rulings are held against one another."""

import pytest

from runekeep_extractor.pipeline.dedup_decisions import Action, Case, Ruling, Said, SaidOfItem, rule, settle

NEAR = ("m1", "m2")
CREATE, SKIP, MERGED = Action.CREATE, Action.SKIP, Action.MERGE


def merge(item: str, mergeable: bool = True) -> SaidOfItem:
    return SaidOfItem(item, "merge", mergeable)


def delete(item: str) -> SaidOfItem:
    return SaidOfItem(item, "delete")


@pytest.mark.parametrize(
    ("decision", "items", "action", "merges", "deletes", "ignored"),
    [
        pytest.param("skip", [], SKIP, (), (), 0, id="skip"),
        pytest.param("skip", [delete("m1")], SKIP, (), (), 1, id="skip-delete"),
        pytest.param("skip", [merge("m1"), delete("m2")], MERGED, ("m1",), (), 1, id="skip-merge"),
        pytest.param("skip", [merge("m1", False)], SKIP, (), (), 1, id="skip-merge-without-value"),
        pytest.param(
            "skip", [SaidOfItem("m1", "merge", valued=True)], CREATE, (), (), 1, id="skip-merge-that-loses-something"
        ),
        pytest.param("create", [], CREATE, (), (), 0, id="create"),
        pytest.param("create", [delete("m1"), delete("m2")], CREATE, (), ("m1", "m2"), 0, id="create-delete"),
        pytest.param("create", [merge("m1")], CREATE, (), (), 1, id="create-merge"),
        pytest.param("create", [merge("m1"), delete("m2")], CREATE, (), (), 2, id="create-merge-delete"),
        pytest.param("none", [merge("m1")], MERGED, ("m1",), (), 0, id="none-merge"),
        pytest.param("none", [merge("m1"), merge("m2")], MERGED, ("m1", "m2"), (), 0, id="none-merge-merge"),
        pytest.param("none", [merge("m1"), delete("m2")], MERGED, ("m1",), ("m2",), 0, id="none-merge-delete"),
        pytest.param("none", [merge("m1", False)], CREATE, (), (), 2, id="none-merge-without-value"),
        pytest.param(
            "none", [merge("m1", False), delete("m2")], CREATE, (), (), 3, id="none-merge-without-value-delete"
        ),
        pytest.param("none", [delete("m1")], CREATE, (), ("m1",), 0, id="none-delete"),
        pytest.param("none", [], CREATE, (), (), 1, id="none"),
        pytest.param("maybe", [merge("m1"), delete("m2")], CREATE, (), (), 3, id="another-word"),
        pytest.param("", [], CREATE, (), (), 1, id="no-word"),
        pytest.param("create", [delete("m9"), delete("m1")], CREATE, (), ("m1",), 1, id="not-near"),
        pytest.param("none", [merge("m1"), delete("m1")], MERGED, ("m1",), (), 1, id="named-twice"),
        pytest.param("none", [SaidOfItem("m1", "replace", True)], CREATE, (), (), 2, id="another-word-of-an-item"),
    ],
)
def test_a_row_of_the_table(decision, items, action, merges, deletes, ignored):
    assert rule(Said(decision, tuple(items)), NEAR, only_added=False) == Ruling(action, merges, deletes, ignored)


@pytest.mark.parametrize("items", [[], [merge("m1")], [delete("m1")], [merge("m1"), delete("m2")]])
@pytest.mark.parametrize("decision", ["skip", "create", "none", "maybe"])
def test_what_is_only_added_is_skipped_or_created(decision, items):
    ruling = rule(Said(decision, tuple(items)), NEAR, only_added=True)
    assert ruling.action is (SKIP if decision == "skip" else CREATE)
    assert ruling.merges == ruling.deletes == ()
    assert ruling.ignored == len(items) + (decision not in ("skip", "create"))


@pytest.mark.parametrize("only_added", [False, True])
def test_a_candidate_that_nothing_is_said_of_is_created(only_added):
    assert rule(None, NEAR, only_added=only_added) == Ruling(CREATE, ignored=1)


def case(name: str, ruling: Ruling, near: tuple[str, ...] = NEAR, *, evidence: bool = True, **values) -> Case:
    return Case(name, near, ruling, "preferences", evidence, values)


ROOM = {"preferences": 10}


def test_two_values_for_one_field_of_a_memory_leave_the_second_candidate_as_it_is():
    into = Ruling(MERGED, ("m1",), ("m2",))
    one, other = case("c1", into, m1={"content": "a"}), case("c2", into, m1={"content": "b"})
    ruled = settle([one, other], ROOM)
    assert ruled["c1"].action is MERGED
    assert (ruled["c2"].action, ruled["c2"].merges, ruled["c2"].deletes) == (CREATE, (), ())
    assert ruled["c2"].ignored == 2


def test_equal_values_and_other_fields_go_together():
    into = Ruling(MERGED, ("m1",))
    cases = [case("c1", into, m1={"content": "a"}), case("c2", into, m1={"content": "a", "best_for": "b"})]
    assert {ruling.action for ruling in settle(cases, ROOM).values()} == {MERGED}


def test_nothing_is_merged_into_a_candidate_that_is_not_made():
    first = case("c1", Ruling(SKIP), ("m1",))
    second = case("c2", Ruling(MERGED, ("c1",)), ("c1",), c1={"content": "b"})
    assert settle([first, second], ROOM)["c2"].action is CREATE


def test_what_is_merged_into_is_not_deleted():
    cases = [case("c1", Ruling(CREATE, (), ("m1", "m2"))), case("c2", Ruling(MERGED, ("m1",)), m1={"content": "b"})]
    ruled = settle(cases, ROOM)
    assert (ruled["c1"].deletes, ruled["c1"].ignored) == (("m2",), 1)


def test_a_delete_needs_messages_and_stays_within_the_types_number():
    both = Ruling(CREATE, (), NEAR)
    assert settle([case("c1", both, evidence=False)], ROOM)["c1"].deletes == ()
    assert settle([case("c1", both)], {"preferences": 1})["c1"].deletes == ("m1",)
    assert settle([case("c1", both)], {})["c1"].deletes == ()
    again = settle([case("c1", both), case("c2", both)], {"preferences": 2})
    assert (again["c2"].deletes, again["c2"].ignored) == ((), 0), "it is deleted already"


def test_a_candidate_that_another_one_replaces_costs_no_delete():
    first = case("c1", Ruling(CREATE), ("m1",))
    second = case("c2", Ruling(CREATE, (), ("c1",)), ("c1",), evidence=False)
    assert settle([first, second], {})["c2"].deletes == ("c1",)


def test_a_candidate_is_dropped_only_where_something_near_it_stays():
    gone = case("c1", Ruling(CREATE, (), ("m1",)), ("m1",))
    same = case("c2", Ruling(SKIP), ("m1",))
    assert settle([gone, same], ROOM)["c2"].action is CREATE
    assert settle([gone, case("c2", Ruling(SKIP), ("m1", "m2"))], ROOM)["c2"].action is SKIP
    # Of two that are dropped the second rests on the first, and that on a memory that stays.
    chain = [case("c1", Ruling(SKIP), ("m1",)), case("c2", Ruling(SKIP), ("c1",))]
    assert {ruling.action for ruling in settle(chain, ROOM).values()} == {SKIP}
