"""Ends of long messages: a view that is made of them is the one that the whole messages give."""

from typing import Any

import pytest

from schemas.turns.summary import Summary
from schemas.turns.views import compressed_view
from server.turn_texts import HEAD, MESSAGES, TAIL, outlined, text_of
from storage import sessions, turns
from storage.database import Database, Space, Tx
from storage.records import Message
from tests.contract.store_fixtures import ANN
from tests.support.appending import add_messages

LONG = 'words "quoted" \\ and\n\tmore é 🌰 ' * 9_000
SHORT = "in a word"


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def image(url: str, caption: str = "") -> dict[str, Any]:
    return {"type": "image", "url": url, "detail": "auto", "caption": caption}


def tool(name: str, output: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "tool",
        "tool_id": "c1",
        "tool_name": name,
        "skill_name": "",
        "input": {"rows": [{"kind": 1}, {"type": "image"}, {"type": "text", "text": "}]"}]},
        "output": output,
        "status": "error",
        "duration_ms": 5,
        "total_tokens": 0,
    } | more


CONTEXT = {"type": "context", "uri": "viking://user/resources/a", "abstract": "said"}
DATA = "data:image/png;base64," + "A1b2" * 80_000


@pytest.mark.parametrize(
    ("role", "parts"),
    [
        pytest.param("user", [text(SHORT), image("https://example.org/map.png"), CONTEXT], id="short"),
        pytest.param("user", [text(LONG)], id="long text"),
        pytest.param("user", [text(SHORT), image(DATA, 'a "map" \\'), text("behind it")], id="text around an image"),
        pytest.param("user", [image(DATA), CONTEXT, text(SHORT)], id="an image without a caption"),
        pytest.param("user", [text(LONG), image("https://example.org/map.png"), CONTEXT], id="attachments at the end"),
        pytest.param("assistant", [text(LONG), tool("search", "found")], id="answer"),
        pytest.param("assistant", [tool("se arch", LONG)], id="long output"),
        pytest.param("assistant", [tool("search", LONG, stored_output_length=9, stored_output="ab")], id="kept"),
        pytest.param("assistant", [tool("first", "x"), tool("long", LONG), tool("last", "y")], id="tools"),
    ],
)
async def test_a_view_is_that_of_the_whole_message(database: Database, role: str, parts: list[dict[str, Any]]) -> None:
    async def add(tx: Tx, space: Space) -> None:
        await sessions.get_or_create(tx, space, "s")
        await add_messages(tx, space, "s", [Message("m", role, tuple(parts), turn_id="t")], {})

    await database.write(add, ANN)

    async def read(tx: Tx, space: Space) -> tuple[Any, Any, Any]:
        turn = await turns.get(tx, space, "s", "t")
        whole = await turns.messages(tx, space, turn, MESSAGES)
        return turn, whole, await turns.outlines(tx, space, turn, MESSAGES, HEAD, TAIL)

    turn, whole, ends = await database.read(read, ANN)
    (one,) = ends
    assert len(one.head) <= HEAD and len(one.tail) <= TAIL
    expected, made = text_of(turn, whole), outlined(turn, ends)
    assert compressed_view(made, "", Summary()) == compressed_view(expected, "", Summary()) != ""
    assert (made.attachments, made.tools) == (expected.attachments, expected.tools)


@pytest.mark.parametrize("behind", range(12))
async def test_a_text_that_is_cut_in_an_escape(database: Database, behind: int) -> None:
    said = "x" * behind + "\x01" * HEAD * 2

    async def add(tx: Tx, space: Space) -> None:
        await sessions.get_or_create(tx, space, "s")
        await add_messages(tx, space, "s", [Message("m", "user", (text(said),), turn_id="t")], {})

    await database.write(add, ANN)

    async def read(tx: Tx, space: Space) -> Any:
        turn = await turns.get(tx, space, "s", "t")
        return outlined(turn, await turns.outlines(tx, space, turn, MESSAGES, HEAD, TAIL))

    made = await database.read(read, ANN)
    assert made.prompt.startswith("x" * behind + "\x01" * 400)
