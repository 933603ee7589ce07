"""Which batches show an agent at work."""

import pytest

from runekeep.v1 import common_pb2, extractor_service_pb2, turn_memory_service_pb2
from runekeep_extractor.engine.agent_work import shows_work
from tests.doubles.fixed_job import message

ASSISTANT = common_pb2.ROLE_ASSISTANT
NONE = extractor_service_pb2.UsageChunk()
CALL = common_pb2.Message(
    role=ASSISTANT,
    parts=[
        common_pb2.Part(text=common_pb2.TextPart(text="I look.")),
        common_pb2.Part(tool=common_pb2.ToolPart(tool_id="t", tool_name="grep", status=common_pb2.TOOL_STATUS_PENDING)),
    ],
)


@pytest.mark.parametrize(
    ("text", "role", "works"),
    [
        ("Good morning! I like tea.", common_pb2.ROLE_USER, False),
        ("Tea is good. 1. Green 2. black", ASSISTANT, False),
        ("Three cafés:\n- Fjord\n- Kvarteret\n- Dromedar", ASSISTANT, False),
        ("1. Boil.\n2. Pour.", ASSISTANT, False),
        ("1. Boil.\n2. Pour.\n3) Wait.", ASSISTANT, True),
        ("Here:\n```python\nprint()\n```", ASSISTANT, True),
        ("Why does this fail?\n```\nx = 1\n```\n1. a\n2. b\n3. c", common_pb2.ROLE_USER, False),
    ],
)
def test_of_an_answer_only_code_and_numbered_steps_show_work(text: str, role: int, works: bool) -> None:
    assert shows_work([message(1, text, role=role)], NONE, []) is works  # type: ignore[arg-type]  # a number of the enum


def test_tool_calls_used_skills_and_summaries_of_turns_show_work() -> None:
    chat = [message(1, "Hello.")]
    assert shows_work([*chat, CALL], NONE, [])
    assert shows_work(chat, extractor_service_pb2.UsageChunk(skills=[{"uri": "viking://user/skills/x"}]), [])  # type: ignore[list-item]  # taken as a message
    assert not shows_work(
        chat, extractor_service_pb2.UsageChunk(context_uris=["viking://user/memories/profile.md"]), []
    )

    def turn(**summary: object) -> turn_memory_service_pb2.CandidateTurn:
        made = turn_memory_service_pb2.TurnSummary(**summary)  # type: ignore[arg-type]  # the names of fields are parameters of the test
        return turn_memory_service_pb2.CandidateTurn(turn=turn_memory_service_pb2.Turn(summary=made))

    for summary in ({"done": ["Moved it"]}, {"not_done": ["The rest"]}, {"delivered_to_user": "A plan"}):
        assert shows_work(chat, NONE, [turn(), turn(**summary)])
    assert not shows_work(chat, NONE, [turn(user_inquiry="How are you?", assistant_answer="Well.")])
