"""What the store counts, and what it does not."""

import socket
from pathlib import Path

import pytest

from runekeep_common.telemetry import metrics
from runekeep_storage import telemetry
from runekeep_storage.errors import DeadlinePassed, ImportLost, SpaceShut, StoreError, StoreUnavailable
from runekeep_storage.index.base import IndexUnavailable, VectorIndex, VectorSpace
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.index.qdrant import QdrantIndex
from runekeep_storage.spaces.pending_deletions import BlockedByDeletion
from runekeep_storage.transfer.importing import NotCleared


def count(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (StoreUnavailable("the disk is full"), 1),
        (SpaceShut("ann"), 0),
        (ImportLost("it was taken to be dead"), 0),
        (BlockedByDeletion("tea"), 0),
        (NotCleared("what was deleted is still being taken away"), 0),
        (DeadlinePassed(), 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_a_store_that_does_not_serve_counts_as_away(error: StoreError, counted: int) -> None:
    before = count("runekeep_store_unavailable_total")
    with pytest.raises(type(error)), telemetry.Transaction(writes=True):
        raise error
    assert count("runekeep_store_unavailable_total") - before == counted


@pytest.mark.parametrize("driver", ["edge", "qdrant"])
async def test_an_index_that_cannot_be_opened_is_counted_each_time(driver: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    index: VectorIndex = QdrantIndex(nobody) if driver == "qdrant" else EdgeIndex(tmp_path)
    await index.close() if driver == "edge" else None
    before = count("runekeep_index_errors_total", operation="open")
    for _ in range(2):
        with pytest.raises(IndexUnavailable):
            await index.open(VectorSpace("", 0))
    assert count("runekeep_index_errors_total", operation="open") - before == 2
    await index.close()
