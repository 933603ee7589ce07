"""Defines the model's answer about buckets, and reads it tolerantly."""

from collections.abc import Iterator, Mapping
from typing import Any

from runekeep.v1 import extractor_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.answers.answer import AnswerPart, BareSchema, Lines, as_list
from runekeep_extractor.answers.parse import find_object, with_names
from runekeep_extractor.engine.turn_records import signal_to_wire
from runekeep_extractor.turns.aliases import short_name
from runekeep_extractor.turns.signal_answer import Assertion, Exclusion, Fact, entries, read_signal
from runekeep_schemas.turns.buckets import (
    KINDS,
    MAX_ADDED,
    MAX_BUCKETS,
    MAX_CHANGED,
    MAX_SLICE_SIGNALS,
    MAX_SUPPORT,
)
from runekeep_schemas.turns.checks import TOPIC_LENGTH, bounded_signal, bounded_texts
from runekeep_schemas.turns.fingerprint import OBJECTIVE_LENGTH
from runekeep_schemas.turns.folding import DESCRIPTION_LENGTH, MAX_TOPICS, NAME_LENGTH
from runekeep_schemas.turns.text import cut, line


class _Supported(AnswerPart):
    turns: Lines


class BucketAssertion(_Supported, Assertion):
    pass


class BucketExclusion(_Supported, Exclusion):
    pass


class BucketFact(_Supported, Fact):
    pass


class _NamedBucket(AnswerPart):
    bucket: str


class AddedBucket(AnswerPart):
    name: str
    short_desc: str
    topics: Lines
    objective: str
    objective_hint: str
    assertions: list[BucketAssertion]
    exceptions: list[BucketExclusion]
    facts: list[BucketFact]


class ChangedBucket(AddedBucket, _NamedBucket):
    """`bucket` comes first in it."""


class BucketsAnswer(AnswerPart):
    """A whole answer, as its schema shows it. What comes back is read by `BucketReading`."""

    reasoning: str
    changed: list[ChangedBucket]
    added: list[AddedBucket]
    disabled: Lines


def buckets_schema() -> dict[str, Any]:
    """Returns the JSON schema of an answer. It is always the same, so that its compiled grammar stays cached."""
    return BucketsAnswer.model_json_schema(mode="serialization", schema_generator=BareSchema)


class BucketReading:
    """Reads one answer. `bucket_ids`, `turn_ids`: ids by the short names in the prompt.

    `dropped` counts entries that are unreadable, name something that was not shown, or exceed a limit. `lost` is true
    if signals were dropped and none is left.
    """

    def __init__(self, bucket_ids: Mapping[str, str], turn_ids: Mapping[str, str]) -> None:
        self._bucket_ids = bucket_ids
        self._turn_ids = turn_ids
        self.dropped = 0
        self.lost = False
        self._dropped_signals = 0

    def changes(self, text: str) -> extractor_service_pb2.BucketChanges:
        """Returns the changes in a model's text. Raises Unreadable if it holds no such object."""
        found = find_object(text, BucketsAnswer.model_fields)
        self.dropped += found.cut
        changed: dict[str, pb.MemoryBucket] = {}
        for bucket_id, entry in self._known(found.data.get("changed")):
            bucket = self._bucket(entry)
            # A repeated entry, or one with nothing but its name, changes nothing.
            if bucket_id in changed:
                self.dropped += 1
            elif bucket.ByteSize():
                bucket.bucket_id = bucket_id
                changed[bucket_id] = bucket
        added = [self._added(entry) for entry in self._mappings(found.data.get("added"))]
        named = [one for one in added if one.name]
        disabled = list(dict.fromkeys(self._disabled(found.data.get("disabled"))))[:MAX_BUCKETS]
        self.dropped += len(added) - len(named) + len(named[MAX_ADDED:]) + max(0, len(changed) - MAX_CHANGED)
        changes = extractor_service_pb2.BucketChanges(
            changed=list(changed.values())[:MAX_CHANGED], added=named[:MAX_ADDED], disabled=disabled
        )
        kept = any(one.timeline for one in (*changes.changed, *changes.added))
        self.lost = self._dropped_signals > 0 and not kept
        return changes

    def _known(self, given: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for entry in self._mappings(given):
            bucket_id = self._bucket_ids.get(short_name(entry.get("bucket"), "bucket"))
            if bucket_id is None:
                self.dropped += 1
            else:
                yield bucket_id, entry

    def _disabled(self, given: object) -> Iterator[str]:
        for name in as_list(given):
            bucket_id = self._bucket_ids.get(short_name(name, "bucket"))
            if bucket_id is None:
                self.dropped += 1
            else:
                yield bucket_id

    def _mappings(self, given: object) -> Iterator[Mapping[str, Any]]:
        for entry in as_list(given):
            if isinstance(entry, Mapping):
                yield with_names(entry, ChangedBucket.model_fields)
            else:
                self.dropped += 1

    def _added(self, entry: Mapping[str, Any]) -> pb.MemoryBucket:
        """Returns the new bucket. It is empty if all its signals were dropped: only an unsupported name
        would be left.
        """
        dropped = self._dropped_signals
        bucket = self._bucket(entry)
        return bucket if bucket.timeline or dropped == self._dropped_signals else pb.MemoryBucket()

    def _bucket(self, entry: Mapping[str, Any]) -> pb.MemoryBucket:
        topics, dropped = bounded_texts(_texts(entry.get("topics")), MAX_TOPICS, TOPIC_LENGTH)
        self.dropped += dropped
        bucket = pb.MemoryBucket(
            name=cut(_text(entry.get("name")), NAME_LENGTH),
            short_desc=cut(_text(entry.get("short_desc")), DESCRIPTION_LENGTH),
            topic_centroid=topics,
            objective_text=cut(_text(entry.get("objective")), OBJECTIVE_LENGTH),
        )
        signals: dict[str, list[pb.BucketSignal]] = {kind: [] for kind in KINDS}
        for kind in KINDS:
            for given in entries(entry.get(kind)):
                self._put(signals, given, kind)
        if any(signals.values()):
            hint = cut(_text(entry.get("objective_hint")), OBJECTIVE_LENGTH)
            part = pb.TimelineSlice(objective_hint=hint)
            for kind, held in signals.items():
                getattr(part, kind).extend(held)
            bucket.timeline.append(part)
        return bucket

    def _put(self, signals: Mapping[str, list[pb.BucketSignal]], given: object, kind: str) -> None:
        """Adds a signal to its list if it rests on a turn that was shown; buckets hold no other signals."""
        placed = read_signal(given, kind)
        signal = bounded_signal(*placed) if placed is not None else None
        support = [self._turn_ids[one] for one in _turns(given) if one in self._turn_ids]
        if placed is None or signal is None or not support or len(signals[placed[0]]) == MAX_SLICE_SIGNALS:
            self.dropped += 1
            self._dropped_signals += 1
            return
        supporting = list(dict.fromkeys(support))[:MAX_SUPPORT]
        signals[placed[0]].append(pb.BucketSignal(signal=signal_to_wire(signal), support_turn_ids=supporting))


def _turns(given: object) -> list[str]:
    held = with_names(given, _Supported.model_fields) if isinstance(given, Mapping) else {}
    return [short_name(one, "turn") for one in as_list(held.get("turns"))]


def _texts(given: object) -> list[str]:
    return [one for one in as_list(given) if isinstance(one, str)]


def _text(value: object) -> str:
    return line(value) if isinstance(value, str) else ""
