"""An agent of the Claude Agent SDK with memory. Needs `runekeep up`, and Claude Code with what it needs to answer, such
as ANTHROPIC_API_KEY. CLAUDE_CLI names its program, if the SDK shall not look for it."""

import asyncio
import os
import sys

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, TextBlock

from runekeep import AsyncClient
from runekeep.frameworks.claude_agent_sdk import Memory, memory_hooks


async def main(question: str) -> None:
    async with AsyncClient(user="robin") as client:
        options = ClaudeAgentOptions(
            system_prompt="You are a gardener.",
            hooks=memory_hooks(Memory(client), "garden"),
            cli_path=os.environ.get("CLAUDE_CLI"),
        )
        async with ClaudeSDKClient(options) as agent:
            await agent.query(question)
            async for message in agent.receive_response():
                if isinstance(message, AssistantMessage):
                    print("".join(block.text for block in message.content if isinstance(block, TextBlock)))


asyncio.run(main(" ".join(sys.argv[1:])))
