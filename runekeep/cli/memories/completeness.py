"""Describes what a search cannot find yet."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runekeep.cli.common.formats import format_count

if TYPE_CHECKING:
    from runekeep.client.asks import AskResult
    from runekeep.client.memories.results import RecallResult, SearchResults

_DEGRADED = {
    "rebuilding": "The user is being written to the index: messages may be missing.",
    "reranker": "The reranker did not answer: the results are in the order without it.",
    "vectors": "Some memories or messages are found by their words alone: their vectors are on the way.",
}


def list_missing(found: "SearchResults | RecallResult | AskResult") -> Iterator[str]:
    """Yields a sentence for each part that may be missing from a result; none if it is complete."""
    for part in found["degraded"]:
        yield _DEGRADED.get(part, f"Without {part} search: it could not run.")
    if found["pending_passages"]:
        yield f"{format_count(found['pending_passages'], 'message is', 'messages are')} not in the index yet."
    if found["pending_memories"]:
        waiting = format_count(found["pending_memories"], "memory is", "memories are")
        yield f"{waiting} found by words alone as yet."
