"""Resolves past states of a space that requests name."""

from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2
from runekeep_server.protocol.errors import invalid
from runekeep_server.wire.basics import microseconds
from runekeep_storage.database import Space, Tx
from runekeep_storage.memories.memories import LATEST
from runekeep_storage.spaces import spaces


async def resolve(tx: Tx, space: Space, as_of: common_pb2.AsOf, field: str = "as_of") -> int:
    """Returns the revision that `as_of`, in `field` of a request, names; 0 for a time before the first revision.

    Returns `LATEST` if it names nothing. Revisions are never removed, so the result stays valid in later transactions,
    until the user is deleted. Raises ApiError INVALID_ARGUMENT for a revision above the newest one.
    """
    match as_of.WhichOneof("at"):
        case "revision":
            newest, _ = await spaces.revisions(tx, space)
            if as_of.revision > newest:
                above = f"is above {newest}, the newest revision"
                raise invalid(f"{field}.revision", above, "Take it from an answer of this server")
            return as_of.revision
        case "time":
            return await spaces.revision_at(tx, space, _until(f"{field}.time", as_of.time))
    return LATEST


async def settled(tx: Tx, space: Space, revision: int) -> tuple[int, int]:
    """Returns the number of the revision, and the value with which this transaction must read it: LATEST for the newest
    one, because current rows have an index."""
    newest, _ = await spaces.revisions(tx, space)
    if revision == LATEST:
        return newest, revision
    return revision, LATEST if revision == newest else revision


def _until(field: str, time: Timestamp) -> int:
    try:
        return microseconds(time)
    except ValueError as error:
        raise invalid(field, "is no valid time", "Give one of the years 1 to 9999") from error
