"""What the store tells of itself: its metrics, and spans of what it does behind the calls.

Plain metrics of the process, and no observer that somebody would have to hand in: the store's parts are many and lie
deep, counting costs a microsecond, and nobody is told until an address for it is set.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType
from typing import Final

from schemas.telemetry import metrics, tracing
from schemas.telemetry.tracing import Kind
from storage.errors import SpaceBusy, StoreUnavailable
from storage.index.base import IndexUnavailable

_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)

TRANSACTIONS = metrics.histogram(
    "runekeep_store_transaction_seconds",
    "Transactions by `kind`, `read` or `write`, with what they waited for their turn.",
    ["kind"],
)
DAMAGED_DATA = metrics.counter(
    "runekeep_damaged_data_total",
    "Reads that met stored bytes that are not what was written, by `kind`: `blob`, `database` or `missing_blob`.",
    ["kind"],
)
DATABASE_DAMAGED = metrics.gauge(
    "runekeep_database_damaged", "1 from when SQLite's file was found damaged to the end of the process: no writes."
)
DAMAGED_BLOBS = metrics.gauge(
    "runekeep_damaged_blobs", "Blobs known to be damaged or missing, by `kind`, `damaged` or `missing`.", ["kind"]
)
CHECK_ENDED = metrics.gauge(
    "runekeep_data_check_timestamp_seconds",
    "When this server last came to the end of its check of stored data, by `data`: `blobs` or `database`.",
    ["data"],
)
STORE_ERRORS = metrics.counter("runekeep_store_unavailable_total", "Transactions that the store could not serve.")
WRITER_QUEUE = metrics.gauge(
    "runekeep_store_writer_queue", "Write transactions that wait for their turn; with PostgreSQL those under way too."
)
GROUPS = metrics.histogram(
    "runekeep_store_group_size", "Write transactions that one commit, and one sync to disk, carried.", buckets=_SIZES
)
GROUPS_AGAIN = metrics.counter(
    "runekeep_store_groups_run_again_total",
    "Groups of write transactions that ran twice, because one of them failed after it had changed something.",
)
CONNECTIONS = metrics.gauge(
    "runekeep_store_connections_in_use", "Connections to PostgreSQL at work, by `pool`, `read` or `write`.", ["pool"]
)
CONNECTION_LIMIT = metrics.gauge(
    "runekeep_store_connections_limit", "Most connections to PostgreSQL, by `pool`.", ["pool"]
)
INDEX_CALLS = metrics.histogram(
    "runekeep_index_seconds", "Calls of the index by `operation`: `open`, `query`, `upsert` or `delete`.", ["operation"]
)
INDEX_ERRORS = metrics.counter(
    "runekeep_index_errors_total", "Calls that the index did not answer, by `operation`.", ["operation"]
)
INDEX_COMPACTIONS = metrics.counter(
    "runekeep_index_compactions_total",
    "Copies of the embedded index without its removed points, by `result`: `done`, `failed`, `gave_way` to an erasure.",
    ["result"],
)
RELAYED = metrics.counter(
    "runekeep_relay_points_total", "Points brought into the index, by `part`, `memories` or `passages`.", ["part"]
)
RELAY_FAILURES = metrics.counter(
    "runekeep_relay_failures_total",
    "Steps of the relay that failed and are tried again, by `part`: `memories`, `passages` or `upkeep`.",
    ["part"],
)
EMBEDDER_QUEUE = metrics.gauge(
    "runekeep_embedder_queue", "Texts that wait for the embedder, by `kind`: `query`, or `bulk`, which may wait.",
    ["kind"],
)  # fmt: skip
EMBEDDER_BATCHES = metrics.histogram("runekeep_embedder_batch_seconds", "What the embedder computed at once.")
EMBEDDER_TEXTS = metrics.counter("runekeep_embedder_texts_total", "Texts that became vectors.")
EMBEDDER_ERRORS = metrics.counter(
    "runekeep_embedder_errors_total", "Batches that the embedder failed on: all of them, while it has no model."
)

_READS, _WRITES = TRANSACTIONS.labels("read"), TRANSACTIONS.labels("write")


class Transaction:
    """Around one transaction, from when it is asked for."""

    __slots__ = ("_began", "_seconds")

    def __init__(self, *, writes: bool) -> None:
        self._seconds = _WRITES if writes else _READS

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, StoreUnavailable) and not isinstance(error, SpaceBusy):
            STORE_ERRORS.inc()
        self._seconds.observe(perf_counter() - self._began)


@contextmanager
def index_call(operation: str) -> Iterator[None]:
    """Around one call of the index."""
    began = perf_counter()
    try:
        with tracing.span(f"index {operation}", Kind.CLIENT):
            yield
    except IndexUnavailable:
        INDEX_ERRORS.labels(operation).inc()
        raise
    finally:
        INDEX_CALLS.labels(operation).observe(perf_counter() - began)
