"""What attempts at an extraction were made of, for people."""

from typing import TYPE_CHECKING

from runekeep.cli.output import Output, counted, minute

if TYPE_CHECKING:
    from rich.tree import Tree

    from runekeep.client.results import ExtractionAttempt, ModelCall

_DIGITS = 12
"""Of a digest, for people; the JSON has all of them."""


def show_record(output: Output, attempts: "list[ExtractionAttempt]") -> None:
    """One JSON object; or a tree of attempts and their calls, answers whole."""
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

    failure = attempt["failure"]
    head = Text.assemble(
        (f"attempt {attempt['number']}", "bold"),
        ("  failed", "red") if failure else ("  applied", "green"),
        (f"  {minute(attempt['end_time'])}", "dim"),
    )
    tree = Tree(head)
    if failure:
        tree.add(Text(failure["message"], style="red"))
    made_by = attempt["extractor"]
    if made_by is not None:
        words = " ".join(filter(None, (f"{made_by['engine']} extractor", made_by["version"], made_by["model"])))
        tree.add(Text(f"{words}; read at revision {attempt['base_revision']}", style="dim"))
    types = tree.add(Text(counted(len(attempt["type_digests"]), "memory type", "memory types"), style="dim"))
    for name, digest in attempt["type_digests"].items():
        types.add(Text(f"{name}  {digest[:_DIGITS]}", style="dim"))
    for number, call in enumerate(attempt["calls"], 1):
        tree.add(_call(number, call))
    return tree


def _call(number: int, call: "ModelCall") -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    head = Text.assemble(
        (f"call {number}  {call['phase']}", "cyan"),
        f"  {call['model']}  {call['stop_reason']}",
        (f"  prompt {call['prompt_digest'][:_DIGITS]}", "dim"),
    )
    tree = Tree(head)
    tree.add(Text(call["answer"]) if call["answer"] else Text("the answer is not kept", style="dim"))
    return tree
