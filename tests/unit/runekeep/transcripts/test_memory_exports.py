"""Files of other memory systems become batches of messages: mem0, OpenViking, Letta and Zep.

The samples are made by hand in the forms that the docstrings of the readers name.
"""

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runekeep import TextPart, ToolPart
from runekeep.client.sessions.messages import message_to_wire
from runekeep.transcripts.batches import Batch, TranscriptError
from runekeep.transcripts.files import Form, read_transcript


def batches_of(tmp_path: Path, document: Any, form: Form = "auto", name: str = "export.json") -> list[Batch]:
    file = tmp_path / name
    file.write_text(json.dumps(document), encoding="utf-8")
    return read_transcript(file, form=form)


def texts(batch: Batch) -> list[tuple[str, str]]:
    return [(one.role, part.text) for one in batch.messages for part in one.parts if isinstance(part, TextPart)]


# mem0


def memory(id: str, text: str, **fields: Any) -> dict[str, Any]:
    times = {"created_at": f"2026-03-0{id}T10:00:00-07:00", "updated_at": None}
    return {"id": id, "memory": text, "hash": "0f", "metadata": None, "score": None, **times, **fields}


@pytest.mark.parametrize("wrapped", ["list", "results"])
def test_memories_of_mem0_are_messages_of_their_user_the_oldest_first(tmp_path: Path, wrapped: str) -> None:
    items = [
        memory("3", "Likes green tea", user_id="robin", actor_id="Robin"),
        memory("1", "Recommended a kettle", user_id="robin", role="assistant"),
        memory("2", "Lives in Ghent", user_id="mara", run_id="trip"),
        memory("4", "Was on holiday", user_id="robin", expiration_date="2020-01-01"),
        memory("5", "", user_id="robin"),
    ]
    document = items if wrapped == "list" else {"count": 5, "next": None, "results": items}
    robin, mara = batches_of(tmp_path, document)
    assert (robin.user, robin.session_id, mara.user, mara.session_id) == ("robin", "mem0", "mara", "mem0_trip")
    assert texts(robin) == [("assistant", "Recommended a kettle"), ("user", "Likes green tea")]
    assert [one.id for one in robin.messages] == ["1", "3"] and robin.messages[1].speaker == "Robin"
    assert robin.messages[0].created_at == datetime(2026, 3, 1, 17, tzinfo=UTC)
    assert robin.left_out == 2


def test_a_changed_memory_of_mem0_has_the_time_of_its_change(tmp_path: Path) -> None:
    changed = memory("1", "Lives in Lisbon", updated_at="2026-04-01T00:00:00+00:00")
    [batch] = batches_of(tmp_path, {"memories": [changed]})
    assert batch.messages[0].created_at == datetime(2026, 4, 1, tzinfo=UTC) and not batch.user


def test_many_memories_of_mem0_are_several_commits(tmp_path: Path) -> None:
    items = [{"id": f"m{number}", "memory": f"Fact {number}", "user_id": "robin"} for number in range(250)]
    batches = batches_of(tmp_path, items)
    assert [(one.session_id, one.user, len(one.messages)) for one in batches] == [
        ("mem0", "robin", 100), ("mem0", "robin", 100), ("mem0", "robin", 50),
    ]  # fmt: skip


# OpenViking


def spoken(id: str, role: str, *parts: dict[str, Any], **fields: Any) -> str:
    at = "2026-03-02T09:00:00.123Z"
    return json.dumps({"id": id, "role": role, "role_id": None, "parts": parts, "created_at": at, **fields})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


CALL = {
    "type": "tool", "tool_id": "c1", "tool_name": "grep", "tool_uri": "viking://session/x", "skill_uri": "",
    "tool_status": "completed", "tool_input": {"pattern": "tea"}, "tool_output": "found", "duration_ms": 12.5,
}  # fmt: skip
CONTEXT = {"type": "context", "uri": "viking://user/memories/profile.md", "context_type": "memory", "abstract": "Who"}


def pack(tmp_path: Path, files: dict[str, str]) -> Path:
    file = tmp_path / "robin.ovpack"
    with zipfile.ZipFile(file, "w") as archive:
        archive.mkdir("robin")
        for name, content in files.items():
            archive.writestr(f"robin/{name}", content)
    return file


