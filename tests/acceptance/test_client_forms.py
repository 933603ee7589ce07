"""Messages in the forms that applications have, sessions as blocks, and the short ways to remember and forget."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from openai.types.chat import ChatCompletionMessage

from runekeep import AsyncClient, Client, InvalidArgumentError, NotFoundError, TextPart, ToolPart, UnavailableError
from tests.acceptance.processes import Processes, processes

WAIT_SECONDS = 120.0
OPENAI = [
    {"role": "system", "content": "You are a helpful agent."},
    {"role": "user", "content": "What is the weather in Lisbon?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "assistant", "content": "It is sunny."},
]
ANTHROPIC = [
    {"role": "user", "content": "What is the weather in Lisbon?"},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Lisbon"}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "It is sunny."}]},
]
WEATHER = ToolPart("c1", "weather", input={"city": "Lisbon"}, output="sunny", status="completed")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with processes(tmp_path_factory.mktemp("forms")) as started:
        started.server(RUNEKEEP_EMBEDDER="none")
        started.extractor("worker", "--engine", "offline")
        yield started


@pytest.fixture
def client(fleet: Processes) -> Iterator[Client]:
    with Client(fleet.address, user="robin") as made:
        yield made


@pytest.mark.parametrize("form", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
def test_messages_of_other_apis_are_messages(client: Client, form: list[dict[str, Any]]) -> None:
    session = client.session()
    session.add_messages(form)
    assert [(one.role, list(one.parts)) for one in session.messages()] == [
        ("user", [TextPart("What is the weather in Lisbon?")]),
        ("assistant", [WEATHER]),
        ("assistant", [TextPart("It is sunny.")]),
    ]


def test_objects_of_the_sdks_are_messages(client: Client) -> None:
    session = client.session()
    usage = {"input_tokens": 1, "output_tokens": 1}
    answer = AnthropicMessage.model_validate(
        {"id": "msg_1", "type": "message", "model": "m", "content": [{"type": "text", "text": "Two."}]}
        | {"role": "assistant", "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
    )
    session.add_messages([ChatCompletionMessage(role="assistant", content="One."), answer])
    assert [one.parts for one in session.messages()] == [[TextPart("One.")], [TextPart("Two.")]]


def test_system_prompts_are_kept_only_if_asked_for(client: Client) -> None:
    session = client.session()
    with pytest.raises(ValueError, match="include_system=True"):
        session.add_messages(OPENAI[:1])
    session.add_messages(OPENAI[:1], include_system=True)
    (kept,) = session.messages()
    assert (kept.role, kept.speaker, kept.parts) == ("user", "system", [TextPart("You are a helpful agent.")])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"role": "robot", "content": "x"}, r"messages\[0\]\.role"),
        ({"role": "tool", "tool_call_id": "c9", "content": "x"}, r"messages\[0\]: a tool result answers no tool call"),
        ({"role": "assistant", "content": ""}, "have no text, image or tool call"),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": ""}},
            r"messages\[0\]\.function_call.*tool_calls",
        ),
        ("hello", r"messages\[0\]: expected a Message, a dictionary"),
    ],
)
def test_another_form_is_refused_by_its_place(client: Client, wrong: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        client.session().add_messages([wrong])
    with pytest.raises(ValueError, match="messages: expected a list of messages"):
        client.session().add_messages(wrong if isinstance(wrong, dict) else "hello")


def test_refusals_transcripts_and_images_of_results_are_kept(client: Client) -> None:
    session = client.session()
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    seen = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sunny"}, image]}
    session.add_messages(
        [
            {"role": "assistant", "content": None, "refusal": "I will not.", "name": None},
            {"role": "assistant", "content": None, "audio": {"id": "a1", "transcript": "It is sunny."}},
            ANTHROPIC[1],
            {"role": "user", "content": [seen]},
        ]
    )
    refused, spoken, called = session.messages()
    assert (refused.parts, spoken.parts) == ([TextPart("I will not.")], [TextPart("It is sunny.")])
    (part,) = called.parts
    assert isinstance(part, ToolPart) and part.output == "sunny\n[image]"


def test_a_block_commits_and_its_session_can_be_waited_for(client: Client) -> None:
    with client.session() as session:
        session.add_message("user", "I live in Lisbon and I prefer tea to coffee.")
    task = session.wait(WAIT_SECONDS)
    assert task is not None and task["status"] == "completed" and task["result"] is not None
    assert "Lisbon" in client.recall("Where does Robin live?")["text"]

    with pytest.raises(RuntimeError), client.session() as session:
        session.add_message("user", "Not yet.")
        raise RuntimeError("the block failed")
    assert session.info()["live_message_count"] == 1 and session.wait() is None

    # A block that only reads leaves what others added.
    with client.get_session(session.info()["session_id"]) as read:
        assert len(list(read.messages())) == 1
    assert session.info()["live_message_count"] == 1

    with client.session("never-used"):
        pass
    with pytest.raises(NotFoundError):
        client.get_session("never-used")


async def test_texts_that_are_remembered_at_a_time_all_name_a_task(fleet: Processes) -> None:
    async with AsyncClient(fleet.address, user="grace") as client:
        commits = await asyncio.gather(*[client.remember(f"I own {number} hats.") for number in range(12)])
        assert all(commit["task_id"] for commit in commits)


async def test_the_same_with_coroutines(fleet: Processes) -> None:
    async with AsyncClient(fleet.address, user="ada") as client:
        async with client.session() as session:
            await session.add_message("user", "I live in Porto.")
        task = await session.wait(WAIT_SECONDS)
        assert task is not None and task["status"] == "completed"


def test_remember_and_forget(client: Client) -> None:
    task = client.wait_task(client.remember("My favourite colour is teal.")["task_id"], timeout=WAIT_SECONDS)
    assert task["result"] is not None
    memory = client.put_memory("preferences", {"topic": "walks", "content": "Likes long walks."})
    gone = client.forget(memory["uri"], request_id="forget-walks")
    assert gone["deleted"] and client.forget(memory["uri"], request_id="forget-walks") == gone
    for request_id in (None, "another"):
        with pytest.raises(NotFoundError) as missing:
            client.forget(memory["uri"], request_id=request_id)
    assert (missing.value.reason, missing.value.resource_type) == ("RESOURCE_NOT_FOUND", "memory")


def test_an_unknown_option_is_refused_by_name(client: Client) -> None:
    with pytest.raises(TypeError, match=r"recall\(\) has no option 'budget'; did you mean 'token_budget'\?"):
        client.recall("tea", budget=50)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'memory_types'"):
        client.session("options").recall("tea", memory_type=["events"])  # type: ignore[call-arg]


def test_errors_say_which_field_and_whether_to_repeat(client: Client) -> None:
    with pytest.raises(InvalidArgumentError) as wrong:
        client.find("tea", limit=1000)
    assert (wrong.value.field, wrong.value.reason, wrong.value.retryable) == ("limit", "FIELD_INVALID", False)
    with Client("127.0.0.1:1", timeout=0.2) as nobody, pytest.raises(Exception) as away:
        nobody.find("tea")
    assert isinstance(away.value, UnavailableError | TimeoutError) and away.value.retryable  # type: ignore[union-attr]
