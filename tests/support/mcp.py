"""MCP servers in tests: `runekeep mcp` as a process, and the SDK's own client in front of it."""

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from tests.acceptance.processes import environment
from tests.support.serving import serving

COMMAND = [sys.executable, "-m", "runekeep", "mcp"]


@asynccontextmanager
async def over_stdio(*options: str, **variables: str) -> AsyncIterator[Client]:
    """A client of a process that it starts itself, as coding agents do."""
    started = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], *options], env={**environment(), **variables}
    )
    async with Client(started) as client:
        yield client


@contextmanager
def serving_http(*options: str, **variables: str) -> Iterator[str]:
    """The URL of an MCP server on a free port of this machine."""
    with serving("mcp", *options, **variables) as url:
        yield url


@asynccontextmanager
async def over_http(url: str, headers: Mapping[str, str]) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=dict(headers)) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


def text_of(result: CallToolResult) -> str:
    """The text of a result, whether it is an error or not."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def call(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return text_of(result)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a call that fails."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)
