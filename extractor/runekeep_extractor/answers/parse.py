"""Finds the JSON object in a model's text, without adding anything to it.

In broken JSON, a text that the model quotes may itself look like an answer. So only the outermost object counts,
repaired if necessary. The parser never searches inside an unreadable object.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runekeep_extractor.answers.json_repair import mended
from runekeep_extractor.answers.json_scan import Extent, extent

_MAX_STARTS: Final = 64
# Maximum total length of the text repaired for one answer, in characters. json_repair takes up to a second for this
# length, and its time grows with the square.
_MAX_REPAIRED: Final = 4_000
_DEEPEST_WRAP: Final = 3
# Matches an object, well-formed or not, but not `{braces in prose}`.
_OBJECT = re.compile(r"\{\s*(?:[\"'“]|\w+\s*:|//|/\*)")
_LENIENT: Final = json.JSONDecoder(strict=False)
_WRAP = re.compile(r"\{\s*[\"']?(\w+)[\"']?\s*:\s*\{")


class Unreadable(ValueError):
    """The text holds no answer. The message never quotes the text."""


@dataclass(frozen=True, slots=True)
class Found:
    """A decoded object. `cut`: the text ended too early, and `data` lacks the item in which it ended."""

    data: dict[str, Any]
    cut: bool


def plain_name(name: object) -> str:
    """Returns a name in the form used for comparison: `Write Operations` and `writeOperations` become
    `writeoperations`.
    """
    return re.sub(r"[\W_]+", "", str(name)).casefold()


def with_names(value: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Returns the mapping with its keys renamed to the matching `names`: `writeOperations` and `Write Operations`
    become `write_operations`.
    """
    wanted = list(names)
    renamed = dict(value)
    for key in value:
        name = known_name(key, wanted)
        if name != key and name not in renamed:
            renamed[name] = renamed.pop(key)
    return renamed


def known_name(name: str, known: Collection[str]) -> str:
    """Returns the known name that `name` matches, or `name` itself if none or several match."""
    if name in known:
        return name
    meant = {one for one in known if plain_name(one) == plain_name(name)}
    return meant.pop() if len(meant) == 1 else name


def find_object(text: str, keys: Collection[str], open_ended: Collection[str] = ()) -> Found:
    """Returns the object in `text` that has at least one of `keys`. Text around it is ignored and broken JSON is
    repaired. Keys at the top level are renamed to match `keys`, nested keys are not. `open_ended`: see `extent`.

    Raises Unreadable if there is none.
    """
    wanted = frozenset(map(plain_name, keys))
    decode = _Decoder()
    at = 0
    try:
        for _ in range(_MAX_STARTS):
            match = _OBJECT.search(text, at)
            if match is None:
                break
            start = match.start()
            value, end = _valid(text, start)
            if end is None:
                reach = extent(text, start, open_ended)
                wrap = _WRAP.match(text, start)
                if reach.end is None and wrap is not None and plain_name(wrap[1]) not in wanted:
                    start = wrap.end() - 1
                    reach = extent(text, start, open_ended)
                value, end = decode(text, start, reach), reach.end
            found = _with_keys(value, wanted, _DEEPEST_WRAP)
            if found is not None:
                return Found(with_names(_as_text(found), keys), end is None)
            if end is None:
                break
            at = end
    except RecursionError:
        raise Unreadable("brackets within brackets without end") from None
    raise Unreadable(
        decode.failed or ("no JSON object with the keys of an answer" if text.strip() else "an empty answer")
    )


def _valid(text: str, start: int) -> tuple[object, int | None]:
    """Returns the object that begins at `start` and its end without a scan, or None and None if it is not
    valid JSON.
    """
    try:
        return _LENIENT.raw_decode(text, start)
    except ValueError:
        return None, None


class _Decoder:
    """Decodes the objects of one answer. `failed`: why an object could not be decoded; empty if none failed."""

    def __init__(self) -> None:
        self.failed = ""
        self._room = _MAX_REPAIRED

    def __call__(self, text: str, start: int, reach: Extent) -> object:
        """Returns the object that begins at `start`, repaired if necessary, or None if it cannot be decoded."""
        try:
            value: object = _LENIENT.raw_decode(text, start)[0]
        except ValueError:
            try:
                value = _LENIENT.decode(mended(reach.whole))
            except ValueError:
                value = self._repaired(reach.whole)
        return value

    def _repaired(self, whole: str) -> object:
        if len(whole) > self._room:
            self.failed = f"broken JSON of more than {_MAX_REPAIRED:,} characters"
            return None
        self._room -= len(whole)
        # Imported late: only a broken answer needs it.
        import json_repair

        try:
            return json_repair.loads(whole)
        except ValueError:
            # json_repair turns a RecursionError into a ValueError.
            self.failed = "brackets within brackets without end"
            return None


def _with_keys(value: object, wanted: Collection[str], depth: int) -> dict[str, Any] | None:
    """Returns the object itself, or the object that it wraps: some models write `{"answer": {...}}`."""
    if isinstance(value, list):
        return next((found for item in value if (found := _with_keys(item, wanted, depth - 1)) is not None), None)
    if not isinstance(value, Mapping) or depth < 0:
        return None
    if any(plain_name(key) in wanted for key in value):
        return dict(value)
    return _with_keys(next(iter(value.values())), wanted, depth - 1) if len(value) == 1 else None


def _as_text(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the object with lone surrogates replaced: JSON can escape them, but no text can hold them."""
    written = json.dumps(found, ensure_ascii=False)
    try:
        written.encode("utf-8")
    except UnicodeEncodeError:
        cleaned: dict[str, Any] = json.loads(written.encode("utf-8", errors="replace"))
        return cleaned
    return found
