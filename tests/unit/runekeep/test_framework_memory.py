"""Memory for agents of any framework: what it appends, and that nothing of it ever fails an agent."""

import asyncio
import logging
from typing import cast

import pytest

from runekeep import AsyncClient
from runekeep.frameworks.memory import Memory, SpokenText
from tests.unit.runekeep.server_double import ServerDouble

TEXTS = [
    SpokenText("user", "I live in Lisbon."),
    SpokenText("assistant", " "),
    SpokenText("user", "\ud800 half", "a b"),
]


def test_ids_that_cannot_be_sent_are_made_into_others(server: ServerDouble) -> None:
    async def append() -> None:
        async with AsyncClient(server.address, user="ann") as client:
            for session in ("user:42", "chat_1"):
                await Memory(client).append(session, TEXTS)

    asyncio.run(append())

    first, second = (request.session for request in server.requests("AddMessages"))
    assert first.startswith("session_") and second == "chat_1"
    texts = [
        [part.text.text for one in request.messages for part in one.parts] for request in server.requests("AddMessages")
    ]
    assert texts == [["I live in Lisbon.", "? half"]] * 2
    ids = [request.messages[1].id for request in server.requests("AddMessages")]
    assert all(id.startswith("msg_") for id in ids) and len(set(ids)) == 2


def test_whatever_goes_wrong_the_agent_goes_on(server: ServerDouble, caplog: pytest.LogCaptureFixture) -> None:
    """The double answers nothing, and the second budget is no number."""

    async def use(budget: int) -> str:
        async with AsyncClient(server.address, user="ann", timeout=1) as client:
            memory = Memory(client, token_budget=budget)
            await memory.append("chat_1", TEXTS)
            return await memory.recall("where")

    with caplog.at_level(logging.WARNING, "runekeep.frameworks"):
        assert [asyncio.run(use(budget)) for budget in (100, cast(int, "many"))] == ["", ""]
    assert caplog.text.count("no memory") == 2 and "Lisbon" not in caplog.text
