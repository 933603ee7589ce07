"""What a task says of its output: counts, what was left out and why."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from server.apply.operations import NO_OPERATION, Outcome
from server.apply.workspace import Draft

Changes = dict[str, list[dict[str, Any]]]
"""`operations` of memory_diff.json: `adds`, `updates` and `deletes`."""

NO_PLACE = NO_OPERATION
"""`operation_index` of what is told beside the operations of the output that the result is about."""
MAX_LEFT_OUT_CHARACTERS = 1024 * 1024
"""Of the entries that a result names: it comes back with every look at its task, and with lists of tasks."""


def of_applied(
    outcome: Outcome, changed: Sequence[Draft], changes: Changes, dropped_items: int, *, kept_besides: bool
) -> dict[str, Any]:
    """The result of an output that is applied, as JSON; the store adds what only its transaction knows.

    `kept_besides`: whether something of the output is kept that is no operation and no summary.
    """
    extracted = Counter(draft.type.name for draft in changed if draft.counted and draft.fields is not None)
    left_out = bool(outcome.skipped or outcome.rejected or dropped_items)
    nothing_applied = left_out and not (outcome.taken or extracted or kept_besides)
    if outcome.rejected or dropped_items:
        word = "partly_rejected"
    elif not outcome.operations and not extracted:
        word = "nothing_to_extract"
    else:
        word = "applied"
    return {
        "outcome": word,
        # Beside the older word, since servers of the release before know no other.
        **({"nothing_applied": True} if nothing_applied else {}),
        "memories_extracted": dict(sorted(extracted.items())),
        "total_adds": len(changes["adds"]),
        "total_updates": len(changes["updates"]),
        "total_deletes": len(changes["deletes"]),
        "unchanged": outcome.unchanged.total(),
        **_left_out(outcome),
        "dropped_items": dropped_items,
        "counts_by_type": _by_type(outcome, changes),
    }


def _left_out(outcome: Outcome) -> dict[str, Any]:
    """`skipped` and `rejected`: the first ones, what is wrong before what had nowhere to go; and how many others."""
    room, omitted = MAX_LEFT_OUT_CHARACTERS, 0
    told: dict[str, Any] = {"skipped": [], "rejected": []}
    skipped = [*outcome.skipped, *outcome.not_superseded]
    for kind, entries in (("rejected", outcome.rejected), ("skipped", skipped)):
        for entry in entries:
            room -= sum(len(str(value)) for value in entry.values())
            if room < 0:
                omitted += 1
            else:
                told[kind].append(entry)
    return {**told, "left_out_omitted": omitted} if omitted else told


def _by_type(outcome: Outcome, changes: Changes) -> dict[str, dict[str, int]]:
    """Counts named as in TypeCounts. An operation that names no type, for a wrong URI, is in none of them."""
    counters = {name: Counter(change["memory_type"] for change in found) for name, found in changes.items()}
    counters["unchanged"] = outcome.unchanged
    counters["skipped"] = Counter(one["memory_type"] for one in outcome.skipped)
    counters["rejected"] = Counter(one["memory_type"] for one in outcome.rejected)
    types = sorted({name for counter in counters.values() for name in counter if name})
    return {name: {kind: count for kind, counter in counters.items() if (count := counter[name])} for name in types}