def test_a_pack_of_openviking_gives_archives_then_live_messages_then_memories(tmp_path: Path) -> None:
    file = pack(
        tmp_path,
        {
            "_._ovpack_manifest.json": "{}",
            "sessions/talk/messages.jsonl": spoken("m3", "user", text("Now coffee"), role_id="Robin"),
            "sessions/talk/history/archive_002/messages.jsonl": spoken(
                "m2", "assistant", text("Noted."), CALL, CONTEXT
            ),
            "sessions/talk/history/archive_001/messages.jsonl": "\n".join(
                [spoken("m1", "user", text("I like tea")), spoken("m0", "assistant", CONTEXT), ""]
            ),
            "sessions/talk/history/archive_001/_._abstract.md": "About tea",
            "memories/preferences/tea.md": "Likes tea.\n\n<!-- MEMORY_FIELDS\n{}\n-->",
            "memories/preferences/_._overview.md": "Preferences",
            "resources/manual.md": "How to boil water.",
        },
    )
    first, second, live, memories = read_transcript(file)
    assert {one.session_id for one in (first, second, live)} == {"openviking_talk"}
    assert texts(first) == [("user", "I like tea")] and first.left_out == 1
    assert texts(live) == [("user", "Now coffee")] and live.messages[0].speaker == "Robin"
    assert second.messages[0].parts[1] == ToolPart(
        "c1", "grep", input={"pattern": "tea"}, output="found", status="completed", duration_ms=12.5
    )
    assert first.messages[0].created_at == datetime(2026, 3, 2, 9, 0, 0, 123_000, tzinfo=UTC)
    assert (memories.session_id, texts(memories)) == ("openviking_memories", [("user", "Likes tea.")])
    assert memories.messages[0].id == read_transcript(file)[3].messages[0].id
    for batch in (first, second, live, memories):
        for message in batch.messages:
            message_to_wire(message)


