"""What a model reads of the tools before it calls one."""

import json

from mcp import Client

from runekeep.mcp.budget import count_tokens, fit_lines
from runekeep.mcp.callers import ProcessCaller
from runekeep.mcp.server import create_server
from runekeep.mcp.settings import McpSettings
from tests.support.tokens import count

MAX_TOOLS_TOKENS = 1400
"""All tools with their schemas, as a client hands them to a model."""
MAX_DESCRIPTION_TOKENS = 30
NAMES = {
    "memory_recall", "memory_search", "memory_read", "memory_list", "memory_remember", "memory_correct",
    "memory_forget", "memory_history", "memory_why", "session_commit", "task_status", "rollback_preview",
}  # fmt: skip


async def test_tools_are_described_in_few_tokens() -> None:
    settings = McpSettings(server="127.0.0.1:1", user="anna", destructive=True)
    async with Client(create_server(settings, ProcessCaller(settings))) as client:
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == NAMES
    described = {tool.name: count(tool.description or "") for tool in tools}
    assert all(0 < tokens <= MAX_DESCRIPTION_TOKENS for tokens in described.values()), described
    wire = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    assert count(json.dumps(wire, separators=(",", ":"))) <= MAX_TOOLS_TOKENS


def test_lines_fit_the_budget_and_a_long_one_takes_no_more_than_its_share() -> None:
    lines = ["short", "lang " * 400, *("wörter" for _ in range(200))]
    shown = fit_lines(lines, 100, "({} more)").split("\n")
    assert count_tokens("\n".join(shown)) <= 100
    assert shown[0] == "short" and shown[1].startswith("lang lang") and shown[1].endswith("…")
    assert shown[-1] == f"({len(lines) - len(shown) + 1} more)"
    assert fit_lines(lines[:1], 100, "({} more)") == "short"
