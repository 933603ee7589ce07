"""Describes the result of a task: in a few words, and in tables."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runekeep.cli.common.formats import format_count
from runekeep.cli.common.output import Output
from runekeep.cli.tasks.token_table import show_token_table

if TYPE_CHECKING:
    from runekeep.client.tasks.results import CommitResult, LeftOutOperation, Task, TurnTaskResult

STYLES = {"pending": "yellow", "running": "blue", "completed": "green", "failed": "red", "cancelled": "magenta"}
"""By the status of a task."""

_COUNTS = ("adds", "updates", "deletes", "unchanged", "skipped", "rejected", "held")
_COUNTED = ("new", "changed", "deleted", "unchanged", "skipped", "rejected", "held")


def format_changes(result: "CommitResult") -> str:
    """Returns how many memories a commit added, changed and deleted, such as `+2 ~1 -0`."""
    return f"+{result.total_adds} ~{result.total_updates} -{result.total_deletes}"


def describe_outcome(task: "Task") -> str:
    """Describes in a few words how a task ended, or what a waiting task waits for."""
    if task.waiting_for:
        return _describe_wait(task)
    if task.kind in ("turn_fingerprint", "bucket_reconcile"):
        return _describe_turn_task(task)
    result, error = task.result, task.error
    if task.status == "failed" and result is not None and error is not None:
        return f"{_words(result.outcome)}: {error.message}"
    if result is not None:
        text = _words(result.outcome)
        if result.outcome not in ("nothing_to_extract", "nothing_applied"):
            text += f": {result.total_adds} new, {result.total_updates} changed, {result.total_deletes} deleted"
        left_out = len(result.rejected) + len(result.skipped)
        text += f", {left_out} left out" if left_out else ""
        return text + (f", {result.held_for_review} held for review" if result.held_for_review else "")
    if error is not None:
        return error.message
    return task.progress.message if task.progress else ""


def summarize_outcome(task: "Task") -> str:
    """Describes how a task ended, for a row of a table."""
    result = task.result
    if result is None or result.outcome != "applied" or result.rejected or result.skipped:
        return describe_outcome(task)
    return format_changes(result)


def show_task(output: Output, task: "Task") -> None:
    """Prints a task: as JSON, or as its state and tables of its result."""
    if output.as_json:
        output.json(task)
        return
    from rich.text import Text

    text = Text.assemble((task.status, f"bold {STYLES[task.status]}"), f"  {describe_outcome(task)}")
    text.append(f"\n{task.archive_uri or task.session}", style="cyan")
    text.append(f"\nattempt {task.attempt}, lost leases {task.lost_leases}", style="dim")
    result, of_turns = task.result, task.turn_result
    made_by = (result and result.extractor) or (of_turns and of_turns.extractor)
    if made_by:
        text.append(f"\nby the {made_by.engine} extractor, {made_by.model}", style="dim")
        text.append(f"; revision {result.revision}" if result and result.revision else "", style="dim")
    pending = describe_pending(task)
    if pending:
        text.append(f"\n{pending}", style="yellow")
    output.say(text)
    if result is not None:
        _show_tables(output, task.task_id, result)
    if of_turns is not None:
        _show_dropped_and_usage(output, of_turns)
    if task.usage:
        output.say("")
        show_token_table(output, "spent so far on", task.usage)


def _show_tables(output: Output, task_id: str, result: "CommitResult") -> None:
    counts = [
        (name, *(getattr(of_type, kind) or "" for kind in _COUNTS)) for name, of_type in result.counts_by_type.items()
    ]
    if counts:
        output.say("")
        output.rows(("type", *_COUNTED), counts, "")
    left_out = [*_left_out_rows("skipped", result.skipped), *_left_out_rows("rejected", result.rejected)]
    if left_out:
        output.say("")
        output.rows(("left out", "reason", "type", "why"), left_out, "", whole="reason")
    if result.held_for_review:
        held = format_count(result.held_for_review, "operation was", "operations were")
        output.say(f"\n{held} held for review: `runekeep proposal show {task_id}`.", "yellow")
    if result.duplicates:
        dropped = format_count(
            result.duplicates,
            "new memory was dropped: it says what is there already",
            "new memories were dropped: they say what is there already",
        )
        output.say(f"\n{dropped}.", "dim")
    if result.secrets_withheld:
        withheld = format_count(result.secrets_withheld, "secret was", "secrets were")
        output.say(f"\n{withheld} taken out of what is remembered.", "yellow")
    if result.fingerprints:
        got = format_count(result.fingerprints, "turn has", "turns have")
        output.say(f"\n{got} a fingerprint now and had none.", "dim")
    if result.skipped_rules:
        rules = ", ".join(f"{rule} ({count})" for rule, count in result.skipped_rules.items())
        output.say(f"\nRules of the extractor that failed and were skipped: {rules}.", "yellow")
    _show_dropped_and_usage(output, result)


def _show_dropped_and_usage(output: Output, result: "CommitResult | TurnTaskResult") -> None:
    if result.dropped_items:
        unread = format_count(result.dropped_items, "item", "items")
        output.say(f"\n{unread} of the model's answer could not be read.", "yellow")
    if result.usage:
        output.say("")
        show_token_table(output, "spent on", result.usage)


def _describe_wait(task: "Task") -> str:
    """Returns what a task waits for: as its current attempt reports, or between two attempts as the last one reported,
    without the failure's class."""
    progress, error = task.progress, task.error
    message = ""
    if task.status == "running" and progress is not None:
        message = progress.message
    elif error is not None:
        message = error.message.partition(": ")[2]
    part = "blob store" if task.waiting_for == "blobs" else task.waiting_for
    begin = f"waiting for the {part}"
    text = message if message.startswith(begin) else f"{begin}: {message}"
    return f"{_subject(task)}: {text}" if task.kind in ("turn_fingerprint", "bucket_reconcile") else text


