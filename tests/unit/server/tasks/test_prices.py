"""What tokens cost by the operator's prices, and which files of prices are refused."""

from pathlib import Path

import pytest

from runekeep.v1 import common_pb2
from runekeep_server.services import StartError, read_prices
from runekeep_server.settings.model import Settings
from runekeep_server.tasks.prices import Price, set_cost

USAGE = {"input_tokens": 1_000_000, "cache_write_tokens": 100_000, "cache_read_tokens": 10_000, "output_tokens": 1_000}


def prices_in(path: Path, text: str) -> dict[str, Price]:
    path.write_text(text)
    return dict(read_prices(Settings(prices_file=path)))


@pytest.mark.parametrize(
    ("model", "cost"),
    [
        ("large", 2.0 + 0.25 + 0.002 + 0.01),
        ("large-2026-03-17", 2.0 + 0.25 + 0.002 + 0.01),
        ("large-20260317", 2.0 + 0.25 + 0.002 + 0.01),
        ("plain", 1.0 + 0.1 + 0.01 + 0.001),
        ("free", 0.0),
        ("larger", None),
        ("", None),
    ],
)
def test_tokens_cost_what_the_file_says(tmp_path: Path, model: str, cost: float | None) -> None:
    prices = prices_in(
        tmp_path / "prices.yaml",
        "large: {input: 2, cache_write: 2.5, cache_read: 0.2, output: 10}\n"
        "plain: {input: 1, output: 1}\nfree: {input: 0, output: 0}\n",
    )
    usage = common_pb2.TokenUsage(model=model, **USAGE)
    set_cost(usage, prices)
    assert usage.HasField("cost_usd") == (cost is not None)
    assert usage.cost_usd == pytest.approx(cost or 0.0)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("large: {input: 2}", "large.output"),
        ("large: {input: -2, output: 1}", "large.input"),
        ("large: {input: 2, output: 1, inptu: 3}", "large.inptu"),
        ("- large", "dictionary"),
        ("large: {", "while parsing"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_entry(tmp_path: Path, text: str, names: str) -> None:
    with pytest.raises(StartError, match=r"RUNEKEEP_PRICES_FILE") as caught:
        prices_in(tmp_path / "prices.yaml", text)
    assert names in str(caught.value)


def test_without_a_file_nothing_has_a_price(tmp_path: Path) -> None:
    assert read_prices(Settings(prices_file=None)) == {}
    with pytest.raises(StartError, match="RUNEKEEP_PRICES_FILE"):
        read_prices(Settings(prices_file=tmp_path / "missing.yaml"))
