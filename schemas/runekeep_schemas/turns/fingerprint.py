"""Fingerprints of turns, `turn.fingerprint.v1`: their form, their merge rules, and their tags.

Forms, bounds and rules are those of `design/turn-memory.md`. Times are microseconds since 1970 (UTC).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

VERSION: Final = "v1"
MAX_TOPICS: Final = 8
MAX_SIGNALS: Final = 16
MAX_QUERIES: Final = 2
MAX_BYTES: Final = 16 * 1024
MAX_VALUE_BYTES: Final = 1024
"""Size of one value as JSON."""
OBJECTIVE_LENGTH: Final = 300

SEVERITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "assertions": ("prefer", "must", "allow"),
    "exceptions": ("avoid", "do_not"),
    "facts": ("medium", "high", "low"),
    "assistant_signals": ("mention", "recommend", "strong_promote"),
}
"""Severities of each list of signals, its default first."""
LISTS: Final = tuple(SEVERITIES)
SCOPES: Final = ("conversation", "objective", "artifact", "thread")
TARGETS: Final = ("user", "assistant", "assistant_artifact")
VALUE_FORMS: Final = (frozenset({"min", "max"}), frozenset({"options"}), frozenset({"exclude"}), frozenset({"rule"}))
"""Keys of values that are objects; in the first form either key may be missing."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT: Final = 2**53
"""Doubles represent every whole number below it."""
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_OBJECTIVE: Final = ',"objective":'
_read_at: Final = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal of a fingerprint. `value` is a JSON scalar or an object of VALUE_FORMS; `severity` is one of its list's;
    `scope` and `applies_to` may be empty.
    """

    key: str
    value: Any
    severity: str
    scope: str = ""
    applies_to: str = ""

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"key": self.key, "value": plain(self.value), "severity": self.severity}
        return body | {name: text for name in ("scope", "applies_to") if (text := getattr(self, name))}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Signal":
        return cls(body["key"], body["value"], body["severity"], body.get("scope", ""), body.get("applies_to", ""))


@dataclass(frozen=True, slots=True)
class Query:
    """A search for earlier turns; `where` is one of TARGETS, or empty for everywhere."""

    where: str
    query: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What one turn said. `made_at`: 0 if not known yet."""

    turn_id: str
    objective: str = ""
    topics: tuple[str, ...] = ()
    assertions: tuple[Signal, ...] = ()
    exceptions: tuple[Signal, ...] = ()
    facts: tuple[Signal, ...] = ()
    assistant_signals: tuple[Signal, ...] = ()
    ctx_retrieval_queries: tuple[Query, ...] = ()
    made_at: int = 0
    conversation_title: str = ""

    def to_text(self) -> str:
        """Returns the stored form: one JSON object."""
        body: dict[str, Any] = {
            "version": VERSION,
            "turn_id": self.turn_id,
            "objective": self.objective,
            "topics": list(self.topics),
            **{name: [signal.to_json() for signal in getattr(self, name)] for name in LISTS},
            "ctx_retrieval_queries": [
                {"where": one.where, "query": one.query} | ({"reason": one.reason} if one.reason else {})
                for one in self.ctx_retrieval_queries
            ],
            "made_at": iso(self.made_at) if self.made_at else "",
        }
        if self.conversation_title:
            body["conversation_title"] = self.conversation_title
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "Fingerprint":
        """Reads the result of `to_text`."""
        body = json.loads(text)
        queries = (Query(one["where"], one["query"], one.get("reason", "")) for one in body["ctx_retrieval_queries"])
        return cls(
            turn_id=body["turn_id"],
            objective=body["objective"],
            topics=tuple(body["topics"]),
            **{name: tuple(Signal.from_json(one) for one in body[name]) for name in LISTS},
            ctx_retrieval_queries=tuple(queries),
            made_at=from_iso(body["made_at"]) if body["made_at"] else 0,
            conversation_title=body.get("conversation_title", ""),
        )

    @property
    def is_empty(self) -> bool:
        """Whether it has no content."""
        said = (self.objective, self.topics, *(getattr(self, name) for name in LISTS), self.ctx_retrieval_queries)
        return not any(said)


@dataclass(frozen=True, slots=True)
class Promotion:
    """What the assistant promoted in a turn of any session, and when."""

    turn_id: str
    made_at: int
    signals: tuple[Signal, ...]


def promotion_text(signals: Iterable[Signal]) -> str:
    """Returns assistant signals alone as a JSON list of lists of their fields, a compact form because they are read by
    the hundred.
    """
    body = [[one.key, plain(one.value), one.severity, one.scope, one.applies_to] for one in signals]
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def promoted(texts: Iterable[str]) -> list[tuple[Signal, ...]]:
    """Reads the results of `promotion_text`. Parses them all at once."""
    return [tuple([Signal(*one) for one in some]) for some in json.loads(f"[{','.join(texts)}]")]


def objective_of(text: str) -> str:
    """Returns the objective in a result of `Fingerprint.to_text`, without parsing the rest: objectives are read by the
    hundred.
    """
    # In JSON, a quotation mark inside a text follows a backslash, and no value has a key of this name.
    objective: str = _read_at(text, text.index(_OBJECTIVE) + len(_OBJECTIVE))[0]
    return objective


def merge(there: Fingerprint, new: Fingerprint) -> Fingerprint:
    """Merges a caller's submission into the existing fingerprint.

    The objective is set once; topics are united; each other list replaces the existing one if it is not empty. An empty
    list clears nothing.
    """
    lists = {name: getattr(new, name) or getattr(there, name) for name in (*LISTS, "ctx_retrieval_queries")}
    return replace(
        there,
        objective=there.objective or new.objective,
        topics=united(there.topics, new.topics),
        made_at=new.made_at or there.made_at,
        conversation_title=there.conversation_title or new.conversation_title,
        **lists,
    )


def fill(there: Fingerprint, extracted: Fingerprint) -> Fingerprint:
    """Fills the gaps of the existing fingerprint with an extractor's result. Existing values stay."""
    lists = {name: getattr(there, name) or getattr(extracted, name) for name in (*LISTS, "ctx_retrieval_queries")}
    return replace(
        there,
        objective=there.objective or extracted.objective,
        topics=united(there.topics, extracted.topics),
        made_at=there.made_at or extracted.made_at,
        conversation_title=there.conversation_title or extracted.conversation_title,
        **lists,
    )


def united(first: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Returns both, without repeats and in order, at most MAX_TOPICS."""
    return tuple(dict.fromkeys((*first, *more)))[:MAX_TOPICS]


def normal_key(key: str) -> str:
    """Returns a key as in tags: lower case, each run outside a-z and 0-9 replaced by an underscore, none at
    the ends.
    """
    return _OTHER.sub("_", key.lower()).strip("_")


def iso(microseconds: int) -> str:
    """Returns `2026-01-25T09:15:30.123456Z`, with the fraction only if it is not zero."""
    text = (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
    return text.replace("+00:00", "Z")


def from_iso(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def plain(value: Any) -> Any:
    """Returns a value in the form in which it is stored, shown and compared.

    Whole numbers become integers, because the contract carries all numbers as doubles and nobody wrote 500.0. Keys are
    sorted, `min` before `max`, because the contract's objects have no order.
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
    if isinstance(value, Mapping):
        names = sorted(value, key=lambda name: (name != "min", name)) if len(value) > 1 else value
        return {name: plain(value[name]) for name in names}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
