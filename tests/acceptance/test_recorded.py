"""Recorded extractions come out as they did."""

import pytest

from tests.acceptance.processes import Processes
from tests.recorded.replay import cases, play, recorded


@pytest.mark.parametrize("case", cases())
def test_a_recorded_extraction_comes_out_as_it_did(fleet: Processes, case: str) -> None:
    before, now = recorded(case), play(fleet, case)
    assert now.operations == before.operations
    assert now.answers == before.answers
    assert now.ends == before.ends
