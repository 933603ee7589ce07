"""Tiny requests that test whether a server really supports a feature: some servers ignore one silently.

The format probe asks for a format that no model would choose by itself, the probe of bounds asks for more than they
allow, and the tool probe asks a question that needs the tool. The other probes only have to be answered. An
inconclusive answer, such as one that was cut off, counts against the server: everything works without the feature, too.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from runekeep_extractor.prompts.reads import Tool
from runekeep_extractor.providers.interface import (
    BOUNDS,
    JSON_MODE,
    MAX_TOKENS,
    STREAMING,
    STRUCTURED_OUTPUT,
    TOOLS,
    Image,
    Question,
    Reply,
    UserTurn,
)

FORMAT_QUESTION: Final = "Say hello to me in plain words."
BOUNDS_QUESTION: Final = "Count from one to twenty in words."
JSON_QUESTION: Final = "Say hello to me in JSON."
TOOL_QUESTION: Final = "Look the word `tea` up with your tool."
PLAIN_QUESTION: Final = "Say hello to me."
IMAGE_QUESTION: Final = "Which colour is this?"
QUESTIONS: Final = frozenset(
    {FORMAT_QUESTION, BOUNDS_QUESTION, JSON_QUESTION, TOOL_QUESTION, PLAIN_QUESTION, IMAGE_QUESTION}
)

ANSWER_TOKENS: Final = 512
THINKING_TOKENS: Final = 4096
"""Enough for a model that first thinks, where ANSWER_TOKENS were not."""
_TINY_TOKENS: Final = 16

_NUMBER: Final = "number"
FORMAT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {_NUMBER: {"type": "integer"}},
    "required": [_NUMBER],
    "additionalProperties": False,
}
_WORDS: Final = "words"
_MAX_WORDS: Final = 2
_MAX_LETTERS: Final = 6
BOUNDED_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        _WORDS: {"type": "array", "items": {"type": "string", "maxLength": _MAX_LETTERS}, "maxItems": _MAX_WORDS}
    },
    "required": [_WORDS],
    "additionalProperties": False,
}
TOOL: Final = Tool(
    "look_up",
    "Looks a word up.",
    {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
    strict=True,
)

# A PNG of 64 x 64 pixels in one grey.
IMAGE: Final = Image(
    media_type="image/png",
    data="iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAAKUlEQVR42u3MQREAAAwCIKMb3RD77SAA6VEEAoFAIBAIBAKBQCAQ"
    "fA8G320AeXC6efoAAAAASUVORK5CYII=",
)


@dataclass(frozen=True, slots=True)
class Probe:
    """`question` still lacks its model. `shows`: whether an answer shows that the server has the feature."""

    question: Question
    shows: Callable[[Reply], bool]


def probe_of(feature: str, model: str) -> Probe:
    """Returns the probe of a feature by name."""
    probe = _PROBES[feature]
    return replace(probe, question=replace(probe.question, model=model, probes=feature))


def image_question(model: str) -> Question:
    """Returns a question with a neutral image."""
    return _asking(IMAGE, IMAGE_QUESTION, model=model)


def tiny_question(model: str) -> Question:
    """Returns a question that any server answers at once, for whether it answers at all."""
    return replace(_asking(PLAIN_QUESTION, model=model), max_tokens=_TINY_TOKENS)


def _asking(*parts: str | Image, model: str = "", **options: Any) -> Question:
    return Question(model, [UserTurn([*parts])], ANSWER_TOKENS, **options)


def _keeps_format(reply: Reply) -> bool:
    try:
        value = json.loads(reply.text)
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(value.get(_NUMBER), int)


def _keeps_bounds(reply: Reply) -> bool:
    try:
        value = json.loads(reply.text)
    except ValueError:
        return False
    words = value.get(_WORDS) if isinstance(value, dict) else None
    if not isinstance(words, list) or len(words) > _MAX_WORDS:
        return False
    return all(isinstance(word, str) and len(word) <= _MAX_LETTERS for word in words)


def _calls_tool(reply: Reply) -> bool:
    return any(use.name == TOOL.name for use in reply.tool_uses)


def _answers(_: Reply) -> bool:
    return True


_PROBES: Final[Mapping[str, Probe]] = {
    STRUCTURED_OUTPUT: Probe(_asking(FORMAT_QUESTION, schema=FORMAT_SCHEMA), _keeps_format),
    BOUNDS: Probe(_asking(BOUNDS_QUESTION, schema=BOUNDED_SCHEMA, bounded=True), _keeps_bounds),
    JSON_MODE: Probe(_asking(JSON_QUESTION, schema=FORMAT_SCHEMA, without=frozenset({STRUCTURED_OUTPUT})), _answers),
    TOOLS: Probe(_asking(TOOL_QUESTION, tools=(TOOL,), tool_choice="required"), _calls_tool),
    STREAMING: Probe(_asking(PLAIN_QUESTION), _answers),
    MAX_TOKENS: Probe(_asking(PLAIN_QUESTION), _answers),
}
