from collections.abc import Sequence
from typing import Literal

import pytest

from tests.bench.figures import Figure, Floor, Target
from tests.bench.load.client import Taken


def figure(each: Sequence[float], floor: Sequence[float] = (), p95: Sequence[float] = (), **target: object) -> Figure:
    return Figure(
        "part", "thing", "ms", each,
        p95=p95,
        floor=Floor("least", floor) if floor else None,
        target=Target(**target) if target else None,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_value_is_the_median_of_the_repetitions() -> None:
    assert figure([9.0, 1.0, 2.0]).value == 2.0
    assert figure([9.0, 1.0, 2.0], p95=[7.0, 30.0, 8.0]).p95_value == 8.0
    assert figure([9.0]).p95_value is None


def test_the_share_holds_each_repetition_against_its_own_floor() -> None:
    # The machine was slow in the second repetition, and twice as slow for both: the share is the same in all.
    assert figure([100.0, 50.0, 98.0], [200.0, 100.0, 196.0]).share == pytest.approx(0.5)
    # Not the share of the medians, which is 1.
    assert figure([1.0, 2.0, 4.0], [4.0, 1.0, 2.0]).share == pytest.approx(2.0)
    assert figure([1.0]).share is None


def test_each_repetition_has_a_share_of_its_own() -> None:
    assert figure([100.0, 50.0, 98.0], [200.0, 200.0, 196.0]).share_each == pytest.approx([0.5, 0.25, 0.5])
    assert figure([1.0]).share_each == []


def test_slices_of_a_measurement_count_as_one() -> None:
    # Two slices of as many calls, one of them in a slow second: as many calls a second as there were in both.
    slices = [
        Taken(1.0, 0.5, {"OK": 2}, [0.4, 0.6]),
        Taken(3.0, 0.7, {"OK": 1, "ABORTED": 1}, [1.0, 2.0], "lost"),
    ]
    whole = Taken.together(slices)
    assert whole == Taken(4.0, 1.2, {"OK": 3, "ABORTED": 1}, [0.4, 0.6, 1.0, 2.0], "lost")
    assert whole.rate == 1.0 and whole.p50 == 800.0


def test_a_floor_of_other_repetitions_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        _ = figure([1.0, 2.0], [1.0]).share


@pytest.mark.parametrize(
    ("bound", "limit", "reached"),
    [("at least", 0.5, True), ("at least", 0.51, False), ("at most", 0.5, True), ("at most", 0.49, False)],
)
def test_a_target_of_the_share_is_reached_at_its_limit(
    bound: Literal["at least", "at most"], limit: float, reached: bool
) -> None:
    assert figure([10.0], [20.0], of="share", bound=bound, limit=limit).reached is reached


def test_a_target_is_held_against_what_it_is_of() -> None:
    assert figure([10.0], p95=[90.0], of="value", bound="at most", limit=50).reached is True
    assert figure([10.0], p95=[90.0], of="p95", bound="at most", limit=50).reached is False
    assert figure([10.0]).reached is None
    with pytest.raises(AssertionError, match="nothing to hold the target against"):
        _ = figure([10.0], of="share", bound="at most", limit=50).reached
