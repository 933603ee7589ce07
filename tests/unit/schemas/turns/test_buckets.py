"""Buckets: their ids, their stored form, and their cards."""

import re

import pytest
from hypothesis import given

from runekeep_schemas.turns.buckets import (
    CARD_SIGNALS,
    KINDS,
    Bucket,
    Slice,
    WeightedSignal,
    bucket_id,
    card,
    shown,
)
from runekeep_schemas.turns.fingerprint import Signal
from tests.unit.schemas.turns.strategies import buckets, texts

AT = 1_769_332_530_000_000
BUDGET = WeightedSignal(Signal("budget", {"max": 500}, "must"), 0.6, AT, ("t1", "t2"))


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Bikes for the town", "obj-bikes-for-the-town-"),
        ("  --Größe & Preis!  ", "obj-gr-e-preis-"),
        ("a" * 40, f"obj-{'a' * 32}-"),
        ("a" * 31 + " bcd", f"obj-{'a' * 31}-"),
        ("自行车", "obj-"),
    ],
)
def test_ids_are_made_from_the_name(name: str, slug: str) -> None:
    key = bucket_id(name)
    assert key.startswith(slug)
    assert re.fullmatch("[0-9a-f]{8}", key.removeprefix(slug))


def test_an_id_is_the_same_for_the_same_name_alone() -> None:
    # As `printf Bikes | sha1sum` gives it.
    assert bucket_id("Bikes") == bucket_id(" Bikes\n") == "obj-bikes-41b94d54"
    assert bucket_id("bikes") != bucket_id("Bikes")
    assert bucket_id("Bikes!") != bucket_id("Bikes")


@given(texts)
def test_every_id_is_an_id(name: str) -> None:
    assert re.fullmatch(r"obj-([a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?-)?[0-9a-f]{8}", bucket_id(name))


@given(buckets)
def test_the_stored_form_gives_back_the_same(bucket: Bucket) -> None:
    text = bucket.to_text()
    assert Bucket.from_text(text) == bucket
    assert "\n" not in text


def test_the_stored_form() -> None:
    bucket = Bucket("obj-x-1", "X", "d", ("t",), "o", False, (Slice(AT, AT, "h", facts=(BUDGET,)),), AT)
    assert bucket.to_text() == (
        '{"bucket_id":"obj-x-1","name":"X","short_desc":"d","topic_centroid":["t"],"objective_text":"o",'
        '"enabled":false,"timeline":[{"ts_from":"2026-01-25T09:15:30Z","ts_to":"2026-01-25T09:15:30Z",'
        '"objective_hint":"h","assertions":[],"exceptions":[],"facts":[{"key":"budget","value":{"max":500},'
        '"severity":"must","weight":0.6,"last_seen_ts":"2026-01-25T09:15:30Z","support_turn_ids":["t1","t2"]}]}],'
        '"updated_at":"2026-01-25T09:15:30Z"}'
    )


@given(buckets)
def test_a_card_is_the_heaviest_of_the_last_slice(bucket: Bucket) -> None:
    small = card(bucket)
    assert (small.bucket_id, small.name, small.enabled) == (bucket.bucket_id, bucket.name, bucket.enabled)
    assert len(small.timeline) == min(1, len(bucket.timeline))
    for part, whole in zip(small.timeline, bucket.timeline[-1:], strict=True):
        assert (part.from_at, part.to_at, part.objective_hint) == (whole.from_at, whole.to_at, whole.objective_hint)
        for kind in KINDS:
            kept, all_ = list(getattr(part, kind)), list(getattr(whole, kind))
            assert len(kept) == min(CARD_SIGNALS, len(all_))
            for one in kept:
                all_.remove(one)
            assert all(one.weight >= other.weight for one in kept for other in all_)
    assert card(small) == small


def test_a_card_names_the_heaviest_first() -> None:
    weights = (0.2, 0.9, 0.05, 0.4, 1.0, 0.3)
    signals = tuple(WeightedSignal(Signal("k", weight, "high"), weight, AT) for weight in weights)
    (part,) = card(Bucket("b", "b", timeline=(Slice(assertions=signals),))).timeline
    assert [one.weight for one in part.assertions] == [1.0, 0.9, 0.4, 0.3]


def test_of_equal_weights_a_card_names_the_newest_first() -> None:
    signals = tuple(WeightedSignal(Signal(str(at), 1, "high"), 0.5, at) for at in (1, 5, 3, 2, 4))
    small = card(Bucket("b", "b", timeline=(Slice(), Slice(facts=signals))))
    assert [one.last_seen_at for one in small.timeline[0].facts] == [5, 4, 3, 2]


def test_a_job_reads_the_last_two_slices() -> None:
    bucket = Bucket("b", "b", timeline=(Slice(1), Slice(2), Slice(3)))
    assert shown(bucket).timeline == (Slice(2), Slice(3))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (Signal("k", 2, "must"), Signal("k", 2.0, "prefer"), True),
        (Signal("k", {"min": 1, "max": 2}, "must"), Signal("k", {"max": 2, "min": 1}, "must"), True),
        (Signal("k", 1, "must"), Signal("k", True, "must"), False),
        (Signal("k", 1, "must"), Signal("k", "1", "must"), False),
        (Signal("k", 1, "must", "thread"), Signal("k", 1, "must"), False),
        (Signal("k", 1, "must", "", "a"), Signal("k", 1, "must"), False),
        (Signal("k", 1, "must"), Signal("l", 1, "must"), False),
    ],
)
def test_signals_are_the_same_when_key_value_scope_and_target_are(first: Signal, second: Signal, same: bool) -> None:
    assert (WeightedSignal(first).identity == WeightedSignal(second).identity) is same
