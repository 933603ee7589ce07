"""What is packed into a budget, against the laws that the packing states."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_schemas.recall_budget import Candidate, Level, Line, Packed, Quota, Shown, pack

HEADINGS = {"memories": 4, "said": 8}
DEPTHS = (Level.URI, Level.ABSTRACT, Level.OVERVIEW, Level.FULL)


@dataclass(frozen=True)
class Task:
    candidates: list[Candidate]
    budget: int
    limit: int
    deepest: Level
    quotas: Mapping[str, Quota]

    def packed(self) -> Packed:
        return pack(
            self.candidates,
            self.budget,
            limit=self.limit,
            deepest=self.deepest,
            quotas=self.quotas,
            headings=HEADINGS,
        )

    def entry_cost(self, rank: int, shown: Shown) -> int:
        one = self.candidates[rank]
        if shown.level is Level.FULL:
            assert one.whole is not None
            return one.whole
        joint = one.joint * len(shown.lines) if len(shown.lines) > 1 else 0
        return one.head + sum(one.lines[line].tokens for line in shown.lines) + joint

    def cost(self, packed: Packed, type: str = "") -> int:
        told = {rank: how for rank, how in packed.shown.items() if self.candidates[rank].type == type or not type}
        entries = sum(self.entry_cost(rank, how) for rank, how in told.items())
        sections = {self.candidates[rank].section for rank in told}
        return entries if type else entries + sum(HEADINGS[section] for section in sections)


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    type = draw(st.sampled_from(["events", "profile", "passages"]))
    scores = st.integers(0, 20).map(float)
    lines = draw(st.lists(st.builds(Line, scores, st.integers(1, 60)), max_size=5))
    return Candidate(
        type,
        "said" if type == "passages" else "memories",
        head=draw(st.integers(1, 30)),
        lines=lines,
        whole=draw(st.none() | st.integers(1, 400)),
        joint=draw(st.integers(0, 3)),
        score=draw(scores),
        given=draw(st.sampled_from([Level.NOT, Level.NOT, Level.NOT, *DEPTHS])),
    )


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    quota = st.builds(Quota, st.integers(0, 6), st.just(0) | st.integers(1, 300))
    return Task(
        candidates=draw(st.lists(candidates(), max_size=20)),
        budget=draw(st.integers(1, 200) | st.integers(1, 2500)),
        limit=draw(st.integers(1, 25)),
        deepest=draw(st.sampled_from([Level.FULL, Level.FULL, *DEPTHS])),
        quotas=draw(st.dictionaries(st.sampled_from(["events", "passages"]), quota)),
    )


@given(tasks())
def test_neither_budget_nor_quotas_nor_limit_are_ever_exceeded(task: Task) -> None:
    packed = task.packed()
    assert task.cost(packed) <= task.budget
    assert len(packed.shown) <= task.limit
    for name, quota in task.quotas.items():
        assert sum(task.candidates[rank].type == name for rank in packed.shown) <= quota.items
        assert not quota.tokens or task.cost(packed, name) <= quota.tokens


@given(tasks())
def test_everything_is_shown_at_a_level_that_was_asked_for_and_is_new(task: Task) -> None:
    packed = task.packed()
    assert list(packed.shown) == sorted(packed.shown)
    for rank, how in packed.shown.items():
        one = task.candidates[rank]
        assert one.given < how.level <= task.deepest
        assert list(how.lines) == sorted(set(how.lines)) and all(line < len(one.lines) for line in how.lines)
        if how.level < Level.FULL:
            assert how.level == min(Level.URI + len(how.lines), Level.OVERVIEW)
        assert how.level > Level.URI or task.deepest is Level.URI or not one.lines


@given(tasks())
def test_the_same_is_packed_in_the_same_way(task: Task) -> None:
    assert task.packed() == task.packed()


@given(tasks())
def test_all_that_is_looked_at_is_shown_or_counted(task: Task) -> None:
    task = replace(task, limit=len(task.candidates) + 1)
    packed = task.packed()
    assert len(packed.shown) + packed.given + packed.over_quota + packed.over_budget == len(task.candidates)
    if not any(one.given for one in task.candidates):
        assert packed.given == 0
    if not task.quotas:
        assert packed.over_quota == 0


@given(tasks())
def test_a_line_is_left_out_only_if_it_has_no_room_beside_the_better_ones(task: Task) -> None:
    new = [rank for rank, one in enumerate(task.candidates) if not one.given and one.lines]
    task = replace(
        task,
        candidates=[replace(task.candidates[rank], whole=None) for rank in new],
        limit=len(new) + 1,
        deepest=Level.FULL,
        quotas={},
    )
    packed = task.packed()
    ranked = sorted(
        (-line.score, rank, place) for rank, one in enumerate(task.candidates) for place, line in enumerate(one.lines)
    )
    shown: dict[int, list[int]] = {}

    def cost() -> int:
        lines = {rank: Shown(Level.OVERVIEW, tuple(places)) for rank, places in shown.items() if places}
        return task.cost(replace(packed, shown=lines))

    for _, rank, place in ranked:
        before = shown.setdefault(rank, [])
        is_shown = rank in packed.shown and place in packed.shown[rank].lines
        shown[rank] = [*before, place]
        assert is_shown == (cost() <= task.budget)
        if not is_shown:
            shown[rank] = before


@given(tasks())
def test_nothing_could_be_shown_whole_with_the_tokens_that_are_left(task: Task) -> None:
    packed = task.packed()
    left = task.budget - task.cost(packed)
    for rank, how in packed.shown.items():
        one, cost = task.candidates[rank], task.entry_cost(rank, how)
        quota = task.quotas.get(one.type, Quota(0))
        room = min(left, quota.tokens - task.cost(packed, one.type)) if quota.tokens else left
        if task.deepest is Level.FULL and one.whole is not None and how.level < Level.FULL:
            assert one.whole - cost > room


@given(tasks(), candidates(), st.data())
def test_what_was_given_before_takes_nothing_from_what_is_new(task: Task, more: Candidate, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(task.candidates)))
    known = replace(more, given=data.draw(st.sampled_from(DEPTHS)))
    among = replace(task, candidates=[*task.candidates[:place], known, *task.candidates[place:]])

    def new(task: Task, packed: Packed) -> list[tuple[Candidate, Shown]]:
        shown = ((task.candidates[rank], how) for rank, how in packed.shown.items())
        return [(one, how) for one, how in shown if not one.given]

    without, packed = task.packed(), among.packed()
    assert new(among, packed) == new(task, without)
    assert (packed.over_quota, packed.over_budget) == (without.over_quota, without.over_budget)


def candidate(*scores: float, given: Level = Level.NOT, whole: int | None = None) -> Candidate:
    """A memory whose head takes 10 tokens, and each line 20."""
    return Candidate("events", "memories", 10, [Line(score, 20) for score in scores], whole, given=given)


def shown(packed: Packed) -> dict[int, tuple[int, ...]]:
    return {rank: how.lines for rank, how in packed.shown.items()}


def test_good_lines_of_one_memory_come_before_the_best_of_others() -> None:
    found = [candidate(0.9, 0.8, 0.1), candidate(0.7, 0.2), candidate(0.6)]
    assert shown(pack(found, 80, limit=20)) == {0: (0, 1), 1: (0,)}
    assert shown(pack(found, 110, limit=20)) == {0: (0, 1), 1: (0,), 2: (0,)}
    assert shown(pack(found, 80, limit=20, deepest=Level.ABSTRACT)) == {0: (0,), 1: (0,)}


def test_a_result_that_ranks_lower_is_shown_for_a_better_line() -> None:
    found = [candidate(0.5), candidate(0.3, 0.9)]
    assert shown(pack(found, 30, limit=20)) == {1: (1,)}


def test_a_line_without_room_is_passed_over() -> None:
    long = Candidate("events", "memories", 10, [Line(0.9, 100)])
    packed = pack([long, candidate(0.5)], 50, limit=5)
    assert shown(packed) == {1: (0,)} and packed.over_budget == 1


def test_entries_are_shown_whole_if_room_is_left() -> None:
    found = [candidate(0.9, whole=60), candidate(0.8, whole=25)]
    levels = [how.level for how in pack(found, 60, limit=5).shown.values()]
    assert levels == [Level.ABSTRACT, Level.FULL], "a whole text that takes no more is shown in any case"
    levels = [how.level for how in pack(found, 90, limit=5).shown.values()]
    assert levels == [Level.FULL, Level.FULL]


@pytest.mark.parametrize(
    ("given", "budget", "told"),
    [
        (Level.URI, 40, Level.ABSTRACT),
        (Level.ABSTRACT, 90, Level.FULL),
        (Level.ABSTRACT, 75, Level.OVERVIEW),
        (Level.ABSTRACT, 40, Level.NOT),
        (Level.OVERVIEW, 75, Level.NOT),
    ],
)
def test_what_was_given_is_shown_again_only_in_more_detail(given: Level, budget: int, told: Level) -> None:
    packed = pack([candidate(0.9, 0.8, 0.7, 0.6, given=given, whole=80)], budget, limit=5)
    assert packed.shown.get(0, Shown(Level.NOT, ())).level == told
    assert packed.given == (told is Level.NOT) and packed.over_budget == 0


def test_a_name_alone_is_shown_if_nothing_else_is_asked_for_or_there() -> None:
    nameless = Candidate("events", "memories", 10, [], score=0.9)
    assert shown(pack([nameless, candidate(0.5)], 50, limit=5)) == {0: (), 1: (0,)}
    named = pack([candidate(0.5), candidate(0.9)], 15, limit=5, deepest=Level.URI)
    assert {rank: how.level for rank, how in named.shown.items()} == {0: Level.URI}


def test_what_is_over_its_quota_makes_room_for_other_types() -> None:
    found = [candidate(0.9) for _ in range(5)] + [replace(candidate(0.1), type="profile")]
    packed = pack(found, 1000, limit=3, quotas={"events": Quota(2)})
    assert list(packed.shown) == [0, 1, 5] and packed.over_quota == 3
    packed = pack(found, 1000, limit=10, quotas={"events": Quota(0), "profile": Quota(5, tokens=30)})
    assert list(packed.shown) == [5] and packed.over_quota == 5
