"""Fits search results into a token budget: decides which results are included, and which of their lines.

All lines of all candidates form one ranking. They are taken best first, each with the head of its entry if it is the
entry's first line. A line without room is skipped, and nothing is ever taken back. If room is left at the end, entries
are shown whole in rank order. What the caller has received before comes last and only in more detail, so that it takes
nothing from new candidates.

Costs, budgets and quotas are in one unit, which may be finer than a token.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import Final

PASSAGES: Final = "passages"
"""Stands for the memory type of passages of conversation."""
OVERVIEW_LINES: Final = 3
"""Number of lines of a candidate that the caller has received before by fewer lines."""


class Level(IntEnum):
    """The level of detail of an entry; the numbers are those of RecallLevel in the contract."""

    NOT = 0
    URI = 1
    ABSTRACT = 2
    OVERVIEW = 3
    FULL = 4


@dataclass(frozen=True, slots=True)
class Quota:
    """Maximum entries of a type, and their maximum tokens in all; 0 tokens means no limit."""

    items: int
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a candidate. `score`: comparable with the lines of all candidates. `tokens`: with its line break."""

    score: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A search result. `head`: tokens of the entry's beginning, which names it; `joint`: tokens that a line takes more
    if the entry has several. `lines`: in the order of the text; none if the candidate is shown by its name only, which
    counts as a line of the given `score`. `whole`: tokens of the entry with the whole text, None if it has none.
    `section`: the section that lists it. `given`: the level at which the caller has received it.
    """

    type: str
    section: str
    head: int
    lines: Sequence[Line]
    whole: int | None = None
    joint: int = 0
    score: float = 0.0
    given: Level = Level.NOT


@dataclass(frozen=True, slots=True)
class Shown:
    """How an entry is shown: the indices of its lines in the order of the text, unless the level is FULL."""

    level: Level
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """`shown`: by rank, in rank order. The other candidates were `given` and are not shown in more detail now, or are
    new and over a quota or over the budget, or lie behind the limit, where they are not counted.
    """

    shown: dict[int, Shown]
    given: int
    over_quota: int
    over_budget: int


class _Refusal(Enum):
    LIMIT = auto()
    QUOTA = auto()
    BUDGET = auto()


@dataclass(slots=True)
class _Entry:
    """A candidate and what is shown of it so far."""

    candidate: Candidate
    lines: list[int] = field(default_factory=list)
    is_whole: bool = False
    tokens: int = 0
    """Tokens of what is shown; 0 if nothing is."""

    @property
    def level(self) -> Level:
        if not self.tokens:
            return Level.NOT
        if self.is_whole:
            return Level.FULL
        return Level(min(Level.URI + len(self.lines), Level.OVERVIEW))

    def cost(self, lines: Sequence[int]) -> int:
        """Returns the tokens of the entry with these lines."""
        joint = self.candidate.joint * len(lines) if len(lines) > 1 else 0
        return self.candidate.head + sum(self.candidate.lines[line].tokens for line in lines) + joint


@dataclass(slots=True)
class _Room:
    """The remaining room: entries and tokens, in all and for types with a quota; `headings` of sections without entries
    yet.
    """

    entries: int
    tokens: int
    entries_of: dict[str, int]
    tokens_of: dict[str, int]
    headings: dict[str, int]

    def take(self, entry: _Entry, tokens: int) -> _Refusal | None:
        """Takes room for the entry to have so many tokens. Returns why there is none, or None."""
        type, section = entry.candidate.type, entry.candidate.section
        is_new = not entry.tokens
        more = tokens - entry.tokens
        if is_new and not self.entries:
            return _Refusal.LIMIT
        if (is_new and not self.entries_of.get(type, 1)) or more > self.tokens_of.get(type, more):
            return _Refusal.QUOTA
        heading = self.headings.get(section, 0)
        if more + heading > self.tokens:
            return _Refusal.BUDGET
        self.headings.pop(section, None)
        self.tokens -= more + heading
        self.entries -= is_new
        if type in self.entries_of:
            self.entries_of[type] -= is_new
        if type in self.tokens_of:
            self.tokens_of[type] -= more
        entry.tokens = tokens
        return None


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

    `headings`: tokens of each section's heading, counted once per section.
    """
    quotas = quotas or {}
    room = _Room(
        entries=limit,
        tokens=budget,
        entries_of={name: quota.items for name, quota in quotas.items()},
        tokens_of={name: quota.tokens for name, quota in quotas.items() if quota.tokens},
        headings=dict(headings or {}),
    )
    entries = [_Entry(candidate) for candidate in candidates]
    new = {rank: entry for rank, entry in enumerate(entries) if not entry.candidate.given}
    refusals = _take_lines(new, room, deepest)
    for entry in new.values():
        if entry.tokens and deepest is Level.FULL:
            _take_whole(entry, room)
    given = [entry for entry in entries if entry.candidate.given]
    for entry in given:
        _take_deeper(entry, room, deepest)
    return Packed(
        shown={
            rank: Shown(entry.level, tuple(sorted(entry.lines))) for rank, entry in enumerate(entries) if entry.tokens
        },
        given=sum(not entry.tokens for entry in given),
        over_quota=refusals.count(_Refusal.QUOTA),
        over_budget=refusals.count(_Refusal.BUDGET),
    )


def _take_lines(new: Mapping[int, _Entry], room: _Room, deepest: Level) -> list[_Refusal]:
    """Takes the lines of new candidates, best first. Returns why each candidate without an entry has none."""
    refusals: dict[int, _Refusal] = {}
    for rank, line in _ranking(new, deepest):
        entry = new[rank]
        if entry.lines and deepest is Level.ABSTRACT:
            continue
        lines = [] if line is None else [*entry.lines, line]
        refusal = room.take(entry, entry.cost(lines))
        if refusal is None:
            entry.lines = lines
            refusals.pop(rank, None)
        elif not entry.tokens:
            refusals.setdefault(rank, refusal)
    return list(refusals.values())


def _ranking(new: Mapping[int, _Entry], deepest: Level) -> Iterator[tuple[int, int | None]]:
    """Yields rank and line of every line, best first; None as the line of a candidate that has only a name."""
    ranked: list[tuple[float, int, int | None]] = []
    for rank, entry in new.items():
        lines = entry.candidate.lines
        if lines and deepest > Level.URI:
            ranked += [(-line.score, rank, place) for place, line in enumerate(lines)]
        else:
            ranked.append((-entry.candidate.score, rank, None))
    # Stable, so lines of one candidate with equal scores keep their order.
    return ((rank, line) for _, rank, line in sorted(ranked, key=lambda one: one[:2]))


def _take_whole(entry: _Entry, room: _Room) -> bool:
    whole = entry.candidate.whole
    if whole is not None and room.take(entry, whole) is None:
        entry.is_whole = True
    return entry.is_whole


def _take_deeper(entry: _Entry, room: _Room, deepest: Level) -> None:
    """Shows a candidate that was given before in more detail than then, if there is room."""
    given, scores = entry.candidate.given, [line.score for line in entry.candidate.lines]
    if deepest is Level.FULL and given < Level.FULL and _take_whole(entry, room):
        return
    best = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    for level, count in ((Level.OVERVIEW, OVERVIEW_LINES), (Level.ABSTRACT, 1)):
        lines = best[:count]
        is_deeper = given < level <= deepest and (len(lines) > 1 or level is Level.ABSTRACT)
        if is_deeper and lines and room.take(entry, entry.cost(lines)) is None:
            entry.lines = lines
            return
