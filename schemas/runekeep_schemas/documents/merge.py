"""Merges new values into a memory, by the merge rule of each field.

`update` applies an edit, `merge_write` merges an extractor's whole memory into an existing one, and `replace_all` is
the full replacement by a direct caller. Fields are plain mappings of name to value. Results hold every field of the
type, and a view (`abstract`, `overview`) if it was given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from runekeep_schemas.documents.patch import PatchError, SearchReplaceBlock, apply_blocks
from runekeep_schemas.documents.render import CONTENT, render_content, says_nothing
from runekeep_schemas.memory_types.coerce import FieldError, coerce_value, name_text
from runekeep_schemas.memory_types.model import Field, FieldValue, MemoryType

Fields = dict[str, FieldValue]

# In scripts without spaces between words, each letter counts as a word.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff"
# Letters and digits of scripts with spaces between words.
_SPACED_LETTERS = re.compile(rf"[^\W_{_UNSPACED}]+")
_WORD = re.compile(rf"[{_UNSPACED}]|{_SPACED_LETTERS.pattern}")
KEPT_WITH_SUMMARY = 0.5
"""Minimum share of a text, by its words, that must stay for its summary to stay."""


class MergeError(ValueError):
    """A change that a field refuses. `field` is empty if the memory as a whole refuses it.

    `block_index`: the block, from 0, that did not apply, if a patch caused the error.
    """

    def __init__(self, field: str, reason: str, block_index: int | None = None) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason
        self.block_index = block_index


@dataclass(frozen=True, slots=True)
class Set:
    """A whole new value, in any form that the field's type accepts."""

    value: object


@dataclass(frozen=True, slots=True)
class Patch:
    """SEARCH/REPLACE blocks on a text."""

    blocks: tuple[SearchReplaceBlock, ...]


@dataclass(frozen=True, slots=True)
class Add:
    """A number to add."""

    delta: int | float


@dataclass(frozen=True, slots=True)
class Rename:
    """A new value of a field that names the memory, in any form that the field's type accepts."""

    value: object


FieldChange = Set | Patch | Add | Rename


def coerce_fields(type: MemoryType, raw: Mapping[str, object]) -> Fields:
    """Returns the given fields with values of their types; None counts as not given.

    Raises FieldError for an unknown or derived field, an unsuitable value, and a missing or empty field that names the
    file.
    """
    fields: Fields = {}
    for name, value in raw.items():
        field = _field(type, name)
        if value is not None:
            fields[name] = _coerced(type, field, value)
    for name in type.key_fields:
        if not type.field(name).optional and _is_empty(fields.get(name, "")):
            raise FieldError(name, "names the memory and must not be empty")
    return fields


def create(type: MemoryType, fields: Mapping[str, object]) -> Fields:
    """Returns a new memory: the given values, then initial values, zero for counters, empty for the rest.

    Raises FieldError as `coerce_fields` does, MergeError if a text breaks a rule of its field.
    """
    given = coerce_fields(type, fields)
    memory: Fields = {field.name: field.default for field in type.fields}
    for name, value in given.items():
        if not _is_empty(value):
            memory[name] = value
    for name, value in memory.items():
        _check_headings(type.field(name), value)
    return memory


def update(type: MemoryType, current: Mapping[str, FieldValue], changes: Mapping[str, FieldChange]) -> Fields:
    """Returns the memory after an edit; either every change applies or none. `current` is not modified.

    Raises MergeError for a change that its field refuses, FieldError for an unsuitable value.
    """
    memory = _complete(type, current)
    for name, change in changes.items():
        field = _field(type, name)
        before = memory.get(name, field.zero)
        after = _changed(type, field, before, change)
        _check_text(field, before, after)
        if name in memory or not _is_empty(after):
            memory[name] = after
    return memory


