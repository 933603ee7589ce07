"""How turns become part of buckets: what is added, weighed and refused, and that nothing is lost."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runekeep_schemas.turns.buckets import (
    FIRST_WEIGHT,
    KINDS,
    MAX_ADDED,
    MAX_BUCKETS,
    MAX_CHANGED,
    MAX_SLICE_SIGNALS,
    MAX_SUPPORT,
    MAX_WEIGHT,
    MIN_WEIGHT,
    Bucket,
    Slice,
    WeightedSignal,
    bucket_id,
)
from runekeep_schemas.turns.fingerprint import Fingerprint, Signal
from runekeep_schemas.turns.folding import NAME_LENGTH, Changes, Folded, folded
from runekeep_schemas.turns.text import cut, line
from tests.unit.schemas.turns.strategies import answered_buckets

NOW = 1_000
DELTA = (Fingerprint("t1", made_at=10), Fingerprint("t2", made_at=20), Fingerprint("t3", made_at=30))
NAMES = ("Bikes", "Budget", "Roads", "Locks", "Lights", "Council")
IDS = tuple(map(bucket_id, NAMES))

answers = st.builds(
    Changes,
    changed=st.lists(
        st.builds(
            lambda one, key: replace(one, bucket_id=key), answered_buckets, st.sampled_from([*IDS[:2], "obj-none"])
        ),
        max_size=3,
    ).map(tuple),
    added=st.lists(answered_buckets, max_size=2).map(tuple),
    disabled=st.lists(st.sampled_from([*IDS, "obj-none"]), max_size=2).map(tuple),
)


def _run(buckets: dict[str, Bucket], answer: Changes, now: int = NOW) -> tuple[dict[str, Bucket], Folded]:
    done = folded(tuple(buckets.values()), answer, DELTA, now)
    return buckets | {one.bucket_id: one for one in done.written}, done


def _identities(bucket: Bucket, kind: str) -> list[tuple[str, ...]]:
    return [one.identity for part in bucket.timeline for one in getattr(part, kind)]


START = {key: Bucket(key, name) for key, name in zip(IDS, NAMES, strict=True)}


@settings(max_examples=50)
@given(st.lists(answers, min_size=2, max_size=4))
def test_weights_stay_in_bounds_and_nothing_is_ever_deleted(many: list[Changes]) -> None:
    held = START
    for turn, answer in enumerate(many):
        before = held
        # Each time that an answer names a bucket, by its id or once more by its name, one slice of it is read.
        added = [bucket_id(cut(line(one.name), NAME_LENGTH)) for one in answer.added]
        named = Counter([*(one.bucket_id for one in answer.changed), *added])
        held, done = _run(held, answer, now=NOW + turn)
        assert before.keys() <= held.keys()
        assert (done.changed <= MAX_CHANGED + MAX_ADDED) and done.added <= MAX_ADDED
        assert done.added == len(held) - len(before)
        assert {one.bucket_id for one in done.written} == {key for key in held if held[key] != before.get(key)}
        assert all(one.updated_at == NOW + turn for one in done.written)
        for key, bucket in before.items():
            after = held[key]
            assert 0 <= len(after.timeline) - len(bucket.timeline) <= named[key]
            for kind in KINDS:
                for old, new in zip(bucket.timeline, after.timeline, strict=False):
                    assert {one.identity for one in getattr(old, kind)} <= {one.identity for one in getattr(new, kind)}
                    assert new.from_at <= old.from_at <= old.to_at <= new.to_at
            assert bucket.enabled or not after.enabled
        for bucket in held.values():
            for part in bucket.timeline:
                for kind in KINDS:
                    signals = getattr(part, kind)
                    assert len({one.identity for one in signals}) == len(signals) <= MAX_SLICE_SIGNALS
                    for one in signals:
                        assert MIN_WEIGHT <= one.weight <= MAX_WEIGHT
                        assert set(one.support_turn_ids) <= {"t1", "t2", "t3"}
                        assert 10 <= one.last_seen_at <= 30
            assert all(any(getattr(part, kind) for kind in KINDS) for part in bucket.timeline)


@given(answers)
def test_every_signal_in_form_of_a_change_is_there_afterwards(answer: Changes) -> None:
    held, _ = _run(START, answer)
    for change in [one for one in answer.changed if one.bucket_id in START][:MAX_CHANGED]:
        for kind in KINDS:
            for part in change.timeline[:1]:
                there = _identities(held[change.bucket_id], kind)
                assert {one.identity for one in getattr(part, kind)} <= set(there)


@given(answers)
def test_the_same_answer_twice_gains_nothing_where_it_names_its_turns(answer: Changes) -> None:
    def supported(bucket: Bucket) -> Bucket:
        parts = []
        for part in bucket.timeline:
            kinds = {
                kind: tuple(replace(one, support_turn_ids=("t2",)) for one in getattr(part, kind)) for kind in KINDS
            }
            parts.append(replace(part, **kinds))
        return replace(bucket, timeline=tuple(parts))

    answer = Changes(tuple(map(supported, answer.changed))[:1], (), answer.disabled)
    held, _ = _run(START, answer)
    again, done = _run(held, answer, now=NOW + 1)
    assert again == held
    assert done.written == ()
    assert (done.changed, done.disabled) == (0, 0)


def _said(value: object, *support: str, key: str = "budget", scope: str = "") -> WeightedSignal:
    return WeightedSignal(Signal(key, value, "must", scope), support_turn_ids=support)


def _changed(*said: WeightedSignal, hint: str = "", key: str = IDS[0]) -> Changes:
    return Changes(changed=(Bucket(key, "", timeline=(Slice(objective_hint=hint, assertions=said),)),))


def _weights(bucket: Bucket) -> list[list[tuple[object, float, int]]]:
    return [[(one.signal.value, one.weight, one.last_seen_at) for one in part.assertions] for part in bucket.timeline]


def test_what_is_said_again_gains_weight_and_keeps_the_newest_time() -> None:
    held, done = _run(START, _changed(_said(500, "t2", "t1")))
    assert done == Folded(done.written, changed=1)
    assert _weights(held[IDS[0]]) == [[(500, 0.5, 20)]]
    held, _ = _run(held, _changed(replace(_said(500, "t3"), signal=Signal("budget", 500.0, "prefer"))))
    assert _weights(held[IDS[0]]) == [[(500, 0.6, 30)]]
    (part,) = held[IDS[0]].timeline
    assert part.assertions[0].support_turn_ids == ("t2", "t1", "t3")
    assert part.assertions[0].signal.severity == "prefer"
    assert (part.from_at, part.to_at) == (10, 30)
    # A turn that lies further back counts, but it is not when it was said last.
    held, _ = _run(START, _changed(_said(500, "t3")))
    held, _ = _run(held, _changed(_said(500, "t1")))
    assert _weights(held[IDS[0]]) == [[(500, 0.6, 30)]]


def test_turns_on_which_a_signal_rests_already_are_no_news() -> None:
    held, _ = _run(START, _changed(_said(500, "t2", "t1")))
    assert _run(held, _changed(_said(500, "t2")))[1].written == ()


def test_a_conflict_keeps_both_and_both_lose_weight() -> None:
    held, _ = _run(START, _changed(_said(500, "t1")))
    held, _ = _run(held, _changed(_said(800, "t2")))
    assert _weights(held[IDS[0]]) == [[(500, 0.4, 10), (800, 0.4, 20)]]
    held, _ = _run(held, _changed(_said(800, "t3")))
    assert _weights(held[IDS[0]]) == [[(500, 0.3, 10), (800, 0.5, 30)]]


@pytest.mark.parametrize("other", [_said(800, "t2", key="other"), _said(800, "t2", scope="thread")])
def test_another_subject_is_no_conflict(other: WeightedSignal) -> None:
    held, _ = _run(START, _changed(_said(500, "t1"), other))
    assert [one[1] for one in _weights(held[IDS[0]])[0]] == [FIRST_WEIGHT, FIRST_WEIGHT]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("exceptions", ({"exclude": ["emojis"]}, {"exclude": ["headings"]})),
        ("exceptions", ("emojis", {"max": 3})),
        ("assertions", ({"exclude": ["emojis"]}, {"exclude": ["headings"]})),
    ],
)
def test_what_is_excluded_is_no_rival_of_what_else_is(kind: str, values: tuple[object, ...]) -> None:
    held = START
    for turn, value in enumerate((*values, values[0]), start=1):
        part = replace(Slice(), **{kind: (_said(value, f"t{turn}", key="format"),)})
        held, _ = _run(held, Changes(changed=(Bucket(IDS[0], "", timeline=(part,)),)))
    (part,) = held[IDS[0]].timeline
    weights = {str(one.signal.value): one.weight for one in getattr(part, kind)}
    assert weights == {str(values[0]): 0.6, str(values[1]): 0.5}, "said twice, and said once"


def test_an_exclusion_and_a_wish_of_one_subject_are_in_conflict() -> None:
    held, _ = _run(START, _changed(_said({"exclude": ["list"]}, "t1", key="format")))
    held, _ = _run(held, _changed(_said("list", "t2", key="format")))
    assert [one[1] for one in _weights(held[IDS[0]])[0]] == [0.4, 0.4]


def test_weights_end_at_their_bounds() -> None:
    held = START
    for _ in range(12):
        held, _ = _run(held, _changed(_said(800)))
    held, _ = _run(held, _changed(_said(500)))
    for _ in range(12):
        held, _ = _run(held, _changed(_said(500)))
    assert _weights(held[IDS[0]]) == [[(800, MIN_WEIGHT, 30), (500, MAX_WEIGHT, 30)]]


def test_another_objective_begins_another_slice_and_weights_are_carried_on() -> None:
    held, _ = _run(START, _changed(_said(500, "t1"), hint="Buy bikes"))
    held, _ = _run(held, _changed(_said(True, "t1", key="hilly"), hint="BUY  bikes"))
    assert _weights(held[IDS[0]]) == [[(500, 0.5, 10), (True, 0.5, 10)]]
    held, _ = _run(held, _changed(_said(500, "t3"), hint="Sell bikes"))
    assert _weights(held[IDS[0]]) == [[(500, 0.5, 10), (True, 0.5, 10)], [(500, 0.6, 30)]]
    assert [part.objective_hint for part in held[IDS[0]].timeline] == ["Buy bikes", "Sell bikes"]
    # The record that lives is the newest; the one before it is history.
    held, _ = _run(held, _changed(_said(700, "t2"), hint="Sell bikes"))
    assert _weights(held[IDS[0]])[0] == [(500, 0.5, 10), (True, 0.5, 10)]
    assert _weights(held[IDS[0]])[1] == [(500, 0.5, 30), (700, 0.4, 20)]


def test_a_full_slice_is_followed_by_another() -> None:
    many = tuple(_said(1, "t1", key=f"k{number}") for number in range(MAX_SLICE_SIGNALS + 3))
    held, done = _run(START, _changed(*many))
    assert done.dropped == 3
    held, done = _run(held, _changed(_said(2, "t2", key="more")))
    assert [len(part.assertions) for part in held[IDS[0]].timeline] == [MAX_SLICE_SIGNALS, 1]
    held, _ = _run(held, _changed(_said(2, "t3", key="more")))
    assert [len(part.assertions) for part in held[IDS[0]].timeline] == [MAX_SLICE_SIGNALS, 1]


def test_support_keeps_the_newest_turns() -> None:
    delta = [Fingerprint(f"t{number}", made_at=number + 1) for number in range(MAX_SUPPORT + 6)]
    held = (START[IDS[0]],)
    for part in (delta[:60], delta[60:]):
        done = folded(held, _changed(_said(1, *(one.turn_id for one in part))), part, NOW)
        held = done.written
    support = held[0].timeline[0].assertions[0].support_turn_ids
    assert support == tuple(one.turn_id for one in delta[6:])


def test_what_is_out_of_form_or_unknown_is_left_out_and_counted() -> None:
    wrong = WeightedSignal(Signal("", 1, "must"))
    loud = WeightedSignal(Signal("tone", "kind", "loudly"), weight=99, support_turn_ids=("nobody", "t1"))
    part = Slice(5_000_000, 9_000_000, "h", assertions=(wrong, loud))
    answer = Changes(
        changed=(Bucket("obj-none", "x"), Bucket(IDS[0], "", timeline=(part, part))),
        added=(Bucket("", " "),),
        disabled=("obj-none", "obj-none"),
    )
    held, done = _run(START, answer)
    # A bucket, a slice, a signal, a turn, a bucket without a name, an id.
    assert done.dropped == 6
    (slice_,) = held[IDS[0]].timeline
    assert (slice_.from_at, slice_.to_at) == (10, 10)
    assert slice_.assertions == (WeightedSignal(Signal("tone", "kind", "prefer"), 0.5, 10, ("t1",)),)


def test_fields_that_are_empty_stay_and_others_are_cut_into_form() -> None:
    there = Bucket(IDS[0], "", "", ("a",), "old objective", enabled=False)
    same = folded((there,), Changes(changed=(Bucket(IDS[0], ""),)), DELTA, NOW)
    assert same == Folded()
    new = Bucket(IDS[0], "n" * 129, "d\n" * 200, tuple(f"x{number}" for number in range(17)), "o" * 301)
    done = folded((there,), Changes(changed=(new,)), DELTA, NOW)
    (after,) = done.written
    assert after.name == "n" * 127 + "…"
    assert len(after.short_desc) == 300
    assert len(after.topic_centroid) == 16
    assert len(after.objective_text) == 300
    assert (after.bucket_id, after.enabled, done.dropped) == (IDS[0], False, 1)


def test_caps_of_one_answer() -> None:
    part = Slice(assertions=(_said(1, "t1"),))
    answer = Changes(
        changed=tuple(Bucket(key, "", timeline=(part,)) for key in IDS),
        added=tuple(Bucket("", f"new {number}", timeline=(part,)) for number in range(4)),
    )
    held, done = _run(START, answer)
    assert (done.changed, done.added, done.dropped) == (4, 2, 4)
    assert [key for key in IDS if held[key].timeline] == list(IDS[:4])
    assert list(held)[len(IDS) :] == [bucket_id("new 0"), bucket_id("new 1")]


def test_a_session_has_at_most_64_buckets_and_those_still_change() -> None:
    full = tuple(Bucket(bucket_id(f"b{number}"), f"b{number}") for number in range(MAX_BUCKETS))
    part = Slice(facts=(WeightedSignal(Signal("k", 1, "high")),))
    answer = Changes(added=(Bucket("", "one more", timeline=(part,)), Bucket("", "b7", timeline=(part,))))
    done = folded(full, answer, DELTA, NOW)
    assert (done.added, done.changed, done.dropped) == (0, 1, 1)
    assert [one.name for one in done.written] == ["b7"]


def test_a_bucket_of_a_name_that_is_there_is_that_bucket() -> None:
    renamed = {IDS[0]: replace(START[IDS[0]], name="Bicycles")}
    answer = Changes(added=(Bucket("", "Bikes", timeline=(Slice(assertions=(_said(1, "t1"),)),)),))
    held, done = _run(renamed, answer)
    assert (done.added, done.changed) == (0, 1)
    assert held[IDS[0]].name == "Bicycles"
    twice = Changes(added=(Bucket("", "New", "a"), Bucket("", "New", "b")))
    held, done = _run({}, twice)
    assert (done.added, [one.short_desc for one in held.values()]) == (1, ["a"])


def test_a_name_and_a_description_that_are_there_are_the_owners() -> None:
    mine = Bucket(IDS[0], "My bikes", "Mine.", objective_text="old")
    shown = Bucket(IDS[0], "Bikes", "What it was.", objective_text="new")
    for answer in (Changes(changed=(shown,)), Changes(added=(replace(shown, bucket_id=""),))):
        (after,) = folded((mine,), answer, DELTA, NOW).written
        assert (after.name, after.short_desc, after.objective_text) == ("My bikes", "Mine.", "new")
    echo = replace(mine, name="Bikes", short_desc="What it was.")
    assert folded((mine,), Changes(changed=(echo,)), DELTA, NOW) == Folded()


def test_disabled_buckets_are_kept_and_stay_disabled() -> None:
    held, done = _run(START, Changes(disabled=(IDS[1], IDS[1])))
    assert (done.disabled, done.changed, done.dropped) == (1, 0, 0)
    assert not held[IDS[1]].enabled
    held, done = _run(held, replace(_changed(_said(1, "t1"), key=IDS[1]), disabled=(IDS[1],)))
    assert (done.disabled, done.changed) == (0, 1)
    assert not held[IDS[1]].enabled


def test_an_empty_answer_changes_nothing() -> None:
    assert folded(tuple(START.values()), Changes(), DELTA, NOW) == Folded()
