"""Transcripts of coding agents that grow between two captures."""

import asyncio
import json
from pathlib import Path
from typing import Any

from runekeep import AsyncClient, Message, TextPart, ToolPart
from runekeep.hooks.agents import AGENTS
from runekeep.hooks.capture import capture
from runekeep.hooks.events import parse_event
from runekeep.hooks.running import Caller, hand_in
from runekeep.hooks.state import HookState
from tests.support.callers import unique
from tests.support.server_process import ServerProcess


def entry(role: str, number: int, *blocks: dict[str, Any]) -> str:
    message = {"role": role, "content": list(blocks)}
    return json.dumps({"type": role, "uuid": f"line-{number}", "message": message}) + "\n"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "make test"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3 passed"}


class Conversation:
    """A transcript on disk, and the session that it is handed in to."""

    def __init__(self, client: AsyncClient, path: Path) -> None:
        self._client, self._path = client, path

    def write(self, *lines: str) -> None:
        with self._path.open("a") as file:
            file.writelines(lines)

    async def hand_in(self, event: str) -> list[Message]:
        given = {"hook_event_name": event, "session_id": "one", "transcript_path": str(self._path)}
        await capture(self._client, AGENTS["claude-code"], parse_event("claude-code", json.dumps(given)))
        session = await self._client.get_session("claude-code-one")
        return [message async for message in session.messages("all")]


def tool(message: Message) -> ToolPart:
    (part,) = [part for part in message.parts if isinstance(part, ToolPart)]
    return part


async def test_a_tool_call_is_handed_in_with_its_result(server: ServerProcess, tmp_path: Path) -> None:
    async with AsyncClient(server.address, user=unique("user")) as client:
        talk = Conversation(client, tmp_path / "t.jsonl")
        talk.write(entry("user", 1, text("Test it.")), entry("assistant", 2, CALL))
        assert len(await talk.hand_in("Stop")) == 1
        talk.write(entry("user", 3, RESULT), entry("assistant", 4, text("It passes.")))
        stored = await talk.hand_in("Stop")
        assert [message.id for message in stored] == ["line-1", "line-2", "line-4"]
        assert (tool(stored[1]).status, tool(stored[1]).output) == ("completed", "3 passed")


async def test_a_message_that_grew_after_the_end_of_its_session_stops_nothing(
    server: ServerProcess, tmp_path: Path
) -> None:
    async with AsyncClient(server.address, user=unique("user")) as client:
        talk = Conversation(client, tmp_path / "t.jsonl")
        talk.write(entry("user", 1, text("Test it.")), entry("assistant", 2, CALL))
        assert tool((await talk.hand_in("SessionEnd"))[1]).status == "pending"
        # The user resumes the session.
        talk.write(entry("user", 3, RESULT), entry("user", 5, text("Thanks.")))
        stored = await talk.hand_in("SessionEnd")
        assert [message.id for message in stored] == ["line-1", "line-2", "line-5"]
        assert stored[2].parts == [TextPart("Thanks.")]
        session = await client.get_session("claude-code-one")
        assert len([archive async for archive in session.archives()]) == 2


async def test_what_the_server_refuses_does_not_hold_up_what_comes_after_it(
    server: ServerProcess, tmp_path: Path
) -> None:
    bad, good = tmp_path / "bad.jsonl", tmp_path / "good.jsonl"
    bad.write_text(
        entry("user", 1, text("Half a pair: \ud800."))
        + entry("assistant", 2, {**CALL, "name": "x" * 10_000}, text("Refused."))
        + entry("user", 3, text("Behind it."))
    )
    good.write_text(entry("user", 1, text("Taken.")))
    state = HookState(tmp_path / "state")
    for path in (bad, good):
        given = {"hook_event_name": "SessionEnd", "session_id": path.stem, "transcript_path": str(path)}
        given["cwd"] = f"/home/{'x' * 250}"
        state.put(json.dumps({"agent": "claude-code", "input": json.dumps(given)}))
    user = unique("user")
    away = Caller("127.0.0.1:1", user=user)
    assert not await asyncio.to_thread(hand_in, away, state)
    assert len(state.spooled()) == 2
    assert await asyncio.to_thread(hand_in, Caller(server.address, user=user), state)
    assert state.spooled() == []
    async with AsyncClient(server.address, user=user) as client:
        session = await client.get_session("claude-code-good")
        assert [message.id async for message in session.messages("all")] == ["line-1"]
        bad_session = await client.get_session("claude-code-bad")
        assert [message.id async for message in bad_session.messages("all")] == ["line-1", "line-3"]
        assert len([archive async for archive in bad_session.archives()]) == 1
    log = state.log_file.read_text()
    assert "2 messages of claude-code-bad handed in; skipped one: INVALID_ARGUMENT FIELD_INVALID" in log
    assert "Refused" not in log
