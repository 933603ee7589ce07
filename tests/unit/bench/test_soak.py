import pytest

from tests.bench.parts.soak import add, flatness


@pytest.mark.parametrize(
    ("values", "ratio", "reached"),
    [
        # What happens in the first third, while everything is new, does not count.
        ([1, 50, 90, 100, 100, 100, 100, 100, 100], 1.0, True),
        ([100, 100, 100, 100, 100, 100, 109, 109, 109], 1.09, True),
        ([100, 100, 100, 100, 110, 120, 130, 140, 150], 1.2727, False),
        ([100, 100, 100, 100, 100, 100, 50, 50, 50], 0.5, True),
    ],
)
def test_what_grows_from_the_second_third_to_the_last_is_not_flat(
    values: list[float], ratio: float, reached: bool
) -> None:
    held = flatness("memory of any process", "MB", {"server": values}, "SQLite")
    assert held.value == pytest.approx(ratio, abs=1e-3) and held.reached is reached
    assert held.name == "memory of any process: last third to second"


def test_what_grew_most_counts_and_the_others_are_told() -> None:
    calls = {"find": [2.0, 2.0, 2.0, 2.0, 3.0, 3.0], "append": [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]}
    held = flatness("p50 of any call", "ms", calls, "SQLite")
    assert held.value == 2 and held.reached is False and held.notes == {"find": 1.5, "append": 2.0}


def test_what_grew_for_a_good_reason_counts_as_if_it_had_been_there() -> None:
    memory = {"index": [40.0] * 3 + [50.0] * 3 + [65.0] * 3, "server": [100.0] * 9}
    assert flatness("memory", "MB", memory, "SQLite").notes == {"index": 1.3, "server": 1.0}
    held = flatness("memory", "MB", memory, "SQLite", {"index": 15.0})
    assert held.notes == {"index": 1.0, "server": 1.0} and held.reached is True
    # A part of it only.
    assert flatness("memory", "MB", memory, "SQLite", {"index": 2.0}).value == pytest.approx(1.25)


def test_what_comes_late_has_a_value_for_each_look() -> None:
    series: dict[str, list[float]] = {}
    add(series, "late", 7.0, 3)
    add(series, "late", 9.0, 4)
    assert series == {"late": [7.0, 7.0, 7.0, 9.0]}
