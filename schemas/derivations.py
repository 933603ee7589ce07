"""Derived values that a template may name without declaring them: those of the design's own `tools` and `skills`.

A template that uses `{success_rate}`, `{avg_time}` or `{avg_tokens}` and declares no such value gets it, when its
operands are there as fields with `merge_op: sum`. The field that counts the unknown amounts comes with it, so that an
average is over known amounts alone.
"""

from collections.abc import Sequence
from typing import Final

from schemas.templates import placeholders
from schemas.types import Derived, DerivedFormat, Field, FieldType, MergeOp

_UNKNOWN: Final = "unknown"
_KNOWN: Final = (
    Derived("success_rate", "success_count", "total_calls", DerivedFormat.PERCENT, _UNKNOWN),
    Derived("success_rate", "success_count", "total_executions", DerivedFormat.PERCENT, _UNKNOWN),
    Derived("avg_time", "total_time_ms", "total_calls", DerivedFormat.DURATION_MS, _UNKNOWN, "untimed_calls"),
    Derived("avg_tokens", "total_tokens", "total_calls", DerivedFormat.NUMBER, _UNKNOWN, "unmetered_calls"),
)


def known_derivations(
    template: str, fields: Sequence[Field], derived: Sequence[Derived]
) -> tuple[tuple[Field, ...], tuple[Derived, ...]]:
    """Fields and derived values that a template needs and its type does not declare."""
    sums = {field.name for field in fields if field.merge_op is MergeOp.SUM}
    declared = {field.name for field in fields} | {one.name for one in derived}
    found: dict[str, Derived] = {}
    for one in _KNOWN:
        if one.name in placeholders(template) and one.name not in declared and {one.of, one.per} <= sums:
            found.setdefault(one.name, one)
    added = [
        Field(one.unknown, FieldType.INT64, f"Calls of which {one.of} knows nothing.", MergeOp.SUM)
        for one in found.values()
        if one.unknown and one.unknown not in declared
    ]
    return tuple(added), tuple(found.values())
