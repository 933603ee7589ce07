"""The metrics of this process. They are always counted, which costs next to nothing, and served if an address is set.

Each package defines its own metrics beside its code, in `storage/runekeep_storage/telemetry.py`,
`server/runekeep_server/telemetry/` and `extractor/runekeep_extractor/telemetry.py`. Labels have values from sets that
are known beforehand: methods, codes, phases, configured models. Accounts, users and sessions are never labels: there
are millions of them, and a scraper must not learn who uses a service.
"""

import platform
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

# The creation time of each counter would double the scraped data; the process reports its start time.
disable_created_metrics()  # type: ignore[no-untyped-call]  # without types

REGISTRY: Final = CollectorRegistry(auto_describe=True)
"""A separate registry: libraries register their own metrics with the common one, which must not be exposed."""

ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

CALL_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Histogram bounds for what a caller waits for."""
JOB_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
"""Histogram bounds for work that takes as long as a model."""

_BUILD = Gauge(
    "runekeep_build_info",
    "1, with the release of the process (`server` or `extractor`) and its Python.",
    ["process", "version", "python"],
    registry=REGISTRY,
)


def tell_build(process: str, version: str) -> None:
    """Reports the process's name and version."""
    _BUILD.labels(process, version, platform.python_version()).set(1)


def counter(name: str, meaning: str, labels: Sequence[str] = ()) -> Counter:
    """Returns a metric that only grows; its name must end in `_total`."""
    return Counter(name, meaning, labels, registry=REGISTRY)


def gauge(name: str, meaning: str, labels: Sequence[str] = ()) -> Gauge:
    """Returns a metric that goes up and down."""
    return Gauge(name, meaning, labels, registry=REGISTRY)


def histogram(
    name: str, meaning: str, labels: Sequence[str] = (), buckets: Sequence[float] = CALL_SECONDS
) -> Histogram:
    """Returns a metric of how often something happens and how much each time."""
    return Histogram(name, meaning, labels, buckets=buckets, registry=REGISTRY)
