"""Validates fingerprints and summaries beyond the contract's own bounds, and removes secrets from them.

A caller's submission is refused with all its errors (`problems`). An extractor's result is cut to the bounds instead,
and unsuitable parts are dropped and counted (`bounded`): one wrong signal must not lose the rest.
"""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from runekeep_schemas.secrets import withhold
from runekeep_schemas.turns import summary as forms
from runekeep_schemas.turns.buckets import KINDS, Bucket, Slice
from runekeep_schemas.turns.fingerprint import (
    LISTS,
    MAX_BYTES,
    MAX_QUERIES,
    MAX_SIGNALS,
    MAX_TOPICS,
    MAX_VALUE_BYTES,
    OBJECTIVE_LENGTH,
    SCOPES,
    SEVERITIES,
    TARGETS,
    VALUE_FORMS,
    Fingerprint,
    Query,
    Signal,
    normal_key,
    plain,
)
from runekeep_schemas.turns.summary import Summary
from runekeep_schemas.turns.text import ELLIPSIS, cut, line

KEY_LENGTH: Final = 64
LABEL_LENGTH: Final = 64
TOPIC_LENGTH: Final = 64
QUERY_LENGTH: Final = 256
TITLE_LENGTH: Final = 200

Problem: TypeAlias = tuple[str, str, str]
"""Path of a field in the fingerprint, the problem, and how to fix it."""


def problems(fingerprint: Fingerprint) -> list[Problem]:
    """Returns the problems of a fingerprint that a caller submits, in the order of its fields; empty if it is valid."""
    found: list[Problem] = [
        (f"topics[{place}]", "is blank", "Leave it out")
        for place, topic in enumerate(fingerprint.topics)
        if not topic.strip()
    ]
    for name in LISTS:
        for place, signal in enumerate(getattr(fingerprint, name)):
            found.extend((f"{name}[{place}].{field}", why, do) for field, why, do in _signal_problems(name, signal))
    for place, query in enumerate(fingerprint.ctx_retrieval_queries):
        if not query.query.strip():
            found.append((f"ctx_retrieval_queries[{place}].query", "is blank", "Leave it out"))
    if not found and (size := _size(fingerprint)) > MAX_BYTES:
        found.append(("", f"has {size} bytes as JSON", f"Keep it to {MAX_BYTES} bytes"))
    return found


def _signal_problems(name: str, signal: Signal) -> Iterable[Problem]:
    if not signal.key.strip():
        yield "key", "is blank", "Name what the signal is about"
    if signal.severity not in SEVERITIES[name]:
        fitting = ", ".join(one.upper() for one in SEVERITIES[name])
        yield "severity", f"{signal.severity.upper()} does not fit here", f"Take one of {fitting}"
    if signal.scope and signal.scope not in SCOPES:
        yield "scope", f"{signal.scope} is not known", f"Take one of {', '.join(SCOPES)}"
    if problem := value_problem(signal.value):
        yield "value", *problem


def value_problem(value: Any) -> tuple[str, str] | None:
    """Returns the problem of a signal's value and how to fix it; None if it is valid."""
    shape = "Give a scalar, or an object {min, max}, {options: []}, {exclude: []} or {rule: text}"
    match value:
        case Mapping():
            if not value or not any(value.keys() <= form for form in VALUE_FORMS):
                return "has keys that do not go together", shape
            for key, part in value.items():
                if not _is_part(key, part):
                    return f"has no fitting {key}", shape
        case _ if not _is_scalar(value):
            return "is neither a scalar nor an object", shape
    size = len(_json(value).encode())
    return (f"has {size} bytes as JSON", f"Keep it to {MAX_VALUE_BYTES} bytes") if size > MAX_VALUE_BYTES else None


def _is_scalar(value: Any) -> bool:
    # NaN and infinity have no JSON.
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _is_part(key: str, part: Any) -> bool:
    if key in ("options", "exclude"):
        return isinstance(part, list | tuple) and all(map(_is_scalar, part))
    if key == "rule":
        return isinstance(part, str) and bool(part.strip())
    # A bound may be a date or another text that has an order.
    return part is not None and not isinstance(part, bool) and _is_scalar(part)


