"""Two ranked lists become one."""

import pytest

from storage.fusion import Fused, fuse, smooth
from storage.index.base import Hit, IndexHits, PointKind


def hit(name: str, *, turn: tuple[str, int] | None = None, order: int = 0, memory: bool = False) -> Hit:
    session, sequence = turn if turn is not None else (None, None)
    kind = PointKind.MEMORY if memory else PointKind.PASSAGE
    return Hit(name, 0.5, kind, f"viking://user/ann/{name}", 1, order, session, sequence)


def order(fused: list[Fused]) -> list[str]:
    return [one.id for one in fused]


def test_what_both_legs_find_comes_first() -> None:
    fused = fuse(IndexHits(dense=(hit("a"), hit("b")), sparse=(hit("c"), hit("b"))))

    assert order(fused) == ["b", "a", "c"]
    both, dense_only, sparse_only = fused
    assert (both.dense_rank, both.sparse_rank, both.dense_score, both.sparse_score) == (2, 2, 0.5, 0.5)
    assert both.score == pytest.approx(1 / 7 + 1 / 7)
    assert (dense_only.dense_rank, dense_only.sparse_rank, dense_only.sparse_score) == (1, None, None)
    assert (sparse_only.dense_rank, sparse_only.dense_score, sparse_only.sparse_rank) == (None, None, 1)


def test_weights_and_constant_count() -> None:
    hits = IndexHits(dense=(hit("a"),), sparse=(hit("b"),))

    assert order(fuse(hits, dense_weight=0.5)) == ["b", "a"]
    assert order(fuse(hits, sparse_weight=0.5)) == ["a", "b"]
    assert [one.score for one in fuse(hits, k=60)] == [1 / 61, 1 / 61]


def test_equal_scores_are_ordered_by_id() -> None:
    assert order(fuse(IndexHits(dense=(hit("z"),), sparse=(hit("y"),)))) == ["y", "z"]


def test_nothing_found_stays_nothing() -> None:
    assert smooth(fuse(IndexHits())) == []


def test_a_turn_gains_from_the_turns_beside_it() -> None:
    fused = fuse(
        IndexHits(
            dense=tuple(
                hit(name, turn=turn)
                for name, turn in [
                    ("question", ("s1", 4)),
                    ("elsewhere", ("s2", 5)),
                    ("far", ("s1", 9)),
                    ("answer", ("s1", 5)),
                    ("after", ("s1", 6)),
                ]
            )
        )
    )
    before = {one.id: one.score for one in fused}

    smoothed = smooth(fused, weight=0.5)

    after = {one.id: one.score for one in smoothed}
    assert after["answer"] == pytest.approx(before["answer"] + 0.5 * (before["question"] + before["after"]))
    assert after["question"] == pytest.approx(before["question"] + 0.5 * before["answer"])
    assert (after["elsewhere"], after["far"]) == (before["elsewhere"], before["far"])
    assert order(smoothed) == ["answer", "question", "after", "elsewhere", "far"]


def test_of_several_passages_of_one_message_the_best_speaks() -> None:
    fused = fuse(
        IndexHits(
            dense=(
                hit("best", turn=("s1", 1)),
                hit("worse", turn=("s1", 1), order=1),
                hit("next", turn=("s1", 2)),
            )
        )
    )
    before = {one.id: one.score for one in fused}

    after = {one.id: one.score for one in smooth(fused, weight=0.5)}

    assert after["next"] == pytest.approx(before["next"] + 0.5 * before["best"])
    assert after["worse"] == pytest.approx(before["worse"] + 0.5 * before["next"])


def test_memories_and_passages_without_a_place_keep_their_score() -> None:
    hits = (hit("turn", turn=("s1", 1)), hit("memory", turn=("s1", 2), memory=True), hit("loose"), hit("loose2"))
    fused = fuse(IndexHits(dense=hits))

    assert smooth(fused) == fused
