"""Describes each wrong argument of a tool call in one sentence, with the values that the tool accepts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError

from runekeep.injection.texts import clean_text

MAX_SHOWN_CHARS: Final = 40
"""Maximum length, as JSON, of a wrong value that an error quotes. For a longer value the error gives only the type."""
MAX_NAME_CHARS: Final = 80
"""Maximum length of a name, or of the path to a value, that an error quotes."""
MAX_ERRORS: Final = 10
"""Maximum number of wrong arguments that an error names."""
MAX_VALUES: Final = 10_000
"""Maximum number of values in the arguments of a call: validating more would keep other callers waiting."""
_TYPES: Final = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "array": "a list",
    "object": "an object",
}
"""Words for the types of a JSON schema."""
_VALUE_TYPES: Final[Mapping[type, str]] = {str: "text", list: "a list", dict: "an object"}

Schema = Mapping[str, Any]


def has_too_many_values(schema: Schema, arguments: Mapping[str, Any]) -> bool:
    """Returns whether the arguments hold more than MAX_VALUES values."""
    known = schema.get("properties", {})
    # The SDK parses a text that is given for a list or an object as JSON.
    count = sum(
        value.count(",")
        for name, value in arguments.items()
        if isinstance(value, str) and known.get(name, {}).get("type") != "string"
    )
    unseen: list[Any] = [arguments]
    while unseen and count <= MAX_VALUES:
        value = unseen.pop()
        if isinstance(value, Mapping | list):
            count += len(value)
            unseen.extend(value.values() if isinstance(value, Mapping) else value)
    return count > MAX_VALUES


def describe_unknown_arguments(schema: Schema, arguments: Mapping[str, Any]) -> str:
    """Returns a line for each unknown argument, followed by one for each missing argument. Returns an empty text if no
    argument is unknown."""
    known = schema.get("properties", {})
    unknown = [name for name in arguments if name not in known]
    lines = [_describe_unknown(name, name, known) for name in unknown[:MAX_ERRORS]]
    if unknown:
        missing = [name for name in schema.get("required", ()) if name not in arguments]
        lines += [_describe_missing(name, _describe_schema(known[name], schema)) for name in missing]
    return _join_lines(lines, len(unknown))


def describe_invalid_arguments(schema: Schema, error: ValidationError) -> str:
    """Returns a line for each argument that does not fit the schema of the tool."""
    errors = error.errors(include_url=False)
    return _join_lines([_describe_error(schema, one) for one in errors[:MAX_ERRORS]], len(errors))


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Returns a question with the name that was probably meant, after a space; empty if none is similar."""
    near = get_close_matches(name[:MAX_NAME_CHARS], list(known), n=1)
    return f" Did you mean `{near[0]}`?" if near else ""


def quote_name(name: str) -> str:
    """Returns a name in backticks, of a long one the beginning, as a text that can be sent."""
    return f"`{clean_text(name if len(name) <= MAX_NAME_CHARS else name[:MAX_NAME_CHARS] + '…')}`"


def _join_lines(lines: Sequence[str], errors: int) -> str:
    more = [f"{errors - MAX_ERRORS} more errors."] if errors > MAX_ERRORS else []
    # A value that may have several types has an error for each.
    return "\n".join([*dict.fromkeys(lines), *more])


def _describe_error(schema: Schema, error: Mapping[str, Any]) -> str:
    path, subschema = "", schema
    for step in error["loc"]:
        if isinstance(step, int):
            path, subschema = f"{path}[{step}]", subschema["items"]
        elif step in subschema.get("properties", {}):
            path, subschema = _join_path(path, step), subschema["properties"][step]
        elif error["type"] == "extra_forbidden":
            return _describe_unknown(_join_path(path, step), step, subschema["properties"])
        elif isinstance(subschema.get("additionalProperties"), dict):
            path, subschema = _join_path(path, step), subschema["additionalProperties"]
        else:
            # The step names one of several types of the value.
            break
        subschema = _resolve_reference(subschema, schema)
    if error["type"] == "missing":
        return _describe_missing(path, _describe_schema(subschema, schema))
    expected = _describe_schema(subschema, schema)
    return f"Argument {quote_name(path)} is {_describe_value(error['input'])}: expected {expected}."


def _describe_missing(path: str, expected: str) -> str:
    return f"Argument {quote_name(path)} is missing: expected {expected}."


def _describe_unknown(path: str, name: str, known: Iterable[str]) -> str:
    accepted = ", ".join(map(quote_name, known))
    return f"Unknown argument {quote_name(path)}. Accepted arguments: {accepted}.{suggest_name(name, known)}"


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _resolve_reference(schema: Schema, root: Schema) -> Schema:
    reference = str(schema.get("$ref", ""))
    found: Schema = root["$defs"][reference.rpartition("/")[2]] if reference else schema
    return found


def _describe_schema(schema: Schema, root: Schema) -> str:
    """Returns what a schema accepts, in words."""
    schema = _resolve_reference(schema, root)
    if "enum" in schema:
        return f"one of {', '.join(map(json.dumps, schema['enum']))}"
    if "anyOf" in schema:
        kinds = [_describe_schema(one, root) for one in schema["anyOf"]]
        # An integer is a number.
        kinds = [kind for kind in kinds if kind != "an integer" or "a number" not in kinds]
        return f"{', '.join(kinds[:-1])} or {kinds[-1]}"
    words = _TYPES.get(schema.get("type", ""), "another value")
    if "items" in schema:
        return f"{words}; each item must be {_describe_schema(schema['items'], root)}"
    if "properties" in schema:
        return f"{words} with {_join_names(schema['properties'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"{words}; each value must be {_describe_schema(schema['additionalProperties'], root)}"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None:
        words += f" of at least {low}" if high is None else f" from {low} to {high}"
    return words


def _join_names(names: Iterable[str]) -> str:
    quoted = list(map(quote_name, names))
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)


def _describe_value(value: Any) -> str:
    written = clean_text(json.dumps(value, ensure_ascii=False, default=str))
    return written if len(written) <= MAX_SHOWN_CHARS else _VALUE_TYPES.get(type(value), "a number that is too long")
