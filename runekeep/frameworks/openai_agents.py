"""Memory for the OpenAI Agents SDK.

`MemorySession` appends what was said to a session of Runekeep; `add_memory`, the `call_model_input_filter` of a
RunConfig, puts what is known into the instructions.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from agents.items import TResponseInputItem
from agents.memory.session import Session, SessionABC
from agents.run_config import CallModelData, ModelInputData

from runekeep.frameworks.memory import Memory, SpokenText

__all__ = ["Memory", "MemorySession", "add_memory"]


class MemorySession(SessionABC):
    """A session of the SDK whose texts are appended to the session of the same id too.

    `history` keeps the items of the conversation, because the SDK changes and removes items, and Runekeep's sessions
    only grow. An item that the SDK removes stays in memory.
    """

    def __init__(self, history: Session, memory: Memory) -> None:
        self.session_id = history.session_id
        self.session_settings = history.session_settings
        self._history = history
        self._memory = memory

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        items: list[TResponseInputItem] = await self._history.get_items(limit)
        return items

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        await self._history.add_items(items)
        await self._memory.append(self.session_id, _spoken_texts(items))

    async def pop_item(self) -> TResponseInputItem | None:
        return await self._history.pop_item()

    async def clear_session(self) -> None:
        await self._history.clear_session()


def add_memory(memory: Memory) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """Returns a filter that adds what is known of the user, and relevant to the last words, to the instructions."""

    async def add(data: CallModelData[Any]) -> ModelInputData:
        given = data.model_data
        query = next((one.text for one in reversed([*_spoken_texts(given.input)]) if one.role == "user"), "")
        known = await memory.recall(query)
        instructions = "\n\n".join(text for text in (given.instructions, known) if text)
        return ModelInputData(input=given.input, instructions=instructions or None)

    return add


def _spoken_texts(items: Iterable[TResponseInputItem]) -> Iterator[SpokenText]:
    """Yields what user and assistant said. Tool calls, their results and reasoning are left out."""
    for item in items:
        role = item.get("role")
        if role == "user" or role == "assistant":
            content: Any = item.get("content")
            texts = [content] if isinstance(content, str) else [part.get("text") for part in content or ()]
            yield SpokenText(role, "\n".join(text for text in texts if isinstance(text, str)))
