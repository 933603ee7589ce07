"""What two legs found becomes one list."""

import random
import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_storage.index.base import Hit, IndexHits, PointKind
from runekeep_storage.indexing import facts
from runekeep_storage.search.ranking import REACH, Ranked, Ranking, rank

PLAIN = Ranking(session_weight=0.0, fact_weight=0.0)
"""Meaning and words alone."""


def hit(name: str, score: float = 0.5, *, turn: tuple[str, int] | None = None, **more: object) -> Hit:
    """A passage said at `turn`, else a memory."""
    session, sequence = turn if turn is not None else (None, None)
    kind = PointKind.PASSAGE if turn is not None else PointKind.MEMORY
    made = Hit(name, score, kind, f"viking://user/ann/{name}", 1, 0, session, sequence)
    return made._replace(**more)


def order(ranked: Sequence[Ranked]) -> list[str]:
    return [one.id for one in ranked]


def scores(ranked: Sequence[Ranked]) -> dict[str, float]:
    return {one.id: one.score for one in ranked}


def test_nothing_found_stays_nothing() -> None:
    assert not rank(IndexHits(), Ranking())


def test_what_is_near_and_says_the_words_comes_first() -> None:
    dense = (hit("near", 0.75), hit("both", 0.7), hit("far", 0.2))
    sparse = (hit("both", 3.0, words=(1.0,)), hit("words", 3.0, words=(1.0,)))

    both, *others = rank(IndexHits(dense, sparse), PLAIN)

    assert both.id == "both"
    assert (both.dense_rank, both.dense_score, both.sparse_rank, both.sparse_score) == (2, 0.7, 1, 3.0)
    by_id = {one.id: one for one in others}
    assert (by_id["near"].sparse_rank, by_id["near"].sparse_score) == (None, None)
    assert (by_id["words"].dense_rank, by_id["words"].dense_score) == (None, None)
    assert by_id["words"].score > by_id["far"].score, "no farther than the last that a vector found"


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    """How rare they are is in the scores that the index gave."""
    sparse = (
        hit("rare", 5.0, words=(1.0, 0.0)),
        hit("rare too", 2.5, words=(0.5, 0.0)),
        hit("common", 1.0, words=(0.0, 1.0)),
        hit("common too", 0.5, words=(0.0, 0.5)),
    )
    found = {one.id: one for one in rank(IndexHits(sparse=sparse), PLAIN)}

    assert {name: round(one.parts[1].value, 6) for name, one in found.items()} == {
        "rare": 5.0,
        "rare too": 2.5,
        "common": 1.0,
        "common too": 0.5,
    }


def test_an_answer_gains_from_the_question_before_it() -> None:
    sparse = (hit("question", 3.0, turn=("s", 4), words=(1.0,)),)
    dense = tuple(
        hit(name, 0.5, turn=turn, words=(0.0,))
        for name, turn in [
            ("answer", ("s", 5)),
            ("after", ("s", 6)),
            ("far", ("s", 4 + REACH + 1)),
            ("elsewhere", ("t", 5)),
        ]
    )
    found = scores(rank(IndexHits(dense, sparse), PLAIN))

    assert found["question"] > found["answer"] > found["after"] > found["far"] == found["elsewhere"]
    assert found["after"] - found["far"] == pytest.approx(0.7 * (found["answer"] - found["far"]))
    without = scores(rank(IndexHits(dense, sparse), replace(PLAIN, neighbour_decay=0.0)))
    assert len({without[name] for name in ("answer", "after", "far", "elsewhere")}) == 1


def test_words_are_not_counted_twice() -> None:
    """That a message beside it says the same again adds nothing; what only the other one says does."""
    once = (hit("a", 2.0, turn=("s", 1), words=(1.0, 0.0)), hit("z", 1.0, turn=("t", 1), words=(0.5, 0.0)))
    again = (*once, hit("b", 2.0, turn=("s", 2), words=(1.0, 0.0)))
    other = (*once, hit("b", 2.0, turn=("s", 2), words=(0.0, 1.0)))

    alone, beside, lent = (
        {one.id: one for one in rank(IndexHits(sparse=some), PLAIN)} for some in (once, again, other)
    )

    assert (alone["a"].neighbours, beside["a"].neighbours, beside["b"].neighbours) == (0, 0, 0)
    assert beside["a"].score == pytest.approx(alone["a"].score)
    assert lent["a"].neighbours > 0 and lent["b"].neighbours > 0


def test_a_memory_stands_beside_nothing() -> None:
    sparse = (hit("said", 3.0, turn=("s", 1), words=(1.0,)), hit("note", 1.5, words=(0.5,)))

    assert all(one.neighbours == 0 for one in rank(IndexHits(sparse=sparse), Ranking()))


