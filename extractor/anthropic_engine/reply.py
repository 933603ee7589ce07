"""What came back of a call of the model, taken apart. Nothing about it is believed: many servers resemble the API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from extractor.anthropic_engine.failures import not_the_api
from extractor.anthropic_engine.recording import canonical

if TYPE_CHECKING:
    from anthropic.types import Message, Usage


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A read that the model asks for."""

    id: str
    name: str
    input: object


@dataclass(frozen=True, slots=True)
class Reply:
    """`content` goes back to the server unchanged when the dialogue goes on.

    `usage`: as the server counted, and where it did not count, at most that much.
    """

    text: str
    tool_uses: tuple[ToolUse, ...]
    content: list[Any]
    stop_reason: str
    refusal_category: str | None
    model: str
    usage: "Usage"


def read_reply(message: "Message", asked_model: str, most_input: int) -> Reply:
    """Raises JobFailed when it is no answer of the Messages API. `most_input`: a bound for the tokens of the prompt."""
    # The SDK does not check what it gets: a server that only resembles the Messages API gives any object.
    blocks = getattr(message, "content", None)
    if not isinstance(blocks, list):
        raise not_the_api()
    content = [_plain(block) for block in blocks]
    known = [block for block in content if isinstance(block, Mapping)]
    texts = [block["text"] for block in known if block.get("type") == "text" and isinstance(block.get("text"), str)]
    uses = [
        ToolUse(str(block.get("id")), str(block.get("name")), block.get("input"))
        for block in known
        if block.get("type") == "tool_use"
    ]
    details = message.stop_details
    return Reply(
        text="".join(texts),
        tool_uses=tuple(uses),
        content=content,
        stop_reason=str(message.stop_reason or ""),
        refusal_category=getattr(details, "category", None),
        model=str(message.model or asked_model),
        usage=_counted(message, most_input, content),
    )


def _plain(block: Any) -> Any:
    """A block as the JSON that it came as."""
    return block.to_dict(mode="json", warnings=False) if hasattr(block, "to_dict") else block


def _counted(message: "Message", most_input: int, content: list[Any]) -> "Usage":
    from anthropic.types import Usage

    written, read, fresh, out = (
        _count(message, name)
        for name in ("cache_creation_input_tokens", "cache_read_input_tokens", "input_tokens", "output_tokens")
    )
    # No prompt is without tokens, and no answer that holds something.
    if not written + read + fresh:
        fresh = most_input
    if not out and content:
        out = len(canonical({"content": content}))
    return Usage(
        input_tokens=fresh, cache_creation_input_tokens=written, cache_read_input_tokens=read, output_tokens=out
    )


def _count(message: "Message", name: str) -> int:
    value = getattr(message.usage, name, None)
    return value if isinstance(value, int) and value > 0 else 0
