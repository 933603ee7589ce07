"""Each framework itself, by its example, between a real server and a double of a model: `make test-frameworks`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runekeep import AsyncClient, TextPart
from tests.acceptance.processes import ROOT, Processes, processes, run
from tests.doubles.chat_api import ChatApi, answer

pytestmark = pytest.mark.frameworks

MEMORY = "Robin drinks green tea."
QUESTION = "Which tea shall I plant for Robin?"
ANSWER = "Green tea, as ever."
EXAMPLES = {
    "openai_agents": "test-frameworks",
    "langgraph_agent": "test-frameworks",
    "pydantic_ai_agent": "test-frameworks",
    "llama_index_agent": "test-llama-index",
}
"""The environment of each."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as started:
        started.server(RUNEKEEP_EMBEDDER="none")
        yield started


def asked(url: str, example: str, address: str) -> str:
    return run(
        ROOT / ".venv" / EXAMPLES[example] / "bin" / "python",
        ROOT / f"examples/frameworks/{example}.py",
        QUESTION,
        RUNEKEEP_ADDRESS=address,
        OPENAI_BASE_URL=url,
        OPENAI_API_KEY="any",
        MODEL="gpt-4o-mini",
    ).stdout


async def texts(client: AsyncClient) -> list[str]:
    session = await client.get_session("garden")
    return [
        part.text async for message in session.messages("all") for part in message.parts if isinstance(part, TextPart)
    ]


@pytest.mark.parametrize("example", EXAMPLES)
async def test_a_model_is_told_what_is_known_and_what_was_said_becomes_a_session(
    fleet: Processes, example: str
) -> None:
    double = ChatApi(streams=True)
    double.otherwise = answer(ANSWER)
    async with AsyncClient(fleet.address, user="robin") as client:
        written = await client.put_memory("preferences", {"topic": "Tea", "content": MEMORY})
        await client.find("tea", min_revision=written["revision"])
        with double as api:
            said = asked(api.url, example, fleet.address)
            request = str(api.requests[-1].body["messages"])

        assert ANSWER in said
        assert "You are a gardener." in request and QUESTION in request
        assert MEMORY in request and "<runekeep-memory>" in request
        assert await texts(client) == [QUESTION, ANSWER]


@pytest.mark.parametrize("example", EXAMPLES)
async def test_an_agent_answers_while_memory_is_away(example: str) -> None:
    double = ChatApi(streams=True)
    double.otherwise = answer(ANSWER)
    with double as api:
        said = asked(api.url, example, "127.0.0.1:1")
        request = str(api.requests[-1].body["messages"])

    assert ANSWER in said
    assert QUESTION in request and "<runekeep-memory>" not in request
