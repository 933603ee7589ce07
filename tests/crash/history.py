"""What clients saw while processes died, and what is there afterwards: all that the checker is told.

A commit has an id of its own. Applied, it stands once in each of the LEDGERS of its space and has made two marks, and
two memories in bulk when it is a big one. Its messages are a turn of the same id; see `Way` for what becomes of it. In
ledgers the newest id stands first, because a model is shown the beginning of a long memory; here lists run from the
oldest id to the newest. Times are of one clock, in seconds.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

LEDGERS = ("ledger_a", "ledger_b", "ledger_c")
HEADING = "Ledger, newest first"


@dataclass(frozen=True, order=True, slots=True)
class Space:
    """A user of an account."""

    account: str
    user: str


def marks_of(id: str) -> list[str]:
    """Names of the memories by which a search for the id finds its commit."""
    return [f"{id}-one", f"{id}-two"]


def bulk_of(id: str) -> list[str]:
    """Names of the memories that make a commit big. No word of theirs is its id: searches do not find them."""
    return [f"bulk{id}-one", f"bulk{id}-two"]


def ledger_text(ids: tuple[str, ...]) -> str:
    """Content of a ledger."""
    return "\n".join((HEADING, *reversed(ids)))


def ids_of(text: str) -> tuple[str, ...]:
    """Ids of a ledger's content, from the oldest to the newest."""
    heading, *ids = text.split("\n")
    if heading != HEADING:
        raise ValueError("this is no ledger")
    return tuple(reversed(ids))


def digest(texts: list[str]) -> str:
    """Digests of the texts and tool outputs of a message, in order."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that was accepted: its call began at `invoked`, and its answer was there at `answered`."""

    space: Space
    id: str
    big: bool
    task_id: str
    invoked: float
    answered: float

    @property
    def made(self) -> list[str]:
        """Names of all memories that it makes beside what it adds to the ledgers."""
        return [*marks_of(self.id), *(bulk_of(self.id) if self.big else ())]


class Way(StrEnum):
    """How a turn gets its fingerprint."""

    OWN = "own"
    """The caller says a part of it, and has the rest found out."""
    EXTRACTED = "extracted"
    """A job finds it out, or the turn's commit, whichever comes first: both find the same."""
    COMMITTED = "committed"
    """Its commit finds it out."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn whose messages were added. `task_id`: of its job, empty for what is left to the commit."""

    space: Space
    session: str
    id: str
    way: Way
    task_id: str


@dataclass(frozen=True, slots=True)
class Print:
    """What is looked at of a fingerprint; signals as (key, value)."""

    objective: str
    assertions: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]


def own_words(id: str) -> Print:
    """What a caller says of a turn."""
    return Print(f"own words of {id}", (("mine", id),), ())


def found_out(id: str) -> Print:
    """What an extractor finds out about a turn."""
    return Print(f"found out about {id}", (("theirs", id),), (("said", id),))


def printed(id: str, way: Way) -> Print:
    """The fingerprint of a turn once all is done."""
    found = found_out(id)
    if way is not Way.OWN:
        return found
    own = own_words(id)
    return Print(own.objective, own.assertions, found.facts)


FIRST_WEIGHT = 0.5
"""Of a signal that was folded into a bucket once."""


@dataclass(frozen=True, slots=True)
class Theme:
    """A bucket: its facts as (key, weight, turns that it rests on), each key a turn's id; and whether row and blob say
    the same."""

    facts: tuple[tuple[str, float, frozenset[str]], ...]
    agrees: bool


@dataclass(frozen=True, slots=True)
class Sight:
    """One answer of a search for `target` and the ledgers; a ledger that is not in it was not found.

    `reader` searches again and again and asks for at least `minimum`, the newest revision that it knows of; 0: any.
    """

    space: Space
    reader: str
    target: str
    started: float
    ended: float
    minimum: int
    revision: int
    ledgers: Mapping[str, tuple[str, ...]]
    marks: frozenset[str]
    """Names of all marks in the answer, of any commit."""
    foreign: frozenset[str] = frozenset()
    """URIs in the answer that are not of the caller's space."""
    is_full: bool = False
    """Whether the answer had as many results as were asked for."""
    latest: int = 0
    """The newest revision that was committed when the search was answered."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One ledger as `reader` read it; `revision` is the one that made this version."""

    space: Space
    reader: str
    ledger: str
    revision: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a task ended. `state` and `outcome` are words of the contract without their prefixes."""

    state: str
    outcome: str
    revision: int
    adds: int
    updates: int


@dataclass(frozen=True, slots=True)
class Diff:
    """memory_diff.json of a commit: file before and after, by URI; a text that is empty stands for no file."""

    revision: int
    changes: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Aftermath:
    """A space once all is applied: what the API says, and at the end what only the store knows."""

    ledgers: Mapping[str, tuple[str, ...]]
    marks: tuple[str, ...]
    """Names of all memories in the marks' directory."""
    versions: Mapping[str, tuple[tuple[int, int], ...]]
    """Of each ledger its (version, revision), oldest first."""
    tasks: Mapping[str, Ended]
    """All tasks of the user, by id."""
    diffs: Mapping[str, Diff]
    """By id of the task."""
    messages: Mapping[str, tuple[str, ...]]
    """Ids of all messages of each session, in order."""
    contents: Mapping[str, str]
    """Digests of the texts and tool outputs of messages, as they were read, by message id."""
    revision: int
    indexed_revision: int
    """The revision that a search is answered at."""
    open_tasks: int
    """Tasks that are pending or running."""
    pending: int
    """Passages and memories that a search cannot find in full yet."""
    turn_tasks: Mapping[str, str] = field(default_factory=dict)
    """States of all tasks about turns, by id."""
    prints: Mapping[str, Mapping[str, Print]] = field(default_factory=dict)
    """Fingerprints of each session, by turn."""
    artifacts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Turns of all fingerprints that are found by their tag, of each session."""
    themes: Mapping[str, tuple[Theme, ...]] = field(default_factory=dict)
    """Buckets of each session."""


@dataclass(slots=True)
class History:
    """Grows during a run. `faults` are sentences about what a client saw that no server may say."""

    commits: list[Commit] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    reconciled: dict[Space, set[str]] = field(default_factory=dict)
    """Ids of tasks that fold turns into buckets."""
    added: dict[tuple[Space, str], list[str]] = field(default_factory=dict)
    """Ids of messages by session, in the order in which their appends were answered."""
    contents: dict[str, str] = field(default_factory=dict)
    """Digests of what was sent, by message id: see `digest`."""
    sights: list[Sight] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    aftermath: dict[Space, Aftermath] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
