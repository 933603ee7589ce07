"""The command line of the MCP Inspector, from npm, calls `runekeep mcp`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from runekeep import AsyncClient
from tests.acceptance.processes import environment, processes
from tests.support.mcp import COMMAND, serving_http

# It asks for a newer Node than Debian has, which comes as a package too.
INSPECTOR = [
    *("npx", "--yes", "--package", "node@22", "--package", "@modelcontextprotocol/inspector@2.12.0"),
    *("--", "mcp-inspector", "--cli"),
]

pytestmark = pytest.mark.languages


async def inspect(*arguments: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        *INSPECTOR,
        *arguments,
        env=environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(said)


async def test_the_inspector_lists_and_calls_tools_over_both_transports(tmp_path: Path) -> None:
    with processes(tmp_path) as fleet:
        fleet.server(RUNEKEEP_EMBEDDER="none")
        async with AsyncClient(fleet.address, user="anna") as client:
            await client.put_memory("preferences", {"topic": "Tea", "content": "Green, without sugar."})
        started = [*COMMAND, "--address", fleet.address, "--user", "anna"]
        listed = await inspect(*started, "--method", "tools/list", "--strict")
        assert "memory_recall" in {tool["name"] for tool in listed["tools"]}
        uri = "viking://user/memories/preferences/Tea.md"
        call = ("--method", "tools/call", "--tool-name", "memory_read", "--tool-arg", f"uri={uri}")
        over_stdio = await inspect(*started, *call)
        with serving_http("--address", fleet.address) as url:
            over_http = await inspect(url, "--transport", "http", "--header", "x-runekeep-user: anna", *call)
            read = await inspect(
                *(url, "--transport", "http", "--header", "x-runekeep-user: anna"),
                *("--method", "resources/read", "--uri", uri),
            )
    assert "Green, without sugar." in over_stdio["content"][0]["text"]
    assert "Green, without sugar." in over_http["content"][0]["text"]
    assert "Green, without sugar." in read["contents"][0]["text"]
