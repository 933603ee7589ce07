"""The messages of an archive, from which operations select some by ranges of sequences.

A selection knows its messages by runs of consecutive sequences and looks at no single message until it is asked for
them: thousands of operations may each select all of a long conversation.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from storage.records import Message

Run = tuple[int, int]
"""Consecutive sequences from the first to the last, both included."""


class _Runs:
    """Runs in order, of which none touches another."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = list(runs)
        self._firsts = [first for first, _ in self._runs]
        self._lasts = [last for _, last in self._runs]
        # How many messages there are before each run.
        self._before: list[int] = []
        count = 0
        for first, last in self._runs:
            self._before.append(count)
            count += last - first + 1

    def places(self, span: Run) -> range:
        """Returns the places of the runs that reach into a span."""
        first, last = span
        return range(bisect_left(self._lasts, first), bisect_right(self._firsts, last))

    def within(self, span: Run) -> Iterator[Run]:
        """Yields the runs that reach into a span, cut to it, the last one first."""
        first, last = span
        for place in reversed(self.places(span)):
            yield max(first, self._firsts[place]), min(last, self._lasts[place])

    def count(self, span: Run) -> int:
        """Returns how many messages a span has of the runs."""
        first, last = span
        places = self.places(span)
        if not places:
            return 0
        end = places[-1]
        before_end = self._before[end] + min(last, self._lasts[end]) - self._firsts[end] + 1
        return before_end - self._before[places[0]] - max(0, first - self._firsts[places[0]])


class Batch:
    def __init__(self, messages: Sequence[Message]) -> None:
        ordered = sorted(messages, key=lambda message: message.sequence)
        self.messages = {message.sequence: message for message in ordered}
        self.runs = _Runs(_join((one, one) for one in self.messages))
        of_owners: dict[str, list[Run]] = {}
        for message in ordered:
            of_owners.setdefault(message.peer_id, []).append((message.sequence, message.sequence))
        self.runs_of_owners = {owner: _Runs(_join(of_owner)) for owner, of_owner in of_owners.items()}
        self.sequences = list(self.messages)
        self.owners = [message.peer_id for message in ordered]

    def select(self, spans: Iterable[Run]) -> "Selection | None":
        """Returns the messages in the spans, or None if a span is empty, or does not begin and end with a message of
        the batch."""
        wanted = sorted(spans)
        if not all(first <= last and first in self.messages and last in self.messages for first, last in wanted):
            return None
        return Selection(self, self.runs, tuple(_join(wanted)))

    @cached_property
    def nothing(self) -> "Selection":
        return Selection(self, self.runs, ())

    @cached_property
    def everything(self) -> "Selection":
        span = (self.sequences[0], self.sequences[-1]) if self.sequences else (1, 0)
        return Selection(self, self.runs, (span,))


@dataclass(frozen=True)
class Selection:
    """Messages of a batch: those of `of_runs` that are in the spans. False when there are none."""

    batch: Batch
    of_runs: _Runs
    spans: tuple[Run, ...]

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        return sum(map(self.of_runs.count, self.spans))

    @property
    def run_count(self) -> int:
        return sum(len(self.of_runs.places(span)) for span in self.spans)

    def runs(self) -> list[Run]:
        return [run for span in self.spans for run in reversed([*self.of_runs.within(span)])]

    def newest(self, most: int) -> list[Message]:
        """Returns the last messages, in order."""
        found: list[Message] = []
        for span in reversed(self.spans):
            for first, last in self.of_runs.within(span):
                for sequence in range(last, first - 1, -1):
                    if len(found) == most:
                        return found[::-1]
                    found.append(self.batch.messages[sequence])
        return found[::-1]

    def owners(self) -> set[str]:
        """Returns the peers who said the messages; the empty text stands for messages without one."""
        found: set[str] = set()
        sequences = self.batch.sequences
        for first, last in self.spans:
            found.update(self.batch.owners[bisect_left(sequences, first) : bisect_right(sequences, last)])
        return found

    def of_owner(self, owner: str) -> Self:
        """Returns those that a peer said, or with the empty text those without a peer."""
        return type(self)(self.batch, self.batch.runs_of_owners.get(owner, _Runs(())), self.spans)


def _join(runs: Iterable[Run]) -> Iterator[Run]:
    """Yields runs, which are sorted, with those that touch or overlap joined."""
    before: Run | None = None
    for first, last in runs:
        if before is not None and first <= before[1] + 1:
            before = before[0], max(before[1], last)
            continue
        if before is not None:
            yield before
        before = first, last
    if before is not None:
        yield before


def joined(some: Sequence[Run], more: Sequence[Run]) -> list[Run]:
    """Returns the sequences of both as the fewest runs."""
    return list(_join(sorted([*some, *more]))) if some else list(more)
