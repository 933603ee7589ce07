"""What a passage shows of its message."""

from typing import Any

import pytest

from runekeep_storage.indexing import passages
from runekeep_storage.records import Message

# Put together here, so that scanners of repositories do not take it for a real one.
TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
KEY = f"-----BEGIN PRIVATE KEY-----{'A' * 6000}-----END PRIVATE KEY-----"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(output: str) -> dict[str, Any]:
    return {"type": "tool", "tool_name": "shell", "output": output}


def split_at(cut: int) -> str:
    """Returns a text whose token begins 20 characters before the cut."""
    return f"{KEY} {'x' * (cut - 22 - len(KEY))} {TOKEN}{' word' * 200}"


@pytest.mark.parametrize(
    "part",
    [
        # The note is shorter than the private key, so what is read last is kept.
        text(split_at(2 * passages.MAX_CHARACTERS)),
        text(split_at(2 * passages.MAX_CHARACTERS + passages.MAX_SECRET_CHARACTERS)),
        tool(f"{'x' * (passages.TOOL_CHARACTERS - 20)} {TOKEN}{' word' * 200}"),
    ],
    ids=["text", "text-and-margin", "tool"],
)
def test_a_secret_at_a_cut_is_not_shown_in_part(part: dict[str, Any]) -> None:
    shown = passages.text_of(Message("m", "user", (part,)), withhold_secrets=True)

    assert TOKEN[:8] not in shown
    assert len(shown) > passages.TOOL_CHARACTERS
