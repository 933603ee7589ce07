"""The Claude Agent SDK itself, by its example, between a real server and a double of the program that it drives.

Claude Code is its vendor's program and was not run: what it does with the answers of hooks is in its documentation.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runekeep import AsyncClient, TextPart
from tests.acceptance.processes import ROOT, Processes, processes, run

pytestmark = pytest.mark.frameworks

MEMORY = "Robin drinks green tea."
QUESTION = "Which tea shall I plant for Robin?"
ANSWER = "Green tea, as ever."
PYTHON = ROOT / ".venv" / "test-frameworks" / "bin" / "python"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path / "fleet") as started:
        started.server(RUNEKEEP_EMBEDDER="none")
        yield started


def asked(folder: Path, address: str) -> tuple[str, dict[str, Any]]:
    """What the example prints, and what a model would have been told."""
    folder.mkdir(exist_ok=True)
    program = folder / "claude"
    program.write_text(f'#!/bin/sh\nexec {PYTHON} {ROOT / "tests/doubles/claude_cli.py"} "$@"\n')
    program.chmod(0o700)
    said = run(
        PYTHON,
        ROOT / "examples/frameworks/claude_agent.py",
        QUESTION,
        RUNEKEEP_ADDRESS=address,
        CLAUDE_CLI=str(program),
        CLAUDE_DOUBLE_ANSWER=ANSWER,
        CLAUDE_DOUBLE_RECORD=str(folder / "record.jsonl"),
    ).stdout
    return said, json.loads((folder / "record.jsonl").read_text())


async def test_a_prompt_comes_with_what_is_known_and_what_was_said_becomes_a_session(
    fleet: Processes, tmp_path: Path
) -> None:
    async with AsyncClient(fleet.address, user="robin") as client:
        written = await client.put_memory("preferences", {"topic": "Tea", "content": MEMORY})
        await client.find("tea", min_revision=written["revision"])
        said, told = asked(tmp_path / "first", fleet.address)

        assert ANSWER in said
        assert "You are a gardener." in told["arguments"] and told["prompt"] == QUESTION
        (added,) = told["added"]
        assert MEMORY in added and "<runekeep-memory>" in added
        assert await texts(client) == [QUESTION, ANSWER]
        # Another conversation with the same session goes on there.
        asked(tmp_path / "second", fleet.address)
        assert await texts(client) == [QUESTION, ANSWER] * 2


async def texts(client: AsyncClient) -> list[str]:
    session = await client.get_session("garden")
    return [
        part.text async for message in session.messages("all") for part in message.parts if isinstance(part, TextPart)
    ]


def test_an_agent_answers_while_memory_is_away(tmp_path: Path) -> None:
    said, told = asked(tmp_path / "only", "127.0.0.1:1")
    assert ANSWER in said
    assert told["added"] == [""]
