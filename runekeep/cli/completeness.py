"""Sentences that say what a search cannot find yet."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runekeep.cli.output import counted

if TYPE_CHECKING:
    from runekeep.client.recall_results import Recalled
    from runekeep.client.results import Found, Task

_DEGRADED = {
    "rebuilding": "The user is being written to the index: messages may be missing.",
    "vectors": "Some memories or messages are found by their words alone: their vectors are on the way.",
}


def missing_from(found: "Found | Recalled") -> Iterator[str]:
    """Returns what may be missing from an answer; nothing if it is complete."""
    for part in found["degraded"]:
        yield _DEGRADED.get(part, f"Without {part} search: it could not run.")
    if found["pending_passages"]:
        yield f"{counted(found['pending_passages'], 'message is', 'messages are')} not in the index yet."
    if found["pending_memories"]:
        waiting = counted(found["pending_memories"], "memory is", "memories are")
        yield f"{waiting} found by words alone as yet."


def pending_of(task: "Task") -> str:
    """Returns a sentence about the part of a commit that a search cannot find in full yet; empty if it finds all."""
    parts = []
    if task["pending_passages"]:
        parts.append(counted(task["pending_passages"], "message", "messages"))
    if task["pending_memories"]:
        parts.append(counted(task["pending_memories"], "memory", "memories"))
    return f"Search does not find {' and '.join(parts)} of it in full yet." if parts else ""
