"""The block in which memory enters a prompt can always be taken out again."""

import pytest

from runekeep.injection.block import strip_memory, wrap_memory


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
