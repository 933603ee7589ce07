"""JSON schemas as they are sent: as few tokens as say the same. What a key means is said once, in the prompt."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

_REFERENCE: Final = "#/$defs/"
# What is out of bounds is found when an answer is read; the wire does not enforce it.
_LEFT_OUT: Final = frozenset({"title", "description", "default", "minimum", "maximum", "minLength", "maxLength"})


def lean(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema without titles, descriptions, defaults and bounds. A definition used once stands in its place.

    A choice between plain types becomes a list of types. For schemas whose definitions do not refer to themselves.
    """
    uses = Counter(_references(schema))
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    inlined = {name: definition for name, definition in definitions.items() if uses[name] == 1}
    made: dict[str, Any] = _lean({key: value for key, value in schema.items() if key != "$defs"}, inlined)
    shared = {name: _lean(value, inlined) for name, value in definitions.items() if uses[name] > 1}
    return made | {"$defs": shared} if shared else made


def _lean(node: Any, inlined: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_lean(item, inlined) for item in node]
    if not isinstance(node, Mapping):
        return node
    name = str(node.get("$ref", "")).removeprefix(_REFERENCE)
    if name in inlined:
        return _lean(inlined[name], inlined)
    choices = node.get("anyOf")
    if isinstance(choices, list) and all(choice.keys() == {"type"} for choice in choices):
        types = [choice["type"] for choice in choices]
        return {"type": [type for type in types if type != "integer" or "number" not in types]}
    made = {}
    for key, value in node.items():
        if key == "properties":
            # Names of properties are no keywords: one may well be called `title`.
            made[key] = {name: _lean(held, inlined) for name, held in value.items()}
        elif key not in _LEFT_OUT:
            made[key] = _lean(value, inlined)
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
    """The schema as an example with empty values, for a model that is held to no schema; choices stand as `a|b`."""
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
