"""How much of what a search found is told within a budget: which candidates, and each how deeply.

Breadth goes first, and to what is new. New candidates are admitted in rank order, each with the room for its first
words, of which those count that take at most a SHARE of the budget, and of the best one a larger FIRST_SHARE; the
first one without that room ends it. Who is admitted is told at least by name. Then everyone admitted whose first
words are that short is told in words. What room is left deepens one after the other, in rank order: first to
abstracts, then to overviews, then to whole texts. Only here come those that were given before, to be told deeper, in
the places that the new ones left. What does not fit is passed over, and nothing that was told is taken back.

So what was given before takes nothing from what is new. Of a larger budget never fewer new candidates are admitted,
for their claims grow no faster than the budget does. And of two candidates that differ in nothing but their ranks, the
one ranked higher is told at least as deeply.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

SHARE: Final = 8
"""First words have room kept for them as far as they take one part in so many of the budget."""
FIRST_SHARE: Final = 2
"""Those of the best candidate: of it a mere name would be the least use."""
PASSAGES: Final = "passages"
"""In place of a memory type: what was said."""


class Level(IntEnum):
    """How deeply something is told; the numbers are those of RecallLevel in the contract."""

    NOT = 0
    URI = 1
    ABSTRACT = 2
    OVERVIEW = 3
    FULL = 4


@dataclass(frozen=True, slots=True)
class Quota:
    """Most entries of a type, and most tokens of them together; 0 tokens: any number."""

    items: int
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """`costs`: tokens at each level that it has. `section`: what it stands under. `given`: how deeply it was told
    before; it is told again only to be told deeper."""

    type: str
    section: str
    costs: Mapping[Level, int]
    given: Level = Level.NOT


@dataclass(frozen=True, slots=True)
class Packed:
    """`levels` by the candidates' places in the ranking, in rank order. The others were `given` before and are told no
    deeper now, or are new and over a quota or over the budget, or behind the limit, where nobody counts them."""

    levels: dict[int, Level]
    given: int
    over_quota: int
    over_budget: int


@dataclass(frozen=True, slots=True)
class _Step:
    level: Level
    cost: int


@dataclass(slots=True)
class _Entry:
    """A candidate on its way down its `steps`. Without one that it has reached nothing of it is told."""

    rank: int
    type: str
    section: str
    steps: list[_Step]
    share: int = SHARE
    reached: int = -1

    @property
    def level(self) -> Level:
        return self.steps[self.reached].level if self.reached >= 0 else Level.NOT

    @property
    def cost(self) -> int:
        return self.steps[self.reached].cost if self.reached >= 0 else 0

    @property
    def next(self) -> _Step | None:
        return self.steps[self.reached + 1] if self.reached + 1 < len(self.steps) else None

    @property
    def words(self) -> int:
        """Tokens of it when it is told in its first words; of what has none, of its name."""
        return next((step.cost for step in self.steps if step.level > Level.URI), self.steps[0].cost)

    def claim(self, whole: int) -> int:
        """Tokens that it claims of the `whole` when it is admitted, times SHARE, so that they are whole numbers."""
        return max(SHARE * self.steps[0].cost, min(SHARE * self.words, SHARE // self.share * whole))


@dataclass(slots=True)
class _Room:
    """What is left: entries and tokens, in all and of types with a quota; `headings` that nothing stands under yet."""

    entries: int
    tokens: int
    entries_of: dict[str, int]
    tokens_of: dict[str, int]
    headings: dict[str, int]

    def take(self, entry: _Entry, step: _Step) -> bool:
        """Whether there was room for the entry to go down to the step."""
        more = step.cost - entry.cost
        if more > self.tokens_of.get(entry.type, more):
            return False
        if entry.level:
            if more > self.tokens:
                return False
            self.tokens -= more
        else:
            heading = self.headings.get(entry.section, 0)
            if more + heading > self.tokens or not self.entries or not self.entries_of.get(entry.type, 1):
                return False
            self.tokens -= more + heading
            self.headings.pop(entry.section, None)
            self.entries -= 1
            if entry.type in self.entries_of:
                self.entries_of[entry.type] -= 1
        if entry.type in self.tokens_of:
            self.tokens_of[entry.type] -= more
        return True


def pack(
    candidates: Sequence[Candidate],
    budget: int,
    *,
    limit: int,
    deepest: Level = Level.FULL,
    quotas: Mapping[str, Quota] | None = None,
    headings: Mapping[str, int] | None = None,
) -> Packed:
    """Packs candidates, best first, into `budget` tokens and at most `limit` entries.

    `headings`: tokens of the heading of a section, once for all that stand under it.
    """
    quotas, headings = quotas or {}, headings or {}
    found = _looked_at(candidates, limit, deepest, quotas)
    admitted = _within_budget(found.new, budget, headings)
    room = _Room(
        entries=limit,
        tokens=budget,
        entries_of={name: quota.items for name, quota in quotas.items()},
        tokens_of={name: quota.tokens for name, quota in quotas.items() if quota.tokens},
        headings=dict(headings),
    )
    # Each to its name, for which its claim has kept the room, and then to first words that are short.
    for entry in admitted:
        _down(entry, room)
    for entry in admitted:
        whole = min(budget, quotas[entry.type].tokens or budget) if entry.type in quotas else budget
        if entry.level <= Level.URI and entry.next is not None and entry.share * entry.next.cost <= whole:
            _down(entry, room)
    entries = sorted((*admitted, *found.deeper), key=lambda entry: entry.rank)
    # What finds no room in a round finds none in a later one either.
    for depth in (Level.ABSTRACT, Level.OVERVIEW, Level.FULL):
        for entry in entries:
            if entry.next is not None and entry.next.level <= depth:
                _down(entry, room)
    return Packed(
        levels={entry.rank: entry.level for entry in entries if entry.level},
        given=found.given - sum(bool(entry.level) for entry in found.deeper),
        over_quota=found.over_quota,
        over_budget=len(found.new) - len(admitted),
    )


def _steps(candidate: Candidate, deepest: Level) -> list[_Step]:
    """What it may be told at, each deeper step for more tokens: where less or as much tells more, that is told."""
    steps: list[_Step] = []
    for level in sorted(candidate.costs, reverse=True):
        cost = candidate.costs[level]
        if candidate.given < level <= deepest and (not steps or cost < steps[-1].cost):
            steps.append(_Step(level, cost))
    return steps[::-1]


@dataclass(frozen=True, slots=True)
class _LookedAt:
    """Candidates up to the limit: the `new` ones that no quota keeps out, how many a quota does, how many were `given`
    before, and those of them that may be told `deeper`."""

    new: list[_Entry]
    deeper: list[_Entry]
    given: int
    over_quota: int


def _looked_at(candidates: Sequence[Candidate], limit: int, deepest: Level, quotas: Mapping[str, Quota]) -> _LookedAt:
    """Whatever the budget is. The first new one of a type that its quota keeps out ends it for the type."""
    new: list[_Entry] = []
    deeper: list[_Entry] = []
    given = over_quota = 0
    items: dict[str, int] = {}
    claimed: dict[str, int] = {}
    for rank, candidate in enumerate(candidates):
        if len(new) == limit:
            break
        steps = _steps(candidate, deepest)
        entry = _Entry(rank, candidate.type, candidate.section, steps, SHARE if new else FIRST_SHARE)
        if candidate.given or not steps:
            given += 1
            if steps:
                deeper.append(entry)
            continue
        quota = quotas.get(entry.type)
        if quota is not None:
            items[entry.type] = items.get(entry.type, 0) + 1
            claimed[entry.type] = claimed.get(entry.type, 0) + entry.claim(quota.tokens)
            if items[entry.type] > quota.items or (quota.tokens and claimed[entry.type] > SHARE * quota.tokens):
                over_quota += 1
                continue
        new.append(entry)
    return _LookedAt(new, deeper, given, over_quota)


def _within_budget(entries: Sequence[_Entry], budget: int, headings: Mapping[str, int]) -> list[_Entry]:
    """The first of them, as many as have room for their claims."""
    admitted: list[_Entry] = []
    sections: set[str] = set()
    claimed = 0
    for entry in entries:
        heading = 0 if entry.section in sections else headings.get(entry.section, 0)
        claimed += entry.claim(budget) + SHARE * heading
        if claimed > SHARE * budget:
            break
        sections.add(entry.section)
        admitted.append(entry)
    return admitted


def _down(entry: _Entry, room: _Room) -> None:
    if entry.next is not None and room.take(entry, entry.next):
        entry.reached += 1