def merge_write(type: MemoryType, current: Mapping[str, FieldValue], fields: Mapping[str, object]) -> Fields:
    """Merges an extractor's whole memory into the existing one of the same name.

    Counters are added, empty values clear nothing, immutable fields keep their first value. Raises MergeError for a
    counter that would shrink, for a text that breaks a rule of its field, and for an add_only type, unless the same
    memory is written again.
    """
    given = coerce_fields(type, fields)
    memory = _complete(type, current)
    if not type.mergeable:
        if all(memory.get(name, "") == value for name, value in given.items() if not _is_empty(value)):
            return memory
        reason = f"{type.name} are only added, and another one has this name: give the new one its own"
        raise MergeError("", reason)
    for name, value in given.items():
        field = type.field(name)
        before = memory.get(name, field.zero)
        if field.merge_rule.keeps_first and not _is_empty(before):
            continue
        after = _changed(type, field, before, Set(value))
        check_growth(field, before, after)
        _check_text(field, before, after)
        if name in memory or not _is_empty(after):
            memory[name] = after
    return memory


def replace_all(
    type: MemoryType, fields: Mapping[str, object], current: Mapping[str, FieldValue] | None = None
) -> Fields:
    """Returns the memory as a direct caller writes it: the given values, including empty texts; all others are empty.

    With `current`, the memory to replace, immutable fields keep their values. Raises FieldError as `create` does,
    MergeError for another value of an immutable field and for a text that breaks a rule of its field.
    """
    memory: Fields = {field.name: field.zero for field in type.fields}
    for name, value in coerce_fields(type, fields).items():
        if name in memory or not _is_empty(value):
            memory[name] = value
    for name, value in memory.items():
        _check_headings(type.field(name), value)
    if current is None:
        return memory
    for field in type.fields:
        if not field.merge_rule.keeps_first:
            continue
        before, after = current.get(field.name, field.zero), memory[field.name]
        if _is_empty(after):
            memory[field.name] = before
        elif after != before and (field.name in type.key_fields or not _is_empty(before)):
            raise MergeError(field.name, "keeps its first value")
    return memory


def _field(type: MemoryType, name: str) -> Field:
    if type.is_derived(name):
        raise FieldError(name, "is computed when it is shown and never written")
    if not type.has_field(name) and name == CONTENT and type.content_template is not None:
        raise FieldError(name, f"is made from the other fields by the template of {type.name}")
    if not type.has_field(name):
        raise FieldError(name, f"is no field of {type.name}")
    return type.field(name)


def _coerced(type: MemoryType, field: Field, value: object) -> FieldValue:
    coerced = coerce_value(field, value)
    if isinstance(coerced, str) and field.name in type.key_fields:
        return name_text(coerced)
    return coerced


def _complete(type: MemoryType, current: Mapping[str, FieldValue]) -> Fields:
    """Returns the stored fields, with defaults for fields that the type gained later."""
    memory: Fields = {field.name: field.zero for field in type.fields}
    memory.update({name: value for name, value in current.items() if type.has_field(name)})
    return memory


def check_growth(field: Field, before: FieldValue, after: FieldValue) -> None:
    """Raises MergeError if an extractor made a counter smaller."""
    if field.merge_rule.adds and _number(after) < _number(before):
        raise MergeError(field.name, "a counter of an extractor never shrinks")


def _changed(type: MemoryType, field: Field, before: FieldValue, change: FieldChange) -> FieldValue:
    rule = field.merge_rule
    match change:
        case Patch(blocks):
            return _patched(field, before, blocks)
        case Add(delta):
            if not rule.adds:
                raise MergeError(field.name, "takes no number to add")
            return _combined(field, before, coerce_value(field, delta))
        case Rename(value):
            if field.name not in type.key_fields:
                raise MergeError(field.name, "does not name the memory")
            after = _coerced(type, field, value)
            if _is_empty(after) and not field.optional:
                raise MergeError(field.name, "names the memory and must not be empty")
            return after
        case Set(value):
            after = field.zero if value is None else _coerced(type, field, value)
    if value is None or _is_empty(after):
        return before
    if rule.keeps_first and not _is_empty(before) and after != before:
        raise MergeError(field.name, "keeps its first value")
    if field.name in type.key_fields and after != before:
        # An optional part of the name that is still empty: setting it moves the memory.
        raise MergeError(field.name, "names the memory: rename it")
    return _combined(field, before, after)


