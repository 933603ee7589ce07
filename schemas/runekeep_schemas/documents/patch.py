"""SEARCH/REPLACE blocks: an edit that names the text it changes.

    <<<<<<< SEARCH
    :start_line:12
    -------
    old text
    =======
    new text
    >>>>>>> REPLACE

The old text must occur in the field exactly as written. There is no fuzzy matching, so text that no block names never
changes. If it occurs several times, the place nearest to `start_line` is used, and two equally near places are refused;
without a hint there may be only one place. The line `:start_line:` may be omitted; it counts lines of the field before
any block, from 1. Blocks apply in order, all of them or none. Lines end at "\\n" alone: other characters that some
systems take for line ends are ordinary text.

A block whose old or new text contains a marker line is ambiguous in this form, so `format_blocks` and `parse_blocks`
refuse it; `apply_blocks` takes any text.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_SEARCH: Final = "<<<<<<< SEARCH"
_HINT: Final = ":start_line:"
_RULE: Final = "-------"
_MIDDLE: Final = "======="
_REPLACE: Final = ">>>>>>> REPLACE"
_MARKERS = frozenset({_SEARCH, _MIDDLE, _REPLACE})


MAX_BLOCKS: Final = 1000
MAX_SEARCHED_CHARACTERS: Final = 64 * 1024 * 1024
"""Maximum number of characters that all blocks of a patch search together. Each block searches the whole text."""
_CHARACTERS_PER_PLACE: Final = 512
"""Checking one place where the old text begins takes as long as searching this many characters."""


class PatchError(ValueError):
    """Blocks that cannot be read or do not apply. `block_index` counts blocks from 0."""

    def __init__(self, reason: str, block_index: int) -> None:
        super().__init__(f"block {block_index + 1}: {reason}")
        self.reason = reason
        self.block_index = block_index


@dataclass(frozen=True, slots=True)
class SearchReplaceBlock:
    """Replaces `search` by `replace`, near line `start_line` (from 1) if given."""

    search: str
    replace: str
    start_line: int | None = None


def is_patch(text: str) -> bool:
    """Returns whether a text consists of blocks rather than being a value: it has a line that opens one."""
    return any(line.rstrip() == _SEARCH for line in text.split("\n"))


def parse_blocks(text: str) -> list[SearchReplaceBlock]:
    """Reads one or more blocks. Empty lines and code fences around them are skipped.

    Raises PatchError for text without a block, other text around blocks, and a malformed or ambiguous block.
    """
    blocks: list[SearchReplaceBlock] = []
    lines = iter(text.split("\n"))
    for line in lines:
        if line.rstrip() == _SEARCH:
            blocks.append(_parse_block(lines, len(blocks)))
        elif line.strip() and not line.startswith("```"):
            raise PatchError("there is text outside the blocks", len(blocks))
    if not blocks:
        raise PatchError("there is no block", 0)
    return blocks


def format_blocks(blocks: Sequence[SearchReplaceBlock]) -> str:
    """Writes blocks so that `parse_blocks` reads the same. Raises PatchError if that is impossible."""
    lines: list[str] = []
    for index, block in enumerate(blocks):
        old, new = _lines(block.search), _lines(block.replace)
        if any(line.rstrip() in _MARKERS for line in old + new):
            raise PatchError("the text holds a line that would be read as a marker", index)
        hint = [] if block.start_line is None else [f"{_HINT}{block.start_line}"]
        lines += [_SEARCH, *hint, _RULE, *old, _MIDDLE, *new, _REPLACE]
    return "\n".join(lines)


def apply_blocks(text: str, blocks: Sequence[SearchReplaceBlock]) -> str:
    """Returns the text with all blocks applied in order. An empty old text sets an empty field.

    Raises PatchError with the first block that does not apply, or that exceeds MAX_BLOCKS or MAX_SEARCHED_CHARACTERS.
    Nothing is changed then.
    """
    shifts: list[tuple[int, int]] = []
    searched = 0
    for index, block in enumerate(blocks):
        if index == MAX_BLOCKS:
            raise PatchError(f"a patch has at most {MAX_BLOCKS} blocks; split the patch", index)
        if searched and searched + len(text) > MAX_SEARCHED_CHARACTERS:
            raise PatchError("the text is too long for so many blocks; split the patch, or set the whole text", index)
        if not block.search:
            if text:
                raise PatchError("the old text is empty, which only an empty field has", index)
            text = block.replace
            continue
        hint = None if block.start_line is None else _shifted(block.start_line, shifts)
        at, line, checked = _find(text, block.search, hint, index)
        searched += len(text) + checked * _CHARACTERS_PER_PLACE
        text = text[:at] + block.replace + text[at + len(block.search) :]
        added = block.replace.count("\n") - block.search.count("\n")
        if added:
            _note(shifts, line, added)
    return text


def _parse_block(lines: Iterator[str], index: int) -> SearchReplaceBlock:
    start_line: int | None = None
    line = next(lines, None)
    if line is not None and line.startswith(_HINT):
        number = line.removeprefix(_HINT).strip()
        if not (number.isascii() and number.isdigit() and len(number) < 10 and int(number)):
            raise PatchError("start_line is a line number from 1", index)
        start_line = int(number)
        line = next(lines, None)
    if line is None or line.rstrip() != _RULE:
        raise PatchError(f"{_RULE} must come before the old text", index)
    old = _until(_MIDDLE, lines, index)
    new = _until(_REPLACE, lines, index)
    return SearchReplaceBlock("\n".join(old), "\n".join(new), start_line)


def _until(marker: str, lines: Iterator[str], index: int) -> list[str]:
    taken: list[str] = []
    for line in lines:
        if line.rstrip() == marker:
            return taken
        if line.rstrip() in _MARKERS:
            raise PatchError(f"{line.rstrip()} comes where {marker} should be", index)
        taken.append(line)
    raise PatchError(f"{marker} is missing", index)


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _note(shifts: list[tuple[int, int]], line: int, added: int) -> None:
    """Adds an edit at a line to the earlier edits, (current line, lines added) in order. Edits below it move."""
    below = bisect_right(shifts, line, key=_line)
    shifts[below:] = [(earlier + added, by) for earlier, by in shifts[below:]]
    if 0 < below < len(shifts) and shifts[below] < shifts[below - 1]:
        # The edit removed lines at which there were earlier edits.
        shifts.sort()
    insort(shifts, (line, added))


def _line(shift: tuple[int, int]) -> int:
    return shift[0]


def _shifted(line: int, shifts: Sequence[tuple[int, int]]) -> int:
    """Returns the current line of a line of the first text, after edits at (current line, lines added), in order."""
    for edited, added in shifts:
        if line <= edited:
            break
        line += added
        if line < edited:
            line = edited
    return line


def _find(text: str, search: str, hint: int | None, index: int) -> tuple[int, int, int]:
    """Returns the offset and the line (from 1) of the one matching place, and how many places were checked."""
    found: list[tuple[int, int, int]] = []
    checked = 0
    for at, line in _places(text, search):
        checked += 1
        if checked > MAX_SEARCHED_CHARACTERS // _CHARACTERS_PER_PLACE:
            raise PatchError("the old text occurs too often; include more of the text around it", index)
        distance = 0 if hint is None else abs(line - hint)
        if found and distance > found[0][0]:
            break  # Lines only grow, so later places are even farther away.
        if found and distance < found[0][0]:
            found.clear()
        found.append((distance, at, line))
        if hint is None and len(found) > 1:
            break
    if not found:
        raise PatchError("the old text does not occur", index)
    if len(found) > 1:
        reason = "occurs more than once" if hint is None else "occurs more than once at that distance"
        raise PatchError(f"the old text {reason}; name more of it, or its line", index)
    return found[0][1], found[0][2], checked


def _places(text: str, search: str) -> Iterator[tuple[int, int]]:
    """Yields the offset and the line of the places where `search` begins; at most two per line, which suffice to detect
    ambiguity.
    """
    line, counted, in_line = 1, 0, 0
    at = text.find(search)
    while at >= 0:
        passed = text.count("\n", counted, at)
        line, counted = line + passed, at
        in_line = 1 if passed else in_line + 1
        yield at, line
        after = at + 1
        if in_line > 1:
            after = text.find("\n", at)
            if after < 0:
                return
            # The last place of a line is its end, where `search` may begin.
            after = max(after, at + 1)
        at = text.find(search, after)
