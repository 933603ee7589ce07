"""The messages of an archive, from which operations select ranges of sequences.

A selection stores runs and visits single messages only on demand: thousands of operations may each select all of a long
conversation. Runs are positions in the batch, from 0, because sequences have gaps where messages were erased.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Self

from runekeep_storage.memories.origins import cut
from runekeep_storage.records import Message, MessageRun

Run = tuple[int, int]
"""Consecutive messages of the batch: the positions of the first and the last, inclusive."""


class _Runs:
    """Sorted runs that do not touch each other."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = list(runs)
        self._firsts = [first for first, _ in self._runs]
        self._lasts = [last for _, last in self._runs]
        # Number of messages before each run.
        self._before: list[int] = []
        count = 0
        for first, last in self._runs:
            self._before.append(count)
            count += last - first + 1

    def reaching_into(self, span: Run) -> range:
        """Returns the indexes of the runs that overlap a span."""
        first, last = span
        return range(bisect_left(self._lasts, first), bisect_right(self._firsts, last))

    def within(self, span: Run) -> Iterator[Run]:
        """Yields the runs that overlap a span, cut to it, the last one first."""
        first, last = span
        for number in reversed(self.reaching_into(span)):
            yield max(first, self._firsts[number]), min(last, self._lasts[number])

    def extent(self, span: Run) -> Run | None:
        """Returns the span from the first to the last message of the runs within it, or None if there is none."""
        numbers = self.reaching_into(span)
        if not numbers:
            return None
        return max(span[0], self._firsts[numbers[0]]), min(span[1], self._lasts[numbers[-1]])

    def count(self, span: Run) -> int:
        """Returns the number of messages of the runs within a span."""
        first, last = span
        numbers = self.reaching_into(span)
        if not numbers:
            return 0
        end = numbers[-1]
        before_end = self._before[end] + min(last, self._lasts[end]) - self._firsts[end] + 1
        return before_end - self._before[numbers[0]] - max(0, first - self._firsts[numbers[0]])


class Batch:
    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = sorted(messages, key=lambda message: message.sequence)
        self.sequences = [message.sequence for message in self.messages]
        self.runs = _Runs([(0, len(self.messages) - 1)] if self.messages else [])
        of_owners: dict[str, list[Run]] = {}
        for place, message in enumerate(self.messages):
            of_owners.setdefault(message.peer_id, []).append((place, place))
        self.runs_of_owners = {owner: _Runs(_join(of_owner)) for owner, of_owner in of_owners.items()}
        self._places = {sequence: place for place, sequence in enumerate(self.sequences)}

    def select(self, spans: Iterable[Run]) -> "Selection | None":
        """Returns the messages in spans of sequences, or None if a span is empty or does not begin and end with a
        message of the batch."""
        wanted = sorted(spans)
        places = self._places
        if not all(first <= last and first in places and last in places for first, last in wanted):
            return None
        return Selection(self, self.runs, tuple(_join((places[first], places[last]) for first, last in wanted)))

    @cached_property
    def nothing(self) -> "Selection":
        return Selection(self, self.runs, ())

    @cached_property
    def everything(self) -> "Selection":
        return Selection(self, self.runs, ((0, len(self.messages) - 1),) if self.messages else ())

    def ids(self, runs: Iterable[Run]) -> list[str]:
        """Returns the ids of the messages in the runs."""
        return [message.message_id for first, last in runs for message in self.messages[first : last + 1]]

    def id_characters(self, runs: Iterable[Run]) -> int:
        """Returns the total characters of the message ids in the runs, without visiting each message."""
        sums = self._id_sums
        return sum(sums[last + 1] - sums[first] for first, last in runs)

    @cached_property
    def _id_sums(self) -> list[int]:
        return list(accumulate((len(message.message_id) for message in self.messages), initial=0))

    def message_runs(self, session_id: str, runs: Iterable[Run]) -> Iterator[MessageRun]:
        """Yields runs in their stored form. Messages that are missing between those of the batch were erased."""
        for first, last in runs:
            for start, end in cut(self.sequences[first], self.sequences[last]):
                first_here, behind = bisect_left(self.sequences, start), bisect_right(self.sequences, end)
                if first_here == behind:
                    continue
                start, end = self.sequences[first_here], self.sequences[behind - 1]
                erased = end - start + 1 - (behind - first_here)
                yield MessageRun(session_id, self.messages[first_here].message_id, start, end, erased)


@dataclass(frozen=True)
class Selection:
    """The messages of `of_runs` within the spans, which are runs. Falsy if there are none."""

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
        return sum(len(self.of_runs.reaching_into(span)) for span in self.spans)

    def runs(self) -> list[Run]:
        return [run for span in self.spans for run in reversed([*self.of_runs.within(span)])]

    def coarser(self) -> "Iterator[Selection]":
        """Yields selections of fewer runs that contain these messages and others: all messages in the same spans, then
        all from the first to the last."""
        spans = tuple(span for one in self.spans if (span := self.of_runs.extent(one)))
        yield Selection(self.batch, self.batch.runs, spans)
        yield Selection(self.batch, self.batch.runs, ((spans[0][0], spans[-1][1]),) if spans else ())

    def newest(self, most: int) -> list[Message]:
        """Returns the last `most` messages, in order."""
        found: list[Message] = []
        for span in reversed(self.spans):
            for first, last in self.of_runs.within(span):
                for place in range(last, first - 1, -1):
                    if len(found) == most:
                        return found[::-1]
                    found.append(self.batch.messages[place])
        return found[::-1]

    def owners(self) -> set[str]:
        """Returns the peers of the messages; the empty text stands for messages without a peer."""
        found: set[str] = set()
        of_owners = self.batch.runs_of_owners
        for first, last in self.spans:
            # Visits the messages or the owners, whichever are fewer.
            if last - first < len(of_owners):
                found.update(message.peer_id for message in self.batch.messages[first : last + 1])
            else:
                found.update(owner for owner, runs in of_owners.items() if runs.reaching_into((first, last)))
        return found

    def of_owner(self, owner: str) -> Self:
        """Returns the messages of a peer; the empty text selects those without a peer."""
        return type(self)(self.batch, self.batch.runs_of_owners.get(owner, _Runs(())), self.spans)


def _join(runs: Iterable[Run]) -> Iterator[Run]:
    """Yields sorted runs, with adjacent and overlapping ones joined."""
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
    """Returns the messages of both lists as the fewest runs."""
    return list(_join(sorted([*some, *more]))) if some else list(more)
