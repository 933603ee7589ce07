"""What is packed into a budget, against the laws that the packing states."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.recalling import SHARE, Candidate, Level, Packed, Quota, pack

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

    def steps(self, rank: int) -> dict[Level, int]:
        """What a candidate may be told at."""
        one = self.candidates[rank]
        return {level: cost for level, cost in one.costs.items() if one.given < level <= self.deepest}

    def cost(self, packed: Packed, type: str = "") -> int:
        told = {rank: level for rank, level in packed.levels.items() if self.candidates[rank].type == type or not type}
        entries = sum(self.candidates[rank].costs[level] for rank, level in told.items())
        sections = {self.candidates[rank].section for rank in told}
        return entries if type else entries + sum(HEADINGS[section] for section in sections)


def candidate(type: str, *costs: int, given: Level = Level.NOT) -> Candidate:
    """A memory with costs of its URI, abstract, overview and content, as far as they are there; a passage with those
    of its URI and text."""
    if type == "passages":
        return Candidate(type, "said", {Level.URI: costs[0], Level.FULL: costs[-1]}, given)
    return Candidate(type, "memories", dict(zip(DEPTHS, costs, strict=False)), given)


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    type = draw(st.sampled_from(["events", "profile", "passages"]))
    cost = st.integers(1, 40) | st.integers(1, 400)
    costs = {Level.URI: draw(st.integers(5, 30))}
    for level in DEPTHS[1:]:
        if (level is Level.FULL or type != "passages") and draw(st.integers(0, 3)):
            costs[level] = draw(cost)
    given = draw(st.sampled_from([Level.NOT, Level.NOT, Level.NOT, *DEPTHS]))
    return Candidate(type, "said" if type == "passages" else "memories", costs, given)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    quota = st.builds(Quota, st.integers(0, 6), st.just(0) | st.integers(1, 300))
    return Task(
        candidates=draw(st.lists(candidates(), max_size=25)),
        budget=draw(st.integers(1, 200) | st.integers(1, 2500)),
        limit=draw(st.integers(1, 30)),
        deepest=draw(st.sampled_from([Level.FULL, Level.FULL, *DEPTHS])),
        quotas=draw(st.dictionaries(st.sampled_from(["events", "passages"]), quota)),
    )


@given(tasks())
def test_neither_budget_nor_quotas_nor_limit_are_ever_exceeded(task: Task) -> None:
    packed = task.packed()
    assert task.cost(packed) <= task.budget
    assert len(packed.levels) <= task.limit
    for name, quota in task.quotas.items():
        assert sum(task.candidates[rank].type == name for rank in packed.levels) <= quota.items
        assert not quota.tokens or task.cost(packed, name) <= quota.tokens


@given(tasks())
def test_everything_is_told_at_a_level_that_it_has_and_that_is_new(task: Task) -> None:
    packed = task.packed()
    assert list(packed.levels) == sorted(packed.levels)
    for rank, level in packed.levels.items():
        costs = task.steps(rank)
        assert level in costs
        # Where as few tokens tell more, that is told.
        assert all(costs[deeper] > costs[level] for deeper in costs if deeper > level)


@given(tasks())
def test_the_same_is_packed_in_the_same_way(task: Task) -> None:
    assert task.packed() == task.packed()


@given(tasks())
def test_all_that_is_looked_at_is_told_or_counted(task: Task) -> None:
    task = replace(task, limit=len(task.candidates) + 1)
    packed = task.packed()
    counted = packed.given + packed.over_quota + packed.over_budget
    assert len(packed.levels) + counted == len(task.candidates)
    if not any(one.given for one in task.candidates):
        assert packed.given == 0
    if not task.quotas:
        assert packed.over_quota == 0


@given(tasks())
def test_of_what_is_new_the_best_is_told_and_breadth_goes_before_depth(task: Task) -> None:
    """Of a type nobody is passed over for one behind; and nobody who is let in is left with a name alone whose first
    words take no more than their share."""
    packed = task.packed()
    for name in ("events", "profile", "passages"):
        new = [rank for rank, one in enumerate(task.candidates) if one.type == name and not one.given]
        told = [rank for rank in new if rank in packed.levels]
        assert told == new[: len(told)]
    for rank, level in packed.levels.items():
        quota = task.quotas.get(task.candidates[rank].type, Quota(0))
        whole = min(task.budget, quota.tokens or task.budget)
        words = [cost for deeper, cost in task.steps(rank).items() if deeper > Level.URI]
        if words and min(words) * SHARE <= whole:
            assert level > Level.URI


@given(tasks())
def test_nothing_could_be_told_deeper_with_the_tokens_that_are_left(task: Task) -> None:
    packed = task.packed()
    sections = {one.section for one in task.candidates}
    # Room for a heading may be kept for what is then not told.
    left = task.budget - task.cost(packed) - sum(HEADINGS[section] for section in sections)
    for rank, level in packed.levels.items():
        type = task.candidates[rank].type
        quota = task.quotas.get(type, Quota(0))
        room = min(left, quota.tokens - task.cost(packed, type)) if quota.tokens else left
        costs = task.steps(rank)
        assert all(cost - costs[level] > room for deeper, cost in costs.items() if deeper > level)


@given(tasks(), st.integers(1, 500))
def test_a_larger_budget_never_tells_fewer_of_what_is_new(task: Task, more: int) -> None:
    def new(packed: Packed) -> set[int]:
        return {rank for rank in packed.levels if not task.candidates[rank].given}

    assert new(task.packed()) <= new(replace(task, budget=task.budget + more).packed())


@given(tasks(), candidates(), st.data())
def test_what_was_given_before_takes_nothing_from_what_is_new(task: Task, more: Candidate, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(task.candidates)))
    known = replace(more, given=data.draw(st.sampled_from(DEPTHS)))
    among = replace(task, candidates=[*task.candidates[:place], known, *task.candidates[place:]])

    def new(task: Task, packed: Packed) -> list[Candidate]:
        return [task.candidates[rank] for rank in packed.levels if not task.candidates[rank].given]

    without, packed = task.packed(), among.packed()
    assert new(among, packed) == new(task, without)
    assert (packed.over_quota, packed.over_budget) == (without.over_quota, without.over_budget)


@given(tasks(), st.data())
def test_of_two_that_are_alike_the_better_one_is_told_as_deeply_or_deeper(task: Task, data: st.DataObject) -> None:
    if not task.candidates:
        return
    twin = data.draw(st.sampled_from(task.candidates))
    place = data.draw(st.integers(0, len(task.candidates)))
    task = replace(task, candidates=[*task.candidates[:place], twin, *task.candidates[place:]])
    levels = task.packed().levels
    told = [levels.get(rank, Level.NOT) for rank, one in enumerate(task.candidates) if one == twin]
    assert told == sorted(told, reverse=True)


def test_with_little_room_some_are_told_in_words_rather_than_all_by_name() -> None:
    found = [candidate("events", 20, 35, 150, 600) for _ in range(20)]
    packed = pack(found, 300, limit=20)
    assert list(packed.levels.values()) == [Level.ABSTRACT] * 8
    assert packed.over_budget == 12


def test_with_much_room_the_best_are_told_in_full_and_all_in_words() -> None:
    found = [candidate("events", 20, 40, 150, 600) for _ in range(20)]
    levels = list(pack(found, 2500, limit=20).levels.values())
    assert levels == [Level.OVERVIEW] * 15 + [Level.ABSTRACT] * 5
    levels = list(pack(found, 4000, limit=20).levels.values())
    assert levels == [Level.FULL] * 2 + [Level.OVERVIEW] * 18


def test_long_passages_wait_for_short_words_of_others() -> None:
    found = [candidate("passages", 40, 1300), *(candidate("passages", 40, 30) for _ in range(5))]
    packed = pack(found, 600, limit=20)
    # The short ones are told whole, for less than their names take.
    assert packed.levels == {0: Level.URI} | dict.fromkeys(range(1, 6), Level.FULL)
    assert pack(found, 2000, limit=20).levels == dict.fromkeys(range(6), Level.FULL)


def test_short_words_come_before_anybody_s_overview() -> None:
    found = [candidate("events", 20, 40, 150, 600) for _ in range(3)] + [candidate("passages", 30, 60)] * 3
    levels = pack(found, 600, limit=20, headings=HEADINGS).levels
    assert levels == {0: Level.OVERVIEW, 1: Level.OVERVIEW, 2: Level.ABSTRACT} | dict.fromkeys((3, 4, 5), Level.FULL)


def test_who_has_no_room_ends_it_for_those_behind() -> None:
    packed = pack([candidate("events", 20), candidate("events", 60), candidate("events", 20)], 50, limit=5)
    assert packed == Packed({0: Level.URI}, given=0, over_quota=0, over_budget=2)


def test_a_few_tokens_more_cost_nobody_the_place() -> None:
    found = [candidate("events", 5, 200) for _ in range(20)]
    told = [len(pack(found, budget, limit=20).levels) for budget in range(1, 800)]
    assert told == sorted(told) and told[0] == 0 and told[-1] == 6


def test_the_best_is_told_in_words_where_half_of_the_budget_holds_them() -> None:
    found = [candidate("profile", 10, 190), *(candidate("passages", 10, 30) for _ in range(5))]
    levels = pack(found, 400, limit=20).levels
    assert levels[0] is Level.ABSTRACT and len(levels) == 6
    assert pack(found, 300, limit=20).levels[0] is Level.URI


def test_levels_that_are_not_there_are_passed_over() -> None:
    found = [candidate("events", 20), Candidate("events", "memories", {Level.URI: 20, Level.FULL: 100})]
    assert pack(found, 1000, limit=5).levels == {0: Level.URI, 1: Level.FULL}
    assert pack(found, 1000, limit=5, deepest=Level.OVERVIEW).levels == {0: Level.URI, 1: Level.URI}


@pytest.mark.parametrize(
    ("given", "budget", "told"),
    [(Level.URI, 50, Level.ABSTRACT), (Level.ABSTRACT, 500, Level.FULL), (Level.ABSTRACT, 60, Level.NOT)],
)
def test_what_was_given_is_told_again_only_deeper(given: Level, budget: int, told: Level) -> None:
    packed = pack([candidate("events", 20, 40, 150, 300, given=given)], budget, limit=5)
    assert packed.levels.get(0, Level.NOT) == told
    assert packed.given == (told is Level.NOT) and packed.over_budget == 0


def test_what_cannot_be_told_deeper_leaves_its_place_to_what_is_new() -> None:
    long = candidate("events", 15, 30, 3000, given=Level.ABSTRACT)
    found = [long] * 8 + [candidate("events", 15, 30, 3000)] * 12
    packed = pack(found, 2000, limit=12, headings=HEADINGS)
    assert packed == Packed(dict.fromkeys(range(8, 20), Level.ABSTRACT), given=8, over_quota=0, over_budget=0)
    # Nor is it told deeper before everybody new is told in words, or in their places.
    deeper = [candidate("events", 15, 30, 150, given=Level.ABSTRACT)] * 3
    found = [*deeper, *[candidate("events", 15, 30, 600)] * 4]
    assert pack(found, 300, limit=7).levels == dict.fromkeys(range(3, 7), Level.ABSTRACT) | {0: Level.OVERVIEW}
    assert pack(found, 2000, limit=4).levels == {
        3: Level.OVERVIEW,
        4: Level.OVERVIEW,
        5: Level.OVERVIEW,
        6: Level.ABSTRACT,
    }
    quotas = {"events": Quota(5)}
    levels = pack(found, 900, limit=7, quotas=quotas).levels
    assert levels == {0: Level.OVERVIEW, 3: Level.OVERVIEW, 4: Level.ABSTRACT, 5: Level.ABSTRACT, 6: Level.ABSTRACT}


def test_what_is_over_its_quota_makes_room_for_other_types() -> None:
    found = [candidate("events", 20, 40) for _ in range(5)] + [candidate("profile", 20, 40)]
    packed = pack(found, 1000, limit=3, quotas={"events": Quota(2)})
    assert list(packed.levels) == [0, 1, 5] and packed.over_quota == 3
    packed = pack(found, 1000, limit=10, quotas={"events": Quota(0), "profile": Quota(5, tokens=30)})
    assert packed.levels == {5: Level.URI} and packed.over_quota == 5