def test_of_equal_passages_that_of_the_session_that_fits_comes_first() -> None:
    dense = (
        *(hit(f"more{number}", 0.5, turn=("s", 20 * number)) for number in range(1, 4)),
        hit("lonely", 0.45, turn=("t", 20)),
        hit("among", 0.45, turn=("s", 100)),
    )
    assert order(rank(IndexHits(dense), Ranking()))[-2:] == ["among", "lonely"]
    alone = scores(rank(IndexHits(dense), replace(Ranking(), session_weight=0.0)))
    assert alone["among"] == alone["lonely"]


def test_a_memory_has_what_the_best_of_its_sessions_gains() -> None:
    said = tuple(hit(f"m{number}", 0.5, turn=("s", 20 * number)) for number in range(1, 6))
    other = hit("other", 0.3, turn=("t", 20))
    notes = {
        "of both": hit("of both", 0.4, sources=("t", "s")),
        "of s": hit("of s", 0.4, sources=("s",)),
        "of t": hit("of t", 0.4, sources=("t",)),
        "of none": hit("of none", 0.4),
        "of a session that was not found": hit("of a session that was not found", 0.4, sources=("u",)),
    }
    found = scores(rank(IndexHits((*said, *notes.values(), other)), Ranking()))

    assert found["of both"] == found["of s"] > found["of t"] == found["of none"]
    assert found["of none"] == found["of a session that was not found"]


@pytest.mark.parametrize("others", [0, 1, 9])
def test_a_memory_comes_before_the_message_that_it_corrects(others: int) -> None:
    """Where both are as near, and say as much of the query, in a session that fits well or not."""
    message = hit("said", 0.6, turn=("s", 4), words=(1.0, 0.5), fact=3)
    note = hit("note", 0.6, words=(1.0, 0.5), fact=facts.MEMORY, sources=("s",))
    rest = tuple(hit(f"m{number}", 0.6, turn=("s", 10 * number), words=(0.0, 0.5)) for number in range(1, others + 1))
    worded = (message, note, *rest)
    found = rank(
        IndexHits(worded, tuple(one._replace(score=3 * one.words[0] + one.words[1]) for one in worded)), Ranking()
    )
    assert order(found)[0] == "note"


def test_a_fact_comes_before_a_question() -> None:
    dense = (hit("asks", 0.5, turn=("s", 1), fact=-1), hit("tells", 0.5, turn=("t", 1), fact=2))

    assert order(rank(IndexHits(dense), Ranking())) == ["tells", "asks"]


def test_equal_scores_are_ordered_by_id() -> None:
    said = (hit("z", turn=("s1", 1)), hit("x", turn=("s3", 1)), hit("y", turn=("s2", 1)))

    assert order(rank(IndexHits(said), Ranking())) == ["x", "y", "z"]


def test_what_is_laid_over_says_nothing_of_how_rare_words_are() -> None:
    sparse = (
        hit("old", 4.0, words=(1.0,)),
        hit("older", 2.0, words=(0.5,)),
        hit("laid", 1.0, words=(1.0,), laid=True),
    )
    found = {one.id: one.parts[1].value for one in rank(IndexHits(sparse=sparse), PLAIN)}

    assert found == pytest.approx({"old": 4.0, "older": 2.0, "laid": 4.0})


def rarities(*sparse: Hit) -> list[float]:
    """What each of the query's words weighs, seen in memories laid over the index that hold one each."""
    terms = len(sparse[0].words)
    words = (tuple(float(one == other) for other in range(terms)) for one in range(terms))
    laid = tuple(hit(f"laid {number}", 0.1, words=some, laid=True) for number, some in enumerate(words))
    found = {one.id: one.parts[1].value for one in rank(IndexHits(sparse=(*sparse, *laid)), PLAIN)}
    return [found[one.id] for one in laid]


def test_a_word_that_the_index_has_nowhere_is_as_rare_as_the_rarest() -> None:
    found = rarities(hit("budget", 3.0, words=(0.0, 1.0, 0.0)), hit("tea", 1.0, words=(1.0, 0.0, 0.0)))

    assert found == pytest.approx([1.0, 3.0, 3.0], abs=1e-6)


def test_words_that_the_scores_do_not_tell_apart_share_them() -> None:
    assert rarities(hit("both", 10.0, words=(1.0, 1.0))) == pytest.approx([5.0, 5.0], abs=1e-6)


def test_no_word_counts_against_what_says_it() -> None:
    """Two messages leave three words open, and the answer nearest to the mean would take from the last of them."""
    found = rarities(hit("a", 10.1, words=(1.0, 1.0, 0.0)), hit("b", 0.2, words=(0.0, 1.0, 1.0)))

    assert found[2] == 0
    assert found[0] + found[1] == pytest.approx(10.1)


