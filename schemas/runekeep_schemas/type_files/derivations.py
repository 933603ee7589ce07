"""Derived values that a template may use without declaring them, as the `tools` and `skills` files of the design do.

A type gets `{success_rate}`, `{avg_time}` or `{avg_tokens}` if its template uses the value, the type does not declare
it, and the operands are fields with `merge_op: sum`. Averages also add a field that counts the unknown amounts, so that
they are computed from known amounts only.
"""

from collections.abc import Sequence
from typing import Final

from runekeep_schemas.memory_types.model import Derived, DerivedFormat, Field, FieldType, MergeOp
from runekeep_schemas.memory_types.templates import placeholders

_UNKNOWN: Final = "unknown"
_DERIVATIONS: Final = (
    Derived("success_rate", "success_count", "total_calls", DerivedFormat.PERCENT, _UNKNOWN),
    Derived("success_rate", "success_count", "total_executions", DerivedFormat.PERCENT, _UNKNOWN),
    Derived("avg_time", "total_time_ms", "total_calls", DerivedFormat.DURATION_MS, _UNKNOWN, "untimed_calls"),
    Derived("avg_tokens", "total_tokens", "total_calls", DerivedFormat.NUMBER, _UNKNOWN, "unmetered_calls"),
)


def known_derivations(
    template: str, fields: Sequence[Field], derived: Sequence[Derived]
) -> tuple[tuple[Field, ...], tuple[Derived, ...]]:
    """Returns the fields and derived values that a template uses and its type does not declare."""
    sums = {field.name for field in fields if field.merge_rule.adds}
    declared = {field.name for field in fields} | {one.name for one in derived}
    found: dict[str, Derived] = {}
    for one in _DERIVATIONS:
        if one.name in placeholders(template) and one.name not in declared and {one.of, one.per} <= sums:
            found.setdefault(one.name, one)
    added = [
        Field(one.unknown, FieldType.INT64, f"Calls whose share of {one.of} is unknown.", MergeOp.SUM)
        for one in found.values()
        if one.unknown and one.unknown not in declared
    ]
    return tuple(added), tuple(found.values())
