"""Checks and converts arguments that several calls have: lists, states, times."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Literal, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2

_Item = TypeVar("_Item")

ViewName = Literal["abstract", "overview", "full"]
"""How much of a memory to return."""
Moment = int | datetime
"""A state of a space: after a revision, or at a time; a time without a zone is local."""


def require_list(given: Sequence[_Item], name: str) -> Sequence[_Item]:
    """Returns the argument. Raises ValueError for a text, which Python would take for a list of letters."""
    if isinstance(given, str | bytes):
        raise ValueError(f"{name} is a list; put brackets around a single value")
    return given


def refuse_unknown(given: Mapping[str, Any], known: type, call: str) -> None:
    """Raises TypeError, as Python does for a function's own parameters, for an option that the TypedDict `known` does
    not have. It names the option that is probably meant."""
    names = list(known.__annotations__)
    for name in given:
        if name not in names:
            parts = (one for one in names if name in one.split("_"))
            meant = next(iter([*parts, *get_close_matches(name, names)]), "")
            hint = f"did you mean {meant!r}?" if meant else f"its options are {', '.join(names)}"
            raise TypeError(f"{call}() has no option {name!r}; {hint}")


def as_of_to_wire(moment: Moment | None) -> common_pb2.AsOf | None:
    """Returns None for None."""
    match moment:
        case None:
            return None
        case int():
            return common_pb2.AsOf(revision=moment)
    return common_pb2.AsOf(time=time_to_wire(moment, "as_of"))


def time_to_wire(moment: datetime | None, name: str) -> Timestamp | None:
    """Returns None for None. A time without a zone is local. Raises TypeError for anything else, such as a text."""
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise TypeError(f"{name} is a datetime, not {type(moment).__name__}; datetime.fromisoformat reads ISO 8601")
    made = Timestamp()
    made.FromDatetime(moment.astimezone(UTC))
    return made
