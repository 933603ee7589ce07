"""The metrics of this process. They are counted always, which costs next to nothing, and shown where an address is set.

Each room names its own beside its code, in `storage/telemetry.py`, `server/telemetry/` and `extractor/telemetry.py`.
Labels are of sets that are known beforehand: methods, codes, phases, configured models. Accounts, users and sessions
are no labels: there are millions of them, and who uses a service is nobody's business who may scrape it.
"""

import platform
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

# When each counter began would double what is scraped: the process says when it began.
disable_created_metrics()  # type: ignore[no-untyped-call]  # without types

REGISTRY: Final = CollectorRegistry(auto_describe=True)
"""Of its own: what libraries register with the common one is not ours to show."""

ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

CALL_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Bounds for what a caller waits for."""
JOB_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
"""Bounds for what takes as long as a model thinks."""

_BUILD = Gauge(
    "runekeep_build_info",
    "1, with the release of the process (`server` or `extractor`) and its Python.",
    ["process", "version", "python"],
    registry=REGISTRY,
)


def tell_build(process: str, version: str) -> None:
    """Says which process this is."""
    _BUILD.labels(process, version, platform.python_version()).set(1)


def counter(name: str, meaning: str, labels: Sequence[str] = ()) -> Counter:
    """A number that only grows; its name ends in `_total`."""
    return Counter(name, meaning, labels, registry=REGISTRY)


def gauge(name: str, meaning: str, labels: Sequence[str] = ()) -> Gauge:
    """A number that goes up and down."""
    return Gauge(name, meaning, labels, registry=REGISTRY)


def histogram(
    name: str, meaning: str, labels: Sequence[str] = (), buckets: Sequence[float] = CALL_SECONDS
) -> Histogram:
    """How often, and how much each time."""
    return Histogram(name, meaning, labels, buckets=buckets, registry=REGISTRY)
