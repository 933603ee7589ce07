"""An agent of the OpenAI Agents SDK with memory. Needs `runekeep up`, an OpenAI-compatible API in OPENAI_BASE_URL and
its key in OPENAI_API_KEY."""

import asyncio
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, SQLiteSession
from openai import AsyncOpenAI

from runekeep import AsyncClient
from runekeep.frameworks.openai_agents import Memory, MemorySession, add_memory


async def main(question: str) -> None:
    model = OpenAIChatCompletionsModel(os.environ.get("MODEL", "gpt-5-mini"), AsyncOpenAI())
    agent = Agent(name="gardener", instructions="You are a gardener.", model=model)
    async with AsyncClient(user="robin") as client:
        memory = Memory(client)
        result = await Runner.run(
            agent,
            question,
            session=MemorySession(SQLiteSession("garden"), memory),
            run_config=RunConfig(call_model_input_filter=add_memory(memory), tracing_disabled=True),
        )
        print(result.final_output)


asyncio.run(main(" ".join(sys.argv[1:])))