def _patched(field: Field, before: FieldValue, blocks: tuple[SearchReplaceBlock, ...]) -> FieldValue:
    if not field.merge_rule.takes_blocks or not isinstance(before, str):
        raise MergeError(field.name, "takes no patch")
    try:
        return coerce_value(field, apply_blocks(before, blocks))
    except PatchError as error:
        raise MergeError(field.name, str(error), error.block_index) from error


def _combined(field: Field, before: FieldValue, given: FieldValue) -> FieldValue:
    if field.merge_rule.combine is None:
        return given
    combined: FieldValue = field.merge_rule.combine(before, given)
    # Sums may leave the range of the type.
    return coerce_value(field, combined)


def _number(value: FieldValue) -> int | float:
    if isinstance(value, str):
        raise TypeError("only numbers add up; the registry lets no other field have a rule that adds")
    return value


def is_blank(type: MemoryType, content: str) -> bool:
    """Returns whether a content is empty, or equals the initial content of its type, such as a profile's heading.
    Returns False if the initial content has words of its own.
    """
    initial = render_content(type, create(type, {}))
    return says_nothing(initial) and content.strip() in ("", initial.strip())


def _is_empty(value: FieldValue) -> bool:
    return isinstance(value, str) and not value.strip()


def _check_text(field: Field, before: FieldValue, after: FieldValue) -> None:
    if before == after:
        return
    _check_headings(field, after)
    if field.keep_ratio is None or before == field.initial:
        return
    share = kept(str(before), str(after))
    if share < field.keep_ratio and len(split_words(str(before))) >= field.keep_from:
        reason = (
            f"would keep {share:.0%} of its text where {field.keep_ratio:.0%} must stay;"
            " add to it, or edit single lines by patch"
        )
        raise MergeError(field.name, reason)


def _check_headings(field: Field, value: FieldValue) -> None:
    if not field.required_headings or _is_empty(value):
        return
    lines = {line.rstrip() for line in str(value).split("\n")}
    missing = [heading for heading in field.required_headings if heading not in lines]
    if missing:
        raise MergeError(field.name, f"lacks the heading {', '.join(missing)}, which must be a line of its own")


def split_words(text: str) -> list[str]:
    """Returns the words of a text. In scripts without spaces between words, each sign is a word."""
    return _WORD.findall(text)


def still_holds(summary: str, before: str, after: str) -> bool:
    """Returns whether a summary of the text `before` may stay for `after`: half of the text is still there, none of the
    summary's words was removed from it, and none of its numbers occurs less often. Leading zeros do not count: 03 is 3.
    """
    if kept(before, after) < KEPT_WITH_SUMMARY:
        return False
    after = after.casefold()
    old, new = map(_plain_words, _without_common_ends(before.casefold(), after))
    fewer = (Counter(old) - Counter(new)).keys() & set(_plain_words(summary.casefold()))
    return not any(any(map(str.isdigit, word)) for word in fewer) and fewer <= set(_plain_words(after))


def _plain_words(text: str) -> list[str]:
    return [word.lstrip("0") if word.isdecimal() else word for word in split_words(text)]


def kept(before: str, after: str) -> float:
    """Returns the share of the words of `before`, weighted by length, that `after` still has.

    Words are compared regardless of their position, so that sorting or moving lines loses nothing.
    """
    old, new = map(split_words, _without_common_ends(before, after))
    lost = sum(len(word) * count for word, count in (Counter(old) - Counter(new)).items())
    if not lost:
        return 1.0
    total = sum(map(len, split_words(before)))
    return (total - lost) / total


def _without_common_ends(before: str, after: str) -> tuple[str, str]:
    """Returns both texts without their common start and end, cut between words. Most edits change a small part of a
    long text, so that little is left to compare."""
    head = _common_start_length(before, after)
    before, after = before[head:], after[head:]
    tail = _common_start_length(before[::-1], after[::-1])
    return before[: len(before) - tail], after[: len(after) - tail]


def _common_start_length(one: str, other: str) -> int:
    """Returns the length of the common start of two texts. It ends at the border of a word."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    split_word = _SPACED_LETTERS.match(one[:low][::-1])
    return low - (split_word.end() if split_word else 0)
