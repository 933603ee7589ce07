"""How what a reconciling job found out becomes part of a session's buckets. Nothing is ever deleted.

The one new slice of a change is put into the last slice of its bucket when it is about the same objective, else behind
it. A signal that is said again keeps the newest time and gains weight; two values of one subject are in conflict: both
are kept, and both lose weight. What is excluded is in no conflict with what else is. A signal that names only turns on
which it rests already gains nothing, so that the same answer given twice changes nothing the second time. Times and
weights are the server's own; a worker's are not read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from schemas.turns.buckets import (
    FIRST_WEIGHT,
    KINDS,
    LEAST_WEIGHT,
    MOST_ADDED,
    MOST_BUCKETS,
    MOST_CHANGED,
    MOST_SLICE_SIGNALS,
    MOST_SUPPORT,
    MOST_WEIGHT,
    WEIGHT_STEP,
    Bucket,
    Slice,
    WeightedSignal,
    bucket_id,
)
from schemas.turns.checks import TOPIC_LENGTH, bounded_signal, bounded_texts
from schemas.turns.fingerprint import OBJECTIVE_LENGTH, Fingerprint
from schemas.turns.text import cut, line

NAME_LENGTH: Final = 128
DESCRIPTION_LENGTH: Final = 300
MOST_TOPICS: Final = 16

Identity: TypeAlias = tuple[str, ...]
"""Of a signal, see WeightedSignal.identity."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a job answers. `changed` are named by id, and what is empty of them stays, as do a name and a description
    that are there: they are the owner's to change. `added` have no id yet; of a timeline one new slice is read.
    `disabled`: ids."""

    changed: tuple[Bucket, ...] = ()
    added: tuple[Bucket, ...] = ()
    disabled: tuple[str, ...] = ()
    last_covered_turn_id: str = ""


@dataclass(frozen=True, slots=True)
class Folded:
    """Buckets to be written, whole; how many were changed, added, disabled; how many parts were left out."""

    written: tuple[Bucket, ...] = ()
    changed: int = 0
    added: int = 0
    disabled: int = 0
    dropped: int = 0


def folded(buckets: Sequence[Bucket], changes: Changes, delta: Sequence[Fingerprint], now: int) -> Folded:
    """What becomes of the buckets of a session.

    buckets: all of them, with their whole timelines. delta: fingerprints that the job looked at, oldest first. Left out
    are changes of unknown buckets, those beyond MOST_CHANGED, MOST_ADDED and MOST_BUCKETS, slices after the first,
    signals out of form, and supporting turns that nobody knows. What a user disabled stays disabled.
    """
    there = {one.bucket_id: one for one in buckets}
    held = dict(there)
    times = {one.turn_id: one.made_at for one in delta}
    dropped = 0

    known = [one for one in changes.changed if one.bucket_id in there]
    named = [one for one in changes.added if line(one.name)]
    dropped += len(changes.changed) - len(known) + len(changes.added) - len(named)
    dropped += len(known[MOST_CHANGED:]) + len(named[MOST_ADDED:])
    for change in known[:MOST_CHANGED]:
        held[change.bucket_id], more = _changed(held[change.bucket_id], change, times, now)
        dropped += more
    for change in named[:MOST_ADDED]:
        name = cut(line(change.name), NAME_LENGTH)
        # A name under which a bucket was made means that bucket, whatever it is called by now.
        key = bucket_id(name)
        if key not in held and len(held) >= MOST_BUCKETS:
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
    topics, dropped = bounded_texts(change.topic_centroid, MOST_TOPICS, TOPIC_LENGTH)
    timeline = _Timeline(bucket.timeline, times, now)
    for part in change.timeline[:1]:
        timeline.add(part)
    dropped += len(change.timeline[1:]) + timeline.dropped
    bucket = replace(
        bucket,
        # A job gives back what it was shown: its owner may have changed both meanwhile.
        name=bucket.name or cut(line(change.name), NAME_LENGTH),
        short_desc=bucket.short_desc or cut(line(change.short_desc), DESCRIPTION_LENGTH),
        topic_centroid=topics or bucket.topic_centroid,
        objective_text=cut(line(change.objective_text), OBJECTIVE_LENGTH) or bucket.objective_text,
        timeline=timeline.slices,
    )
    return bucket, dropped


class _Timeline:
    """Folds one new slice into those of a bucket."""

    def __init__(self, slices: Sequence[Slice], times: dict[str, int], now: int) -> None:
        self.dropped = 0
        self._slices = list(slices)
        self._times = times
        self._now = now
        self._signals: list[dict[str, dict[Identity, WeightedSignal]]] = [
            {kind: {one.identity: one for one in getattr(part, kind)} for kind in KINDS} for part in slices
        ]
        # Of each signal the place of the newest slice that has it: there it has its weight, before that is history.
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
        """Signals in form, each once, resting on turns that are known; without a weight or a time of their own."""
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
        self.dropped += len(kept[MOST_SLICE_SIGNALS:])
        return kept[:MOST_SLICE_SIGNALS]

    def _there(self, kind: str, identity: Identity) -> WeightedSignal | None:
        place = self._living[kind].get(identity)
        return None if place is None else self._signals[place][kind][identity]

    def _is_news(self, kind: str, said: WeightedSignal) -> bool:
        there = self._there(kind, said.identity)
        return there is None or not said.support_turn_ids or not {*said.support_turn_ids} <= {*there.support_turn_ids}

    def _stretch(self, signals: Sequence[WeightedSignal]) -> tuple[int, int]:
        """Times of the first and the last turn on which these rest; of all that were looked at when they name none."""
        rests_on = [self._times[turn] for one in signals for turn in one.support_turn_ids if turn in self._times]
        times = rests_on or list(self._times.values()) or [self._now]
        return min(times), max(times)

    def _continues(self, hint: str, news: dict[str, list[WeightedSignal]]) -> bool:
        """Whether the last slice is about the same objective, and has room."""
        if not self._slices or (hint and hint.casefold() != self._slices[-1].objective_hint.casefold()):
            return False
        return all(
            len(self._signals[-1][kind].keys() | {one.identity for one in signals}) <= MOST_SLICE_SIGNALS
            for kind, signals in news.items()
        )

    def _weigh(self, kind: str, news: Sequence[WeightedSignal], ended: int) -> None:
        living = self._living[kind]
        # Identities begin with what two signals in conflict have in common.
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
    """Whether two signals of one subject and of different values cannot both hold. Of things that are excluded each is,
    whatever else is."""
    return kind != "exceptions" and not (_excludes(one) and _excludes(other))


def _excludes(signal: WeightedSignal) -> bool:
    return isinstance(signal.signal.value, Mapping) and "exclude" in signal.signal.value


def _joined(part: Slice, signals: dict[str, dict[Identity, WeightedSignal]]) -> Slice:
    kinds: dict[str, Any] = {kind: tuple(signals[kind].values()) for kind in KINDS}
    return replace(part, **kinds)


def _weight(weight: float) -> float:
    # Rounded, so that steps up and down meet again.
    return round(min(MOST_WEIGHT, max(LEAST_WEIGHT, weight)), 2)


def _united(first: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *more)))[-MOST_SUPPORT:]
