"""Fits the relevance of results to questions about things that were said, and about subjects never mentioned."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.quality.lives import Question

FLOORS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
STEPS = 100


@dataclass(frozen=True, slots=True)
class BestScore:
    """The score of the best result of `find` for a question; 0 if nothing was found. `is_degraded`: the search went
    without vectors."""

    question: Question
    score: float
    is_degraded: bool = False


def calibrate(scores: Sequence[BestScore]) -> dict[str, Any]:
    """Returns the parameters of the curve, and how many questions of each kind have a best result below each floor.
    Without questions of both kinds, or if they cannot be told apart, there are no parameters."""
    said = [one.score for one in scores if one.question.answers]
    subjects = [one.score for one in scores if one.question.never == "subject"]
    details = [one.score for one in scores if one.question.never == "detail"]
    if not said or not subjects:
        return {}
    slope, offset = fit(said, subjects)
    kinds = {"answerable": said, "unknown_subject": subjects, "unknown_detail": details}
    below = {
        str(floor): {kind: sum(_relevance(slope, offset, one) < floor for one in some) for kind, some in kinds.items()}
        for floor in FLOORS
    }
    counts = {kind: len(some) for kind, some in kinds.items()}
    made = {"slope": round(slope, 4), "offset": round(offset, 3), "questions": counts, "below": below}
    return made | {"degraded": sum(one.is_degraded for one in scores)}


def write_curve(path: Path, model: str, made: dict[str, Any]) -> None:
    """Writes the curve of an embedder's model to a file for the setting `relevance_file`, beside those that it has.
    Raises ValueError if there is no curve, none that the server takes, or one of searches without vectors."""
    if made.get("degraded"):
        raise ValueError(
            f"{made['degraded']} questions were searched without vectors, because the embedder was late or away: set"
            " RUNEKEEP_EMBEDDING__QUERY_SECONDS to more"
        )
    if made.get("slope", 0.0) <= 0:
        raise ValueError("known and unknown subjects cannot be told apart by the scores of this embedder")
    curves = json.loads(path.read_text("utf-8")) if path.exists() else {}
    curves[model] = {"slope": made["slope"], "offset": made["offset"]}
    path.write_text(json.dumps(curves, indent=2) + "\n", "utf-8")


def fit(positive: Sequence[float], negative: Sequence[float]) -> tuple[float, float]:
    """Returns slope and offset of the logistic curve that fits best, both kinds weighing the same, by Newton's
    method."""
    points = [(score, 1.0, 1 / len(positive)) for score in positive]
    points += [(score, 0.0, 1 / len(negative)) for score in negative]
    slope = offset = 0.0
    for _ in range(STEPS):
        by_slope = by_offset = 0.0
        # A little ridge keeps kinds that do not overlap from growing without end.
        second, mixed, first = 1e-4, 0.0, 0.0
        by_slope -= 1e-4 * slope
        for score, label, weight in points:
            chance = _relevance(slope, offset, score)
            error, spread = weight * (label - chance), weight * chance * (1 - chance)
            by_slope += error * score
            by_offset += error
            second += spread * score * score
            mixed += spread * score
            first += spread
        determinant = second * first - mixed * mixed
        slope += (first * by_slope - mixed * by_offset) / determinant
        offset += (second * by_offset - mixed * by_slope) / determinant
    return slope, offset


def _relevance(slope: float, offset: float, score: float) -> float:
    return 1 / (1 + math.exp(-max(min(slope * score + offset, 50.0), -50.0)))
