"""Renders the records of extraction attempts."""

from typing import TYPE_CHECKING

from runekeep.cli.common.formats import format_count, format_minute
from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from rich.tree import Tree

    from runekeep.client.tasks.results import ExtractionAttempt, ModelCall

_DIGITS = 12
"""Digits of a digest to show; the JSON has all."""


def show_record(output: Output, attempts: "list[ExtractionAttempt]") -> None:
    """Prints attempts: as JSON, or as a tree of their calls with the whole answers."""
    if output.as_json:
        output.json({"attempts": attempts})
        return
    if not attempts:
        output.say("Nothing is recorded of this task.", "dim")
        return
    for attempt in attempts:
        output.console.print(_tree(attempt))


def _tree(attempt: "ExtractionAttempt") -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    failure = attempt.failure
    head = Text.assemble(
        (f"attempt {attempt.number}", "bold"),
        ("  failed", "red") if failure else ("  applied", "green"),
        (f"  {format_minute(attempt.end_time)}", "dim"),
    )
    tree = Tree(head)
    if failure:
        tree.add(Text(failure.message, style="red"))
    made_by = attempt.extractor
    if made_by is not None:
        words = " ".join(filter(None, (f"{made_by.engine} extractor", made_by.version, made_by.model)))
        tree.add(Text(f"{words}; read at revision {attempt.base_revision}", style="dim"))
    types = tree.add(Text(format_count(len(attempt.type_digests), "memory type", "memory types"), style="dim"))
    for name, digest in attempt.type_digests.items():
        types.add(Text(f"{name}  {digest[:_DIGITS]}", style="dim"))
    for number, call in enumerate(attempt.calls, 1):
        tree.add(_call(number, call))
    return tree


def _call(number: int, call: "ModelCall") -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    head = Text.assemble(
        (f"call {number}  {call.phase}", "cyan"),
        f"  {call.model}  {call.stop_reason}",
        (f"  prompt {call.prompt_digest[:_DIGITS]}", "dim"),
    )
    tree = Tree(head)
    tree.add(Text(call.answer) if call.answer else Text("the answer is not kept", style="dim"))
    return tree
