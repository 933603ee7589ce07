"""What the Messages API demands of a request, as far as the double checks it.

Limits of structured output are those that the provider documents: objects are closed, numeric and length bounds are
not known, optional properties and unions are rationed over all strict schemas of a request.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_OPTIONAL = 24
MAX_UNIONS = 16
_UNKNOWN_KEYWORDS = frozenset(
    {"minimum", "maximum", "minLength", "maxLength", "maxItems", "multipleOf", "oneOf", "default", "prefixItems"}
)

Complaint = tuple[int, str, str]
"""Status, error type, message."""


def complaint(
    path: str, headers: Mapping[str, str], body: Mapping[str, Any], *, structured_output: bool, tools: bool
) -> Complaint | None:
    """What is wrong with a request, first thing first; None when it is fine."""
    if path not in ("/v1/messages", "/v1/messages/count_tokens"):
        return 404, "not_found_error", "Not found"
    if not headers.get("x-api-key") and not headers.get("authorization", "").startswith("Bearer "):
        return 401, "authentication_error", "x-api-key header is required"
    if not headers.get("anthropic-version"):
        return 400, "invalid_request_error", "anthropic-version: header is required"
    text = next(_wrong(path, body, structured_output, tools), None)
    return None if text is None else (400, "invalid_request_error", text)


def _wrong(path: str, body: Mapping[str, Any], structured_output: bool, tools: bool) -> Iterator[str]:
    if not isinstance(body.get("model"), str):
        yield "model: Field required"
    counted = path.endswith("count_tokens")
    if not counted and not (isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0):
        yield "max_tokens: Input should be greater than 0"
    for gone in ("temperature", "top_p", "top_k"):
        if gone in body:
            yield f"{gone}: Extra inputs are not permitted"
    if "output_config" in body and not structured_output:
        yield "output_config: Extra inputs are not permitted"
    if "tools" in body and not tools:
        yield "tools: Extra inputs are not permitted"
    if "tool_choice" in body and "tools" not in body:
        yield "tool_choice: only allowed while providing tools"
    yield from _wrong_messages(body.get("messages"))
    yield from _wrong_schemas(body)


def _wrong_messages(messages: object) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    pending: set[str] = set()
    for number, message in enumerate(messages):
        expected = "user" if number % 2 == 0 else "assistant"
        if message.get("role") != expected:
            yield f'messages.{number}: roles must alternate between "user" and "assistant"'
        blocks = message.get("content")
        blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        if not blocks:
            yield f"messages.{number}: content must not be empty"
            return
        if any(block.get("type") == "text" and not block.get("text", "").strip() for block in blocks):
            yield f"messages.{number}: text content blocks must be non-empty"
        if any(block.get("type") == "tool_use" and not isinstance(block.get("input"), Mapping) for block in blocks):
            yield f"messages.{number}: input of a tool_use must be an object"
        results = {block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"}
        if results != pending:
            yield f"messages.{number}: each tool_use must have one tool_result in the next message"
        first_other = next((at for at, block in enumerate(blocks) if block.get("type") != "tool_result"), len(blocks))
        if any(block.get("type") == "tool_result" for block in blocks[first_other:]):
            yield f"messages.{number}: tool_result blocks come first"
        pending = {block["id"] for block in blocks if block.get("type") == "tool_use"}
    if messages[-1].get("role") != "user":
        yield "messages: the last one must be of the user; prefilling is not supported"


def _wrong_schemas(body: Mapping[str, Any]) -> Iterator[str]:
    strict: list[tuple[str, Mapping[str, Any]]] = []
    for tool in body.get("tools", ()):
        if not isinstance(tool.get("name"), str) or not isinstance(tool.get("input_schema"), Mapping):
            yield "tools: name and input_schema are required"
        elif tool.get("strict"):
            strict.append((f"tools.{tool['name']}", tool["input_schema"]))
    form = (body.get("output_config") or {}).get("format")
    if form is not None:
        if form.get("type") != "json_schema":
            yield "output_config.format.type: Input should be 'json_schema'"
        strict.append(("output_config.format.schema", form.get("schema") or {}))
    optional = unions = 0
    for name, schema in strict:
        for node in _nodes(schema):
            unknown = _UNKNOWN_KEYWORDS & node.keys()
            if unknown:
                yield f"{name}: keyword not supported: {min(unknown)}"
            if node.get("type") == "object":
                if node.get("additionalProperties") is not False:
                    yield f"{name}: additionalProperties must be false"
                optional += len(set(node.get("properties", ())) - set(node.get("required", ())))
            unions += "anyOf" in node or isinstance(node.get("type"), list)
    if optional > MAX_OPTIONAL:
        yield f"schemas: too many optional parameters: {optional}"
    if unions > MAX_UNIONS:
        yield f"schemas: too many parameters with union types: {unions}"


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema and all schemas within it."""
    yield schema
    inner: list[Any] = [*schema.get("$defs", {}).values(), *schema.get("properties", {}).values()]
    inner += [schema["items"]] if "items" in schema else []
    lists: Sequence[Any] = schema.get("anyOf", ())
    for node in (*inner, *lists):
        yield from _nodes(node)
