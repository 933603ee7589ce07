"""A LlamaIndex agent with memory. Needs `runekeep up`, an OpenAI-compatible API in OPENAI_BASE_URL and its key in
OPENAI_API_KEY."""

import asyncio
import os
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import Memory as LlamaMemory
from llama_index.core.storage.chat_store.sql import MessageStatus
from llama_index.llms.openai import OpenAI

from runekeep import AsyncClient
from runekeep.frameworks.llama_index import Memory, RunekeepMemoryBlock


async def main(question: str) -> None:
    async with AsyncClient(user="robin") as client:
        block = RunekeepMemoryBlock(memory=Memory(client), session_id="garden")
        memory = LlamaMemory.from_defaults(session_id="garden", memory_blocks=[block])
        llm = OpenAI(os.environ.get("MODEL", "gpt-5-mini"), api_base=os.environ.get("OPENAI_BASE_URL"))
        agent = FunctionAgent(llm=llm, system_prompt="You are a gardener.")
        result = await agent.run(question, memory=memory)
        # The block gets what leaves the short-term memory. At the end of a conversation, give it the rest.
        await block.aput(await memory.aget_all(MessageStatus.ACTIVE))
        print(result)


asyncio.run(main(" ".join(sys.argv[1:])))
