"""Memory for Pydantic AI: instructions that recall, and a function that appends a run."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.run import AgentRunResult

from runekeep.frameworks.memory import Memory, SpokenText

__all__ = ["Memory", "append_run", "memory_instructions"]


def memory_instructions(memory: Memory) -> Callable[[RunContext[Any]], Awaitable[str]]:
    """Returns instructions for `Agent(instructions=...)`: what is known of the user and relevant to the prompt."""

    async def instructions(context: RunContext[Any]) -> str:
        return await memory.recall(_text(context.prompt))

    return instructions


async def append_run(memory: Memory, session_id: str, result: AgentRunResult[Any]) -> None:
    """Appends what user and assistant said in a run. Tool calls and their results are left out."""
    await memory.append(session_id, _spoken_texts(result.new_messages()))


def _spoken_texts(messages: Sequence[ModelMessage]) -> Iterator[SpokenText]:
    for message in messages:
        if isinstance(message, ModelRequest):
            for asked in message.parts:
                if isinstance(asked, UserPromptPart):
                    yield SpokenText("user", _text(asked.content))
        elif isinstance(message, ModelResponse):
            yield SpokenText(
                "assistant", "\n".join(part.content for part in message.parts if isinstance(part, TextPart))
            )


def _text(prompt: object) -> str:
    """Returns the texts of a prompt, which may have images between them."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(part for part in prompt if isinstance(part, str)) if isinstance(prompt, Sequence) else ""
