"""Memory for agents of any framework: what it appends, and that nothing of it ever fails an agent."""

import asyncio
import logging
from typing import cast

import grpc
import pytest

from runekeep import AsyncClient
from runekeep.frameworks.memory import Memory, SpokenText
from tests.unit.runekeep.server_double import Refusal, ServerDouble

TEXTS = (
    SpokenText("user", "I live in Lisbon."),
    SpokenText("assistant", " "),
    SpokenText("user", "\ud800 half", "a b"),
)


def test_ids_that_cannot_be_sent_are_made_into_others(server: ServerDouble) -> None:
    async def append() -> None:
        async with AsyncClient(server.address, user="ann") as client:
            for session in ("user:42", "chat_1"):
                await Memory(client).append(session, TEXTS)

    asyncio.run(append())

    first, second = (request.session_id for request in server.requests("CreateSession"))
    assert first.startswith("session_") and second == "chat_1"
    added = server.requests("AddMessages")
    assert [[one.parts[0].text.text for one in request.messages] for request in added] == [
        ["I live in Lisbon.", "? half"]
    ] * 2
    ids = [request.messages[1].id for request in added]
    assert all(id.startswith("msg_") for id in ids) and len(set(ids)) == 2


def test_whatever_goes_wrong_the_agent_goes_on(server: ServerDouble, caplog: pytest.LogCaptureFixture) -> None:
    """Calls are refused; then a budget is no number, and a text is none."""
    refused = Refusal(grpc.StatusCode.PERMISSION_DENIED)
    server.script("Recall", refused)
    server.script("CreateSession", refused)

    async def use(budget: int, texts: tuple[SpokenText, ...]) -> str:
        async with AsyncClient(server.address, user="ann") as client:
            memory = Memory(client, token_budget=budget)
            await memory.append("chat_1", texts)
            return await memory.recall("where")

    with caplog.at_level(logging.WARNING, "runekeep.frameworks"):
        assert asyncio.run(use(100, TEXTS)) == ""
        assert asyncio.run(use(cast(int, "many"), (SpokenText("user", cast(str, 5)),))) == ""
    assert caplog.text.count("no memory") == caplog.text.count("were not appended") == 2
    assert "Lisbon" not in caplog.text