def _subject(task: "Task") -> str:
    """Describes the subject of a task about turns."""
    return f"turn {task.turn_id}" if task.kind == "turn_fingerprint" else "buckets"


def _describe_turn_task(task: "Task") -> str:
    """Describes the subject and the state of a task about turns."""
    subject = _subject(task)
    result, error, progress = task.turn_result, task.error, task.progress
    if error is not None:
        return f"{subject}: {error.message}"
    if result is not None and task.kind == "turn_fingerprint":
        found = ["fingerprint filled in"] if result.fingerprints else []
        found += ["selection stored"] if result.selection_stored else []
        found += [format_count(result.feedback, "reaction", "reactions")] if result.feedback else []
        return f"{subject}: {', '.join(found) or 'nothing to add'}"
    if result is not None:
        left = result.turns_left
        return (
            f"{subject}: {result.buckets_changed} changed, {result.buckets_added} added, "
            f"{result.buckets_disabled} disabled" + (f", {format_count(left, 'turn', 'turns')} left" if left else "")
        )
    return f"{subject}: {progress.message}" if progress and progress.message else subject


def _left_out_rows(what: str, items: "list[LeftOutOperation]") -> Iterator[tuple[str, str, str, str]]:
    for item in items:
        # Within the user's space; the whole URI, which a table would break, is in the JSON.
        name = item.uri.split("/", 4)[-1]
        why = f"{name}: {item.message}" if name else item.message
        yield what, item.reason, item.memory_type, why


def _words(outcome: str) -> str:
    return outcome.replace("_", " ")


def describe_pending(task: "Task") -> str:
    """Returns a sentence about the part of a commit that a search cannot find in full yet; empty if it finds all."""
    parts = []
    if task.pending_passages:
        parts.append(format_count(task.pending_passages, "message", "messages"))
    if task.pending_memories:
        parts.append(format_count(task.pending_memories, "memory", "memories"))
    return f"Search does not find {' and '.join(parts)} of it in full yet." if parts else ""
