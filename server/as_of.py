"""States of a space in the past, as requests name them."""

from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2
from server.errors import invalid
from server.wire.basics import microseconds
from storage import spaces
from storage.database import Space, Tx
from storage.memories import LATEST


async def resolve(tx: Tx, space: Space, as_of: common_pb2.AsOf, field: str = "as_of") -> int:
    """The revision that `as_of`, in `field` of a request, names; 0 for a time before the first one.

    `LATEST` when nothing is asked for. Revisions are never taken back, so the answer holds in later transactions too,
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
    """The revision by its number, and as reads of this transaction are to name it: what is there now has an index."""
    newest, _ = await spaces.revisions(tx, space)
    if revision == LATEST:
        return newest, revision
    return revision, LATEST if revision == newest else revision


def _until(field: str, time: Timestamp) -> int:
    try:
        return microseconds(time)
    except ValueError as error:
        raise invalid(field, "is no valid time", "Give one of the years 1 to 9999") from error
