"""What the search part makes of what it measured."""

from itertools import islice
from pathlib import Path

from tests.bench import find, plots, report
from tests.bench.figures import POSTGRES, SQLITE, Figure
from tests.bench.parts import search


def made(store: str, points: str, find_ms: list[float], others: str = "") -> list[Figure]:
    found = search._Found()
    found.find, found.find_p95 = find_ms, [20.0] * 3
    found.recall, found.recall_p95 = [17.0] * 3, [21.0] * 3
    found.floors = {"embedding": [6.0, 6.0, 6.5], "index": [5.0] * 3, "floor": [9.0, 9.0, 9.5]}
    found.spent = [{"server": 12.0, "index": 5.0}] * 3
    return search._figures(found, store, f"{points} points of the space{others}")


def test_no_question_is_asked_twice_for_a_server_knows_what_it_has_embedded() -> None:
    questions = [" ".join(question.split()) for question in islice(find.asked(), 5000)]
    assert len(set(questions)) == len(questions)


def test_what_a_search_takes_beside_its_floor_is_held_repetition_by_repetition() -> None:
    whole, beside, recall = made(SQLITE, "1,000", [12.5, 11.0, 12.0])
    assert (whole.value, whole.floor and whole.floor.value, recall.value) == (12.0, 9.0, 17.0)
    assert list(beside.each) == [3.5, 2.0, 2.5] and beside.value == 2.5 and beside.reached is True
    assert beside.notes == {"above embedding and index one after the other, ms": 0.5}
    assert whole.notes["embedding alone, ms"] == 6.0 and whole.notes["CPU of index a call, ms"] == 5.0


def test_what_takes_more_than_three_milliseconds_beside_them_is_missed() -> None:
    assert made(SQLITE, "1,000", [12.5, 12.1, 12.6])[1].reached is False


def test_a_plot_is_drawn_of_spaces_of_several_sizes(tmp_path: Path) -> None:
    figures = [
        *made(SQLITE, "100,000", [30.0] * 3),
        *made(SQLITE, "1,000", [12.0] * 3),
        *made(POSTGRES, "1,000", [14.0] * 3),
        # With others beside it, which the plot leaves out.
        *made(SQLITE, "5,000", [12.0] * 3, " and 9,000 of others"),
    ]
    section = {"part": "search", "figures": [report.plain(figure) for figure in figures]}
    ((path, _),) = plots.draw({"sections": [section]}, tmp_path)["search"]
    text = (tmp_path / path).read_text()
    assert text.index(">1,000<") < text.index(">100,000<") and ">5,000<" not in text