def bounded(fingerprint: Fingerprint) -> tuple[Fingerprint, int]:
    """Returns an extractor's fingerprint cut to the bounds, and the number of dropped entries."""
    topics, dropped = bounded_texts(fingerprint.topics, MAX_TOPICS, TOPIC_LENGTH)
    lists: dict[str, Any] = {}
    for name in LISTS:
        lists[name], more = bounded_signals(name, getattr(fingerprint, name))
        dropped += more
    queries = tuple(
        Query(
            one.where if one.where in TARGETS else "",
            shortened(query, QUERY_LENGTH),
            shortened(line(one.reason), QUERY_LENGTH),
        )
        for one in fingerprint.ctx_retrieval_queries
        if (query := line(one.query))
    )[:MAX_QUERIES]
    kept = replace(
        fingerprint,
        objective=shortened(line(fingerprint.objective), OBJECTIVE_LENGTH),
        topics=topics,
        ctx_retrieval_queries=queries,
        conversation_title=shortened(line(fingerprint.conversation_title), TITLE_LENGTH),
        **lists,
    )
    dropped += len(fingerprint.ctx_retrieval_queries) - len(queries)
    while _size(kept) > MAX_BYTES:
        # Drops the last signal of the largest list: an extractor names the most important ones first.
        largest = max(LISTS, key=lambda name: len(_json([one.to_json() for one in getattr(kept, name)])))
        shorter: dict[str, Any] = {largest: getattr(kept, largest)[:-1]}
        kept = replace(kept, **shorter)
        dropped += 1
    return kept, dropped


def bounded_signals(name: str, signals: Sequence[Signal], most: int = MAX_SIGNALS) -> tuple[tuple[Signal, ...], int]:
    """Returns valid signals of one of LISTS, at most `most`, and the number of dropped ones."""
    kept = tuple(fit for one in signals if (fit := bounded_signal(name, one)) is not None)[:most]
    return kept, len(signals) - len(kept)


def bounded_signal(name: str, signal: Signal) -> Signal | None:
    """Returns a signal of one of LISTS within the bounds; None if its key is missing or too long, or its value is
    invalid.
    """
    key = line(signal.key)
    if not key or len(key) > KEY_LENGTH or value_problem(signal.value):
        return None
    return Signal(
        key=key,
        value=plain(signal.value),
        severity=signal.severity if signal.severity in SEVERITIES[name] else SEVERITIES[name][0],
        scope=signal.scope if signal.scope in SCOPES else "",
        applies_to=shortened(line(signal.applies_to), LABEL_LENGTH),
    )


def bounded_summary(summary: Summary) -> tuple[Summary, int]:
    """Returns an extractor's summary cut to the bounds, and the number of dropped items."""
    dropped = 0
    lists: dict[str, Any] = {}
    for name in forms.LISTS:
        lists[name], more = bounded_texts(getattr(summary, name), forms.MAX_ITEMS, forms.ITEM_LENGTH)
        dropped += more
    texts: dict[str, Any] = {name: shortened(line(getattr(summary, name)), _length(name)) for name in forms.TEXTS}
    return Summary(**texts, **lists), dropped


def bounded_texts(items: Sequence[str], most: int, length: int) -> tuple[tuple[str, ...], int]:
    """Returns the items on one line each, cut and without repeats, and the number dropped for being blank
    or too many.
    """
    lines = list(map(line, items))
    once = list(dict.fromkeys(shortened(one, length) for one in lines if one))
    return tuple(once[:most]), lines.count("") + max(0, len(once) - most)


def shortened(text: str, length: int) -> str:
    """As `cut`, except for a secret that crosses the end: half of it would lose its form, so that nobody could detect
    it. In such a text all secrets are withheld, whoever requests the cut.
    """
    kept = cut(text, length)
    if kept == text:
        return text
    clean, found = withhold(text)
    if found and not clean.startswith(withhold(kept.removesuffix(ELLIPSIS))[0]):
        return cut(clean, length)
    return kept


