"""What is said of a search that could not run in full."""

from mcp import Client

from runekeep.client.memories.outcomes import describe_degraded
from runekeep.mcp.callers import ProcessCaller
from runekeep.mcp.server import create_server
from runekeep.mcp.settings import McpSettings
from runekeep.v1 import memory_service_pb2
from tests.support.studio import Browser, studio
from tests.unit.runekeep.cli.cli_answers import run
from tests.unit.runekeep.server_double import ServerDouble

PARTS = ["dense", "rebuilding", "reranker", "vectors", "of a newer server"]


async def test_command_tool_and_page_say_the_same(server: ServerDouble) -> None:
    server.script("FindMemories", memory_service_pb2.FindMemoriesResponse(degraded=PARTS))
    sentences = [describe_degraded(part) for part in PARTS]
    assert len(set(sentences)) == len(PARTS) and "of a newer server" in sentences[-1]
    printed = run(server, "memory", "find", "tea").stdout
    settings = McpSettings(server=server.address, user="anna")
    async with Client(create_server(settings, ProcessCaller(settings))) as client:
        told = str((await client.call_tool("memory_search", {"query": "tea"})).content)
    async with studio(server.address) as transport:
        browser = Browser(transport)
        await browser.log_in()
        shown = (await browser.get("/search?q=tea")).text
    for sentence in sentences:
        assert sentence in printed and sentence in told and sentence in shown
