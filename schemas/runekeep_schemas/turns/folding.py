"""Folds the result of a reconciling job into a session's buckets. Nothing is ever deleted.

The new slice of a change is merged into the last slice of its bucket if it has the same objective, otherwise appended.
A repeated signal keeps the newest time and gains weight. Two values of one subject conflict: both are kept, and both
lose weight. Exclusions do not conflict with one another. A signal that names only turns that already support it gains
nothing, so that repeating an answer changes nothing. The server sets times and weights; those of a worker are ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from runekeep_schemas.turns.buckets import (
    FIRST_WEIGHT,
    KINDS,
    MAX_ADDED,
    MAX_BUCKETS,
    MAX_CHANGED,
    MAX_SLICE_SIGNALS,
    MAX_SUPPORT,
    MAX_WEIGHT,
    MIN_WEIGHT,
    WEIGHT_STEP,
    Bucket,
    Slice,
    WeightedSignal,
    bucket_id,
)
from runekeep_schemas.turns.checks import TOPIC_LENGTH, bounded_signal, bounded_texts
from runekeep_schemas.turns.fingerprint import OBJECTIVE_LENGTH, Fingerprint
from runekeep_schemas.turns.text import cut, line

NAME_LENGTH: Final = 128
DESCRIPTION_LENGTH: Final = 300
MAX_TOPICS: Final = 16

Identity: TypeAlias = tuple[str, ...]
"""The identity of a signal, see WeightedSignal.identity."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The answer of a job. `changed` buckets are identified by id. Their empty fields leave the stored ones unchanged.
    An existing name and description also stay, because only the owner may change them. `added` buckets have no id yet;
    only the first slice of their timeline is read. `disabled`: ids.
    """

    changed: tuple[Bucket, ...] = ()
    added: tuple[Bucket, ...] = ()
    disabled: tuple[str, ...] = ()
    last_covered_turn_id: str = ""


@dataclass(frozen=True, slots=True)
class Folded:
    """Whole buckets to write; the numbers of changed, added and disabled buckets; the number of dropped parts."""

    written: tuple[Bucket, ...] = ()
    changed: int = 0
    added: int = 0
    disabled: int = 0
    dropped: int = 0


def folded(buckets: Sequence[Bucket], changes: Changes, delta: Sequence[Fingerprint], now: int) -> Folded:
    """Returns the buckets of a session after the changes.

    `buckets`: all of them, with their whole timelines. `delta`: fingerprints that the job read, oldest first. The
    following are dropped: changes of unknown buckets; changes beyond MAX_CHANGED, MAX_ADDED and MAX_BUCKETS; slices
    after the first; invalid signals; unknown supporting turns. A bucket that a user disabled stays disabled.
    """
    there = {one.bucket_id: one for one in buckets}
    held = dict(there)
    times = {one.turn_id: one.made_at for one in delta}
    dropped = 0

    known = [one for one in changes.changed if one.bucket_id in there]
    named = [one for one in changes.added if line(one.name)]
    dropped += len(changes.changed) - len(known) + len(changes.added) - len(named)
    dropped += len(known[MAX_CHANGED:]) + len(named[MAX_ADDED:])
    for change in known[:MAX_CHANGED]:
        held[change.bucket_id], more = _changed(held[change.bucket_id], change, times, now)
        dropped += more
    for change in named[:MAX_ADDED]:
        name = cut(line(change.name), NAME_LENGTH)
        # The name under which a bucket was created identifies it, whatever its current name is.
        key = bucket_id(name)
        if key not in held and len(held) >= MAX_BUCKETS:
            dropped += 1
            continue
        held[key], more = _changed(held.get(key) or Bucket(key, name), change, times, now)
        dropped += more

    disabled = [key for key in dict.fromkeys(changes.disabled) if key in there]
    dropped += len(set(changes.disabled)) - len(disabled)
    disabled = [key for key in disabled if there[key].enabled]
    changed = [key for key in there if held[key] != there[key]]
    for key in disabled:
        held[key] = replace(held[key], enabled=False)
    written = tuple(replace(one, updated_at=now) for key, one in held.items() if one != there.get(key))
    return Folded(written, len(changed), len(held) - len(there), len(disabled), dropped)


def _changed(bucket: Bucket, change: Bucket, times: dict[str, int], now: int) -> tuple[Bucket, int]:
    topics, dropped = bounded_texts(change.topic_centroid, MAX_TOPICS, TOPIC_LENGTH)
    timeline = _Timeline(bucket.timeline, times, now)
    for part in change.timeline[:1]:
        timeline.add(part)
    dropped += len(change.timeline[1:]) + timeline.dropped
    bucket = replace(
        bucket,
        # A job returns what it was shown; the owner may have changed both meanwhile.
        name=bucket.name or cut(line(change.name), NAME_LENGTH),
        short_desc=bucket.short_desc or cut(line(change.short_desc), DESCRIPTION_LENGTH),
        topic_centroid=topics or bucket.topic_centroid,
        objective_text=cut(line(change.objective_text), OBJECTIVE_LENGTH) or bucket.objective_text,
        timeline=timeline.slices,
    )
    return bucket, dropped


class _Timeline:
    """Folds one new slice into a bucket's timeline."""

    def __init__(self, slices: Sequence[Slice], times: dict[str, int], now: int) -> None:
        self.dropped = 0
        self._slices = list(slices)
        self._times = times
        self._now = now
        self._signals: list[dict[str, dict[Identity, WeightedSignal]]] = [
            {kind: {one.identity: one for one in getattr(part, kind)} for kind in KINDS} for part in slices
        ]
        # The newest slice that contains each signal. The signal's weight counts there; older slices are history.
        self._living = {
            kind: {identity: place for place, part in enumerate(self._signals) for identity in part[kind]}
            for kind in KINDS
        }

    @property
    def slices(self) -> tuple[Slice, ...]:
        return tuple(map(_joined, self._slices, self._signals))

    def add(self, new: Slice) -> None:
        said = {kind: self._said(kind, getattr(new, kind)) for kind in KINDS}
        news = {kind: [one for one in signals if self._is_news(kind, one)] for kind, signals in said.items()}
        if not any(news.values()):
            return
        begun, ended = self._stretch([one for signals in news.values() for one in signals])
        hint = cut(line(new.objective_hint), OBJECTIVE_LENGTH)
        if self._continues(hint, news):
            last = self._slices[-1]
            self._slices[-1] = replace(last, from_at=min(last.from_at, begun), to_at=max(last.to_at, ended))
        else:
            self._slices.append(Slice(begun, ended, hint))
            self._signals.append({kind: {} for kind in KINDS})
        for kind, signals in news.items():
            self._weigh(kind, signals, ended)

    def _said(self, kind: str, signals: Sequence[WeightedSignal]) -> list[WeightedSignal]:
        """Returns the valid signals, each once, with known supporting turns, and without a weight or a time of their
        own.
        """
        known = self._times.keys() | {
            turn
            for identity, place in self._living[kind].items()
            for turn in self._signals[place][kind][identity].support_turn_ids
        }
        once: dict[Identity, WeightedSignal] = {}
        for given in signals:
            signal = bounded_signal(kind, given.signal)
            if signal is None:
                self.dropped += 1
                continue
            support = tuple(turn for turn in dict.fromkeys(given.support_turn_ids) if turn in known)
            self.dropped += len(set(given.support_turn_ids)) - len(support)
            one = WeightedSignal(signal, support_turn_ids=support)
            if (before := once.get(one.identity)) is not None:
                one = replace(one, support_turn_ids=_united(before.support_turn_ids, support))
            once[one.identity] = one
        kept = list(once.values())
        self.dropped += len(kept[MAX_SLICE_SIGNALS:])
        return kept[:MAX_SLICE_SIGNALS]

    def _there(self, kind: str, identity: Identity) -> WeightedSignal | None:
        place = self._living[kind].get(identity)
        return None if place is None else self._signals[place][kind][identity]

    def _is_news(self, kind: str, said: WeightedSignal) -> bool:
        there = self._there(kind, said.identity)
        return there is None or not said.support_turn_ids or not {*said.support_turn_ids} <= {*there.support_turn_ids}

    def _stretch(self, signals: Sequence[WeightedSignal]) -> tuple[int, int]:
        """Returns the times of the first and the last turn that support these signals; of all turns read if they name
        none.
        """
        rests_on = [self._times[turn] for one in signals for turn in one.support_turn_ids if turn in self._times]
        times = rests_on or list(self._times.values()) or [self._now]
        return min(times), max(times)

    def _continues(self, hint: str, news: dict[str, list[WeightedSignal]]) -> bool:
        """Returns whether the last slice has the same objective, and room."""
        if not self._slices or (hint and hint.casefold() != self._slices[-1].objective_hint.casefold()):
            return False
        return all(
            len(self._signals[-1][kind].keys() | {one.identity for one in signals}) <= MAX_SLICE_SIGNALS
            for kind, signals in news.items()
        )

    def _weigh(self, kind: str, news: Sequence[WeightedSignal], ended: int) -> None:
        living = self._living[kind]
        # Signals in conflict share all parts of their identity but the last.
        of_subject: dict[Identity, set[Identity]] = {}
        for identity in living:
            of_subject.setdefault(identity[:-1], set()).add(identity)
        for said in news:
            identity = said.identity
            others = of_subject.setdefault(said.subject, set())
            rivals = {
                other
                for other in others - {identity}
                if _in_conflict(kind, said, self._signals[living[other]][kind][other])
            }
            seen_at = max((self._times[turn] for turn in said.support_turn_ids if turn in self._times), default=ended)
            there = self._there(kind, identity)
            if there is not None:
                said = replace(
                    said,
                    weight=_weight(there.weight + WEIGHT_STEP),
                    last_seen_at=max(there.last_seen_at, seen_at),
                    support_turn_ids=_united(there.support_turn_ids, said.support_turn_ids),
                )
            else:
                weight = _weight(FIRST_WEIGHT - WEIGHT_STEP) if rivals else FIRST_WEIGHT
                said = replace(said, weight=weight, last_seen_at=seen_at)
            others.add(identity)
            for other in rivals:
                place = living[other]
                rival = self._signals[place][kind][other]
                self._signals[place][kind][other] = replace(rival, weight=_weight(rival.weight - WEIGHT_STEP))
            self._signals[-1][kind][identity] = said
            living[identity] = len(self._signals) - 1


def _in_conflict(kind: str, one: WeightedSignal, other: WeightedSignal) -> bool:
    """Returns whether two signals of one subject and of different values cannot both hold. Exclusions can all hold
    together.
    """
    return kind != "exceptions" and not (_excludes(one) and _excludes(other))


def _excludes(signal: WeightedSignal) -> bool:
    return isinstance(signal.signal.value, Mapping) and "exclude" in signal.signal.value


def _joined(part: Slice, signals: dict[str, dict[Identity, WeightedSignal]]) -> Slice:
    kinds: dict[str, Any] = {kind: tuple(signals[kind].values()) for kind in KINDS}
    return replace(part, **kinds)


def _weight(weight: float) -> float:
    # Rounded, so that equal steps up and down cancel out.
    return round(min(MAX_WEIGHT, max(MIN_WEIGHT, weight)), 2)


def _united(first: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *more)))[-MAX_SUPPORT:]
