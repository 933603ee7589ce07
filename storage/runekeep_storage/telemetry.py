"""Metrics of the store, and spans of its background work.

Metrics are global to the process instead of an observer that callers pass in: the store has many nested parts, counting
costs a microsecond, and nothing is exported until an address is set.
"""

from time import perf_counter
from types import TracebackType
from typing import Final

from runekeep_common.telemetry import metrics
from runekeep_storage.errors import SpaceBusy, StoreUnavailable

_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)

TRANSACTIONS = metrics.histogram(
    "runekeep_store_transaction_seconds",
    "Transactions by `kind`, `read` or `write`, with what they waited for their turn.",
    ["kind"],
)
DAMAGED_DATA = metrics.counter(
    "runekeep_data_damaged_total",
    "Reads that met stored bytes that are not what was written, by `kind`: `blob`, `database` or `missing_blob`.",
    ["kind"],
)
DATABASE_DAMAGED = metrics.gauge(
    "runekeep_database_damaged", "1 from when SQLite's file was found damaged to the end of the process: no writes."
)
DAMAGED_BLOBS = metrics.gauge(
    "runekeep_blobs_damaged", "Blobs known to be damaged or missing, by `kind`, `damaged` or `missing`.", ["kind"]
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
RELAYED = metrics.counter(
    "runekeep_relay_points_total", "Points brought into the index, by `part`, `memories` or `passages`.", ["part"]
)
RELAY_FAILURES = metrics.counter(
    "runekeep_relay_failures_total",
    "Steps of the relay that failed and are tried again, by `part`: `memories`, `passages`, `upkeep`, `embedder` or"
    " `lines`.",
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
RERANKER_SEARCHES = metrics.counter(
    "runekeep_reranker_searches_total",
    "Searches that wanted the reranker, by `outcome`: `reranked`, `late`, `failed`, or `paused`, in which it was not"
    " asked because it had failed before.",
    ["outcome"],
)
RERANKER_SECONDS = metrics.histogram(
    "runekeep_reranker_seconds", "How long the reranker took for the candidates of one search, or did not answer."
)

_READS, _WRITES = TRANSACTIONS.labels("read"), TRANSACTIONS.labels("write")


class Transaction:
    """Measures one transaction, including the time that it waits for its turn."""

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
