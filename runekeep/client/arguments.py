"""What callers give: lists, views, states of the past."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2

_Item = TypeVar("_Item")

ViewName = Literal["abstract", "overview", "full"]
"""How much of a memory is wanted."""
Moment = int | datetime
"""A state of a space: after a revision, or what was there at a time; one without a zone is local."""


def listed(given: Sequence[_Item], name: str) -> Sequence[_Item]:
    """What was given. Raises ValueError for a text: Python takes one for a list of its letters."""
    if isinstance(given, str | bytes):
        raise ValueError(f"{name} is a list; put brackets around the one there is")
    return given


def as_of(moment: Moment | None) -> common_pb2.AsOf | None:
    """None stays None."""
    match moment:
        case None:
            return None
        case int():
            return common_pb2.AsOf(revision=moment)
    return common_pb2.AsOf(time=timestamp(moment))


def timestamp(moment: datetime | None) -> Timestamp | None:
    """None stays None; a time without a zone is local."""
    if moment is None:
        return None
    made = Timestamp()
    made.FromDatetime(moment.astimezone(UTC))
    return made
