"""Describes what a search cannot find yet."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runekeep.cli.common.formats import format_count

if TYPE_CHECKING:
    from runekeep.client.asks import AskResult
    from runekeep.client.memories.results import RecallResult, SearchResults


def list_missing(found: "SearchResults | RecallResult | AskResult") -> Iterator[str]:
    """Yields a sentence for each part that may be missing from a result; none if it is complete."""
    from runekeep.client.memories.outcomes import describe_degraded

    yield from map(describe_degraded, found.degraded)
    if found.pending_passages:
        yield f"{format_count(found.pending_passages, 'message is', 'messages are')} not in the index yet."
    if found.pending_memories:
        waiting = format_count(found.pending_memories, "memory is", "memories are")
        yield f"{waiting} found by words alone as yet."
