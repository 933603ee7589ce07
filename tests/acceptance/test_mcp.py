"""`runekeep mcp` before a real server, called by the client of the official SDK over both transports."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import httpx2
import pytest
from mcp import Client, MCPError

from runekeep import AsyncClient
from runekeep.mcp.budget import count_tokens
from runekeep.v1 import admin_service_pb2 as wire
from tests.acceptance.processes import Processes
from tests.support.keys import KEYED, WORKER_KEY, Operator
from tests.support.mcp import call, over_http, over_stdio, refused, serving_http

BUDGET = 600


class Service:
    """A server that takes keys, one key for each of two users, and an extractor without a model."""

    def __init__(self, address: str, anna: str, ben: str) -> None:
        self.address, self.anna, self.ben = address, anna, ben


@pytest.fixture
async def service(fleet: Processes, tmp_path: Path) -> Service:
    fleet.server(**KEYED, RUNEKEEP_EMBEDDER="none")
    fleet.extractor("worker-1", "--engine", "offline", RUNEKEEP_EXTRACTOR_API_KEY=WORKER_KEY)
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        keys = [await Operator(channel).make(wire.SCOPE_USER, "acme", user) for user in ("anna", "ben")]
    return Service(fleet.address, *(key.secret for key in keys))


@asynccontextmanager
async def clients(service: Service, transport: str) -> AsyncIterator[tuple[Client, Client]]:
    """An MCP client of each user; over HTTP both call one process."""
    options = ("--address", service.address, "--token-budget", str(BUDGET), "--destructive")
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            started = [over_stdio(*options, RUNEKEEP_API_KEY=key) for key in (service.anna, service.ben)]
        else:
            # A key of the process itself is lent to nobody.
            url = stack.enter_context(serving_http(*options, RUNEKEEP_API_KEY=service.anna))
            started = [over_http(url, {"Authorization": f"Bearer {key}"}) for key in (service.anna, service.ben)]
        anna, ben = [await stack.enter_async_context(one) for one in started]
        yield anna, ben


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_over_both_transports_each_user_has_memory_of_their_own(service: Service, transport: str) -> None:
    async with clients(service, transport) as (anna, ben):
        await use_every_tool(anna, service)
        # Whose key it is decides whose memory it is.
        assert await call(ben, "memory_recall", query="Where does Anna live?") == "Nothing relevant is remembered."
        assert "another user" in await refused(ben, "memory_read", uri="viking://user/anna/memories/profile.md")
        assert "Nothing" in (await ben.get_prompt("memory_now")).messages[0].content.text
        with pytest.raises(MCPError, match="RESOURCE_NOT_FOUND"):
            await ben.read_resource("viking://user/memories/profile.md")


async def use_every_tool(anna: Client, service: Service) -> None:
    """A conversation becomes memory, which is recalled, explained, corrected and forgotten."""
    said = [
        {"role": "user", "text": "I live in Ghent with my sister."},
        {"role": "assistant", "text": "Good to know."},
    ]
    committed = await call(anna, "session_commit", session="talk", messages=said)
    task = re.search(r"Task (\S+)", committed)
    assert task is not None, committed
    while "is completed" not in (status := await call(anna, "task_status", task_id=task[1])):
        assert "is pending" in status or "is running" in status, status
    assert "added: viking://user/anna/memories/profile.md" in status

    assert "Ghent" in await call(anna, "memory_recall", query="Where does Anna live?")
    assert "viking://user/anna/memories/profile.md" in await call(anna, "memory_search", query="Ghent", kind="memory")
    assert "talk" in await call(anna, "memory_search", query="Ghent", kind="passage")
    assert "profile.md" in await call(anna, "memory_list")
    why = await call(anna, "memory_why", uri="viking://user/memories/profile.md")
    assert "message 1" in why and "I live in Ghent with my sister." in why and "Good to know" not in why

    profile = "viking://user/memories/profile.md"
    corrected = await call(anna, "memory_correct", uri=profile, old="Ghent", new="Bruges")
    assert "version 2" in corrected and "Bruges" in corrected
    assert "Bruges" in await call(anna, "memory_read", uri=profile)
    history = await call(anna, "memory_history", uri=profile)
    assert history.index("version 2") < history.index("version 1") and "Ghent" in history
    assert "revision 2" in await call(anna, "memory_history")
    assert "Ghent" in await call(anna, "rollback_preview", revision=2)

    kept = {"memory_type": "preferences", "fields": {"topic": "Tea", "content": "Green, without sugar."}}
    tea = (await call(anna, "memory_remember", **kept)).split()[2].rstrip(",")
    async with AsyncClient(service.address, api_key=service.anna) as client:
        # What was written can be found a moment later.
        await client.find("tea", min_revision=(await client.get_memory(tea))["revision"])
    assert f"] {tea}" in await call(anna, "memory_recall", query="green tea without sugar")
    assert "memory_correct" in await refused(anna, "memory_remember", **kept)
    assert "Deleted" in await call(anna, "memory_forget", uri=tea)
    assert "RESOURCE_NOT_FOUND" in await refused(anna, "memory_read", uri=tea)

    assert (await anna.read_resource("viking://user/memories/profile.md")).contents[0].text.count("Bruges") == 1
    assert "/memories/profile.md" in (await anna.read_resource("viking://user/memories")).contents[0].text
    assert "Bruges" in (await anna.get_prompt("memory_now")).messages[0].content.text


async def test_results_fit_the_budget_and_say_what_is_missing(service: Service) -> None:
    async with AsyncClient(service.address, api_key=service.anna) as client:
        long = "\n".join(f"Line {number} of the garden plan: water the beans." for number in range(200))
        await client.put_memory("preferences", {"topic": "Garden plan", "content": long})
        for number in range(60):
            await client.put_memory(
                "preferences", {"topic": f"Garden bed {number}", "content": f"Bed {number}: beans."}
            )
        last = await client.put_memory("preferences", {"topic": "Beans", "content": "Climbing."})
        await client.find("garden", min_revision=last["revision"])
    async with over_stdio(
        "--address", service.address, "--token-budget", str(BUDGET), RUNEKEEP_API_KEY=service.anna
    ) as anna:
        uri = "viking://user/memories/preferences/Garden plan.md"
        assert "preferences/Garden plan.md" in await call(anna, "memory_list", pattern="**/*plan.md")
        first = await call(anna, "memory_read", uri=uri)
        offset = int(re.findall(r"\(Cut\. Go on with offset (\d+)\.\)$", first)[0])
        assert first.startswith(long[: offset // 2])
        assert (await call(anna, "memory_read", uri=uri, offset=offset)).startswith(long[offset : offset + 40])
        listed = await call(anna, "memory_list", uri="viking://user/memories/preferences")
        assert re.search(r"\(\d+ more\. ", listed)
        found = await call(anna, "memory_search", query="beans", limit=100)
        assert "more results have no room" in found
        recalled = await call(anna, "memory_recall", query="garden beans")
        for text in (first, listed, found, recalled):
            assert 0 < count_tokens(text) <= BUDGET


async def test_what_goes_wrong_is_an_error_of_the_tool_with_reason_and_advice(service: Service) -> None:
    async with over_stdio("--address", service.address, RUNEKEEP_API_KEY=service.anna) as anna:
        assert "memory_forget" not in {tool.name for tool in (await anna.list_tools()).tools}
        missing = await refused(anna, "memory_read", uri="viking://user/memories/preferences/Nope.md")
        assert "RESOURCE_NOT_FOUND" in missing and "memory_search" in missing
        wrong = await refused(anna, "memory_remember", memory_type="preferences", fields={"colour": "red"})
        assert "FIELD_INVALID" in wrong and "colour" in wrong and "preferences(topic, content)" in wrong
    with serving_http("--address", service.address, RUNEKEEP_API_KEY=service.anna) as url:
        async with over_http(url, {}) as nobody:
            assert "UNAUTHENTICATED" in await refused(nobody, "memory_recall", query="tea")
        async with over_http(url, {"Authorization": "Bearer not a key"}) as nobody:
            assert "can be no key" in await refused(nobody, "memory_recall", query="tea")
        async with httpx2.AsyncClient() as page:
            for other in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
                answer = await page.post(url, json={}, headers={"accept": "application/json", **other})
                assert answer.status_code in (403, 421)
    async with over_stdio("--address", "127.0.0.1:1", "--user", "anna") as away:
        assert "UNAVAILABLE" in (gone := await refused(away, "memory_recall", query="tea"))
        assert "Go on without memory" in gone
        with pytest.raises(MCPError, match="UNAVAILABLE"):
            await away.get_prompt("memory_now")
