"""Tokens of a request of the Messages API, by a tokenizer that needs no network.

The tokenizer is the one that Anthropic published for its models of 2023, as the development package carries it. Newer
models have others, whose counts come from the provider alone; this one measures the same text the same way everywhere.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anthropic_tokenizer

TOKENIZER = "anthropic-tokenizer 0.1.0 (Claude's published vocabulary of 65,000 tokens)"


@dataclass(frozen=True, slots=True)
class RequestTokens:
    """`prompt`: system texts; `tools`: their definitions; `schema`: of the answer; `messages`: everything else.

    JSON is counted as it goes over the wire, without blanks.
    """

    prompt: int
    tools: int
    schema: int
    messages: int

    @property
    def static(self) -> int:
        """What is the same in every call of its kind."""
        return self.prompt + self.tools + self.schema

    @property
    def total(self) -> int:
        return self.static + self.messages


def count(text: str) -> int:
    """Tokens of a text."""
    return int(anthropic_tokenizer.count_tokens(text))


def request_tokens(body: Mapping[str, Any]) -> RequestTokens:
    """Of the body of a request to `/v1/messages`. Images have no text and count nothing."""
    form = (body.get("output_config") or {}).get("format") or {}
    said = [block for message in body["messages"] for block in _blocks(message["content"])]
    return RequestTokens(
        prompt=sum(count(block["text"]) for block in _blocks(body.get("system", ""))),
        tools=count(_wire(body["tools"])) if body.get("tools") else 0,
        schema=count(_wire(form["schema"])) if "schema" in form else 0,
        messages=sum(count(_said(block)) for block in said),
    )


def _blocks(content: object) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content) if isinstance(content, list) else []


def _said(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block["text"])
        case "tool_result":
            return "".join(_said(inner) for inner in _blocks(block.get("content", "")))
        case "tool_use":
            return _wire({"name": block["name"], "input": block["input"]})
    return ""


def _wire(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
