"""An agent of Pydantic AI with memory. Needs `runekeep up`, an OpenAI-compatible API in OPENAI_BASE_URL and its key in
OPENAI_API_KEY."""

import asyncio
import os
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

from runekeep import AsyncClient
from runekeep.frameworks.pydantic_ai import Memory, append_run, memory_instructions


async def main(question: str) -> None:
    async with AsyncClient(user="robin") as client:
        memory = Memory(client)
        agent = Agent(
            OpenAIChatModel(os.environ.get("MODEL", "gpt-5-mini")),
            instructions=["You are a gardener.", memory_instructions(memory)],
        )
        result = await agent.run(question)
        await append_run(memory, "garden", result)
        print(result.output)


asyncio.run(main(" ".join(sys.argv[1:])))
