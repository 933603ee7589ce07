"""Minifies JSON schemas for requests to as few tokens as possible. The prompt explains the meaning of each key once."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

_REFERENCE: Final = "#/$defs/"
_NOTES: Final = frozenset({"title", "description", "default"})
# Bounds are checked when an answer is read; most servers enforce none, and some refuse a schema that has any.
_BOUNDS: Final = frozenset({"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"})


def lean(schema: Mapping[str, Any], *, bounded: bool = False) -> dict[str, Any]:
    """Returns the same schema without titles, descriptions, defaults and, unless it stays `bounded`, bounds. A
    definition that is used once is inlined.

    A choice between plain types becomes a list of types. The definitions must not be recursive.
    """
    left_out = _NOTES if bounded else _NOTES | _BOUNDS
    uses = Counter(_references(schema))
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    inlined = {name: definition for name, definition in definitions.items() if uses[name] == 1}
    made: dict[str, Any] = _lean({key: value for key, value in schema.items() if key != "$defs"}, inlined, left_out)
    shared = {name: _lean(value, inlined, left_out) for name, value in definitions.items() if uses[name] > 1}
    return made | {"$defs": shared} if shared else made


def lists_last(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of an object with its lists behind its other properties. A model that keeps to the order of a
    schema then loses entries of lists when its answer is cut off, and nothing else.
    """
    properties = sorted(schema["properties"].items(), key=lambda one: one[1].get("type") == "array")
    return {**schema, "properties": dict(properties), "required": [name for name, _ in properties]}


def _lean(node: Any, inlined: Mapping[str, Any], left_out: Collection[str]) -> Any:
    if isinstance(node, list):
        return [_lean(item, inlined, left_out) for item in node]
    if not isinstance(node, Mapping):
        return node
    name = str(node.get("$ref", "")).removeprefix(_REFERENCE)
    if name in inlined:
        return _lean(inlined[name], inlined, left_out)
    choices = node.get("anyOf")
    if isinstance(choices, list) and all(choice.keys() == {"type"} for choice in choices):
        types = [choice["type"] for choice in choices]
        return {"type": [type for type in types if type != "integer" or "number" not in types]}
    made = {}
    for key, value in node.items():
        if key == "properties":
            # Names of properties are not keywords: a property may be called `title`.
            made[key] = {name: _lean(held, inlined, left_out) for name, held in value.items()}
        elif key not in left_out:
            made[key] = _lean(value, inlined, left_out)
    return made


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(_REFERENCE)
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def skeleton(schema: Mapping[str, Any]) -> str:
    """Returns the schema as an example with empty values, for a server without structured output. Choices are written
    as `a|b`.
    """
    return json.dumps(_example(schema, schema.get("$defs", {})), ensure_ascii=False, separators=(",", ":"))


def _example(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    if "$ref" in node:
        return _example(definitions[node["$ref"].removeprefix(_REFERENCE)], definitions)
    if "anyOf" in node:
        return _example(node["anyOf"][0], definitions)
    if "enum" in node:
        return "|".join(map(str, node["enum"]))
    type = node.get("type")
    match type[0] if isinstance(type, list) else type:
        case "object":
            return {name: _example(held, definitions) for name, held in node.get("properties", {}).items()}
        case "array":
            return [_example(node["items"], definitions)]
        case "integer" | "number":
            return 0
        case "boolean":
            return False
        case "null":
            return None
    return ""
