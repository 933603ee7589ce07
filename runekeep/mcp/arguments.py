"""Says in one sentence each what is wrong with the arguments of a tool call, and what the tool accepts."""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError

MAX_SHOWN_CHARS: Final = 40
"""Of a wrong value. A longer one is named by its type."""
_TYPES: Final = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "array": "a list",
    "object": "an object",
}
"""Words for the types of a JSON schema."""
_GIVEN: Final[Mapping[type, str]] = {str: "text", list: "a list", dict: "an object"}

Schema = Mapping[str, Any]


def unknown_arguments(schema: Schema, arguments: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each argument that is not in the schema of the tool, then for each that is missing; none
    if all are known."""
    known = schema.get("properties", {})
    unknown = [_unknown(name, name, known) for name in arguments if name not in known]
    missing = [name for name in schema.get("required", ()) if name not in arguments]
    return unknown and [*unknown, *(_missing(name, _expected(known[name], schema)) for name in missing)]


def invalid_arguments(schema: Schema, error: ValidationError) -> list[str]:
    """Returns a sentence for each argument that does not fit the schema of the tool."""
    # A value that may have several types has an error for each.
    return list(dict.fromkeys(_sentence(schema, one) for one in error.errors(include_url=False)))


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns a question with the name that was probably meant, after a space; empty if none is similar."""
    near = get_close_matches(name, list(known), n=1)
    return f" Did you mean `{near[0]}`?" if near else ""


def _sentence(schema: Schema, error: Mapping[str, Any]) -> str:
    place, here = "", schema
    for step in error["loc"]:
        if isinstance(step, int):
            place, here = f"{place}[{step}]", here["items"]
        elif step in here.get("properties", {}):
            place, here = _below(place, step), here["properties"][step]
        elif error["type"] == "extra_forbidden":
            return _unknown(_below(place, step), step, here["properties"])
        elif isinstance(here.get("additionalProperties"), dict):
            place, here = _below(place, step), here["additionalProperties"]
        else:
            # The step names one of several types of the value.
            break
        here = _resolved(here, schema)
    if error["type"] == "missing":
        return _missing(place, _expected(here, schema))
    return f"Argument `{place}` is {_shown(error['input'])}: expected {_expected(here, schema)}."


def _missing(place: str, expected: str) -> str:
    return f"Argument `{place}` is missing: expected {expected}."


def _unknown(place: str, name: str, known: Iterable[str]) -> str:
    return f"There is no argument `{place}`: expected {_listed(known)}.{suggestion(name, known)}"


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _resolved(schema: Schema, root: Schema) -> Schema:
    reference = str(schema.get("$ref", ""))
    found: Schema = root["$defs"][reference.rpartition("/")[2]] if reference else schema
    return found


def _expected(schema: Schema, root: Schema) -> str:
    """Returns what a schema accepts, in words."""
    schema = _resolved(schema, root)
    if "enum" in schema:
        return f"one of {', '.join(map(json.dumps, schema['enum']))}"
    if "anyOf" in schema:
        kinds = [_expected(one, root) for one in schema["anyOf"]]
        # An integer is a number.
        kinds = [kind for kind in kinds if kind != "an integer" or "a number" not in kinds]
        return f"{', '.join(kinds[:-1])} or {kinds[-1]}"
    words = _TYPES.get(schema.get("type", ""), "another value")
    if "items" in schema:
        return f"{words} whose items are each {_expected(schema['items'], root)}"
    if "properties" in schema:
        return f"{words} with {_listed(schema['properties'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"{words} whose values are {_expected(schema['additionalProperties'], root)}"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None:
        words += f" of at least {low}" if high is None else f" from {low} to {high}"
    return words


def _listed(names: Iterable[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)


def _shown(value: Any) -> str:
    written = json.dumps(value, ensure_ascii=False, default=str)
    return written if len(written) <= MAX_SHOWN_CHARS else _GIVEN.get(type(value), "a number that is too long")
