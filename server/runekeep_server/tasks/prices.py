"""Prices of models, from a file of the operator: what token usage costs in money."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from runekeep.v1 import common_pb2

_MILLION: Final = 1_000_000
# Servers answer with the dated name of the model that was asked for: `name-2026-03-17`, `name-20260317`.
_DATE: Final = re.compile(r"-20\d{2}-?\d{2}-?\d{2}$")

Dollars = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class PriceFileError(Exception):
    """The price file cannot be read. The message names the entry and the reason."""


class Price(BaseModel):
    """US dollars per million tokens. Without a price of their own, cached tokens cost as much as other input."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Dollars
    output: Dollars
    cache_write: Dollars | None = None
    cache_read: Dollars | None = None

    def cost(self, usage: common_pb2.TokenUsage) -> float:
        """Returns the US dollars of the tokens."""
        write = self.input if self.cache_write is None else self.cache_write
        read = self.input if self.cache_read is None else self.cache_read
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_write_tokens * write
            + usage.cache_read_tokens * read
        ) / _MILLION


_PRICES: Final = TypeAdapter(dict[str, Price])


def load_prices(path: Path) -> Mapping[str, Price]:
    """Returns prices by model from a YAML file. Raises PriceFileError."""
    try:
        return _PRICES.validate_python(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PriceFileError(f"{path}: {error}") from error
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        raise PriceFileError(f"{path}: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from error


def set_cost(usage: common_pb2.TokenUsage, prices: Mapping[str, Price]) -> None:
    """Sets the cost, if the price of the model or of its name without a date is known."""
    price = prices.get(usage.model) or prices.get(_DATE.sub("", usage.model))
    if price is not None:
        usage.cost_usd = price.cost(usage)
