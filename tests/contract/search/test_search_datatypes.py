"""Searches by an index with smaller numbers, merged with memories that the index lacks."""

from itertools import pairwise
from pathlib import Path

import pytest

from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Database
from runekeep_storage.embedders.vectors import cosine
from runekeep_storage.index.base import PointKind, VectorDatatype
from runekeep_storage.records import Memory
from tests.doubles.word_embedder import vector
from tests.support.storage.databases import ANN, revise
from tests.support.storage.edge_in_thread import EdgeHere
from tests.support.storage.search import Search, write

QUERY = "green tea"
CONTENTS = tuple("green" + " tea" * number for number in (1, 2, 3, 5, 9))
TOLERANCE = 1e-2


@pytest.mark.parametrize("datatype", VectorDatatype)
async def test_memories_that_are_not_indexed_yet_have_the_place_that_they_keep(
    database: Database, registry: Registry, tmp_path: Path, datatype: VectorDatatype
) -> None:
    exact = {content: cosine(vector(QUERY), vector(content)) for content in CONTENTS}
    assert all(exact[better] - exact[worse] > 2 * TOLERANCE for better, worse in pairwise(CONTENTS))
    search = Search.of(database, EdgeHere(tmp_path / "index", datatype=datatype), registry)
    await search.attachment.attach()

    async def nearest(revision: int) -> list[str]:
        answer = await search.find(ANN, QUERY, kinds=(PointKind.MEMORY,), at_revision=revision)
        near = sorted(answer.results, key=lambda one: one.ranked.dense_rank or 99)
        contents = []
        for one in near:
            assert isinstance(one.item, Memory) and one.ranked.dense_score is not None
            assert abs(one.ranked.dense_score - exact[one.item.content]) <= TOLERANCE
            contents.append(one.item.content)
        return contents

    try:
        search.relay.start()
        await revise(database, ANN, "t1", *(write(ANN, f"m{n}", 0, 1, CONTENTS[n]) for n in (1, 3)))
        await search.caught_up(ANN)
        await search.relay.stop()
        await revise(database, ANN, "t2", *(write(ANN, f"m{n}", 0, 1, CONTENTS[n]) for n in (0, 2, 4)))
        assert await nearest(1) == [CONTENTS[1], CONTENTS[3]]
        assert await nearest(2) == list(CONTENTS), "three of them come from rows"
        search.relay.start()
        await search.caught_up(ANN)
        assert await nearest(2) == list(CONTENTS)
    finally:
        await search.relay.stop()
        await search.index.close()
