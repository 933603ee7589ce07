"""Memory for LlamaIndex: a block for its `Memory`."""

from collections.abc import Iterator, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock
from pydantic import Field

from runekeep.frameworks.memory import Memory, SpokenText

__all__ = ["Memory", "RunekeepMemoryBlock"]


class RunekeepMemoryBlock(BaseMemoryBlock[str]):
    """Shows what is known of the user and relevant to the last words. Gets the messages that leave the short-term
    memory, and appends them to a session; `aput` appends others."""

    name: str = "runekeep"
    memory: Memory = Field(exclude=True)
    session_id: str

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        said = [*_spoken_texts(messages or ())]
        return await self.memory.recall(next((one.text for one in reversed(said) if one.role == "user"), ""))

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await self.memory.append(self.session_id, _spoken_texts(messages))


def _spoken_texts(messages: Sequence[ChatMessage]) -> Iterator[SpokenText]:
    """Yields what user and assistant said. Tool calls and their results are left out."""
    for message in messages:
        if message.role == MessageRole.USER:
            yield SpokenText("user", message.content or "")
        elif message.role == MessageRole.ASSISTANT:
            yield SpokenText("assistant", message.content or "")
