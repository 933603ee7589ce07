"""What a model reads of the tools before it calls one."""

import json

from mcp import Client

from runekeep.mcp.budget import count_tokens, fit_lines
from runekeep.mcp.callers import ProcessCaller
from runekeep.mcp.server import create_server
from runekeep.mcp.settings import McpSettings
from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2
from tests.support.tokens import count
from tests.unit.runekeep.server_double import ServerDouble

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


async def test_the_messages_of_a_memory_are_read_from_the_first_one_on(server: ServerDouble) -> None:
    sources = [memory_service_pb2.MessageSource(session="talk", message_id=f"m{n}", sequence=n) for n in (902, 900)]
    server.script("GetMemory", memory_service_pb2.GetMemoryResponse(memory=memory_service_pb2.Memory(sources=sources)))
    said = [common_pb2.Message(id=f"m{n}", sequence=n, role=1) for n in (900, 901, 902)]
    server.script("ListMessages", session_service_pb2.ListMessagesResponse(messages=said))
    settings = McpSettings(server=server.address, user="anna")
    async with Client(create_server(settings, ProcessCaller(settings))) as client:
        why = str((await client.call_tool("memory_why", {"uri": "viking://user/memories/profile.md"})).content)
    (asked,) = server.requests("ListMessages")
    assert asked.start_sequence == 900
    assert "message 900" in why and "message 902" in why and "message 901" not in why


def test_lines_fit_the_budget_and_a_long_one_takes_no_more_than_its_share() -> None:
    lines = ["short", "lang " * 400, *("wörter" for _ in range(200))]
    shown = fit_lines(lines, 100, "({} more)").split("\n")
    assert count_tokens("\n".join(shown)) <= 100
    assert shown[0] == "short" and shown[1].startswith("lang lang") and shown[1].endswith("…")
    assert shown[-1] == f"({len(lines) - len(shown) + 1} more)"
    assert fit_lines(lines[:1], 100, "({} more)") == "short"