def test_messages_of_openviking_are_read_alone_too(tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text(spoken("m1", "user", text("I like tea")) + "\n" + spoken("m2", "tool", text("x")), encoding="utf-8")
    [batch] = read_transcript(file, session_id="talk")
    assert (batch.session_id, texts(batch), batch.left_out) == ("openviking_talk", [("user", "I like tea")], 1)


def test_a_damaged_line_in_a_pack_is_named(tmp_path: Path) -> None:
    file = pack(tmp_path, {"sessions/talk/messages.jsonl": spoken("m1", "user", text("hi")) + "\n{"})
    with pytest.raises(TranscriptError, match=r"robin/sessions/talk/messages\.jsonl: line 2 is not JSON"):
        read_transcript(file)


# Letta


def letta_said(role: str, words: Any, **fields: Any) -> dict[str, Any]:
    return {
        "type": "message", "id": "message-0", "role": role, "content": words, "tool_calls": None,
        "created_at": "2026-03-02T09:00:00+00:00", **fields,
    }  # fmt: skip


def call_of(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "call", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def test_an_agent_file_of_letta_gives_what_was_said_and_its_blocks_without_the_persona(tmp_path: Path) -> None:
    document = {
        "agents": [
            {
                "id": "agent-0",
                "name": "Sam",
                "agent_type": "letta_v1_agent",
                "block_ids": ["block-0", "block-1", "block-9", ["odd"]],
                "messages": [
                    letta_said("system", [text("You are Sam.")]),
                    letta_said("user", [text("I like tea")]),
                    letta_said(
                        "assistant", [text("Let me note it.")], tool_calls=[call_of("memory_insert", text="tea")]
                    ),
                    letta_said("tool", [text("ok")]),
                    letta_said("assistant", [text("Done.")]),
                ],
            }
        ],
        "blocks": [
            {"id": "block-0", "label": "human", "value": "\nName: Chad\n"},
            {"id": "block-1", "label": "persona", "value": "I am Sam."},
            {"id": "block-2", "label": "other", "value": "Of another agent"},
            {"id": ["odd"], "label": "other", "value": "Has no id"},
        ],
        "created_at": "2026-03-03T00:00:00Z",
    }
    [batch] = batches_of(tmp_path, document, name="sam.af")
    assert batch.session_id == "letta_Sam" and batch.left_out == 2
    assert texts(batch) == [
        ("user", "I like tea"), ("assistant", "Let me note it."), ("assistant", "Done."), ("user", "human: Name: Chad"),
    ]  # fmt: skip
    assert batch.messages[-1].created_at == datetime(2026, 3, 3, tzinfo=UTC)
    # The next export numbers its messages anew, and what was in this one has the same ids.
    document["agents"][0]["messages"] = document["agents"][0]["messages"][1:]  # type: ignore[index]  # a dict
    assert [one.id for one in batches_of(tmp_path, document)[0].messages] == [one.id for one in batch.messages]


def test_an_older_agent_of_letta_speaks_with_a_tool_and_thinks_in_its_texts(tmp_path: Path) -> None:
    packed = {"type": "user_message", "message": "I like tea", "time": "2026-03-02 09:00:00 AM UTC+0000"}
    document = {
        "agent_type": "memgpt_agent",
        "name": "Sam",
        "core_memory": [{"label": "human", "value": "Name: Chad", "updated_at": "2026-03-02T00:00:00+00:00"}],
        "messages": [
            letta_said("user", [text(json.dumps({"type": "login", "last_login": "never"}))]),
            letta_said("user", [text(json.dumps(packed))]),
            letta_said("assistant", [text("He likes tea.")], tool_calls=[call_of("send_message", message="Noted.")]),
            letta_said("assistant", [text("Hm.")], tool_calls=[call_of("core_memory_append", content="tea")]),
            letta_said("user", "{not packed"),
        ],
    }
    [batch] = batches_of(tmp_path, document)
    assert texts(batch) == [
        ("user", "I like tea"), ("assistant", "Noted."), ("user", "{not packed"), ("user", "human: Name: Chad"),
    ]  # fmt: skip
    assert batch.left_out == 2


# Zep


def zep_said(uuid: str, words: str, minute: int, **fields: Any) -> dict[str, Any]:
    return {"uuid": uuid, "content": words, "created_at": f"2026-03-02T09:0{minute}:00.123456789Z", **fields}


def test_messages_of_zep_are_a_session_in_the_order_of_time(tmp_path: Path) -> None:
    document = {
        "messages": [
            zep_said("b", "Noted.", 2, role="assistant", name="Sam"),
            zep_said("a", "I like tea", 1, role="user", name="Robin"),
            zep_said("c", "searched", 3, role="tool"),
        ],
        "row_count": 3,
        "user_id": "robin",
    }
    [batch] = batches_of(tmp_path, document, name="thread-1.json")
    assert (batch.session_id, batch.user, batch.left_out) == ("zep_thread-1", "robin", 1)
    assert texts(batch) == [("user", "I like tea"), ("assistant", "Noted.")]
    assert [(one.id, one.speaker) for one in batch.messages] == [("a", "Robin"), ("b", "Sam")]


@pytest.mark.parametrize("version", ["v2", "v4"])
def test_other_versions_of_zep_name_roles_and_threads_elsewhere(tmp_path: Path, version: str) -> None:
    if version == "v2":
        document: Any = {"messages": [zep_said("a", "I like tea", 1, role_type="user", role="Robin")]}
    else:
        said = zep_said("a", "I like tea", 1, role="user", name="Robin", thread_uuid="t1")
        document = {"items": [said | {"reference_time": "2025-01-01T00:00:00Z"}], "next_cursor": "x"}
    [batch] = batches_of(tmp_path, document, name="thread.json")
    assert texts(batch) == [("user", "I like tea")] and batch.messages[0].speaker == "Robin"
    assert batch.session_id == ("zep_thread" if version == "v2" else "zep_t1")
    at = batch.messages[0].created_at
    assert at is not None and at.year == (2026 if version == "v2" else 2025)


# Whatever a file holds


@pytest.mark.parametrize("form", ["mem0", "letta", "zep"])
@pytest.mark.parametrize("document", [{}, [], {"a": 1}, [1], {"results": 5}, {"messages": [1]}, {"agents": 1}], ids=str)
def test_what_is_not_of_the_form_is_refused(tmp_path: Path, form: Form, document: Any) -> None:
    with pytest.raises(TranscriptError, match=r"not (an agent file of Letta|memories of mem0|messages of Zep)"):
        batches_of(tmp_path, document, form)


@pytest.mark.parametrize("odd", [None, 5, True, [], {}, "\ud800", {"a": [1]}], ids=str)
@pytest.mark.parametrize("field", ["id", "uuid", "role", "content", "memory", "created_at", "parts", "tool_calls"])
def test_odd_values_are_left_out_and_never_a_traceback(tmp_path: Path, field: str, odd: Any) -> None:
    files: dict[str, Any] = {
        "mem0": [memory("1", "fine"), {**memory("2", "odd"), field: odd}],
        "zep": [zep_said("a", "fine", 1, role="user"), {**zep_said("b", "odd", 2, role="user"), field: odd}],
        "letta": {"agents": [{"messages": [letta_said("user", "fine"), {**letta_said("user", "odd"), field: odd}]}]},
    }
    for form, document in files.items():
        (batch, *_) = batches_of(tmp_path, document, form)  # type: ignore[arg-type]  # a form
        assert ("user", "fine") in texts(batch)
    line = {**json.loads(spoken("m2", "user", text("odd"))), field: odd}
    file = tmp_path / "messages.jsonl"
    file.write_text(spoken("m1", "user", text("fine")) + "\n" + json.dumps(line), encoding="utf-8")
    [batch] = read_transcript(file)
    assert ("user", "fine") in texts(batch)
    for message in batch.messages:
        message_to_wire(message)
