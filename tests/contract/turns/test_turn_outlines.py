"""Ends of long messages: a view that is made of them is the one that the whole messages give."""

from typing import Any

import pytest

from runekeep_schemas.turns.summary import Summary
from runekeep_schemas.turns.views import compressed_view
from runekeep_server.turns.texts import HEAD, MESSAGES, TAIL, outlined, text_of
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.records import Message
from runekeep_storage.sessions import sessions
from runekeep_storage.turns import turns
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN

pytestmark = pytest.mark.postgres_long

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


SAID: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "short": ("user", [text(SHORT), image("https://example.org/map.png"), CONTEXT]),
    "long text": ("user", [text(LONG)]),
    "text around an image": ("user", [text(SHORT), image(DATA, 'a "map" \\'), text("behind it")]),
    "an image without a caption": ("user", [image(DATA), CONTEXT, text(SHORT)]),
    "attachments at the end": ("user", [text(LONG), image("https://example.org/map.png"), CONTEXT]),
    "answer": ("assistant", [text(LONG), tool("search", "found")]),
    "long output": ("assistant", [tool("se arch", LONG)]),
    "kept": ("assistant", [tool("search", LONG, stored_output_length=9, stored_output="ab")]),
    "tools": ("assistant", [tool("first", "x"), tool("long", LONG), tool("last", "y")]),
}


async def add(database: Database, turn_id: str, role: str, parts: list[dict[str, Any]]) -> None:
    async def work(tx: Tx, space: Space) -> None:
        await sessions.get_or_create(tx, space, "s")
        await add_messages(tx, space, "s", [Message(turn_id, role, tuple(parts), turn_id=turn_id)], {})

    await database.write(work, ANN)


async def test_a_view_is_that_of_the_whole_message(database: Database) -> None:
    async def read(tx: Tx, space: Space, turn_id: str) -> tuple[Any, Any, Any]:
        turn = await turns.get(tx, space, "s", turn_id)
        whole = await turns.messages(tx, space, turn, MESSAGES)
        return turn, whole, await turns.outlines(tx, space, turn, MESSAGES, HEAD, TAIL)

    for name, (role, parts) in SAID.items():
        await add(database, name, role, parts)
        turn, whole, ends = await database.read(read, ANN, name)
        (one,) = ends
        assert len(one.head) <= HEAD and len(one.tail) <= TAIL, name
        expected, made = text_of(turn, whole), outlined(turn, ends)
        assert compressed_view(made, "", Summary()) == compressed_view(expected, "", Summary()) != "", name
        assert (made.attachments, made.tools) == (expected.attachments, expected.tools), name


async def test_a_text_that_is_cut_in_an_escape(database: Database) -> None:
    async def read(tx: Tx, space: Space, turn_id: str) -> Any:
        turn = await turns.get(tx, space, "s", turn_id)
        return outlined(turn, await turns.outlines(tx, space, turn, MESSAGES, HEAD, TAIL))

    for behind in range(12):
        await add(database, f"t{behind}", "user", [text("x" * behind + "\x01" * HEAD * 2)])
        made = await database.read(read, ANN, f"t{behind}")
        assert made.prompt.startswith("x" * behind + "\x01" * 400), behind
