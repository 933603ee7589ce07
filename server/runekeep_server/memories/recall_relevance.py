"""Estimates how relevant a search result is, from its score.

Scores depend on the embedder and on the weights of the ranking. `make bench-quality` fits the parameters of an embedder
to questions about things that were said and about subjects that were never mentioned; relevance.json holds them.
"""

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from runekeep_storage.database import Space
from runekeep_storage.search.ranking import Ranking
from runekeep_storage.search.requests import FindAnswer
from runekeep_storage.store import Store

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


async def calibration(store: Store, space: Space) -> Calibration | None:
    """Returns the calibration of the embedder that the space is searched by, None if there is none, or if the weights
    of the ranking are not the default ones."""
    embedder = await store.embedders.of_space(space)
    return None if embedder is None else _of_model(store, embedder.model)


def _of_model(store: Store, model: str) -> Calibration | None:
    found = _calibrations().get(model)
    return found if found is not None and store.finder.ranking == Ranking() else None


def of_answer(store: Store, answer: FindAnswer) -> Calibration | None:
    """Returns the calibration for the scores of an answer; None also if its query was searched by words only."""
    return None if "dense" in answer.degraded else _of_model(store, answer.model)


@cache
def _calibrations() -> dict[str, Calibration]:
    parameters: dict[str, Any] = json.loads(_FILE.read_text())
    return {model: Calibration(**values) for model, values in parameters.items()}
