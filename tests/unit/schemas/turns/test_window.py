"""Which turns an agent is shown, against the rules said once more in sets."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_schemas.turns.selection import Selection
from runekeep_schemas.turns.window import (
    DELTA_SHOWN,
    SELECTED_TURNS,
    Audience,
    Place,
    candidates,
    chosen,
    loaded,
    newest,
)

GATES = (Audience.GATE, Audience.RECONCILER)
OTHERS = (Audience.DOWNSTREAM, Audience.FINAL_ANSWER)


@dataclass(frozen=True)
class Conversation:
    turns: tuple[Place, ...]
    """All but the current one."""
    current: Place
    last: tuple[Place, ...]
    hits: tuple[Place, ...]
    delta: tuple[Place, ...]
    selection: Selection

    @property
    def order(self) -> dict[str, int]:
        return dict((*self.turns, self.current))

    def there(self, ids: tuple[str, ...]) -> list[Place]:
        return [place for place in self.turns if place[0] in ids]


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    count = draw(st.integers(0, 60))
    sequences = draw(st.lists(st.integers(1, 500), min_size=count + 1, max_size=count + 1, unique=True))
    # The id says nothing of the order.
    turns = tuple((f"t{number}", sequence) for number, sequence in enumerate(sequences[:-1]))
    some = st.lists(st.sampled_from(turns), max_size=20) if turns else st.just([])
    delta = draw(st.permutations(turns))[: draw(st.integers(0, count))]
    names = st.lists(st.sampled_from([*(name for name, _ in turns), "gone", "other"]), unique=True)
    return Conversation(
        turns=turns,
        current=("now", sequences[-1]),
        last=tuple(draw(some)),
        hits=tuple(draw(some)),
        delta=tuple(delta),
        selection=Selection(
            local_memories_turn_ids=tuple(draw(names))[:5], turn_ids=tuple(draw(names))[:10], memory_version=3
        ),
    )


def _shown(audience: Audience, talk: Conversation, selection: Selection | None) -> list[str]:
    ids = chosen(audience, talk.current[0], selection)
    selected = talk.there(ids) if ids is not None else []
    return loaded(audience, talk.current, talk.last, talk.hits, talk.delta, selection, selected)


def _unfiltered(talk: Conversation) -> set[str]:
    by_sequence = sorted(talk.delta, key=lambda place: -place[1])
    return {name for name, _ in (talk.current, *talk.last, *talk.hits, *by_sequence[:DELTA_SHOWN])}


@given(conversations(), st.sampled_from(OTHERS))
def test_every_selected_turn_memory_is_shown_and_nothing_else(talk: Conversation, audience: Audience) -> None:
    wanted = {*talk.selection.local_memories_turn_ids, "now"}
    assert set(_shown(audience, talk, talk.selection)) == wanted & talk.order.keys()


@given(conversations(), st.sampled_from(OTHERS))
def test_an_empty_selection_leaves_the_current_turn_alone(talk: Conversation, audience: Audience) -> None:
    assert _shown(audience, talk, Selection()) == ["now"]


@given(conversations(), st.sampled_from(list(Audience)))
def test_no_selection_is_no_filter(talk: Conversation, audience: Audience) -> None:
    assert set(_shown(audience, talk, None)) == _unfiltered(talk)


@given(conversations(), st.sampled_from(GATES))
def test_those_who_choose_are_shown_everything(talk: Conversation, audience: Audience) -> None:
    assert set(_shown(audience, talk, talk.selection)) == _unfiltered(talk)


@given(conversations(), st.sampled_from(list(Audience)), st.booleans())
def test_the_order_is_that_of_turns_and_every_turn_is_there_once(
    talk: Conversation, audience: Audience, is_chosen: bool
) -> None:
    selection = talk.selection if is_chosen else None
    shown = _shown(audience, talk, selection)
    sequences = [talk.order[name] for name in shown]
    assert all(first > second for first, second in pairwise(sequences))
    offered = candidates(audience, talk.last, talk.hits, selection, talk.there(talk.selection.turn_ids))
    sequences = [talk.order[name] for name in offered]
    assert all(first > second for first, second in pairwise(sequences))


@given(conversations(), st.sampled_from(list(Audience)))
def test_the_order_of_what_is_given_does_not_matter(talk: Conversation, audience: Audience) -> None:
    before = _shown(audience, talk, talk.selection)
    turned = Conversation(
        talk.turns[::-1], talk.current, talk.last[::-1], talk.hits[::-1], talk.delta[::-1], talk.selection
    )
    assert _shown(audience, turned, talk.selection) == before


@given(conversations())
def test_the_cap_of_the_delta_window_keeps_the_newest(talk: Conversation) -> None:
    shown = set(loaded(Audience.GATE, talk.current, (), (), talk.delta, None)) - {"now"}
    left_out = {name for name, _ in talk.delta} - shown
    assert len(shown) == min(DELTA_SHOWN, len(talk.delta))
    assert all(talk.order[out] < talk.order[name] for out in left_out for name in shown)


def test_newest() -> None:
    assert newest([("a", 1), ("c", 9), ("b", 5), ("c", 9)], 2) == [("c", 9), ("b", 5)]


@pytest.mark.parametrize("audience", GATES)
def test_what_is_loaded_by_id(audience: Audience) -> None:
    selection = Selection(
        local_memories_turn_ids=("l1", "t2"), turn_ids=tuple(f"t{number}" for number in range(10)), memory_version=1
    )
    assert chosen(audience, "now", selection) is None
    for other in OTHERS:
        assert chosen(other, "now", None) is None
        assert chosen(other, "now", selection) == ("l1", "t2", "now")


@given(conversations())
def test_candidates(talk: Conversation) -> None:
    around = {name for name, _ in (*talk.last, *talk.hits)}
    selected = talk.there(talk.selection.turn_ids)
    for audience in GATES:
        assert set(candidates(audience, talk.last, talk.hits, talk.selection, selected)) == around
    downstream = candidates(Audience.DOWNSTREAM, talk.last, talk.hits, talk.selection, selected)
    assert set(downstream) == around | {name for name, _ in talk.there(talk.selection.turn_ids[:SELECTED_TURNS])}
    assert set(candidates(Audience.DOWNSTREAM, talk.last, talk.hits, None, ())) == around
    assert candidates(Audience.FINAL_ANSWER, talk.last, talk.hits, talk.selection, selected) == []
