"""Turns put to the themes of a session that they are about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from extractor.offline.turns.nearness import FAR, nearness, stems
from extractor.offline.turns.phrases import quoted
from runekeep.v1 import extractor_service_pb2, turn_memory_service_pb2
from schemas.turns.buckets import MOST_ADDED, MOST_BUCKETS, MOST_CHANGED, MOST_SLICE_SIGNALS
from schemas.turns.fingerprint import OBJECTIVE_LENGTH

_TOPICS: Final = 16
_NAME: Final = 128
_LISTS: Final = ("assertions", "exceptions", "facts")

_Turn = turn_memory_service_pb2.Turn


@dataclass(slots=True)
class _Theme:
    """A bucket, there or to be added, with the turns that go to it."""

    bucket: turn_memory_service_pb2.MemoryBucket
    stems: set[str]
    turns: list[_Turn] = field(default_factory=list)

    def add(self, turn: _Turn) -> None:
        self.turns.append(turn)
        self.stems |= stems(turn.fingerprint.topics)


def reconciled(
    buckets: Sequence[turn_memory_service_pb2.MemoryBucket],
    turns: Sequence[turn_memory_service_pb2.CandidateTurn],
) -> extractor_service_pb2.BucketChanges:
    """The changes of buckets for turns that are in none, oldest first.

    A turn goes to the bucket whose words it shares most, to a new one when it is near none and states something, else
    to none. Where that would take more changes than one job may make, the turns from there on are left for the next.
    """
    there = [_Theme(bucket, stems((*bucket.topic_centroid, bucket.name))) for bucket in buckets]
    added: list[_Theme] = []
    covered = ""
    for turn in (candidate.turn for candidate in turns):
        theme = _nearest(turn, [*there, *added])
        if theme is None and _states(turn) and len(there) + len(added) < MOST_BUCKETS:
            if len(added) == MOST_ADDED:
                break
            theme = _Theme(_new_bucket(turn, [one.bucket.name for one in (*there, *added)]), set())
            added.append(theme)
        elif theme in there and not theme.turns and sum(bool(one.turns) for one in there) == MOST_CHANGED:
            break
        if theme is not None:
            theme.add(turn)
        covered = turn.turn_id
    return extractor_service_pb2.BucketChanges(
        changed=[_changed(theme) for theme in there if theme.turns],
        added=[_filled(theme) for theme in added],
        last_covered_turn_id=covered,
    )


def _nearest(turn: _Turn, themes: Sequence[_Theme]) -> _Theme | None:
    mine = stems(turn.fingerprint.topics) or stems([turn.fingerprint.objective])
    best, found = FAR, None
    for theme in themes:
        if (near := nearness(mine, theme.stems)) > best:
            best, found = near, theme
    return found


def _states(turn: _Turn) -> bool:
    """Whether it has topics, and says something worth a bucket of its own."""
    print_ = turn.fingerprint
    return bool(print_.topics) and any(getattr(print_, name) for name in _LISTS)


def _new_bucket(turn: _Turn, names: Iterable[str]) -> turn_memory_service_pb2.MemoryBucket:
    taken = {name.lower() for name in names}
    topics = turn.fingerprint.topics
    name = next(
        (name for most in range(1, len(topics) + 1) if (name := ", ".join(topics[:most])).lower() not in taken),
        f"{', '.join(topics)} ({turn.turn_id})",
    )
    objective = quoted(turn.fingerprint.objective, OBJECTIVE_LENGTH)
    return turn_memory_service_pb2.MemoryBucket(
        name=quoted(name, _NAME), short_desc=objective, objective_text=objective
    )


def _changed(theme: _Theme) -> turn_memory_service_pb2.MemoryBucket:
    """What is new; empty fields stay as they are."""
    bucket = theme.bucket
    return turn_memory_service_pb2.MemoryBucket(
        bucket_id=bucket.bucket_id,
        topic_centroid=_topics(bucket.topic_centroid, theme.turns),
        objective_text="" if bucket.objective_text else _objective(theme.turns),
        timeline=[_slice(theme.turns)],
    )


def _filled(theme: _Theme) -> turn_memory_service_pb2.MemoryBucket:
    bucket = turn_memory_service_pb2.MemoryBucket()
    bucket.CopyFrom(theme.bucket)
    bucket.topic_centroid[:] = _topics((), theme.turns)
    bucket.timeline.append(_slice(theme.turns))
    return bucket


def _slice(turns: Sequence[_Turn]) -> turn_memory_service_pb2.TimelineSlice:
    return turn_memory_service_pb2.TimelineSlice(
        start_time=min((turn.start_time for turn in turns), key=_moment),
        end_time=max((turn.end_time for turn in turns), key=_moment),
        objective_hint=_objective(turns),
        **{name: _signals(turns, name) for name in _LISTS},
    )


def _signals(turns: Sequence[_Turn], name: str) -> list[turn_memory_service_pb2.BucketSignal]:
    """The signals of that list, each once, with the turns that it rests on; the newest where there are too many."""
    found: dict[tuple[str, bytes, int, str], turn_memory_service_pb2.BucketSignal] = {}
    for turn in turns:
        for signal in getattr(turn.fingerprint, name):
            key = (signal.key, signal.value.SerializeToString(deterministic=True), signal.scope, signal.applies_to)
            before = found.pop(key, None)
            support = dict.fromkeys([*(before.support_turn_ids if before is not None else ()), turn.turn_id])
            found[key] = turn_memory_service_pb2.BucketSignal(
                signal=signal, last_seen_time=_said(turn), support_turn_ids=list(support)[-MOST_SLICE_SIGNALS:]
            )
    return list(found.values())[-MOST_SLICE_SIGNALS:]


def _said(turn: _Turn) -> Timestamp:
    return turn.fingerprint.made_time if turn.fingerprint.HasField("made_time") else turn.end_time


def _objective(turns: Sequence[_Turn]) -> str:
    """That of the newest turn that has one."""
    return next(
        (
            quoted(turn.fingerprint.objective, OBJECTIVE_LENGTH)
            for turn in reversed(turns)
            if turn.fingerprint.objective
        ),
        "",
    )


def _topics(there: Iterable[str], turns: Sequence[_Turn]) -> list[str]:
    return list(dict.fromkeys([*there, *(topic for turn in turns for topic in turn.fingerprint.topics)]))[:_TOPICS]


def _moment(time: Timestamp) -> tuple[int, int]:
    return time.seconds, time.nanos
