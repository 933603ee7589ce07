"""An agent of the Claude Agent SDK with memory. Needs `runekeep up`, and what Claude Code needs to answer, such as
ANTHROPIC_API_KEY."""

import asyncio
import sys

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, TextBlock

from runekeep import AsyncClient
from runekeep.frameworks.claude_agent_sdk import Memory, memory_hooks


async def main(question: str) -> None:
    async with AsyncClient(user="robin") as client:
        hooks = memory_hooks(Memory(client), "garden")
        options = ClaudeAgentOptions(system_prompt="You are a gardener.", hooks=hooks)
        async with ClaudeSDKClient(options) as agent:
            await agent.query(question)
            async for message in agent.receive_response():
                if isinstance(message, AssistantMessage):
                    print("".join(block.text for block in message.content if isinstance(block, TextBlock)))


asyncio.run(main(" ".join(sys.argv[1:])))
