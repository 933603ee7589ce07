"""Exports of ChatGPT and Claude become batches, one for each conversation, also with values of other types."""

import io
import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runekeep import TextPart
from runekeep.transcripts.batches import Batch, TranscriptError
from runekeep.transcripts.files import read_transcript


def node(name: str, parent: str | None, role: str, text: str, at: float, **message: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    said = {"id": f"m-{name}", "author": {"role": role}, "content": content, "create_time": at, **message}
    return {name: {"id": name, "parent": parent, "children": [], "message": said}}


def chatgpt() -> list[dict[str, Any]]:
    """Two conversations, the newer one first; in the older one a question was asked again in other words."""
    root: dict[str, Any] = {"root": {"id": "root", "parent": None, "children": [], "message": None}}
    hidden = {"is_visually_hidden_from_conversation": True}
    picture = {"content_type": "multimodal_text", "parts": [{"asset_pointer": "file-service://1"}, "This kite"]}
    older = {
        **root,
        **node("s", "root", "system", "You are a kite.", 1.0),
        **node("p", "s", "user", "My profile", 1.5, metadata=hidden),
        **node("a", "p", "user", "Which kite?", 2.0),
        **node("a2", "p", "user", "Which red kite?", 3.0, content=picture),
        **node("c", "a2", "assistant", "search()", 3.5, recipient="web"),
        **node("t", "c", "tool", "found", 3.6),
        **node("b", "t", "assistant", "The small one.", 4.0),
    }
    newer = {**root, **node("x", "root", "user", "Later.", 1_700_000_000.5)}
    return [
        {"conversation_id": "new", "title": "Later", "current_node": "x", "mapping": newer},
        {"conversation_id": "old", "title": "Kites", "current_node": "b", "mapping": older},
        {"conversation_id": "empty", "title": "", "current_node": "root", "mapping": root},
    ]


def claude() -> list[dict[str, Any]]:
    def said(uuid: str, sender: str, *blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
        at = f"2025-05-0{uuid}T10:00:00.000000Z"
        return {"uuid": uuid, "sender": sender, "created_at": at, "content": blocks, "text": "old field", **fields}

    thought, text = {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "The small one."}
    return [
        {
            "uuid": "n",
            "name": "",
            "created_at": "",
            "chat_messages": [said("3", "human", {"type": "text", "text": "Later."})],
        },
        {
            "uuid": "o",
            "name": "Kites",
            "created_at": "",
            "chat_messages": [
                said("1", "human", content=[], text="Which kite?"),
                said("2", "assistant", thought, text),
                said("2", "assistant", thought),
            ],
        },
    ]


def texts(batches: list[Batch]) -> list[tuple[str, list[tuple[str, Any]]]]:
    return [
        (
            batch.session_id,
            [(one.role, part.text) for one in batch.messages for part in one.parts if isinstance(part, TextPart)],
        )
        for batch in batches
    ]


@pytest.mark.parametrize("packed", [False, True], ids=["json", "zip"])
def test_an_export_of_chatgpt_gives_the_branch_that_was_seen_the_oldest_first(tmp_path: Path, packed: bool) -> None:
    file = tmp_path / "export"
    if packed:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("user.json", "{}")
            archive.writestr("conversations.json", json.dumps(chatgpt()))
    else:
        file.write_text(json.dumps(chatgpt()), encoding="utf-8")

    batches = read_transcript(file)

    assert texts(batches) == [
        ("chatgpt_old", [("user", "This kite"), ("assistant", "The small one.")]),
        ("chatgpt_new", [("user", "Later.")]),
        ("chatgpt_empty", []),
    ]
    assert batches[0].left_out == 4
    assert [one.id for one in batches[0].messages] == ["m-a2", "m-b"]
    assert batches[0].messages[1].created_at == datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC)


def test_an_export_of_claude_gives_texts_without_thoughts_the_oldest_first(tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(claude()), encoding="utf-8")

    batches = read_transcript(file)

    assert texts(batches) == [
        ("claude_o", [("user", "Which kite?"), ("assistant", "The small one.")]),
        ("claude_n", [("user", "Later.")]),
    ]
    assert batches[0].left_out == 1
    assert batches[0].messages[0].created_at == datetime(2025, 5, 1, 10, tzinfo=UTC)


def said_in(tmp_path: Path, document: Any) -> list[Batch]:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return read_transcript(file)


@pytest.mark.parametrize(
    "odd",
    [
        {"author": "user"},
        {"author": {"role": ["user"]}},
        {"content": "hi"},
        {"content": {"content_type": ["text"], "parts": ["hi"]}},
        {"content": {"content_type": "text", "parts": 5}},
        {"content": {"content_type": "text", "parts": [None, {"text": "hi"}]}},
        {"recipient": ["all"]},
    ],
    ids=str,
)
def test_a_message_of_chatgpt_with_odd_types_is_left_out(tmp_path: Path, odd: dict[str, Any]) -> None:
    mapping = {**node("a", None, "user", "Hello", 1.0), **node("b", "a", "user", "x", 2.0, **odd)}
    batches = said_in(tmp_path, [{"id": "k", "current_node": "b", "mapping": mapping}])
    assert texts(batches) == [("chatgpt_k", [("user", "Hello")])]
    assert batches[0].left_out == 1


@pytest.mark.parametrize("at", [float("nan"), float("inf"), 1.7e15, -1e11, 10**400, True, "1", None], ids=str)
def test_a_time_of_chatgpt_that_is_none_is_left_out(tmp_path: Path, at: Any) -> None:
    document = [{"id": "k", "current_node": "a", "mapping": node("a", None, "user", "Hello", at)}]
    [batch] = said_in(tmp_path, document)
    assert [one.created_at for one in batch.messages] == [None]


@pytest.mark.parametrize(
    "odd",
    [
        {"metadata": [1]},
        {"recipient": None},
        {"content": {"content_type": "text", "parts": "Hello"}},
        {"content": {"content_type": "text", "parts": ["Hello", 5]}},
    ],
    ids=str,
)
def test_a_message_of_chatgpt_with_a_text_is_read_whatever_else_it_has(tmp_path: Path, odd: dict[str, Any]) -> None:
    mapping = node("a", None, "user", "Hello", 1.0, **odd)
    assert texts(said_in(tmp_path, [{"id": "k", "current_node": "a", "mapping": mapping}])) == [
        ("chatgpt_k", [("user", "Hello")])
    ]


@pytest.mark.parametrize("current", [None, "gone", ["b"], {}], ids=str)
def test_without_a_known_current_node_the_newest_branch_is_read(tmp_path: Path, current: Any) -> None:
    mapping = {
        **node("a", None, "user", "Hello", 1.0),
        **node("c", "a", "assistant", "Newer", 3.0),
        **node("b", "a", "assistant", "Older", 2.0),
        "odd": {"parent": {}, "message": 5},
    }
    batches = said_in(tmp_path, [{"id": "k", "current_node": current, "mapping": mapping}])
    assert texts(batches) == [("chatgpt_k", [("user", "Hello"), ("assistant", "Newer")])]


@pytest.mark.parametrize(
    ("odd", "left_out"),
    [
        ({"sender": ["human"]}, 1),
        ({"content": 5, "text": None}, 1),
        ({"content": [{"type": "text", "text": None}]}, 1),
        ({"content": [{"type": ["text"], "text": "hi"}]}, 1),
        ({"content": 5}, 0),
        ({"created_at": "0001-01-01T00:00+14:00"}, 0),
        ({"created_at": 5}, 0),
    ],
    ids=str,
)
def test_a_message_of_claude_with_odd_types(tmp_path: Path, odd: dict[str, Any], left_out: int) -> None:
    message = {"uuid": "m", "sender": "human", "created_at": "", "content": [], "text": "Hello", **odd}
    [batch] = said_in(tmp_path, [{"uuid": "k", "chat_messages": [message]}])
    assert batch.left_out == left_out
    assert [(one.parts, one.created_at) for one in batch.messages] == [([TextPart("Hello")], None)] * (1 - left_out)


@pytest.mark.parametrize("given", [None, "", 5, "\u4f60", "\ud800", "k" * 128], ids=repr)
def test_what_has_no_usable_id_gets_one_that_stays_the_same(tmp_path: Path, given: Any) -> None:
    def conversations(*words: str) -> list[dict[str, Any]]:
        return [{"id": given, "current_node": "a", "mapping": node("a", None, "user", word, 1.0)} for word in words]

    def say(word: str) -> dict[str, Any]:
        return {"uuid": given, "sender": "human", "content": [], "text": word}

    one, two = said_in(tmp_path, conversations("one", "two"))
    assert [one.session_id] == [batch.session_id for batch in said_in(tmp_path, conversations("one"))]
    assert one.session_id.startswith("chatgpt_") and "None" not in one.session_id
    assert (one.session_id == two.session_id) == (isinstance(given, str) and given != "")

    chat_messages = [{"uuid": "k", "chat_messages": [say("one"), say("one"), say("two")]}]
    [batch] = said_in(tmp_path, chat_messages)
    ids = [message.id for message in batch.messages]
    assert ids == [message.id for message in said_in(tmp_path, chat_messages)[0].messages]
    assert len(set(ids)) == (1 if isinstance(given, str) and given else 3)


def test_other_ids_never_become_the_same_session(tmp_path: Path) -> None:
    names = ["\u4f60", "\u597d", "a/b", "a b", "a-b"]
    batches = said_in(tmp_path, [{"uuid": name, "chat_messages": []} for name in names])
    assert len({batch.session_id for batch in batches}) == len(names)


def test_the_oldest_conversation_of_all_files_of_an_archive_is_first(tmp_path: Path) -> None:
    file = tmp_path / "export.zip"
    days = {"conversations-000.json": (4.0, 2.0), "conversations-001.json": (3.0, 1.0)}
    with zipfile.ZipFile(file, "w") as archive:
        for name, times in days.items():
            held = [{"id": f"at{at}", "current_node": "a", "mapping": node("a", None, "user", "x", at)} for at in times]
            archive.writestr(name, json.dumps(held))
    assert [batch.session_id for batch in read_transcript(file)] == [f"chatgpt_at{at}" for at in (1.0, 2.0, 3.0, 4.0)]

    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("conversations-002.json", "[]")
    with pytest.raises(TranscriptError, match=r"conversations-002\.json: an empty list"):
        read_transcript(file)


def packed(method: int) -> bytearray:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", method) as archive:
            archive.writestr("conversations.json", json.dumps(chatgpt()))
        return bytearray(file.getvalue())


@pytest.mark.parametrize("damage", ["password", "method", "data", "data of lzma", "end"])
def test_an_archive_that_cannot_be_unpacked_is_refused(tmp_path: Path, damage: str) -> None:
    methods = {"data of lzma": zipfile.ZIP_LZMA, "end": zipfile.ZIP_STORED}
    content = packed(methods.get(damage, zipfile.ZIP_DEFLATED))
    directory = content.index(b"PK\x01\x02")
    data = 30 + len("conversations.json")
    if damage == "password":
        content[6] |= 1
        content[directory + 8] |= 1
    elif damage == "method":
        content[8] = content[directory + 10] = 99
    elif damage == "end":
        content[directory + 20 : directory + 28] = (10**6).to_bytes(4, "little") * 2
    else:
        content[data + 12 : directory] = b"\xff" * (directory - data - 12)
    file = tmp_path / "export.zip"
    file.write_bytes(content)
    with pytest.raises(TranscriptError, match=r"export\.zip cannot be unpacked: "):
        read_transcript(file)
