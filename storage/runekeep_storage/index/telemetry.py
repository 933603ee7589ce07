"""Metrics and spans of index calls, for every engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from runekeep_common.telemetry import metrics, tracing
from runekeep_common.telemetry.tracing import Kind
from runekeep_storage.index.base import IndexUnavailable

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


@contextmanager
def index_call(operation: str) -> Iterator[None]:
    """Measures one call of the index, and counts it if the index did not answer."""
    began = perf_counter()
    try:
        with tracing.span(f"index {operation}", Kind.CLIENT):
            yield
    except IndexUnavailable:
        INDEX_ERRORS.labels(operation).inc()
        raise
    finally:
        INDEX_CALLS.labels(operation).observe(perf_counter() - began)
