"""What became of a task, for people: in a few words, and at length in tables."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runekeep.cli.completeness import pending_of
from runekeep.cli.output import Output, counted
from runekeep.cli.spending import show_spending

if TYPE_CHECKING:
    from runekeep.client.results import CommitResult, LeftOut, Task, TurnTaskResult

STYLES = {"pending": "yellow", "running": "blue", "completed": "green", "failed": "red", "cancelled": "magenta"}
"""By the status of a task."""

_COUNTS = ("adds", "updates", "deletes", "unchanged", "skipped", "rejected")
_COUNTED = ("new", "changed", "deleted", "unchanged", "skipped", "rejected")


def changes(result: "CommitResult") -> str:
    """How many memories a commit added, changed and deleted, in a few signs."""
    return f"+{result['total_adds']} ~{result['total_updates']} -{result['total_deletes']}"


def outcome(task: "Task") -> str:
    """Describes in a few words how a task ended, or what a waiting task waits for."""
    if task["waiting_for"]:
        return _waiting(task)
    if task["kind"] in ("turn_fingerprint", "bucket_reconcile"):
        return _about_turns(task)
    result, error = task["result"], task["error"]
    if task["status"] == "failed" and result is not None and error is not None:
        return f"{_words(result['outcome'])}: {error['message']}"
    if result is not None:
        text = _words(result["outcome"])
        if result["outcome"] not in ("nothing_to_extract", "nothing_applied"):
            text += (
                f": {result['total_adds']} new, {result['total_updates']} changed, {result['total_deletes']} deleted"
            )
        left_out = len(result["rejected"]) + len(result["skipped"])
        return text + (f", {left_out} left out" if left_out else "")
    if error is not None:
        return error["message"]
    return task["progress"]["message"] if task["progress"] else ""


def outcome_in_brief(task: "Task") -> str:
    """The same for a line of a table. A task without a result of a commit is told as it is."""
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
    text.append(f"\n{task['archive_uri'] or task['session']}", style="cyan")
    text.append(f"\nattempt {task['attempt']}, lost leases {task['lost_leases']}", style="dim")
    result, of_turns = task["result"], task["turn_result"]
    made_by = (result and result["extractor"]) or (of_turns and of_turns["extractor"])
    if made_by:
        text.append(f"\nby the {made_by['engine']} extractor, {made_by['model']}", style="dim")
        text.append(f"; revision {result['revision']}" if result and result["revision"] else "", style="dim")
    pending = pending_of(task)
    if pending:
        text.append(f"\n{pending}", style="yellow")
    output.say(text)
    if result is not None:
        _tables(output, result)
    if of_turns is not None:
        _unread_and_spent(output, of_turns)


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
    if result["fingerprints"]:
        got = counted(result["fingerprints"], "turn has", "turns have")
        output.say(f"\n{got} a fingerprint now and had none.", "dim")
    if result["skipped_rules"]:
        rules = ", ".join(f"{rule} ({count})" for rule, count in result["skipped_rules"].items())
        output.say(f"\nRules of the extractor that failed and were skipped: {rules}.", "yellow")
    _unread_and_spent(output, result)


def _unread_and_spent(output: Output, result: "CommitResult | TurnTaskResult") -> None:
    if result["dropped_items"]:
        unread = counted(result["dropped_items"], "item", "items")
        output.say(f"\n{unread} of the model's answer could not be read.", "yellow")
    if result["usage"]:
        output.say("")
        show_spending(output, "spent on", result["usage"])


def _waiting(task: "Task") -> str:
    """Returns what a task waits for: as its current attempt reports, or between two attempts as the last one reported,
    without the failure's class."""
    progress, error = task["progress"], task["error"]
    told = ""
    if task["status"] == "running" and progress is not None:
        told = progress["message"]
    elif error is not None:
        told = error["message"].partition(": ")[2]
    part = "blob store" if task["waiting_for"] == "blobs" else task["waiting_for"]
    begin = f"waiting for the {part}"
    text = told if told.startswith(begin) else f"{begin}: {told}"
    return f"{_subject(task)}: {text}" if task["kind"] in ("turn_fingerprint", "bucket_reconcile") else text


def _subject(task: "Task") -> str:
    """Describes the subject of a task about turns."""
    return f"turn {task['turn_id']}" if task["kind"] == "turn_fingerprint" else "buckets"


def _about_turns(task: "Task") -> str:
    """What it is about, and how that stands."""
    subject = _subject(task)
    result, error, progress = task["turn_result"], task["error"], task["progress"]
    if error is not None:
        return f"{subject}: {error['message']}"
    if result is not None and task["kind"] == "turn_fingerprint":
        found = ["fingerprint filled in"] if result["fingerprints"] else []
        found += ["selection stored"] if result["selection_stored"] else []
        found += [counted(result["feedback"], "reaction", "reactions")] if result["feedback"] else []
        return f"{subject}: {', '.join(found) or 'nothing to add'}"
    if result is not None:
        left = result["turns_left"]
        return (
            f"{subject}: {result['buckets_changed']} changed, {result['buckets_added']} added, "
            f"{result['buckets_disabled']} disabled" + (f", {counted(left, 'turn', 'turns')} left" if left else "")
        )
    return f"{subject}: {progress['message']}" if progress and progress["message"] else subject


def _left_out(what: str, items: "list[LeftOut]") -> Iterator[tuple[str, str, str, str]]:
    for item in items:
        # Within the user's space; the whole URI, which a table would break, is in the JSON.
        name = item["uri"].split("/", 4)[-1]
        why = f"{name}: {item['message']}" if name else item["message"]
        yield what, item["reason"], item["memory_type"], why


def _words(outcome: str) -> str:
    return outcome.replace("_", " ")
