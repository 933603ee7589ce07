"""Builds the result of a task: counts, and what was left out and why."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from runekeep_server.merging.outcome import NO_OPERATION, Outcome
from runekeep_server.merging.workspace import Draft

Changes = dict[str, list[dict[str, Any]]]
"""`operations` of memory_diff.json: `adds`, `updates` and `deletes`."""

NO_PLACE = NO_OPERATION
"""`operation_index` of an entry that belongs to no operation of the output."""
MAX_LEFT_OUT_CHARACTERS = 1024 * 1024
"""Maximum characters of the left-out entries in a result. Each read of the task, and each list of tasks, returns
them."""


def of_applied(
    outcome: Outcome, changed: Sequence[Draft], changes: Changes, dropped_items: int, *, kept_besides: bool
) -> dict[str, Any]:
    """Returns the result of an applied output, as JSON; the store adds what only its transaction knows. `kept_besides`:
    whether the output contains anything to keep besides operations and summary."""
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
        # In addition to the older word, because servers of the previous release know no other.
        **({"nothing_applied": True} if nothing_applied else {}),
        **({"held_for_review": len(outcome.held)} if outcome.held else {}),
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
    """Returns the first entries of `skipped` and `rejected` that fit, rejected ones first, and the number of the
    others."""
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
    """Returns counts named as in TypeCounts. An operation without a type, because of a wrong URI, is not counted."""
    counters = {name: Counter(change["memory_type"] for change in found) for name, found in changes.items()}
    counters["unchanged"] = outcome.unchanged
    counters["skipped"] = Counter(one["memory_type"] for one in outcome.skipped)
    counters["rejected"] = Counter(one["memory_type"] for one in outcome.rejected)
    counters["held"] = Counter(outcome.held)
    types = sorted({name for counter in counters.values() for name in counter if name})
    return {name: {kind: count for kind, counter in counters.items() if (count := counter[name])} for name in types}
