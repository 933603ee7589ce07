"""Renders a memory: its content (L2), its file, its summary views, and its text for the search index.

In template mode, a line whose placeholders are all empty is omitted, and so is a paragraph of the template if none of
its placeholders is left: a label never appears without a value. Numbers are never empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from runekeep_schemas.documents.uris import parse
from runekeep_schemas.memory_types.model import (
    ABSTRACT,
    VIEW_FIELDS,
    DerivedFormat,
    FieldType,
    FieldValue,
    MemoryType,
)
from runekeep_schemas.memory_types.templates import placeholders, substitute

CONTENT: Final = "content"
ABSTRACT_CHARACTERS: Final = 256
OVERVIEW_CHARACTERS: Final = 2000
INDEX_CHARACTERS: Final = 8000

_COMMENT_START: Final = "<!-- MEMORY_FIELDS"
_COMMENT_END: Final = "-->"
_BETWEEN: Final = "\n\n"
_PARAGRAPHS = re.compile(r"\n(?:[ \t]*\n)+")
# These characters are escaped inside the comment: the brackets could close the comment or open another one, the others
# are line ends to some readers. All occur only inside JSON strings.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>\u0085\u2028\u2029"}
_LIST_MARK = re.compile(r"(?:[-*+>]|[0-9]{1,3}[.)])\s+")
_SENTENCE_END = re.compile(r"[。！？]|[!?](?=\s)|(?<=\w\w\w)\.(?=\s+[^a-z])")


class FileViewError(ValueError):
    """A file of a template type has no readable comment at its end."""


def derived_values(type: MemoryType, fields: Mapping[str, FieldValue]) -> dict[str, str]:
    """Returns the derived values as text, by name; `when_zero` if there is nothing to divide by."""
    values = {}
    for one in type.derived:
        of, per, unknown = (fields.get(name, 0) if name else 0 for name in (one.of, one.per, one.unknown))
        if isinstance(of, str) or isinstance(per, str) or isinstance(unknown, str):
            raise TypeError(f"{type.name}.{one.name} is computed from numbers")
        known = per - unknown
        is_known = known > 0 and of != 0 if one.unknown else known != 0
        values[one.name] = _formatted(one.format, of / known) if is_known else one.when_zero
    return values


def render_content(type: MemoryType, fields: Mapping[str, FieldValue]) -> str:
    """Returns the content of a memory: the field of that name, or the template filled with the fields."""
    if type.content_template is None:
        return str(fields.get(CONTENT, ""))
    texts = {field.name: _shown(fields.get(field.name, field.default)) for field in type.fields}
    texts |= derived_values(type, fields)
    kept = []
    for paragraph in _PARAGRAPHS.split(_without_double_percent(type)):
        lines = [line for line in paragraph.split("\n") if _has_value(line, texts)]
        if not placeholders(paragraph) or any(map(placeholders, lines)):
            kept.append("\n".join(substitute(line, texts.__getitem__) for line in lines))
    return _BETWEEN.join(kept)


def file_view(type: MemoryType, fields: Mapping[str, FieldValue]) -> str:
    """Returns the file of a memory: its content, and in template mode the fields in a comment at the end.

    No text inside a field can close the comment or imitate a later one.
    """
    content = render_content(type, fields)
    if type.content_template is None:
        return content
    names = [field.name for field in type.fields] + [name for name in VIEW_FIELDS if name in fields]
    stored = {name: fields.get(name, type.field(name).default) for name in names}
    encoded = json.dumps(stored, ensure_ascii=False, indent=2).translate(_ESCAPES)
    return f"{content}{_BETWEEN}{_COMMENT_START}\n{encoded}\n{_COMMENT_END}"


def parse_file_view(type: MemoryType, text: str) -> tuple[str, dict[str, Any] | None]:
    """Returns the content and raw fields of a file; None for a simple type, whose whole file is content.

    Only the last comment counts. Raises FileViewError if a file of a template type has no readable comment.
    """
    if type.content_template is None:
        return text, None
    content, start, comment = text.rpartition(_BETWEEN + _COMMENT_START)
    encoded, end, rest = comment.partition(_COMMENT_END)
    if not start or not end or rest.strip():
        raise FileViewError("the file does not end in a MEMORY_FIELDS comment")
    try:
        fields = json.loads(encoded)
    except ValueError as error:
        raise FileViewError(f"the MEMORY_FIELDS comment holds no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FileViewError("the MEMORY_FIELDS comment holds no JSON object")
    return content, fields


def default_abstract(type: MemoryType, fields: Mapping[str, FieldValue], content: str) -> str:
    """Returns the L0 of a memory without a given one: one line of at most ABSTRACT_CHARACTERS.

    It is the first sentence of the content, in template mode of the first text that has one. The name of the memory
    comes first, unless the sentence contains it or no field names the memory.
    """
    texts = [content] if type.content_template is None else _texts(type, fields)
    sentence = next(filter(None, map(_first_sentence, texts)), "")
    name = _name(type, fields)
    if sentence and (not type.key_fields or name.casefold() in sentence.casefold()):
        return bounded(sentence, ABSTRACT_CHARACTERS)
    return bounded(f"{name}: {sentence}" if sentence else name, ABSTRACT_CHARACTERS)


def _texts(type: MemoryType, fields: Mapping[str, FieldValue]) -> list[str]:
    """Returns the texts of the fields that do not name the memory."""
    names = (one.name for one in type.fields if one.type is FieldType.STRING and one.name not in type.key_fields)
    return [str(fields.get(name, "")) for name in names]


def default_overview(content: str) -> str:
    """Returns the L1 of a memory without a given one: its content, or its first lines and the headings after them."""
    if len(content) <= OVERVIEW_CHARACTERS:
        return content
    lines = content.split("\n")
    kept, room = 0, OVERVIEW_CHARACTERS * 3 // 4
    while kept < len(lines) and len(lines[kept]) < room:
        room -= len(lines[kept]) + 1
        kept += 1
    if not kept:
        return bounded(content, OVERVIEW_CHARACTERS)
    headings = [f"- {line.lstrip('#').strip()}" for line in lines[kept:] if line.startswith("#")]
    return bounded("\n".join([*lines[:kept], "…", *headings]), OVERVIEW_CHARACTERS)


def says_nothing(content: str) -> bool:
    """Returns whether a content has no words except in headings."""
    return not any(any(map(str.isalnum, line)) for line in content.split("\n") if not line.lstrip().startswith("#"))


def index_text(type: MemoryType, fields: Mapping[str, FieldValue], uri: str) -> str:
    """Returns the text to embed for search, at most INDEX_CHARACTERS: name, abstract, content.

    The peer whom the memory is about comes first, because the content seldom names the peer. Raises UriError if `uri`
    is not canonical.
    """
    content = render_content(type, fields)
    head = " ".join(filter(None, (parse(uri).peer, _name(type, fields))))
    abstract = str(fields.get(ABSTRACT.name, ""))
    parts = [head, "" if abstract in content else abstract, content]
    return "\n".join(filter(None, parts))[:INDEX_CHARACTERS]


def _without_double_percent(type: MemoryType) -> str:
    """Returns the template without percent signs after percent values, which include their own: `{success_rate}%` would
    otherwise show `92.0%%`, or `unknown%`.
    """
    template = (type.content_template or "").strip("\n")
    for one in type.derived:
        if one.format is DerivedFormat.PERCENT:
            template = template.replace(f"{{{one.name}}}%", f"{{{one.name}}}")
    return template


def _name(type: MemoryType, fields: Mapping[str, FieldValue]) -> str:
    """Returns the values that name a memory, or its type's name if no field names it."""
    values = (one_line(str(fields.get(name, ""))) for name in type.key_fields)
    return " ".join(filter(None, values)) or type.name


