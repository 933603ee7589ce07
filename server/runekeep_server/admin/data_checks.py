"""The known damage to stored data, for `GetServerStatus`."""

from collections.abc import Iterator

from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import admin_service_pb2 as pb
from runekeep_storage.store import Store


def data_checks(store: Store) -> Iterator[pb.DataCheck]:
    """Returns the state of the database, if it is SQLite, and of the blobs."""
    if store.integrity is not None:
        finding, checked = store.all_spaces.damage.finding, store.integrity.last
        database = pb.DataCheck(name="database", problem=finding.problem if finding is not None else "")
        if checked is not None:
            database.extent = checked.extent
            database.end_time.CopyFrom(_time(checked.ended_at))
        yield database
    damaged, missing, scrubbed = len(store.blobs.damaged), len(store.scrub.missing), store.scrub.last
    blobs = pb.DataCheck(name="blobs", damaged_blobs=damaged, missing_blobs=missing)
    if damaged or missing:
        blobs.problem = f"{damaged} damaged, {missing} missing"
    if scrubbed is not None:
        blobs.extent, blobs.blobs = "full", scrubbed.blobs
        blobs.end_time.CopyFrom(_time(scrubbed.ended_at))
    yield blobs


def _time(seconds: float) -> Timestamp:
    time = Timestamp()
    time.FromMicroseconds(round(seconds * 1e6))
    return time
