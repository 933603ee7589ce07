"""Reads JSON of other systems. Few of them promise a form, so a value of another type counts as missing."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf import json_format, struct_pb2

from runekeep.injection.texts import clean_text
from runekeep.transcripts.batches import TranscriptError

MAX_OUTPUT_CHARS: Final = 4_000
"""Maximum length of the input, and of the result, of a tool call. Files and logs that a tool read are not worth
remembering."""


def parse_json(text: str) -> Any:
    """Raises TranscriptError, with a text such as `not JSON: Expecting value at column 5`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise TranscriptError(f"not JSON: {error.msg} at {line}column {error.colno}") from error
    except RecursionError as error:
        raise TranscriptError("not JSON that can be read: it is nested too deeply") from error
    except ValueError as error:
        raise TranscriptError("not JSON that can be read: a number has too many digits") from error


def parse_lines(lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """Yields the values of JSON lines with the numbers of their lines, from 1. Raises TranscriptError where a line is
    not JSON."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                value = parse_json(line)
            except TranscriptError as error:
                raise TranscriptError(f"line {number} is {error}") from error
            yield number, value


def parse_valid_lines(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the objects among JSON lines with their positions, from 0. Other lines are skipped: an agent may be
    writing the last one."""
    for position, line in enumerate(lines):
        try:
            value = parse_json(line)
        except TranscriptError:
            continue
        if isinstance(value, dict):
            yield position, value


def parse_time(value: Any) -> datetime | None:
    """Returns the time in UTC, or None if the value is not a time, has no zone, or is before the year 1 in UTC."""
    try:
        found = datetime.fromisoformat(value)
        return found.astimezone(UTC) if found.tzinfo else None
    except (TypeError, ValueError, OverflowError):
        return None


def find_first_text(entry: Any, *fields: str) -> str:
    """Returns the first of the fields that holds a text; empty if none does."""
    values = [entry.get(field) for field in fields] if isinstance(entry, dict) else []
    return next((value for value in values if isinstance(value, str) and value), "")


def list_objects(value: Any) -> list[Mapping[str, Any]]:
    """Returns the objects of a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def join_block_texts(content: Any, *kinds: str) -> str:
    """Returns the texts of the blocks of these types, joined by newlines."""
    texts = [block.get("text") for block in list_objects(content) if block.get("type") in kinds]
    return "\n".join(text for text in texts if isinstance(text, str)).strip()


def find_items(document: Any, keys: Sequence[str]) -> list[Any]:
    """Returns the items of an API response: the response itself if it is a list, else the list under the first of
    `keys` that is present. Returns an empty list if there is none."""
    if isinstance(document, dict):
        document = next((document[key] for key in keys if key in document), None)
    return document if isinstance(document, list) else []


def tool_input(given: Any) -> dict[str, Any]:
    """Returns the input of a tool call in a form that can be sent. An input that is too long, or that protobuf cannot
    hold, is replaced by the start of its JSON text."""
    shown: dict[str, Any] = given if isinstance(given, dict) else {}
    written = json.dumps(shown, ensure_ascii=False)
    clean = clean_text(written)
    if clean != written:
        shown = json.loads(clean)
    if len(clean) > MAX_OUTPUT_CHARS or not _is_struct(shown):
        shown = {"shortened": clean[:MAX_OUTPUT_CHARS]}
    return shown


def _is_struct(value: dict[str, Any]) -> bool:
    """Returns whether the wire form can hold it: it has limits for numbers and for nesting."""
    try:
        json_format.ParseDict(value, struct_pb2.Struct())
    except (OverflowError, json_format.ParseError):
        return False
    return True