def _first_sentence(text: str) -> str:
    """Returns the first sentence of the first line of prose; a heading only if there is no prose."""
    heading = ""
    for line in map(one_line, text.split("\n")):
        if line.startswith("#"):
            heading = heading or line.lstrip("#").strip()
        elif any(map(str.isalnum, line)) and not line.startswith("```"):
            mark = _LIST_MARK.match(line)
            line = line[mark.end() :] if mark else line
            end = _SENTENCE_END.search(line)
            return line[: end.end()] if end else line
    return heading


def one_line(text: str) -> str:
    """Returns the text with each run of white space replaced by one space."""
    return " ".join(text.split())


def bounded(text: str, room: int) -> str:
    """Returns the text, cut to `room` characters with an ellipsis if it is longer."""
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def _has_value(line: str, texts: Mapping[str, str]) -> bool:
    names = placeholders(line)
    return not names or any(texts[name].strip() for name in names)


def _shown(value: FieldValue) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.7g}"  # As many digits as a 32-bit float holds.
    return str(value)


def _formatted(format: DerivedFormat, value: float) -> str:
    match format:
        case DerivedFormat.PERCENT:
            return f"{value:.1%}"
        case DerivedFormat.DURATION_MS:
            return f"{value:.0f}ms" if abs(value) < 999.5 else f"{value / 1000:.1f}s"
        case DerivedFormat.NUMBER:
            return f"{value:.1f}".removesuffix(".0")
