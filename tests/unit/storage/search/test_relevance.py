"""Relevance of a score, and the score of a relevance."""

import math

from hypothesis import given
from hypothesis import strategies as st

from runekeep_storage.search.relevance import Calibration

CURVE = Calibration(slope=0.4, offset=-4.7)


@given(st.floats(-100, 100), st.floats(-100, 100))
def test_relevance_is_from_0_to_1_and_grows_with_the_score(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= CURVE.relevance(low) <= CURVE.relevance(high) <= 1


@given(st.floats(0.001, 0.999))
def test_the_score_of_a_relevance_has_that_relevance(relevance: float) -> None:
    assert math.isclose(CURVE.relevance(CURVE.score(relevance)), relevance, rel_tol=1e-9)


def test_every_score_has_relevance_0_and_none_has_1() -> None:
    assert CURVE.score(0) == -math.inf and CURVE.score(1) == math.inf
