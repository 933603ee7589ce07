"""The Claude Agent SDK itself, with the program that it drives, by its example, between a real server and a double of
Anthropic's API: `make test-frameworks`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runekeep import AsyncClient, TextPart
from tests.acceptance.processes import ROOT, Processes, processes, run
from tests.doubles.messages_api import MessagesApi, answer

pytestmark = pytest.mark.frameworks

MEMORY = "Robin drinks green tea."
QUESTION = "Which tea shall I plant for Robin?"
ANSWER = "Green tea, as ever."


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as started:
        started.server(RUNEKEEP_EMBEDDER="none")
        yield started


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    double = MessagesApi(streams=True, system_messages=True)
    double.otherwise = answer(ANSWER)
    with double:
        yield double


def asked(api: MessagesApi, home: Path, address: str) -> tuple[str, str]:
    """What the example prints, and the last request to the model."""
    said = run(
        ROOT / ".venv" / "test-claude-agent-sdk" / "bin" / "python",
        ROOT / "examples/frameworks/claude_agent.py",
        QUESTION,
        cwd=home,
        RUNEKEEP_ADDRESS=address,
        HOME=str(home),
        ANTHROPIC_API_KEY="any",
        ANTHROPIC_BASE_URL=api.url,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    ).stdout
    return said, str(api.requests[-1].body)


async def test_a_prompt_comes_with_what_is_known_and_what_was_said_becomes_a_session(
    fleet: Processes, api: MessagesApi, tmp_path: Path
) -> None:
    async with AsyncClient(fleet.address, user="robin") as client:
        written = await client.put_memory("preferences", {"topic": "Tea", "content": MEMORY})
        await client.find("tea", min_revision=written["revision"])
        said, request = asked(api, tmp_path, fleet.address)

        assert ANSWER in said
        assert "You are a gardener." in request and QUESTION in request
        assert MEMORY in request and "<runekeep-memory>" in request
        assert await texts(client) == [QUESTION, ANSWER]
        # Another conversation of the same session goes on there.
        asked(api, tmp_path, fleet.address)
        assert await texts(client) == [QUESTION, ANSWER] * 2


async def texts(client: AsyncClient) -> list[str]:
    session = await client.get_session("garden")
    return [
        part.text async for message in session.messages("all") for part in message.parts if isinstance(part, TextPart)
    ]


def test_an_agent_answers_while_memory_is_away(api: MessagesApi, tmp_path: Path) -> None:
    said, request = asked(api, tmp_path, "127.0.0.1:1")
    assert ANSWER in said
    assert QUESTION in request and "<runekeep-memory>" not in request