def test_scores_of_32_bits_give_the_rarities_that_made_them() -> None:
    chance = random.Random(7)
    idf = [chance.uniform(0.1, 8) for _ in range(6)]
    said = [tuple(chance.choice([0.0, chance.uniform(0.5, 2.2)]) for _ in idf) for _ in range(60)]
    scored = [sum(one * weight for one, weight in zip(idf, words, strict=True)) for words in said]
    rounded = struct.unpack("<60f", struct.pack("<60f", *scored))
    found = rarities(*(hit(f"h{n:02}", rounded[n], words=words) for n, words in enumerate(said)))

    assert found == pytest.approx(idf, rel=1e-5)


def test_without_an_index_every_word_is_as_rare() -> None:
    laid = (hit("two", 1.0, words=(0.5, 0.5), laid=True), hit("one", 0.9, words=(0.9, 0.0), laid=True))

    assert order(rank(IndexHits(sparse=laid), PLAIN)) == ["two", "one"]


def test_vectors_alone_and_words_alone() -> None:
    assert order(rank(IndexHits((hit("b", 0.6), hit("a", 0.5))), Ranking())) == ["b", "a"]
    words = (hit("b", 2.0, words=(2.0,)), hit("a", 1.0, words=(1.0,)))
    assert order(rank(IndexHits(sparse=words), Ranking())) == ["b", "a"]


def test_use_counts_when_it_is_asked_for() -> None:
    dense = (hit("new", 0.5), hit("used", 0.45), hit("talk", 0.45, turn=("s", 1)))
    uses = {one.uri: 20 for one in dense[1:]}

    assert order(rank(IndexHits(dense), Ranking(), uses=uses))[0] == "new"
    weighed = rank(IndexHits(dense), Ranking(usage_weight=1.0), uses=uses)
    assert order(weighed)[0] == "used"
    assert {part.name: part.value for part in weighed[-1].parts}["usage"] == 0, "what was said has no use"


def test_what_is_new_counts_when_it_is_asked_for() -> None:
    now, day = 1_700_000_000, 86_400
    dense = tuple(
        hit(name, score, time=time)
        for name, score, time in [
            ("old", 0.5, now - 300 * day),
            ("timeless", 0.5, None),
            ("month", 0.5, now - 30 * day),
            ("today", 0.45, now),
            ("tomorrow", 0.44, now + day),
        ]
    )
    assert order(rank(IndexHits(dense), Ranking(), now=now))[0] == "month"
    found = rank(IndexHits(dense), Ranking(recency_weight=4.0), now=now)
    assert order(found)[:3] == ["today", "tomorrow", "month"]
    added = {one.id: {part.name: part.added for part in one.parts}["recency"] for one in found}
    assert (added["today"], added["tomorrow"], added["month"]) == (4.0, 4.0, 2.0)
    assert added["timeless"] < added["old"] < 0.01


_HITS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(1, 12),
        st.floats(-1, 1),
        st.tuples(*[st.just(0.0) | st.floats(0.001, 2.2)] * 3),
        st.integers(-1, 3),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


@given(_HITS, st.randoms(use_true_random=False))
def test_parts_add_up_and_the_order_of_what_was_found_does_not_matter(
    given_hits: list[tuple[int, int, float, tuple[float, ...], int, bool, bool]], random: random.Random
) -> None:
    dense, sparse = [], []
    for number, (session, sequence, cosine, words, fact, by_vector, memory) in enumerate(given_hits):
        turn = None if memory else (f"s{session}", sequence)
        made = hit(f"h{number:02}", cosine, turn=turn, words=words, fact=fact, sources=(f"s{session}",), time=number)
        if by_vector:
            dense.append(made)
        if sum(words) or not by_vector:
            sparse.append(made._replace(score=words[0] + 2 * words[1] + 3 * words[2]))
    weights = Ranking(usage_weight=0.5, recency_weight=0.5)

    found = rank(IndexHits(tuple(dense), tuple(sparse)), weights, now=1000)

    assert sorted(order(found)) == sorted({one.id for one in (*dense, *sparse)})
    for one in found:
        assert one.score == pytest.approx(sum(part.added for part in one.parts))
    random.shuffle(dense)
    random.shuffle(sparse)
    again = rank(IndexHits(tuple(dense), tuple(sparse)), weights, now=1000)
    assert scores(again) == pytest.approx(scores(found), abs=1e-6)


def test_a_reranker_exchanges_candidates_among_their_places_and_each_takes_the_score_of_its_place() -> None:
    found = rank(IndexHits(tuple(hit(name, 1 - place / 10) for place, name in enumerate("abcde"))), PLAIN)

    again = found.reranked({"a": -3.5, "c": 2.0, "d": 2.0})

    assert order(again) == ["c", "b", "d", "a", "e"], "equal ones stay in order, and the others in their places"
    assert [one.score for one in again] == [one.score for one in found]
    values = {one.id: {part.name: part.value for part in one.parts}.get("rerank") for one in again}
    assert values == {"a": -3.5, "b": None, "c": 2.0, "d": 2.0, "e": None}
    for one in again:
        assert one.score == pytest.approx(sum(part.added for part in one.parts))
    assert order(found) == list("abcde") and order(found.reranked({})) == list("abcde")
