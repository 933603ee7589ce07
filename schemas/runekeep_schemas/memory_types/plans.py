"""Reads memories of the type `plans`: whether a plan is open, and when it is due."""

from collections.abc import Mapping
from typing import Final

from runekeep_schemas.memory_types.event_time import Period, period_of
from runekeep_schemas.memory_types.model import FieldValue

PLANS: Final = "plans"
"""The name of the type."""
OPEN: Final = "open"
"""The status of a plan that is neither done nor dropped."""


def is_open(fields: Mapping[str, FieldValue]) -> bool:
    """Returns whether a plan is open. One without a status is."""
    return (fields.get("status") or OPEN) == OPEN


def due(fields: Mapping[str, FieldValue]) -> Period | None:
    """Returns when a plan is due, as exactly as it is known; None if that is not known."""
    return period_of(str(fields.get("due", "")))
