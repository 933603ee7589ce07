"""The two forms of requests: where the user's words are, where memory goes, and what the model answered.

The stable part of memory goes into the system prompt, where it keeps the provider's prompt cache valid; what is
relevant to the query goes before the user's last words.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from runekeep.injection.block import wrap_memory

Body = dict[str, Any]


class Dialect(ABC):
    """One form of requests and answers. Methods return nothing for what they cannot read, and never raise."""

    path: ClassVar[str]
    """How the paths of its requests end."""

    def find_user_message(self, body: Body) -> int | None:
        """Returns the index of the last message in which the user wrote text; None if there is none. During a tool call
        later messages follow it."""
        messages = body.get("messages")
        if not isinstance(messages, list):
            return None
        for place in range(len(messages) - 1, -1, -1):
            message = messages[place]
            if isinstance(message, dict) and message.get("role") == "user" and text_of(message.get("content")):
                return place
        return None

    def with_memory(self, body: Body, place: int, stable: str, relevant: str) -> Body:
        """Returns a copy of the request with memory. `place`: of the user's last message. The copy shares all that
        does not change: a body may have many megabytes."""
        changed: Body = {**body, "messages": list(body["messages"])}
        if relevant:
            message = changed["messages"][place] = dict(body["messages"][place])
            block = wrap_memory(relevant)
            content = message["content"]
            if isinstance(content, str):
                message["content"] = f"{block}\n\n{content}"
            else:
                first = next((n for n, part in enumerate(content) if _is_text(part)), 0)
                message["content"] = [*content[:first], {"type": "text", "text": block}, *content[first:]]
        if stable:
            self._add_to_system(changed, wrap_memory(stable))
        return changed

    @abstractmethod
    def _add_to_system(self, body: Body, block: str) -> None:
        """Changes `body` and its list of messages, but none of the messages themselves."""

    @abstractmethod
    def answer(self, body: Mapping[str, Any]) -> str:
        """Returns the text of a whole answer."""

    @abstractmethod
    def piece(self, event: Mapping[str, Any]) -> str:
        """Returns the text of one event of a stream."""

    @abstractmethod
    def ends(self, data: str) -> bool:
        """Whether the data of an event say that the stream is complete."""


class ChatCompletions(Dialect):
    """OpenAI's Chat Completions."""

    path = "/chat/completions"

    def _add_to_system(self, body: Body, block: str) -> None:
        messages = body["messages"]
        places = [place for place, message in enumerate(messages) if _role(message) in ("system", "developer")]
        if not places:
            messages.insert(0, {"role": "system", "content": block})
            return
        # Behind the caller's first instructions, the longest part that never changes. Not every model takes a second
        # system message.
        place = max((place for number, place in enumerate(places) if place == number), default=places[-1])
        content = messages[place].get("content")
        if isinstance(content, list):
            content = [*content, {"type": "text", "text": block}]
        else:
            content = f"{content}\n\n{block}" if isinstance(content, str) and content else block
        messages[place] = {**messages[place], "content": content}

    def answer(self, body: Mapping[str, Any]) -> str:
        return text_of(_part(_part(body.get("choices"), 0), "message", "content"))

    def piece(self, event: Mapping[str, Any]) -> str:
        choice = _part(event.get("choices"), 0)
        return text_of(_part(choice, "delta", "content")) if _part(choice, "index") in (0, None) else ""

    def ends(self, data: str) -> bool:
        return data == "[DONE]"


class Messages(Dialect):
    """Anthropic's Messages."""

    path = "/messages"

    def _add_to_system(self, body: Body, block: str) -> None:
        system = body.get("system")
        if isinstance(system, str) and system:
            body["system"] = f"{system}\n\n{block}"
        else:
            given = system if isinstance(system, list) else []
            body["system"] = [*given, {"type": "text", "text": block}]

    def answer(self, body: Mapping[str, Any]) -> str:
        return text_of(body.get("content"))

    def piece(self, event: Mapping[str, Any]) -> str:
        found = _part(event, "delta", "text") if event.get("type") == "content_block_delta" else ""
        return found if isinstance(found, str) else ""

    def ends(self, data: str) -> bool:
        return '"message_stop"' in data


DIALECTS: tuple[Dialect, ...] = (ChatCompletions(), Messages())


def dialect_of(method: str, path: str) -> Dialect | None:
    """Returns the form of a request; None for those that have no conversation."""
    if method != "POST":
        return None
    return next((dialect for dialect in DIALECTS if path.endswith(dialect.path)), None)


def json_object(text: str | bytes) -> Body | None:
    """Returns the object that a text in JSON is; None for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def text_of(content: Any) -> str:
    """Returns the text of a content: a string, or a list of parts."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if _is_text(part)).strip()
    return content if isinstance(content, str) else ""


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _part(value: Any, *path: str | int) -> Any:
    """Returns what lies at a path; None if there is nothing."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and len(value) > step:
            value = value[step]
        else:
            return None
    return value
