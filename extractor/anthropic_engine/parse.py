"""Finds the JSON object in what a model wrote."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from extractor.anthropic_engine.answer import WireAnswer

_KEYS: Final = frozenset(WireAnswer.model_fields)
_MOST_STARTS: Final = 64
_KEYED_START = re.compile(r"\{\s*[\"']?(?:" + "|".join(sorted(_KEYS)) + r")\b")


class Unreadable(ValueError):
    """The text holds no answer. The message never quotes it."""


def find_answer(text: str) -> dict[str, Any]:
    """The answer in `text`, with whatever stands around it cut off and broken JSON mended.

    Raises Unreadable when there is no object with at least one of an answer's keys.
    """
    for start in _starts(text):
        try:
            value, _ = json.JSONDecoder(strict=False).raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        found = _answer_in(value)
        if found is not None:
            return _as_text(found)
    keyed = _KEYED_START.search(text)
    if keyed is not None:
        # Imported late: only a broken answer needs it.
        import json_repair

        found = _answer_in(json_repair.loads(text[keyed.start() :], skip_json_loads=True))
        if found is not None:
            return _as_text(found)
    raise Unreadable("no JSON object with the keys of an answer" if text.strip() else "an empty answer")


def _starts(text: str) -> Iterator[int]:
    at = -1
    for _ in range(_MOST_STARTS):
        at = text.find("{", at + 1)
        if at < 0:
            return
        yield at


def _as_text(answer: dict[str, Any]) -> dict[str, Any]:
    """The same with halves of surrogate pairs replaced: JSON can name them, but no text can hold them."""
    cleaned: dict[str, Any] = json.loads(
        json.dumps(answer, ensure_ascii=False).encode("utf-8", errors="replace").decode("utf-8")
    )
    return cleaned


def _answer_in(value: object) -> dict[str, Any] | None:
    """The object itself, or the one that it wraps: some models put `{"answer": {...}}` around it."""
    if isinstance(value, list):
        return next((found for item in value if (found := _answer_in(item)) is not None), None)
    if not isinstance(value, Mapping):
        return None
    if _KEYS & value.keys():
        return dict(value)
    if len(value) == 1:
        (inner,) = value.values()
        if isinstance(inner, Mapping) and _KEYS & inner.keys():
            return dict(inner)
    return None
