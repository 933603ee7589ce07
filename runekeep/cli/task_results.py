"""What became of a commit, for people: in a few words, and at length in tables."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runekeep.cli.output import Output, counted
from runekeep.cli.spending import show_spending

if TYPE_CHECKING:
    from runekeep.client.results import CommitResult, LeftOut, Task

STYLES = {"pending": "yellow", "running": "blue", "completed": "green", "failed": "red", "cancelled": "magenta"}
"""By the status of a task."""

_COUNTS = ("adds", "updates", "deletes", "unchanged", "skipped", "rejected")
_COUNTED = ("new", "changed", "deleted", "unchanged", "skipped", "rejected")


def changes(result: "CommitResult") -> str:
    """How many memories a commit added, changed and deleted, in a few signs."""
    return f"+{result['total_adds']} ~{result['total_updates']} -{result['total_deletes']}"


def outcome(task: "Task") -> str:
    """What became of a task, in a few words."""
    result, error = task["result"], task["error"]
    if task["status"] == "failed" and result is not None and error is not None:
        return f"{_words(result['outcome'])}: {error['message']}"
    if result is not None:
        text = _words(result["outcome"])
        if result["outcome"] != "nothing_to_extract":
            text += (
                f": {result['total_adds']} new, {result['total_updates']} changed, {result['total_deletes']} deleted"
            )
        left_out = len(result["rejected"]) + len(result["skipped"])
        return text + (f", {left_out} left out" if left_out else "")
    if error is not None:
        return error["message"]
    return task["progress"]["message"] if task["progress"] else ""


def outcome_in_brief(task: "Task") -> str:
    """The same for a line of a table."""
    result = task["result"]
    if result is None or result["outcome"] != "applied" or result["rejected"] or result["skipped"]:
        return outcome(task)
    return changes(result)


def show_task(output: Output, task: "Task") -> None:
    """One JSON object; or how the task stands, and tables of what its result counts."""
    if output.as_json:
        output.json(task)
        return
    from rich.text import Text

    text = Text.assemble((task["status"], f"bold {STYLES[task['status']]}"), f"  {outcome(task)}")
    text.append(f"\n{task['archive_uri']}", style="cyan")
    text.append(f"\nattempt {task['attempt']}, lost leases {task['lost_leases']}", style="dim")
    result = task["result"]
    if result is not None and result["extractor"] is not None:
        made_by = result["extractor"]
        text.append(f"\nby the {made_by['engine']} extractor, {made_by['model']}", style="dim")
        text.append(f"; revision {result['revision']}" if result["revision"] else "", style="dim")
    output.say(text)
    if result is not None:
        _tables(output, result)


def _tables(output: Output, result: "CommitResult") -> None:
    counts = [
        (name, *(of_type[kind] or "" for kind in _COUNTS))  # type: ignore[literal-required]  # its keys
        for name, of_type in result["counts_by_type"].items()
    ]
    if counts:
        output.say("")
        output.rows(("type", *_COUNTED), counts, "")
    left_out = [*_left_out("skipped", result["skipped"]), *_left_out("rejected", result["rejected"])]
    if left_out:
        output.say("")
        output.rows(("left out", "reason", "type", "why"), left_out, "", whole="reason")
    if result["duplicates"]:
        dropped = counted(
            result["duplicates"],
            "new memory was dropped: it says what is there already",
            "new memories were dropped: they say what is there already",
        )
        output.say(f"\n{dropped}.", "dim")
    if result["secrets_withheld"]:
        withheld = counted(result["secrets_withheld"], "secret was", "secrets were")
        output.say(f"\n{withheld} taken out of what is remembered.", "yellow")
    if result["dropped_items"]:
        unread = counted(result["dropped_items"], "item", "items")
        output.say(f"\n{unread} of the model's answer could not be read.", "yellow")
    if result["usage"]:
        output.say("")
        show_spending(output, "spent on", result["usage"])


def _left_out(what: str, items: "list[LeftOut]") -> Iterator[tuple[str, str, str, str]]:
    for item in items:
        # Within the user's space; the whole URI, which a table would break, is in the JSON.
        name = item["uri"].split("/", 4)[-1]
        why = f"{name}: {item['message']}" if name else item["message"]
        yield what, item["reason"], item["memory_type"], why


def _words(outcome: str) -> str:
    return outcome.replace("_", " ")
