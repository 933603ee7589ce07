"""Tests that an index with smaller numbers finds the same points with nearly the same scores."""

import itertools
import math
import random
from dataclasses import replace

import pytest

from runekeep_storage.embedders.vectors import cosine, to_bytes
from runekeep_storage.index.base import (
    SPARSE_ONLY,
    DatatypeMismatch,
    Hit,
    IndexUnavailable,
    VectorDatatype,
    VectorIndex,
    VectorSpace,
)
from tests.support.storage.index_points import NORTH, SPACE, Maker, ask, ids, opened, point

FLOAT32, FLOAT16, INT8 = VectorDatatype
EXACT = 1e-6
"""Most that a float32 score is off."""
TOLERANCE = {FLOAT32: EXACT, FLOAT16: 1e-3, INT8: 1e-2}
"""Most that a score is off; measured are a half of it, with few dimensions."""
WIDE = VectorSpace("many-numbers", 64)


def drawn(number: int, dimension: int = WIDE.dimension) -> bytes:
    lots = random.Random(number)
    return to_bytes([lots.gauss(0, 1) for _ in range(dimension)])


async def nearest(index: VectorIndex, vector: bytes, model: str = "") -> tuple[Hit, ...]:
    return (await index.query(replace(ask(dense=vector), model=model))).dense


def check_scores(hits: tuple[Hit, ...], vectors: dict[str, bytes], asked: bytes, datatype: VectorDatatype) -> float:
    """Checks that all points are found, and in the right order but for near ties. Returns how far scores are off."""
    exact = {id: cosine(asked, vector) for id, vector in vectors.items()}
    assert {hit.id for hit in hits} == exact.keys()
    for better, worse in itertools.pairwise(hits):
        assert exact[better.id] > exact[worse.id] - 2 * TOLERANCE[datatype]
    return max(abs(hit.score - exact[hit.id]) for hit in hits)


@pytest.mark.parametrize("datatype", VectorDatatype)
async def test_scores_are_right_within_the_precision_of_the_datatype(make: Maker, datatype: VectorDatatype) -> None:
    points = [point("tea", dense=drawn(number), number=number) for number in range(60)]
    vectors = {one.id: one.dense for one in points if one.dense is not None}
    asked = drawn(1000)
    async with opened(make(datatype=datatype), WIDE) as index:
        await index.upsert(points)
        before = await nearest(index, asked)
        off = check_scores(before, vectors, asked, datatype)
        assert off <= TOLERANCE[datatype]
        assert (off <= EXACT) == (datatype is FLOAT32), "numbers are held as the datatype says"
        (itself, *_) = await nearest(index, drawn(7))
        assert itself.id == points[7].id and math.isclose(itself.score, 1, abs_tol=TOLERANCE[datatype])
        await index.delete([points[0].id])
        await index.purge()
        kept = [hit for hit in before if hit.id != points[0].id]
        assert list(await nearest(index, asked)) == kept, "rewriting the index costs no precision"
    async with opened(make(datatype=datatype), WIDE) as index:
        assert list(await nearest(index, asked)) == kept


@pytest.mark.parametrize(("stored", "asked"), [(FLOAT32, FLOAT16), (FLOAT16, INT8), (INT8, FLOAT32)])
async def test_an_index_of_another_datatype_is_refused_until_it_is_cleared(
    make: Maker, stored: VectorDatatype, asked: VectorDatatype
) -> None:
    async with opened(make(datatype=stored)) as index:
        await index.upsert([point("tea")])
        id = await index.open(SPACE)

    late = make(datatype=asked)
    try:
        with pytest.raises(DatatypeMismatch, match=f"{stored}, but .* {asked}: run `runekeep index rebuild`"):
            await late.open(SPACE)
        with pytest.raises(IndexUnavailable):
            await late.count_all()
    finally:
        await late.close()
    async with opened(make(datatype=stored)) as index:
        assert await index.open(SPACE) == id and await index.count_all() == 1, "nothing was changed"

    index = make(datatype=asked)
    await index.clear()
    assert await index.open(SPACE) != id
    await index.upsert([point("tea", number=1)])
    await index.close()
    async with opened(make(datatype=asked)) as index:
        assert ids(await index.query(ask(dense=NORTH)))[0] == [point("tea", number=1).id]


async def test_an_index_without_dense_vectors_takes_the_datatype_of_the_first(make: Maker) -> None:
    async with opened(make(), SPARSE_ONLY) as index:
        await index.upsert([point("tea", dense=None)])
    index = make(datatype=INT8)
    await index.open(SPARSE_ONLY, WIDE)
    added = point("green tea", dense=None, number=1)
    await index.upsert([replace(added, model=SPARSE_ONLY.model, other=(WIDE.model, drawn(1)))])
    (hit,) = await nearest(index, drawn(2), WIDE.model)
    assert EXACT < abs(hit.score - cosine(drawn(1), drawn(2))) <= TOLERANCE[INT8]
    await index.close()
    late = make()
    with pytest.raises(DatatypeMismatch):
        await late.open(SPARSE_ONLY, WIDE)
    await late.close()
