"""What is kept of a choice, and the token of what there was to choose from."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_schemas.turns.selection import (
    MAX_BUCKETS,
    MAX_LOCAL_MEMORIES,
    MAX_OFFERED_BUCKETS,
    MAX_OFFERED_TURNS,
    MAX_TOKEN,
    MAX_TURNS,
    Offer,
    Selection,
    choose,
)
from tests.unit.schemas.turns.strategies import times, turn_ids

# Ids and wishes of two letters, so that many are prefixes of others.
ids = st.text("ab", min_size=1, max_size=4)
offers = st.builds(
    Offer,
    session_id=turn_ids,
    turn_ids=st.lists(ids, max_size=14, unique=True).map(tuple),
    bucket_ids=st.lists(ids, max_size=14, unique=True).map(tuple),
    memory_version=st.integers(0, 2**63 - 1),
)
wished_ids = st.lists(st.text("ab", max_size=4), max_size=20).map(tuple)
wishes = st.builds(
    Selection,
    local_memories_turn_ids=wished_ids,
    turn_ids=wished_ids,
    memory_bucket_ids=wished_ids,
    current_turn_id=ids,
    last_reconciled_at=times,
    memory_version=st.integers(0, 100),
)
KINDS = (
    ("local_memories_turn_ids", "turn_ids", MAX_LOCAL_MEMORIES),
    ("turn_ids", "turn_ids", MAX_TURNS),
    ("memory_bucket_ids", "bucket_ids", MAX_BUCKETS),
)


def _meant(wish: str, offered: tuple[str, ...]) -> str | None:
    """What a wish can only mean."""
    if wish in offered:
        return wish
    fitting = [one for one in offered if one.startswith(wish)]
    return fitting[0] if wish and len(fitting) == 1 else None


@given(offers, wishes, times)
def test_kept_is_what_was_offered_in_the_order_of_the_wish_up_to_the_caps(
    offer: Offer, wish: Selection, now: int
) -> None:
    kept, dropped = choose(offer, wish, now)
    may_be_dropped: set[str] = set()
    must_be_dropped: set[str] = set()
    for name, source, most in KINDS:
        wanted: tuple[str, ...] = getattr(wish, name)
        meant = {one: _meant(one, getattr(offer, source)) for one in wanted}
        resolved = list(dict.fromkeys(found for one in wanted if (found := meant[one]) is not None))
        assert getattr(kept, name) == tuple(resolved[:most])
        must_be_dropped |= {one for one in wanted if meant[one] is None or meant[one] in resolved[most:]}
        may_be_dropped |= set(wanted)
    assert set(dropped) == must_be_dropped <= may_be_dropped
    assert len(dropped) == len(set(dropped))
    assert kept.current_turn_id == wish.current_turn_id
    assert (kept.last_reconciled_at, kept.memory_version) == (now, offer.memory_version)


@given(offers, wishes, times)
def test_what_was_kept_is_kept_when_it_is_chosen_again(offer: Offer, wish: Selection, now: int) -> None:
    kept, _ = choose(offer, wish, now)
    assert choose(offer, kept, now) == (kept, ())


def test_prefixes() -> None:
    offer = Offer("s", ("turn-1", "turn-10", "turn-2"), ("obj-bikes-1", "obj-budget-2"), 7)
    wish = Selection(("turn-1", "turn-"), ("turn-2", "turn-10", "tur", "", "turn-2"), ("obj-bi", "obj-b", "turn-2"))
    kept, dropped = choose(offer, wish, 9)
    assert kept == Selection(("turn-1",), ("turn-2", "turn-10"), ("obj-bikes-1",), "", 9, 7)
    assert dropped == ("turn-", "tur", "", "obj-b", "turn-2")


def test_a_prefix_of_an_id_that_was_named_already_is_no_id_too_many() -> None:
    offer = Offer("s", tuple(f"t{letter}-x" for letter in "abcdef"))
    wish = Selection(local_memories_turn_ids=("ta-x", "ta", "tb", "tc", "td", "te", "te-", "tf"))
    kept, dropped = choose(offer, wish, 1)
    assert kept.local_memories_turn_ids == ("ta-x", "tb-x", "tc-x", "td-x", "te-x")
    assert dropped == ("tf",)


@given(wishes)
def test_the_stored_form_gives_back_the_same(selection: Selection) -> None:
    assert Selection.from_text(selection.to_text()) == selection


def test_the_stored_form() -> None:
    chosen = Selection(("t7", "t2"), ("t4",), (), "t12", 1_769_332_530_000_000, 11)
    assert chosen.to_text() == (
        '{"local_memories_turn_ids":["t7","t2"],"turn_ids":["t4"],"memory_bucket_ids":[],"current_turn_id":"t12",'
        '"last_reconciled_ts":"2026-01-25T09:15:30Z","memory_version":11}'
    )
    assert Selection.from_text(Selection().to_text()) == Selection()


@given(offers)
def test_an_offer_comes_back_as_it_was(offer: Offer) -> None:
    token = offer.encode()
    assert Offer.decode(token) == offer
    assert token.isascii()


def test_the_largest_offer_fits_and_what_is_beyond_it_is_left_out() -> None:
    turns = tuple(f"{number:064}" for number in range(300))
    offer = Offer("s" * 128, turns, turns, 2**63 - 1)
    token = offer.encode()
    assert len(token) <= MAX_TOKEN
    assert Offer.decode(token).turn_ids == turns[:MAX_OFFERED_TURNS]
    assert Offer.decode(token).bucket_ids == turns[:MAX_OFFERED_BUCKETS]


def _token(body: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(body).encode()).decode()


GOOD = ["s", ["t1"], [], 3]


@pytest.mark.parametrize(
    "token",
    [
        "",
        "%%%",
        "ü",
        "\ud800",
        _token(GOOD)[:-2],
        _token(GOOD) + "\n",
        _token(GOOD)[:5] + "!" + _token(GOOD)[5:],
        _token(None),
        _token({"session_id": "s"}),
        _token(["s", ["t1"], []]),
        _token([*GOOD, 1]),
        _token([1, ["t1"], [], 3]),
        _token(["", ["t1"], [], 3]),
        _token(["s", "t1", [], 3]),
        _token(["s", [1], [], 3]),
        _token(["s", [["t1"]], [], 3]),
        _token(["s", [""], [], 3]),
        _token(["s", ["\ud800"], [], 3]),
        _token(["s", ["t\n1"], [], 3]),
        _token(["s", ["t"] * (MAX_OFFERED_TURNS + 1), [], 3]),
        _token(["s", [], ["b"] * (MAX_OFFERED_BUCKETS + 1), 3]),
        _token(["s", [], [], True]),
        _token(["s", [], [], 3.5]),
        _token(["s", [], [], -1]),
        _token(["s", [], [], 2**63]),
        base64.urlsafe_b64encode(b"\xff\xfe\x00").decode(),
        base64.urlsafe_b64encode(b"[" * 40000).decode(),
        base64.urlsafe_b64encode(b'["s",[],[],' + b"9" * 5000 + b"]").decode(),
        "A" * (MAX_TOKEN + 4),
    ],
)
def test_anything_else_is_no_offer(token: str) -> None:
    with pytest.raises(ValueError, match="the offer is"):
        Offer.decode(token)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_no_text_breaks_the_reading_of_offers(token: str) -> None:
    with pytest.raises(ValueError, match="the offer is"):
        Offer.decode(token)
