"""Defines turn signals as a model writes them, and reads them tolerantly.

In the schema a value is a form and a list, not one of several objects: unions are rationed, and one flat shape covers
all forms. Each list has its own shape, because the severities of another list must not be written into it. The common
parts are named definitions, so that they are sent once.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import RootModel

from runekeep_extractor.answers.answer import AnswerPart, as_list
from runekeep_extractor.answers.parse import plain_name, with_names
from runekeep_schemas.turns.fingerprint import SEVERITIES, VALUE_FORMS, Signal
from runekeep_schemas.turns.text import line

Form = Literal["is", "min", "max", "between", "options", "exclude", "rule"]

_EXCEPTIONS: Final = "exceptions"
# The list that a signal belongs to, and its severity there, if it has a severity of another list. A severity that is
# not listed here contradicts its list: as a fact, a wish of severity `high` would bind nobody, and as an exception it
# would say the opposite. Nobody knows which was meant, so neither is kept.
_MEANT: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "assertions": {one: (_EXCEPTIONS, one) for one in SEVERITIES[_EXCEPTIONS]},
    _EXCEPTIONS: {"must": (_EXCEPTIONS, "do_not"), "prefer": (_EXCEPTIONS, "avoid")},
    "facts": {one: (name, one) for name in ("assertions", _EXCEPTIONS) for one in SEVERITIES[name]},
}
_KNOWN: Final = {plain_name(one): one for severities in SEVERITIES.values() for one in severities}

# A text with such a word already negates itself: after another `not` it would say the opposite.
_DENIES: Final = re.compile(
    r"\b(?:no|not|never|none|nothing|without|avoid|except|only|kein\w*|nicht\w*|nie|ohne|nur|pas|sans|jamais|sin|nunca"
    r"|non|senza|mai|sem|não|niet|geen|zonder)\b|n['’]t\b",
    re.IGNORECASE,
)
# Maximum words of the name of a thing; a longer text is a sentence.
_MAX_WORDS: Final = 4

# Identifiers of the system, which are not things that people talk about.
_ID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{16,}|\w+://.*"
    r"|(?:turn|msg|message|session|bucket|id)[-_#:]?\d[\w-]*|obj-[\w-]+|[tb]?\d+|#\d+",
    re.IGNORECASE,
)


class SaidForm(RootModel[Form]):
    pass


class Values(RootModel[list[str | int | float | bool]]):
    pass


class Scope(RootModel[Literal["conversation", "objective", "artifact", "thread", "unsaid"]]):
    pass


class SignalAnswer(AnswerPart):
    """What signals of all lists have in common."""

    key: str
    form: SaidForm
    values: Values
    severity: str
    scope: Scope
    applies_to: str


class Assertion(SignalAnswer):
    severity: Literal["must", "prefer", "allow"]


class Exclusion(SignalAnswer):
    severity: Literal["do_not", "avoid"]


class Fact(SignalAnswer):
    severity: Literal["high", "medium", "low"]


class Promoted(SignalAnswer):
    severity: Literal["mention", "recommend", "strong_promote"]


def read_signals(data: Mapping[str, Any], names: tuple[str, ...]) -> tuple[dict[str, list[Signal]], int]:
    """Returns the lists of signals of these names, and the number of unreadable entries. Bounds are not
    checked here.
    """
    read: dict[str, list[Signal]] = {name: [] for name in names}
    dropped = 0
    for name in names:
        for entry in entries(data.get(name)):
            placed = read_signal(entry, name)
            if placed is None:
                dropped += 1
            elif placed[1] not in read[placed[0]]:
                read[placed[0]].append(placed[1])
    return read, dropped


def read_signal(entry: object, name: str) -> tuple[str, Signal] | None:
    """Returns the list that an entry of the list `name` belongs to, and its signal. Returns None if it has no key, no
    value in a known form, or a severity that contradicts the list.

    A wish among the facts is moved to the wishes, and a wish against something to the exceptions: where it stands it
    would bind nobody, or say the opposite. An unknown severity or scope is left to `runekeep_schemas.turns.checks`.
    """
    if not isinstance(entry, Mapping):
        return None
    entry = with_names(entry, (*SignalAnswer.model_fields, "value"))
    key = _text(entry.get("key"))
    value = _value(entry)
    severity = _KNOWN.get(plain_name(entry.get("severity", "")), "")
    if severity and severity not in SEVERITIES[name]:
        name, severity = _MEANT.get(name, {}).get(severity, ("", ""))
    if not key or value is None or not name:
        return None
    applies_to = _text(entry.get("applies_to"))
    return name, Signal(
        key=key,
        value=_excluded(value) if name == _EXCEPTIONS else value,
        severity=severity,
        scope=_text(entry.get("scope")).casefold(),
        applies_to="" if _ID.fullmatch(applies_to) else applies_to,
    )


def _excluded(value: Any) -> Any:
    """Returns the value of an exception in the form `exclude` if it names things; else unchanged."""
    things = value["options"] if isinstance(value, Mapping) and value.keys() == {"options"} else [value]
    return {"exclude": things} if all(map(_is_thing, things)) else value


def _is_thing(value: object) -> bool:
    return isinstance(value, str) and len(value.split()) <= _MAX_WORDS and _DENIES.search(value) is None


def entries(value: object) -> Iterator[object]:
    """Yields the entries of a list, or of a mapping by key, which models without a schema tend to write."""
    if isinstance(value, Mapping) and not {plain_name(name) for name in value} & {"key", "value", "values"}:
        for key, held in value.items():
            yield {"key": key, **held} if isinstance(held, Mapping) else {"key": key, "value": held}
    else:
        yield from as_list(value)


def as_answer(signal: Signal) -> dict[str, Any]:
    """Returns a signal in the form of an answer, for the model to read."""
    form, values = _form(signal.value)
    return {
        "key": signal.key,
        "form": form,
        "values": values,
        "severity": signal.severity,
        "scope": signal.scope,
        "applies_to": signal.applies_to,
    }


def _form(value: Any) -> tuple[Form, list[Any]]:
    if not isinstance(value, Mapping):
        return "is", [value]
    if "options" in value or "exclude" in value:
        form: Form = "options" if "options" in value else "exclude"
        return form, as_list(value[form])
    if "rule" in value:
        return "rule", [value["rule"]]
    if "min" in value and "max" in value:
        return "between", [value["min"], value["max"]]
    return ("min", [value["min"]]) if "min" in value else ("max", [value.get("max")])


def _value(entry: Mapping[str, Any]) -> Any:
    """Returns the value in a form of the contract; None if there is none."""
    if entry.get("values") is None and "value" in entry:
        return _given(entry["value"])
    values = [one for one in map(_scalar, as_list(entry.get("values"))) if one is not None]
    if not values:
        return None
    match plain_name(entry.get("form", "is")):
        case "is":
            return values[0] if len(values) == 1 else {"options": values}
        case "min" | "max" as bound:
            return {bound: values[0]} if len(values) == 1 else None
        case "between":
            return {"min": values[0], "max": values[1]} if len(values) == 2 else None
        case "options" | "exclude" as form:
            return {form: values}
        case "rule":
            return {"rule": "; ".join(map(str, values))}
    return None


def _given(value: Any) -> Any:
    """Returns a value already in the contract's form, which models without a schema tend to write."""
    if isinstance(value, list):
        items = [one for one in map(_scalar, value) if one is not None]
        return {"options": items} if items else None
    if not isinstance(value, Mapping):
        return _scalar(value)
    held = {
        name: [one for one in map(_scalar, item) if one is not None] if isinstance(item, list) else _scalar(item)
        for name, item in value.items()
    }
    held = {name: item for name, item in held.items() if item is not None and item != []}
    if not held or not any(held.keys() <= form for form in VALUE_FORMS):
        return None
    return {name: as_list(item) if name in ("options", "exclude") else item for name, item in held.items()}


def _scalar(value: object) -> Any:
    """Returns a non-empty text, a number or a flag; None for anything else."""
    if isinstance(value, str):
        return line(value) or None
    if isinstance(value, bool | int):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def _text(value: object) -> str:
    return line(value) if isinstance(value, str) else ""
