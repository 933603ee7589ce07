"""Metrics as Prometheus would read them."""

import json
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

WAIT_SECONDS = 30.0


class Samples:
    """What one scrape gave. `samples["name", {"label": "value"}]` is the one that has these labels, among others."""

    def __init__(self, text: str, address: str = "") -> None:
        self.text = text
        self.address = address
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def __getitem__(self, key: tuple[str, Mapping[str, str]]) -> float:
        name, labels = key
        found = [one.value for one in self.samples if one.name == name and labels.items() <= one.labels.items()]
        assert len(found) == 1, f"{name} {dict(labels)} is there {len(found)} times"
        return float(found[0])

    def __str__(self) -> str:
        return self.text

    @property
    def declared(self) -> set[str]:
        """All names that samples may have, those of metrics without a sample yet too."""
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
        return {family.name + end for family in self.families.values() for end in ends.get(family.type, ("",))}

    def all(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """All samples of a name, by the values of these labels, of which the others are all the same."""
        return {tuple(one.labels[label] for label in labels): one.value for one in self.samples if one.name == name}


def scraped(address: str) -> Samples:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_SECONDS) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        return Samples(response.read().decode(), address)


def metrics_address(log: Path) -> str:
    """Where the process of that log says that its metrics are."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        for line in log.read_text().splitlines():
            if line.startswith("{") and (told := json.loads(line)).get("event") == "metrics_served":
                return str(told["address"])
        time.sleep(0.05)
    raise AssertionError(f"no metrics are served:\n{log.read_text()[-3000:]}")
