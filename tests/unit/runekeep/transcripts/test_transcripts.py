"""Transcripts of every form become batches of messages."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from runekeep import ImagePart, TextPart, ToolPart
from runekeep.client.sessions.messages import message_to_wire
from runekeep.transcripts.batches import Batch, TranscriptError
from runekeep.transcripts.chat import read_chat
from runekeep.transcripts.files import Form, read_transcript

AGENT_TRANSCRIPTS = Path(__file__).parents[3] / "support" / "agent_transcripts"
SAMPLE = Path(__file__).parents[4] / "examples" / "conversation.jsonl"


def chat(*lines: dict[str, Any]) -> list[Batch]:
    return read_chat([json.dumps(line) for line in lines], "chat")


def only_batch(*lines: dict[str, Any]) -> Batch:
    [batch] = chat(*lines)
    return batch


def test_anthropic_calls_are_joined_to_their_results() -> None:
    batch = only_batch(
        {"role": "user", "content": "What is the weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Ghent"}},
                {"type": "tool_use", "id": "c2", "name": "news", "input": {}},
                {"type": "tool_use", "id": "c3", "name": "clock", "input": {}, "skill_name": "time"},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c2", "content": "no route", "is_error": True, "duration_ms": 7},
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "12 degrees"}, {"type": "text", "text": "rain"}],
                    "total_tokens": 90,
                },
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Rain."}]},
    )
    assert [message.role for message in batch.messages] == ["user", "assistant", "assistant"]
    assert batch.messages[1].parts == [
        TextPart("Let me look."),
        ToolPart("c1", "weather", "", {"city": "Ghent"}, "12 degrees\nrain", "completed", None, 90),
        ToolPart("c2", "news", "", {}, "no route", "error", 7.0),
        ToolPart("c3", "clock", "time", {}, "", "pending"),
    ]


def test_openai_calls_are_joined_to_their_results() -> None:
    batch = only_batch(
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "Find it", "name": "Ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "it"}'}},
                {"id": "c2", "type": "function", "function": {"name": "say", "arguments": "not json"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "found", "duration_ms": 3.5},
        {"role": "assistant", "content": "Here it is."},
    )
    assert batch.left_out == 1
    assert batch.messages[0].speaker == "Ann"
    assert batch.messages[1].parts == [
        ToolPart("c1", "search", "", {"q": "it"}, "found", "completed", 3.5),
        ToolPart("c2", "say", "", {"arguments": "not json"}, "", "pending"),
    ]
    assert batch.messages[2].parts == [TextPart("Here it is.")]


def test_images_of_both_forms() -> None:
    batch = only_batch(
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                {"type": "image_url", "image_url": {"url": "https://example.com/b.png", "detail": "low"}},
            ],
        }
    )
    assert batch.messages[0].parts == [
        ImagePart("data:image/png;base64,AAAA"),
        ImagePart("https://example.com/a.png"),
        ImagePart("https://example.com/b.png", "low"),
    ]


def test_times_peers_and_ids_are_taken_over() -> None:
    batch = only_batch(
        {"role": "user", "content": "a", "timestamp": 1767225600, "peer_id": "ines", "turn_id": "t1", "id": "D1:3"},
        {"role": "user", "content": "b", "created_at": "2026-03-02T09:00:00+01:00"},
    )
    first, second = batch.messages
    assert (first.created_at, first.peer_id, first.turn_id) == (datetime(2026, 1, 1, tzinfo=UTC), "ines", "t1")
    assert first.id == "D1-3"
    assert second.created_at == datetime(2026, 3, 2, 8, tzinfo=UTC)


def test_markers_cut_batches() -> None:
    batches = chat(
        {"session": "monday"},
        {"role": "user", "content": "a"},
        {"used": {"contexts": ["viking://user/memories/profile.md"]}},
        {"commit": True},
        {"role": "user", "content": "b"},
        {"session": "tues day"},
        {"role": "user", "content": "c"},
    )
    assert [(batch.session_id, len(batch.messages)) for batch in batches] == [
        ("monday", 1),
        ("monday", 1),
        ("tues-day", 1),
    ]
    assert batches[0].usages[0].contexts == ["viking://user/memories/profile.md"]


def test_made_ids_are_the_same_for_the_same_file_and_new_for_an_edited_line() -> None:
    lines = [{"role": "user", "content": "a"}, {"role": "user", "content": "a"}, {"role": "user", "content": "c"}]
    ids = [message.id for message in only_batch(*lines).messages]
    assert ids == [message.id for message in only_batch(*lines).messages]
    assert len(set(ids)) == 3
    lines[2]["content"] = "d"
    edited = [message.id for message in only_batch(*lines).messages]
    assert edited[:2] == ids[:2] and edited[2] != ids[2]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (['{"role": "user"'], "line 1 is not JSON"),
        (['{"role": "user", "content": "a"}', '{"role": "robot", "content": "b"}'], "line 2: role"),
        (['{"content": "a"}'], "line 1: neither"),
        (["[" * 200_000], "line 1 is not JSON that can be read: it is nested"),
        (["9" * 5000], "line 1 is not JSON that can be read: a number"),
        (['{"session": null}'], "line 1: session"),
        (['{"role": "user", "content": "a", "created_at": "0001-01-01T00:00+14:00"}'], "line 1: created_at"),
        (["[1]"], "line 1: a line is a JSON object"),
        (['{"role": "tool", "tool_call_id": "c9", "content": "x"}'], "line 1: a tool result answers no tool call"),
        (['{"role": "user", "content": [{"type": "video"}]}'], "line 1: content"),
        (['{"role": "user", "content": "a", "created_at": "2026-03-02T09:00:00"}'], "line 1: created_at"),
        (['{"used": {"context": []}}'], "line 1: context"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_line_and_not_quoted(lines: list[str], complaint: str) -> None:
    with pytest.raises(TranscriptError, match=complaint):
        read_chat(lines, "chat")


def test_odd_line_separators_inside_a_message_do_not_cut_it(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text('{"role": "user", "content": "one\u2028two\u0085three"}\r\n', encoding="utf-8", newline="")
    [batch] = read_transcript(file)
    assert batch.messages[0].parts == [TextPart("one\u2028two\u0085three")]


def locomo() -> list[dict[str, Any]]:
    turns = [
        {"speaker": "Ann", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a red kite", "query": "kite"},
        {"speaker": "Ben", "dia_id": "D2:2", "text": "Nice."},
    ]
    conversation = {
        "speaker_a": "Ann",
        "speaker_b": "Ben",
        "session_10": [{"speaker": "Ben", "dia_id": "D10:1", "text": "Later."}],
        "session_10_date_time": "12:05 am on 1 January, 2024",
        "session_2": turns,
        "session_2_date_time": "1:56 pm on 8 May, 2023",
        "session_11_date_time": "1:56 pm on 9 May, 2024",
    }
    return [{"sample_id": "conv-1", "conversation": conversation, "qa": []}]


def test_a_locomo_file_gives_one_batch_a_session_in_order(tmp_path: Path) -> None:
    file = tmp_path / "set.json"
    file.write_text(json.dumps(locomo()), encoding="utf-8")
    first, second = read_transcript(file)
    assert (first.session_id, second.session_id) == ("conv-1_s2", "conv-1_s10")
    assert first.user == "conv-1"
    look = first.messages[0]
    assert (look.id, look.speaker, look.role) == ("D2-1", "Ann", "user")
    assert look.parts == [TextPart("Look!"), TextPart("[photo: a red kite]")]
    assert look.created_at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert second.messages[0].created_at == datetime(2024, 1, 1, 0, 5, tzinfo=UTC)


def test_a_locomo_session_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = locomo()
    broken[0]["conversation"]["session_2_date_time"] = "yesterday"
    file = tmp_path / "set.json"
    file.write_text(json.dumps(broken), encoding="utf-8")
    with pytest.raises(TranscriptError, match="conv-1, session_2"):
        read_transcript(file)


def test_the_form_can_be_demanded(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text('{"role": "user", "content": "a"}\n', encoding="utf-8")
    with pytest.raises(TranscriptError, match="LoCoMo"):
        read_transcript(file, form="locomo")


@pytest.mark.parametrize("agent", ["claude_code", "codex"])
def test_the_transcript_of_a_coding_agent_is_known_by_its_lines(agent: str) -> None:
    [batch] = read_transcript(AGENT_TRANSCRIPTS / f"{agent}.jsonl", session_id="work")

    assert batch.session_id == "work"
    assert {message.role for message in batch.messages} == {"user", "assistant"}
    again = read_transcript(AGENT_TRANSCRIPTS / f"{agent}.jsonl", form=cast(Form, agent.replace("_", "-")))
    assert [one.id for one in again[0].messages] == [one.id for one in batch.messages]


@pytest.mark.parametrize(
    ("agent", "stem", "session"),
    [
        ("claude_code", "4c1fa2e0-0000-4000-8000-00000000000a", "claude-code-4c1fa2e0-0000-4000-8000-00000000000a"),
        (
            "codex",
            "rollout-2026-11-28T07-00-00-4c1fa2e0-0000-4000-8000-00000000000a",
            "codex-4c1fa2e0-0000-4000-8000-00000000000a",
        ),
        ("claude_code", "notes", "claude-code-notes"),
    ],
)
def test_a_transcript_becomes_the_session_that_hooks_fill(tmp_path: Path, agent: str, stem: str, session: str) -> None:
    file = tmp_path / f"{stem}.jsonl"
    file.write_bytes((AGENT_TRANSCRIPTS / f"{agent}.jsonl").read_bytes())
    [batch] = read_transcript(file)
    assert batch.session_id == session


@pytest.mark.parametrize(
    ("form", "content", "complaint"),
    [
        ("chatgpt", b"[]", "ChatGPT"),
        ("claude", b'[{"mapping": {}}]', "Claude"),
        ("claude-code", b'{"role": "user", "content": "a"}', "nothing that was said"),
        ("auto", b"PK\x05\x06" + b"\0" * 18, "no file conversations.json"),
        ("auto", b"\xff\xfe", "not UTF-8"),
        ("auto", b"[" * 200_000, "export: the file begins like one JSON list but is not JSON that can be read"),
        ("auto", b"[" + b"9" * 5000 + b"]", "a number has too many digits"),
        ("auto", b"[]", "export: an empty list"),
        ("auto", b'[{"role": "user"}]', "export: a list, but not of conversations"),
        ("auto", b'[{"mapping": {}}, {"mapping": null}]', "export: conversation 2 has no `mapping`"),
        ("auto", b'[{"chat_messages": 1}]', "export: conversation 1 has no list `chat_messages`"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, form: Any, content: bytes, complaint: str) -> None:
    file = tmp_path / "export"
    file.write_bytes(content)
    with pytest.raises(TranscriptError, match=complaint):
        read_transcript(file, form=form)


@pytest.mark.parametrize("line", ["[" * 200_000, "9" * 5000, '{"half'], ids=["nested", "long number", "cut"])
@pytest.mark.parametrize("agent", ["claude_code", "codex"])
def test_a_line_of_a_coding_agent_that_cannot_be_parsed_is_passed_over(tmp_path: Path, agent: str, line: str) -> None:
    transcript = (AGENT_TRANSCRIPTS / f"{agent}.jsonl").read_text(encoding="utf-8")
    file = tmp_path / "session.jsonl"
    file.write_text(f"{transcript}\n{line}\n", encoding="utf-8")
    [batch], [whole] = read_transcript(file), read_transcript(AGENT_TRANSCRIPTS / f"{agent}.jsonl")
    assert batch.messages == whole.messages


def test_no_text_of_a_coding_agent_becomes_the_word_none(tmp_path: Path) -> None:
    calls = [{"type": "tool_use", "id": "c", "name": None}, {"type": "text", "text": None}]
    result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": None}]}
    file = tmp_path / "session.jsonl"
    lines = [
        {"sessionId": "s", "type": "assistant", "uuid": "u1", "message": {"content": calls}},
        {"sessionId": "s", "type": "user", "uuid": "u2", "message": {"content": [result]}},
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    [batch] = read_transcript(file)
    assert [message.parts for message in batch.messages] == [[ToolPart("c", "tool", status="completed")]]


@pytest.mark.parametrize("value", ["9" * 400, "[" * 150 + "]" * 150], ids=["long number", "nested"])
def test_the_input_of_a_call_that_cannot_be_sent_becomes_text(tmp_path: Path, value: str) -> None:
    file = tmp_path / "session.jsonl"
    content = f'[{{"type": "tool_use", "id": "c", "name": "n", "input": {{"a": {value}}}}}]'
    file.write_text(f'{{"sessionId": "s", "type": "assistant", "uuid": "u", "message": {{"content": {content}}}}}')
    [batch] = read_transcript(file)
    assert batch.messages[0].parts == [ToolPart("c", "n", input={"shortened": f'{{"a": {value}}}'})]
    message_to_wire(batch.messages[0])


def test_half_of_a_surrogate_pair_in_the_input_of_a_call_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    content = [{"type": "tool_use", "id": "c", "name": "n", "input": {"a": "\ud83d"}}]
    file.write_text(json.dumps({"sessionId": "s", "type": "assistant", "uuid": "u", "message": {"content": content}}))
    [batch] = read_transcript(file)
    assert batch.messages[0].parts == [ToolPart("c", "n", input={"a": "?"})]
    message_to_wire(batch.messages[0])


def test_the_sample_has_what_the_demo_shows() -> None:
    batches = read_transcript(SAMPLE)
    messages = [message for batch in batches for message in batch.messages]
    days = {message.created_at.date() for message in messages if message.created_at}
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolPart)]
    assert len(batches) == len(days) == 4
    assert {message.peer_id for message in messages} == {"", "ines", "tomas"}
    assert {call.status for call in calls} == {"completed", "error"}
    assert all(call.duration_ms and call.total_tokens for call in calls)
    assert any(usage.skill for batch in batches for usage in batch.usages)
