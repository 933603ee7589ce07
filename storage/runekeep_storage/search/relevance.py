"""Estimates how relevant a search result is, from its score.

Scores depend on the embedder and on the weights of the ranking. `make bench-quality` fits the parameters of an embedder
to questions about things that were said and about subjects that were never mentioned; relevance.json holds them.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

_FILE: Final = Path(__file__).parent / "relevance.json"


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic curve over the scores of results."""

    slope: float
    offset: float

    def relevance(self, score: float) -> float:
        """Returns the relevance of a result, from 0 to 1: the estimated probability that the subject of the query was
        ever mentioned, if this is the best result and half of all queries are about subjects that were."""
        return 1 / (1 + math.exp(-max(min(self.slope * score + self.offset, 50.0), -50.0)))

    def score(self, relevance: float) -> float:
        """Returns the lowest score with at least this relevance, which is from 0 to 1."""
        if relevance <= 0 or relevance >= 1:
            return -math.inf if relevance <= 0 else math.inf
        return (math.log(relevance / (1 - relevance)) - self.offset) / self.slope


@cache
def built_in() -> Mapping[str, Calibration]:
    """Returns the calibrations that come with this release, by the embedder's model."""
    parameters: dict[str, Any] = json.loads(_FILE.read_text())
    return {model: Calibration(**values) for model, values in parameters.items()}
