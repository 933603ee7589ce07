"""Buckets, `conversation.memory.bucket.v1`: themes of a session as timelines.

The rules are those of `design/turn-memory.md`; numbers that it leaves open are constants here. Times are microseconds
since 1970 (UTC).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from runekeep_schemas.turns.fingerprint import Signal, from_iso, iso, plain
from runekeep_schemas.turns.text import line

MAX_BUCKETS: Final = 64
MAX_CHANGED: Final = 4
MAX_ADDED: Final = 2
MAX_SLICE_SIGNALS: Final = 64
"""Per kind and slice; a full slice is followed by another one."""
MAX_SUPPORT: Final = 64
CARD_SIGNALS: Final = 4
SHOWN_SLICES: Final = 2
"""Slices per bucket that a reconciling job reads."""
KINDS: Final = ("assertions", "exceptions", "facts")

MIN_WEIGHT: Final = 0.05
MAX_WEIGHT: Final = 1.0
FIRST_WEIGHT: Final = 0.5
WEIGHT_STEP: Final = 0.1
"""Gain of a repeated signal, and loss of a signal in a conflict."""

_SLUG_LENGTH: Final = 32
_HASH_LENGTH: Final = 8
_OTHER: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class WeightedSignal:
    """`support_turn_ids`: turns that support the signal, oldest first."""

    signal: Signal
    weight: float = FIRST_WEIGHT
    last_seen_at: int = 0
    support_turn_ids: tuple[str, ...] = ()

    @property
    def subject(self) -> tuple[str, str, str]:
        """Two signals with the same subject and different values may conflict, see `runekeep_schemas.turns.folding`."""
        return self.signal.key, self.signal.scope, self.signal.applies_to

    @property
    def identity(self) -> tuple[str, str, str, str]:
        # Values are compared as JSON, where true is not 1.
        return (*self.subject, json.dumps(plain(self.signal.value)))

    def to_json(self) -> dict[str, Any]:
        return self.signal.to_json() | {
            "weight": self.weight,
            "last_seen_ts": iso(self.last_seen_at),
            "support_turn_ids": self.support_turn_ids,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "WeightedSignal":
        seen_at = from_iso(body["last_seen_ts"])
        return cls(Signal.from_json(body), body["weight"], seen_at, tuple(body["support_turn_ids"]))


@dataclass(frozen=True, slots=True)
class Slice:
    """A section of a timeline, from its first turn to its last."""

    from_at: int = 0
    to_at: int = 0
    objective_hint: str = ""
    assertions: tuple[WeightedSignal, ...] = ()
    exceptions: tuple[WeightedSignal, ...] = ()
    facts: tuple[WeightedSignal, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "ts_from": iso(self.from_at),
            "ts_to": iso(self.to_at),
            "objective_hint": self.objective_hint,
            **{kind: [one.to_json() for one in getattr(self, kind)] for kind in KINDS},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Slice":
        kinds = {kind: tuple(map(WeightedSignal.from_json, body[kind])) for kind in KINDS}
        return cls(from_iso(body["ts_from"]), from_iso(body["ts_to"]), body["objective_hint"], **kinds)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A theme of a session. Its `timeline` is oldest first."""

    bucket_id: str
    name: str
    short_desc: str = ""
    topic_centroid: tuple[str, ...] = ()
    objective_text: str = ""
    enabled: bool = True
    timeline: tuple[Slice, ...] = ()
    updated_at: int = 0

    def to_text(self) -> str:
        """Returns the stored form, one JSON object, for a bucket or its card."""
        body = {
            "bucket_id": self.bucket_id,
            "name": self.name,
            "short_desc": self.short_desc,
            "topic_centroid": self.topic_centroid,
            "objective_text": self.objective_text,
            "enabled": self.enabled,
            "timeline": [one.to_json() for one in self.timeline],
            "updated_at": iso(self.updated_at),
        }
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "Bucket":
        """Reads the result of `to_text`."""
        body: dict[str, Any] = json.loads(text)
        return cls(
            bucket_id=body["bucket_id"],
            name=body["name"],
            short_desc=body["short_desc"],
            topic_centroid=tuple(body["topic_centroid"]),
            objective_text=body["objective_text"],
            enabled=body["enabled"],
            timeline=tuple(map(Slice.from_json, body["timeline"])),
            updated_at=from_iso(body["updated_at"]),
        )


def bucket_id(name: str) -> str:
    """Returns `obj-<slug up to 32>-<sha1(name)[:8]>` of the first name; `obj-<hash>` if the name gives no slug."""
    text = line(name)
    slug = _OTHER.sub("-", text.lower()).strip("-")[:_SLUG_LENGTH].strip("-")
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    return "-".join(part for part in ("obj", slug, digest) if part)


def card(bucket: Bucket) -> Bucket:
    """Returns the bucket with only its last slice, and at most CARD_SIGNALS per kind: the heaviest, among equals the
    newest.
    """
    return replace(bucket, timeline=tuple(map(_carded, bucket.timeline[-1:])))


def _carded(part: Slice) -> Slice:
    kinds: dict[str, Any] = {kind: heaviest(getattr(part, kind))[:CARD_SIGNALS] for kind in KINDS}
    return replace(part, **kinds)


def heaviest(signals: Iterable[WeightedSignal]) -> tuple[WeightedSignal, ...]:
    """Returns the signals, heaviest first, among equals the newest."""
    return tuple(sorted(signals, key=lambda one: (-one.weight, -one.last_seen_at)))


def shown(bucket: Bucket) -> Bucket:
    """Returns the bucket with its last SHOWN_SLICES slices, as a reconciling job reads it."""
    return replace(bucket, timeline=bucket.timeline[-SHOWN_SLICES:])
