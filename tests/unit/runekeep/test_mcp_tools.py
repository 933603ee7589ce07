"""What a model reads of the tools before it calls one."""

import json
from typing import Any

import pytest
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


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("memory_recall", {}, ["Argument `query` is missing: expected text."]),
        (
            "memory_search",
            {"query": 3, "limit": 500, "kind": "all"},
            [
                "Argument `query` is 3: expected text.",
                "Argument `limit` is 500: expected an integer from 1 to 100.",
                'Argument `kind` is "all": expected one of "", "memory", "passage".',
            ],
        ),
        ("memory_search", {"query": ["x" * 50]}, ["Argument `query` is a list: expected text."]),
        (
            "memory_read",
            {"uri": None, "offset": -1},
            [
                "Argument `uri` is null: expected text.",
                "Argument `offset` is -1: expected an integer of at least 0.",
            ],
        ),
        ("rollback_preview", {"revision": "last"}, ['Argument `revision` is "last": expected an integer.']),
        (
            "memory_history",
            {"limt": 3},
            ["Unknown argument `limt`. Accepted arguments: `uri`, `limit`. Did you mean `limit`?"],
        ),
        (
            "memory_recall",
            {"qury": "tea", "x": 1},
            [
                "Unknown argument `qury`. Accepted arguments: `query`, `session`. Did you mean `query`?",
                "Unknown argument `x`. Accepted arguments: `query`, `session`.",
                "Argument `query` is missing: expected text.",
            ],
        ),
        (
            "memory_remember",
            {"memory_type": "preferences", "fields": {"topic": ["tea"], "str": None}},
            [
                'Argument `fields.topic` is ["tea"]: expected text, a number or a boolean.',
                "Argument `fields.str` is null: expected text, a number or a boolean.",
            ],
        ),
        (
            "memory_remember",
            {"memory_type": "preferences", "fields": "tea"},
            ['Argument `fields` is "tea": expected an object; each value must be text, a number or a boolean.'],
        ),
        (
            "session_commit",
            {"session": "talk", "messages": [{"role": "system", "content": "Hi"}, "Hi"]},
            [
                'Argument `messages[0].role` is "system": expected one of "user", "assistant".',
                "Argument `messages[0].text` is missing: expected text.",
                "Unknown argument `messages[0].content`. Accepted arguments: `role`, `text`.",
                'Argument `messages[1]` is "Hi": expected an object with `role` and `text`.',
            ],
        ),
        (
            "session_commit",
            {"session": "talk", "messages": 1},
            ["Argument `messages` is 1: expected a list; each item must be an object with `role` and `text`."],
        ),
        (
            "session_commit",
            {"session": "talk", "messages": [1] * 12},
            [
                *(f"Argument `messages[{n}]` is 1: expected an object with `role` and `text`." for n in range(10)),
                "2 more errors.",
            ],
        ),
        (
            "session_commit",
            {"session": "talk", "messages": [1] * 20_000},
            ["The arguments hold more than 10000 values: send less in each call."],
        ),
        (
            "session_commit",
            {"session": "talk", "messages": f"[{'1,' * 20_000}1]"},
            ["The arguments hold more than 10000 values: send less in each call."],
        ),
        # Half of a surrogate pair, which no answer can hold.
        (
            "session_commit",
            {"session": "talk", "messages": '[{"role": "\\ud800", "text": "x"}]'},
            ['Argument `messages[0].role` is "?": expected one of "user", "assistant".'],
        ),
        (
            "memory_recall",
            {"x" * 100: 1, "query": "tea"},
            [f"Unknown argument `{'x' * 80}…`. Accepted arguments: `query`, `session`."],
        ),
        ("memory_serach", {"query": "tea"}, ["Unknown tool `memory_serach`. Did you mean `memory_search`?"]),
    ],
)
async def test_each_wrong_argument_is_named_with_the_accepted_values(
    server: ServerDouble, tool: str, arguments: dict[str, Any], said: list[str]
) -> None:
    settings = McpSettings(server=server.address, user="anna")
    async with Client(create_server(settings, ProcessCaller(settings))) as client:
        answer = await client.call_tool(tool, arguments)
    assert answer.is_error and getattr(answer.content[0], "text", "").split("\n") == said


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
