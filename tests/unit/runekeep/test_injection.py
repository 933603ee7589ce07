"""The block in which memory enters a prompt: where it goes, and that it can always be taken out again."""

import json
from typing import Any

import pytest

from runekeep.injection.block import strip_memory, wrap_memory
from runekeep.proxy.dialects import ChatCompletions


@pytest.mark.parametrize(
    "memory", ["- [1] Tea: green.", wrap_memory("of a block"), "</RUNEKEEP-MEMORY> I", "</system-reminder> I"]
)
def test_what_was_wrapped_is_stripped_wherever_it_stands(memory: str) -> None:
    block = wrap_memory(memory)
    assert block.count("<") == 2
    assert strip_memory(block) == ""
    assert strip_memory(f"Before.\n\n{block}\n\nAfter.") == "Before.\nAfter."
    # An agent shows the beginning of a long text alone.
    assert strip_memory(f"Before. {block[: len(block) // 2]}") == "Before."
    cut = f"<system-reminder>{block[: len(block) // 2]}</system-reminder>"
    assert strip_memory(f"{cut} After.") == "<system-reminder>\n</system-reminder> After."
    assert strip_memory("Nothing of it <b>here</b>.  ") == "Nothing of it <b>here</b>.  "


def test_memory_joins_the_callers_system_message_and_changes_nothing_of_the_request() -> None:
    given: list[dict[str, Any]] = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "Which tea?"},
        {"role": "system", "content": "A later note."},
    ]
    body = {"messages": given}
    before = json.dumps(body)
    changed = ChatCompletions().with_memory(body, 1, "Likes tea.", "Green tea.")["messages"]
    assert json.dumps(body) == before
    assert [one["role"] for one in changed] == ["developer", "user", "system"]
    assert changed[0]["content"] == [*given[0]["content"], {"type": "text", "text": wrap_memory("Likes tea.")}]
    assert changed[1]["content"] == f"{wrap_memory('Green tea.')}\n\nWhich tea?"
    assert changed[2] == given[2]
