"""Tiny questions that tell whether a server does what it is asked, for there are servers that do not and do not say so.

A format is asked for that no model would choose for such an answer; a tool is named that the question calls for. An
answer that tells nothing, such as one that was cut off, counts against the server: without the feature all works too.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from extractor.anthropic_engine.reply import Reply

FORMAT_QUESTION: Final = "Say hello to me in plain words."
TOOL_QUESTION: Final = "Look the word `tea` up with your tool."
IMAGE_QUESTION: Final = "Which colour is this?"

MOST_TOKENS: Final = 512
"""Enough for a model that thinks aloud first."""

_NUMBER: Final = "number"
FORMAT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {_NUMBER: {"type": "integer"}},
    "required": [_NUMBER],
    "additionalProperties": False,
}
TOOL: Final[Mapping[str, Any]] = {
    "name": "look_up",
    "description": "Looks a word up.",
    "input_schema": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
    "strict": True,
}

# A PNG of 64 times 64 pixels in one grey.
IMAGE: Final[Mapping[str, str]] = {
    "type": "base64",
    "media_type": "image/png",
    "data": "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAAKUlEQVR42u3MQREAAAwCIKMb3RD77SAA6VEEAoFAIBAIBAKBQCAQ"
    "fA8G320AeXC6efoAAAAASUVORK5CYII=",
}


def keeps_format(reply: Reply) -> bool:
    """Whether the answer to FORMAT_QUESTION has the form of FORMAT_SCHEMA."""
    try:
        value = json.loads(reply.text)
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(value.get(_NUMBER), int)


def calls_tool(reply: Reply) -> bool:
    """Whether TOOL was called to answer TOOL_QUESTION."""
    return any(use.name == TOOL["name"] for use in reply.tool_uses)
