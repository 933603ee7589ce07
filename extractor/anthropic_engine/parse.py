"""Finds the JSON object in what a model wrote, and never more than the model wrote.

Where JSON is broken, a text that the model quotes may itself look like an answer. So the outermost object counts,
mended if need be; nothing is looked for inside of one that could not be read.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from extractor.anthropic_engine.mend import mended
from extractor.anthropic_engine.scan import Extent, extent

_MOST_STARTS: Final = 64
# Characters of one answer. json_repair takes up to a second for so many, and for larger ones time by their square.
_MOST_REPAIRED: Final = 4_000
_DEEPEST_WRAP: Final = 3
# An object as somebody writes it, well or badly, and no `{as prose may have}`.
_OBJECT = re.compile(r"\{\s*(?:[\"'“]|\w+\s*:|//|/\*)")
_LENIENT: Final = json.JSONDecoder(strict=False)
_WRAP = re.compile(r"\{\s*[\"']?(\w+)[\"']?\s*:\s*\{")


class Unreadable(ValueError):
    """The text holds no answer. The message never quotes it."""


@dataclass(frozen=True, slots=True)
class Found:
    """`cut`: the text ended too early, and what it ended in the middle of is not in `data`."""

    data: dict[str, Any]
    cut: bool


def plain_name(name: object) -> str:
    """A name as names are compared: `Write Operations` and `writeOperations` are `writeoperations`."""
    return re.sub(r"[\W_]+", "", str(name)).casefold()


def with_names(value: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The mapping with its keys as they should be: `writeOperations` and `Write Operations` mean `write_operations`."""
    wanted = list(names)
    renamed = dict(value)
    for key in value:
        name = known_name(key, wanted)
        if name != key and name not in renamed:
            renamed[name] = renamed.pop(key)
    return renamed


def known_name(name: str, known: Collection[str]) -> str:
    """The known name that is meant, else the name itself. Where two could be meant none is."""
    if name in known:
        return name
    meant = {one for one in known if plain_name(one) == plain_name(name)}
    return meant.pop() if len(meant) == 1 else name


def find_object(text: str, keys: Collection[str], open_ended: Collection[str] = ()) -> Found:
    """The object in `text` that has at least one of `keys`, with what stands around it cut off and broken JSON mended.
    Those keys are as they should be; inside of it nothing is renamed. `open_ended`: see `extent`.

    Raises Unreadable when there is none.
    """
    wanted = frozenset(map(plain_name, keys))
    decode = _Decoder()
    at = 0
    try:
        for _ in range(_MOST_STARTS):
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
    """The object that begins at `start` and where it ends, without a walk over its signs; None and None where it is no
    valid JSON."""
    try:
        return _LENIENT.raw_decode(text, start)
    except ValueError:
        return None, None


class _Decoder:
    """Reads the objects of one answer. `failed`: why one of them was given up, empty when none was."""

    def __init__(self) -> None:
        self.failed = ""
        self._room = _MOST_REPAIRED

    def __call__(self, text: str, start: int, reach: Extent) -> object:
        """The object that begins at `start`, mended if need be; None when it was given up."""
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
            self.failed = f"broken JSON of more than {_MOST_REPAIRED:,} characters"
            return None
        self._room -= len(whole)
        # Imported late: only a broken answer needs it.
        import json_repair

        try:
            return json_repair.loads(whole)
        except ValueError:
            # It turns a RecursionError into this.
            self.failed = "brackets within brackets without end"
            return None


def _with_keys(value: object, wanted: Collection[str], depth: int) -> dict[str, Any] | None:
    """The object itself, or the one that it wraps: some models put `{"answer": {...}}` around it."""
    if isinstance(value, list):
        return next((found for item in value if (found := _with_keys(item, wanted, depth - 1)) is not None), None)
    if not isinstance(value, Mapping) or depth < 0:
        return None
    if any(plain_name(key) in wanted for key in value):
        return dict(value)
    return _with_keys(next(iter(value.values())), wanted, depth - 1) if len(value) == 1 else None


def _as_text(found: dict[str, Any]) -> dict[str, Any]:
    """The same with halves of surrogate pairs replaced: JSON can name them, but no text can hold them."""
    written = json.dumps(found, ensure_ascii=False)
    try:
        written.encode("utf-8")
    except UnicodeEncodeError:
        cleaned: dict[str, Any] = json.loads(written.encode("utf-8", errors="replace"))
        return cleaned
    return found
