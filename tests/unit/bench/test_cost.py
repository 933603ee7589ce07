"""How `tests.bench.cost` counts, and that its page says what is measured."""

import re
from pathlib import Path

from tests.bench import conversations
from tests.bench.cost import KNOWN, REFERENCE_STATIC, measure, table
from tests.support.tokens import TOKENIZER, count, request_tokens

PAGE = Path(__file__).parents[3] / "docs" / "bench" / "cost.md"


def test_a_request_is_counted_part_by_part() -> None:
    body = {
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        "messages": [
            {"role": "user", "content": "Hello there"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "read", "input": {"uri": "a"}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "x", "content": "a line"},
                    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                ],
            },
        ],
    }
    tokens = request_tokens(body)
    assert tokens.prompt == count("Be brief.") + count("Be kind.") > 4
    assert tokens.tools == count('[{"name":"read","input_schema":{"type":"object"}}]')
    assert tokens.schema == count('{"type":"object"}')
    assert tokens.messages == count("Hello there") + count('{"name":"read","input":{"uri":"a"}}') + count("a line")
    assert (
        tokens.total
        == tokens.static + tokens.messages
        == tokens.prompt + tokens.tools + tokens.schema + tokens.messages
    )
    bare = request_tokens({"system": "Be brief.", "messages": body["messages"]})
    assert (bare.prompt, bare.tools, bare.schema) == (count("Be brief."), 0, 0)


def test_the_sessions_are_what_they_are_called() -> None:
    short, long, heavy = conversations.short(), conversations.long(), conversations.tool_heavy()
    assert len(short) < 10 and len(long) >= 700
    for messages in (short, long, heavy):
        assert [message.sequence for message in messages] == list(range(1, len(messages) + 1))
    texts = [message.parts[0].text.text for message in long]
    assert len(set(texts)) == len(texts)
    outputs = [part.tool.output for message in heavy for part in message.parts if part.HasField("tool")]
    assert len(outputs) == 30 and sum(len(output) > 4000 for output in outputs) >= 25


async def test_calls_are_those_that_the_engine_made() -> None:
    alone = await measure("short", conversations.short())
    near = await measure("short, near", conversations.short(), [KNOWN])
    long = await measure("long", conversations.long())
    assert alone.phases == {"operations": 1}
    assert near.phases == {"operations": 1, "dedup": 1}
    assert long.phases["operations"] > 1
    assert alone.static == near.static == long.static
    assert alone.static_all == alone.static < near.static_all < long.static_all
    assert alone.said < alone.total - alone.static < near.total - near.static_all
    assert long.said < long.total
    told = table([alone, near, long])
    assert TOKENIZER in told and f"| all of it | {alone.static:,} |" in told


async def test_the_page_says_what_a_call_carries_now() -> None:
    """When this fails the prompt has changed: run `make bench-cost` and put its tables on the page."""
    page = PAGE.read_text(encoding="utf-8")
    said = dict(re.findall(r"^\| ([a-z][^|]*?) \| ([\d,]+) \|$", page, re.MULTILINE))
    cost = await measure("short", conversations.short())
    assert {name: int(number.replace(",", "")) for name, number in said.items()} == {
        "prompt: rules and the built-in types": cost.prompt,
        "tool definitions": cost.tools,
        "schema of the answer": cost.schema,
        "all of it": cost.static,
        "the reference system, about": REFERENCE_STATIC,
    }
    assert TOKENIZER in page
