"""How a memory takes new values, by the `merge_op` of each field.

| merge_op | a value | blocks | a number to add |
|---|---|---|---|
| patch | replaces, unless it is empty | edit the text | refused |
| replace | replaces, unless it is empty | refused | refused |
| sum | is added | refused | is added |
| avg | refused: a derived value is never stored | refused | refused |
| immutable | sets a field that is empty; another value is refused | refused | refused |

`update` is an edit, `merge_write` an extractor's whole memory that meets an existing one, and
`replace_all` the full replacement by a direct caller. Fields are plain mappings of name to value;
what is returned holds every field of the type, and a view (`abstract`, `overview`) that was given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from schemas.coerce import FieldError, check_range, coerce_value, name_text, to_float32
from schemas.patch import PatchError, SearchReplaceBlock, apply_blocks
from schemas.render import CONTENT, render_content, says_nothing
from schemas.types import Field, FieldValue, MemoryType, MergeOp

Fields = dict[str, FieldValue]

# A letter of a script written without spaces between words counts as a word of its own.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")


class MergeError(ValueError):
    """A change that a field does not take. `field` is empty when the memory as a whole refuses.

    `block_index` is the block, from 0, that did not apply, when a patch is to blame.
    """

    def __init__(self, field: str, reason: str, block_index: int | None = None) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason
        self.block_index = block_index


@dataclass(frozen=True, slots=True)
class Set:
    """A whole new value, of any form that the field's type takes."""

    value: object


@dataclass(frozen=True, slots=True)
class Patch:
    """SEARCH/REPLACE blocks on a text."""

    blocks: tuple[SearchReplaceBlock, ...]


@dataclass(frozen=True, slots=True)
class Add:
    """A number to add."""

    delta: int | float


FieldChange = Set | Patch | Add


def coerce_fields(type: MemoryType, raw: Mapping[str, object]) -> Fields:
    """The given fields with values of their types; what is None counts as not given.

    Raises FieldError for an unknown or derived field, a value that does not fit, and a field that
    names the file but is missing or empty.
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
    """A new memory: what was given, initial values, zero for counters, empty for the rest.

    Raises FieldError as `coerce_fields` does, MergeError where a text breaks a rule of its field.
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
    """The memory after an edit; every change applies or none. `current` is left as it is.

    Raises MergeError for a change its field does not take, FieldError for a value that does not fit.
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
    """An extractor's whole memory merged into the existing one of the same name.

    Counters add up, what is empty wipes nothing, immutable fields keep their first value. Raises
    MergeError for a counter that would shrink, for a text that breaks a rule of its field, and for
    a type that is add_only, unless the same memory is written again.
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
        if field.merge_op is MergeOp.IMMUTABLE and not _is_empty(before):
            continue
        if field.merge_op is MergeOp.SUM and _number(value) < 0:
            raise MergeError(name, "a counter of an extractor never shrinks")
        after = _changed(type, field, before, Set(value))
        _check_text(field, before, after)
        if name in memory or not _is_empty(after):
            memory[name] = after
    return memory


def replace_all(
    type: MemoryType, fields: Mapping[str, object], current: Mapping[str, FieldValue] | None = None
) -> Fields:
    """The memory as a direct caller writes it: what was given, empty texts too; all else is empty.

    With `current`, the memory that is replaced, its immutable fields keep their values. Raises
    FieldError as `create` does, MergeError for another value of an immutable field and for a text
    that breaks a rule of its field.
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
        if field.merge_op is not MergeOp.IMMUTABLE:
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
    """The stored fields, and defaults for fields that the type has got since."""
    memory: Fields = {field.name: field.zero for field in type.fields}
    memory.update({name: value for name, value in current.items() if type.has_field(name)})
    return memory


def _changed(type: MemoryType, field: Field, before: FieldValue, change: FieldChange) -> FieldValue:
    match change:
        case Patch(blocks):
            return _patched(field, before, blocks)
        case Add(delta):
            if field.merge_op is not MergeOp.SUM:
                raise MergeError(field.name, "takes no number to add")
            return _added(field, before, coerce_value(field, delta))
        case Set(value):
            after = field.zero if value is None else _coerced(type, field, value)
    if field.merge_op is MergeOp.SUM:
        return before if value is None else _added(field, before, after)
    if value is None or _is_empty(after):
        return before
    if field.merge_op is MergeOp.IMMUTABLE and not _is_empty(before) and after != before:
        raise MergeError(field.name, "keeps its first value")
    if field.name in type.key_fields and after != before:
        # An optional part of the name that is still empty: setting it would move the memory.
        raise MergeError(field.name, "names the memory and cannot be set later")
    return after


def _patched(field: Field, before: FieldValue, blocks: tuple[SearchReplaceBlock, ...]) -> FieldValue:
    if field.merge_op is not MergeOp.PATCH or not isinstance(before, str):
        raise MergeError(field.name, "takes no patch")
    try:
        return coerce_value(field, apply_blocks(before, blocks))
    except PatchError as error:
        raise MergeError(field.name, str(error), error.block_index) from error


def _added(field: Field, before: FieldValue, delta: FieldValue) -> FieldValue:
    total = _number(before) + _number(delta)
    if isinstance(total, int):
        return check_range(field, total)
    return to_float32(field, total)


def _number(value: FieldValue) -> int | float:
    if isinstance(value, str):
        raise TypeError("only numbers add up; the registry lets no other field have merge_op sum")
    return value


def is_blank(type: MemoryType, content: str) -> bool:
    """Returns whether a content is empty or no more than a type with initial values begins with, as a profile's
    heading. False where that says something by itself."""
    initial = render_content(type, create(type, {}))
    return says_nothing(initial) and content.strip() in ("", initial.strip())


def _is_empty(value: FieldValue) -> bool:
    return isinstance(value, str) and not value.strip()


def _check_text(field: Field, before: FieldValue, after: FieldValue) -> None:
    if before == after:
        return
    _check_headings(field, after)
    if field.keep_ratio is None or before == field.initial or len(_WORD.findall(str(before))) < field.keep_from:
        return
    share = kept(str(before), str(after))
    if share < field.keep_ratio:
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


def kept(before: str, after: str) -> float:
    """The share of the words of `before`, weighed by length, that `after` still has.

    Words and not places are compared, so that sorting or moving lines drops nothing.
    """
    old, new = Counter(_WORD.findall(before)), Counter(_WORD.findall(after))
    total = sum(len(word) * count for word, count in old.items())
    if not total:
        return 1.0
    return sum(len(word) * count for word, count in (old & new).items()) / total