def withheld(fingerprint: Fingerprint) -> tuple[Fingerprint, int]:
    """Returns the fingerprint without secrets, and the number removed. Texts that grew by the replacement note are cut
    again.
    """
    secrets = _Secrets()
    lists: dict[str, Any] = {name: tuple(map(secrets.of_signal, getattr(fingerprint, name))) for name in LISTS}
    clean = replace(
        fingerprint,
        objective=secrets.of_text(fingerprint.objective, OBJECTIVE_LENGTH),
        topics=tuple(dict.fromkeys(secrets.of_text(one, TOPIC_LENGTH) for one in fingerprint.topics)),
        ctx_retrieval_queries=tuple(map(secrets.of_query, fingerprint.ctx_retrieval_queries)),
        conversation_title=secrets.of_text(fingerprint.conversation_title, TITLE_LENGTH),
        **lists,
    )
    return clean, secrets.taken


def withheld_queries(queries: Iterable[Query]) -> tuple[Query, ...]:
    """As `withheld`."""
    return tuple(map(_Secrets().of_query, queries))


def withheld_summary(summary: Summary) -> tuple[Summary, int]:
    """As `withheld`."""
    secrets = _Secrets()
    texts: dict[str, Any] = {name: secrets.of_text(getattr(summary, name), _length(name)) for name in forms.TEXTS}
    lists: dict[str, Any] = {
        name: tuple(secrets.of_text(one, forms.ITEM_LENGTH) for one in getattr(summary, name)) for name in forms.LISTS
    }
    return Summary(**texts, **lists), secrets.taken


def withheld_bucket(bucket: Bucket) -> Bucket:
    """As `withheld`, but cuts nothing, because folding does that."""
    secrets = _Secrets()
    return replace(
        bucket,
        name=secrets.of_text(bucket.name),
        short_desc=secrets.of_text(bucket.short_desc),
        topic_centroid=tuple(map(secrets.of_text, bucket.topic_centroid)),
        objective_text=secrets.of_text(bucket.objective_text),
        timeline=tuple(map(secrets.of_slice, bucket.timeline)),
    )


class _Secrets:
    """Removes secrets from one object, and counts them."""

    def __init__(self) -> None:
        self.taken = 0

    def of_text(self, text: str, length: int = sys.maxsize) -> str:
        clean, found = _without(text)
        if not found:
            return text
        self.taken += found
        return cut(clean, length)

    def of_query(self, query: Query) -> Query:
        reason = self.of_text(query.reason, QUERY_LENGTH)
        return Query(query.where, self.of_text(query.query, QUERY_LENGTH), reason)

    def of_signal(self, signal: Signal) -> Signal:
        # An invalid value is refused or dropped elsewhere, and may have any depth.
        is_value = value_problem(signal.value) is None
        return replace(
            signal,
            key=self.of_text(signal.key, KEY_LENGTH),
            value=self._of_value(signal.key, signal.value) if is_value else signal.value,
            applies_to=self.of_text(signal.applies_to, LABEL_LENGTH),
        )

    def of_slice(self, part: Slice) -> Slice:
        kinds: dict[str, Any] = {
            kind: tuple(replace(one, signal=self.of_signal(one.signal)) for one in getattr(part, kind))
            for kind in KINDS
        }
        return replace(part, objective_hint=self.of_text(part.objective_hint), **kinds)

    def _of_value(self, key: str, value: Any) -> Any:
        match value:
            case str():
                return self._of_named(key, value)
            case Mapping():
                return {name: self._of_value(key, part) for name, part in value.items()}
            case list() | tuple():
                return [self._of_value(key, part) for part in value]
            case int() | float() if not isinstance(value, bool):
                text = _json(plain(value))
                clean = self._of_named(key, text)
                return value if clean == text else clean
        return value

    def _of_named(self, key: str, text: str) -> str:
        # A password has no form of its own, but it has one after a key that names it.
        name = f"{normal_key(key).replace('_', ' ')}: "
        clean, found = _without(name + text)
        if not found or not clean.startswith(name):
            clean, found = _without(text)
            name = ""
        self.taken += found
        return clean[len(name) :]


def _without(text: str) -> tuple[str, int]:
    """Returns the text without secrets, and their number. A name and its value may stand on two lines: if only the
    joined text reveals a secret, the result is on one line, as it is shown.
    """
    clean, found = withhold(text)
    joined, more = withhold(line(clean))
    return (joined if more else clean), len(found) + len(more)


def _length(name: str) -> int:
    return forms.NOTES_LENGTH if name == "notes" else forms.TEXT_LENGTH


def _size(fingerprint: Fingerprint) -> int:
    return len(fingerprint.to_text().encode())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
