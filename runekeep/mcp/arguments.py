"""Describes each wrong argument of a tool call in one sentence, with the values that the tool accepts."""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError

MAX_SHOWN_CHARS: Final = 40
"""Maximum length, as JSON, of a wrong value that an error quotes. For a longer value the error gives only the type."""
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


def describe_unknown_arguments(schema: Schema, arguments: Mapping[str, Any]) -> list[str]:
    """Returns one sentence for each unknown argument, followed by one for each missing argument. Returns an empty list
    if no argument is unknown."""
    known = schema.get("properties", {})
    unknown = [_describe_unknown(name, name, known) for name in arguments if name not in known]
    missing = [name for name in schema.get("required", ()) if name not in arguments]
    return unknown and [*unknown, *(_describe_missing(name, _describe_schema(known[name], schema)) for name in missing)]


def describe_invalid_arguments(schema: Schema, error: ValidationError) -> list[str]:
    """Returns one sentence for each argument that does not fit the schema of the tool."""
    # A value that may have several types has an error for each.
    return list(dict.fromkeys(_describe_error(schema, one) for one in error.errors(include_url=False)))


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Returns a question with the name that was probably meant, after a space; empty if none is similar."""
    near = get_close_matches(name, list(known), n=1)
    return f" Did you mean `{near[0]}`?" if near else ""


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
    return f"Argument `{path}` is {_describe_value(error['input'])}: expected {_describe_schema(subschema, schema)}."


def _describe_missing(path: str, expected: str) -> str:
    return f"Argument `{path}` is missing: expected {expected}."


def _describe_unknown(path: str, name: str, known: Iterable[str]) -> str:
    return (
        f"Unknown argument `{path}`. Accepted arguments: {', '.join(_quote_names(known))}.{suggest_name(name, known)}"
    )


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


def _quote_names(names: Iterable[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def _join_names(names: Iterable[str]) -> str:
    quoted = _quote_names(names)
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)


def _describe_value(value: Any) -> str:
    written = json.dumps(value, ensure_ascii=False, default=str)
    return written if len(written) <= MAX_SHOWN_CHARS else _VALUE_TYPES.get(type(value), "a number that is too long")
